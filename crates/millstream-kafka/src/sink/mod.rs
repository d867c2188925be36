//! The option `delivery`: which of the two sinks a table gets.
//!
//! Whether the brokers allow transactions is known only from their answer, so the choice is made
//! when the sink is opened. A user who did not ask for exactly-once and may not use transactions
//! gets at-least-once, with a warning; a user who asked for it gets the brokers' reason.

mod at_least_once;
mod columns;
mod exactly_once;
mod formats;
mod needs;
mod outbox;
mod produce;
mod record_batches;
mod refused;
#[cfg(test)]
mod testing;
mod topic;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Table};
use millstream_engine::api::options::{OptionError, Options};
use millstream_engine::api::sink::{
    Acknowledgement, Delivery, Failure, OtherQuery, Output, PieceWriter, Published, Sink,
};
use millstream_formats::schema::Registries;
use millstream_store::env::Env;

use crate::client::settings::{ClientSettings, Use};
use at_least_once::AtLeastOnceSink;
use columns::SinkColumns;
use exactly_once::{ExactlyOnceSink, NotOpened};
pub use needs::needs;
use topic::description;

/// The guarantee that the table's options ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: exactly-once where the brokers allow it.
    Best,
    /// `exactly-once`.
    ExactlyOnce,
    /// `at-least-once`, or client settings that make transactions impossible.
    AtLeastOnce,
}

impl Wanted {
    /// Reads the option `delivery`.
    /// Errors: another value, or one that contradicts the client's settings.
    pub fn parse(options: &Options, settings: &ClientSettings) -> Result<Self, OptionError> {
        let contradiction = settings.setting_against_transactions();
        let Some(text) = options.get("delivery") else {
            return Ok(if contradiction.is_some() { Self::AtLeastOnce } else { Self::Best });
        };
        match (text.trim().to_ascii_lowercase().as_str(), contradiction) {
            ("at-least-once", _) => Ok(Self::AtLeastOnce),
            ("exactly-once", None) => Ok(Self::ExactlyOnce),
            ("exactly-once", Some(setting)) => {
                let problem =
                    format!("'delivery' = 'exactly-once' does not go with 'kafka.{setting}'");
                let help = format!("Leave 'kafka.{setting}' out, or set 'at-least-once'");
                Err(OptionError::of("delivery", problem, Some(help)))
            }
            _ => Err(OptionError::invalid("delivery", text, "'exactly-once' or 'at-least-once'")),
        }
    }
}

/// A Kafka table that is written.
pub struct KafkaSink {
    wanted: Wanted,
    topic: Option<String>,
    table: String,
    columns: SinkColumns,
    env: Env,
    exactly_once: Option<ExactlyOnceSink>,
    at_least_once: AtLeastOnceSink,
}

impl KafkaSink {
    /// A sink of `table`, for rows of `schema`, that is not connected yet.
    /// Errors: `Config` for a table that was not checked.
    pub fn from_table(
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
        registries: &Registries,
    ) -> Result<Self, Failure> {
        let (wanted, settings, columns) = parse(table, schema, registries)?;
        let (topic, table) = (topic_option(&table.options), &table.name);
        // A batch query has no checkpoint, so it never continues after a crash.
        let once = wanted == Wanted::AtLeastOnce || context.query_id.is_empty();
        let (its_settings, its_columns) = (settings.clone(), columns.clone());
        Ok(Self {
            wanted,
            topic: topic.map(str::to_owned),
            table: table.clone(),
            columns: columns.clone(),
            env: context.env.clone(),
            exactly_once: (!once)
                .then(|| ExactlyOnceSink::new(its_settings, its_columns, topic, table, context)),
            at_least_once: AtLeastOnceSink::new(settings, columns, topic, table, context),
        })
    }
}

#[async_trait]
impl Sink for KafkaSink {
    fn description(&self) -> String {
        description(self.topic.as_deref())
    }

    fn delivery(&self) -> Delivery {
        if self.exactly_once.is_some() { Delivery::Transactional } else { Delivery::AtLeastOnce }
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        if self.columns.have_schemas() {
            let columns = self.columns.clone();
            self.env.spawn_blocking("kafka-schemas", move || columns.open()).join().await?;
        }
        if let Some(sink) = &mut self.exactly_once {
            match sink.open().await {
                Ok(published) => return Ok(published),
                Err(NotOpened::NotAllowed(error)) if self.wanted == Wanted::Best => {
                    tracing::warn!(table = self.table, %error, "writing at least once instead: a \
                        micro-batch may be written twice after a crash");
                    self.exactly_once = None;
                }
                Err(NotOpened::NotAllowed(error) | NotOpened::Failed(error)) => {
                    return Err(error.into());
                }
            }
        }
        self.at_least_once.open().await?;
        Ok(None)
    }

    async fn other_queries(&mut self) -> Result<Vec<OtherQuery>, Failure> {
        match &self.exactly_once {
            Some(sink) => sink.other_queries().await,
            None => Ok(Vec::new()),
        }
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        if let Some(sink) = &mut self.exactly_once {
            sink.ready().await;
        }
        Ok(())
    }

    fn piece_writer(&mut self) -> Option<&mut dyn PieceWriter> {
        // A batch query is written at least once.
        self.exactly_once.is_none().then_some(self as &mut dyn PieceWriter)
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        match &mut self.exactly_once {
            Some(sink) => sink.publish(output).await,
            None => self.at_least_once.publish(output).await,
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        match &mut self.exactly_once {
            Some(sink) => {
                sink.close().await;
                Ok(())
            }
            None => self.at_least_once.close().await,
        }
    }
}

#[async_trait]
impl PieceWriter for KafkaSink {
    /// At least once: the topic's readers see the rows before all of them are there.
    async fn write(&mut self, _partition: usize, rows: RecordBatch) -> Result<(), Failure> {
        self.at_least_once.write(&rows).await
    }
}

/// The wanted guarantee, the client's settings and the columns of a table that is written.
/// Errors: options or columns that cannot be.
pub fn parse(
    table: &Table,
    schema: &SchemaRef,
    registries: &Registries,
) -> Result<(Wanted, ClientSettings, SinkColumns), OptionError> {
    let settings = ClientSettings::parse(&table.options, Use::Producer)?;
    let wanted = Wanted::parse(&table.options, &settings)?;
    let topic = topic_option(&table.options);
    let columns = formats::columns_of(&table.options, topic, schema, registries)?;
    Ok((wanted, settings, columns))
}

fn topic_option(options: &Options) -> Option<&str> {
    options.get("topic").map(str::trim).filter(|topic| !topic.is_empty())
}
