//! What a table that is read needs outside.

use millstream_engine::api::connector::{ReadMode, Table};
use millstream_engine::api::needs::{Need, Usage};
use millstream_engine::api::options::OptionError;
use millstream_formats::schema;

use super::options::SourceOptions;
use crate::client;
use crate::client::subscription::Subscription;

/// The brokers, and the rights on topics and on the consumer group.
///
/// # Errors
/// As when the table is checked.
pub fn needs(table: &Table, mode: ReadMode, usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
    let options = SourceOptions::parse(&table.options, mode)?;
    let mut needs = client::needs::needs(&options.client);
    needs.extend(schema::needs(&table.options));
    let read = |on: String| Need::rights(&["Read"], on, "reading it; Read includes Describe");
    match &options.subscription {
        Subscription::Topics(topics) => {
            needs.extend(topics.iter().map(|topic| read(format!("topic '{topic}'"))));
        }
        Subscription::Pattern { text, .. } => {
            needs.push(read(format!("topics that match '{text}'")));
        }
        Subscription::Partitions(partitions) => {
            let mut topics: Vec<_> = partitions.iter().map(|id| &*id.topic).collect();
            topics.dedup();
            needs.extend(topics.into_iter().map(|topic| read(format!("topic '{topic}'"))));
        }
    }
    if mode == ReadMode::Stream {
        let group = match options.client.get("group.id") {
            Some(group) => format!("consumer group '{group}'"),
            None => {
                let prefix = options.group_prefix.as_deref().unwrap_or("millstream");
                format!("consumer groups that begin with '{prefix}-{}-'", usage.flow)
            }
        };
        let purpose = "progress for monitors of the lag; without it there is a warning";
        needs.push(Need::rights(&["Read"], group, purpose));
    }
    Ok(needs)
}
