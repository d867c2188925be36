//! What the options of a table that is written say.

use std::path::Path;
use std::time::Duration;

use arrow::datatypes::Schema;
use millstream_engine::api::connector::Table;
use millstream_engine::api::needs::{Need, Usage};
use millstream_engine::api::options::OptionError;

use super::columns::SinkColumns;
use crate::client::settings::Settings;
use crate::protocol::compression::Compression;
use crate::topic;

const TOPIC: &str = "topic";
const DELIVERY: &str = "delivery";
const COMPRESSION: &str = "pulsar.producer.compressionType";
const LIFETIME: &str = "transactionTimeoutMs";
const LIFETIME_MS: u64 = 60_000;
const PROGRESS: &str = "progressTopic";

/// A table that is written.
#[derive(Clone, Debug)]
pub(crate) struct SinkOptions {
    /// Its name in the pipeline file.
    pub(crate) table: String,
    pub(crate) settings: Settings,
    /// The full name of the topic, if rows do not say it themselves.
    pub(crate) topic: Option<String>,
    pub(crate) columns: SinkColumns,
    pub(crate) is_exactly_once: bool,
    pub(crate) compression: Compression,
    /// How long a transaction may be open.
    pub(crate) lifetime: Duration,
    /// The full name of the topic of the query's progress, if the table says it.
    pub(crate) progress: Option<String>,
    pub(crate) fails_on_loss: bool,
}

impl SinkOptions {
    /// Checks a table for rows of `schema`.
    pub(crate) fn parse(
        table: &Table,
        schema: &Schema,
        base_dir: &Path,
    ) -> Result<Self, OptionError> {
        let options = &table.options;
        let name = |key: &str| match options.get(key) {
            None => Ok(None),
            Some(text) => topic::full_name(text).map(Some).map_err(|problem| {
                OptionError::of(key, format!("'{text}' is no topic"), Some(problem.to_owned()))
            }),
        };
        let topic = name(TOPIC)?;
        let is_exactly_once = match options.get(DELIVERY).map(|text| text.trim().to_lowercase()) {
            None => true,
            Some(text) if text == "exactly-once" => true,
            Some(text) if text == "at-least-once" => false,
            Some(text) => {
                return Err(OptionError::invalid(DELIVERY, &text, "exactly-once or at-least-once"));
            }
        };
        let compression = match options.get(COMPRESSION) {
            None => Compression::None,
            Some(text) => Compression::ALL
                .into_iter()
                .find(|compression| compression.name().eq_ignore_ascii_case(text.trim()))
                .ok_or_else(|| {
                    OptionError::invalid(COMPRESSION, text, "NONE, LZ4, ZLIB, ZSTD or SNAPPY")
                })?,
        };
        let wanted = "a number of milliseconds, 1000 or more";
        let lifetime = options.parse(LIFETIME, wanted)?.unwrap_or(LIFETIME_MS);
        if lifetime < 1_000 {
            return Err(OptionError::invalid(LIFETIME, &lifetime.to_string(), wanted));
        }
        Ok(Self {
            table: table.name.clone(),
            settings: Settings::parse(options, base_dir)?,
            columns: SinkColumns::find(schema, topic.is_some())?,
            topic,
            is_exactly_once,
            compression,
            lifetime: Duration::from_millis(lifetime),
            progress: name(PROGRESS)?,
            fails_on_loss: options.parse_bool("failOnDataLoss")?.unwrap_or(true),
        })
    }

    /// What the table needs of the service.
    pub(crate) fn needs(&self, usage: &Usage<'_>) -> Vec<Need> {
        let mut needs = self.settings.needs();
        let on = match &self.topic {
            Some(topic) => format!("topic {topic}"),
            None => "each topic that rows name".to_owned(),
        };
        needs.push(Need::rights(&["produce"], on, "the rows"));
        if self.is_exactly_once && usage.is_stream {
            let purpose = "the query's progress; the topic is made if it is not there";
            let topic = match &self.progress {
                Some(topic) => format!("topic {topic}"),
                None => format!("topics that begin with {}", self.progress_topic("")),
            };
            needs.push(Need::rights(&["produce", "consume"], topic, purpose));
            let purpose = "the brokers must have transactions (transactionCoordinatorEnabled)";
            needs.push(Need::rights(&["transactions"], "the service", purpose));
        }
        needs
    }

    /// The topic with the progress of a query: beside the topic that it writes to.
    pub(crate) fn progress_topic(&self, query_id: &str) -> String {
        if let Some(named) = &self.progress {
            return named.clone();
        }
        let namespace = self.topic.as_deref().map_or("public/default", topic::namespace);
        format!("{}{namespace}/{}{query_id}", topic::PERSISTENT, topic::PROGRESS)
    }
}
