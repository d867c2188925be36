//! What came out of a run: tables and topics are read to their ends.

use std::path::Path;
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_lake::read::TableReader;
use millstream_lake::store::TableStore;
use millstream_store::env::Env;
use rdkafka::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;

use crate::error::Error;
use crate::{offsets, settings};

const POLL: Duration = Duration::from_millis(100);

/// Reads `columns` of a Delta table, or all of them if it names none.
pub fn table(
    env: &Env,
    path: &Path,
    columns: &[&str],
    mut each: impl FnMut(&RecordBatch),
) -> Result<(), Error> {
    let store = TableStore::parse(&path.display().to_string(), env);
    let store = store.map_err(Error::table("finding the table"))?;
    let reader = TableReader::open(&store).map_err(Error::table("opening the table"))?;
    let columns: Vec<_> = columns.iter().map(|&column| column.to_owned()).collect();
    let columns = (!columns.is_empty()).then_some(columns.as_slice());
    let rows = reader.read(columns, None).map_err(Error::table("reading the table"))?;
    for rows in rows {
        each(&rows.map_err(Error::table("reading the table"))?);
    }
    Ok(())
}

/// Says nothing of a partition's end, which is what is waited for.
struct Quiet;

impl ClientContext for Quiet {
    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PartitionEOF) {
            tracing::error!(%error, reason, "librdkafka");
        }
    }
}

impl ConsumerContext for Quiet {}

/// Reads the committed records of a topic.
pub fn topic(
    brokers: &str,
    topic: &str,
    partitions: i32,
    mut each: impl FnMut(&BorrowedMessage<'_>),
) -> Result<(), Error> {
    let mut config = settings::meter(brokers);
    config.set("enable.partition.eof", "true");
    let reading = || Error::kafka(format!("reading {topic}"));
    let consumer: BaseConsumer<Quiet> = config.create_with_context(Quiet).map_err(reading())?;
    consumer.assign(&offsets::beginnings(topic, partitions)).map_err(reading())?;
    let mut ended = 0;
    while ended < partitions {
        match consumer.poll(POLL) {
            Some(Ok(message)) => each(&message),
            Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
            Some(Err(error)) => return Err(reading()(error)),
            None => {}
        }
    }
    Ok(())
}
