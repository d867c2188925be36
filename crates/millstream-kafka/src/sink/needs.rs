//! What a table that is written needs outside.

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::Table;
use millstream_engine::api::needs::{Need, Usage};
use millstream_engine::api::options::OptionError;
use millstream_formats::schema::{self, Registries};

use super::{Wanted, exactly_once, parse, topic_option};
use crate::client;
use crate::client::settings::ClientSettings;

/// The brokers, and the rights on the topic; exactly once also those on the transactional ids and
/// on the record of progress.
///
/// # Errors
/// As when the table is checked.
pub fn needs(
    table: &Table,
    columns: &SchemaRef,
    usage: &Usage<'_>,
    registries: &Registries,
) -> Result<Vec<Need>, OptionError> {
    let (wanted, settings, _) = parse(table, columns, registries)?;
    let topic = topic_option(&table.options);
    let mut needs = client::needs::needs(&settings);
    needs.extend(schema::needs(&table.options));
    needs.extend(of_topic(topic));
    if wanted == Wanted::AtLeastOnce || !usage.is_stream {
        needs.extend(of_idempotence(&settings));
    } else {
        needs.extend(exactly_once::needs(usage.flow, topic, settings.transactions()));
    }
    Ok(needs)
}

fn of_topic(topic: Option<&str>) -> [Need; 2] {
    let on = match topic {
        Some(topic) => format!("topic '{topic}'"),
        None => "each topic that rows name".to_owned(),
    };
    [
        Need::rights(&["Write"], on.clone(), "the rows; Write includes Describe"),
        Need::rights(&["Create"], on, "only where it is not there, and brokers create topics"),
    ]
}

fn of_idempotence(settings: &ClientSettings) -> Option<Need> {
    let is_idempotent = settings.producer().get("enable.idempotence") == Some("true");
    let purpose = "retries that double nothing; only brokers before Kafka 3.0 ask for it";
    is_idempotent.then(|| Need::rights(&["IdempotentWrite"], "the cluster", purpose))
}
