//! Records that are dead letters, and letters that are read as records once more.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryArray, RecordBatch};
use millstream_engine::api::connector::Table;
use millstream_engine::api::dead_letter::Payloads;
use millstream_engine::api::dead_letter::{Letter, Place};
use millstream_engine::api::source::Failure;

use super::chunk::Chunk;
use super::rows::Rows;
use crate::offsets::PartitionId;

impl Chunk {
    /// The record in row `row` as a dead letter.
    pub fn letter(&self, id: &PartitionId, row: usize, error: String) -> Letter {
        let bytes = |column: &BinaryArray| column.is_valid(row).then(|| column.value(row).to_vec());
        let (partition, offset) = (id.partition, self.offset.value(row));
        Letter {
            payload: bytes(&self.value),
            payload_bytes: None,
            key: bytes(&self.key),
            attributes: self.attributes(row),
            error,
            place: Some(Place::Record { topic: (&*id.topic).into(), partition, offset }),
            record_time_us: Some(self.timestamp_ms.value(row).saturating_mul(1_000)),
        }
    }

    fn attributes(&self, row: usize) -> Vec<(String, Option<Vec<u8>>)> {
        let Some(headers) = self.headers.as_ref().filter(|headers| headers.is_valid(row)) else {
            return Vec::new();
        };
        let headers = headers.value(row);
        let headers = headers.as_struct();
        let names = headers.column(0).as_string::<i32>().iter();
        let values = headers.column(1).as_binary::<i32>().iter();
        names
            .zip(values)
            .map(|(name, value)| (name.unwrap_or_default().to_owned(), value.map(<[u8]>::to_vec)))
            .collect()
    }
}

/// Settings of the client that reading needs as well as writing.
const SHARED_SETTINGS: [&str; 6] = [
    "kafka.bootstrap.servers",
    "kafka.security.",
    "kafka.sasl.",
    "kafka.ssl.",
    "kafka.https.",
    "kafka.aws.",
];

/// A topic of dead letters as a table that is read: all committed records, with their headers.
pub fn readable(table: &Table) -> Table {
    let is_shared = |key: &str| {
        let key = key.to_ascii_lowercase();
        SHARED_SETTINGS.iter().any(|shared| key.starts_with(shared))
    };
    let mut options = table.options.only(is_shared);
    if let Some(topics) = table.options.get("subscribe").or(table.options.get("topic")) {
        options.set("subscribe", topics);
    }
    options.set("includeHeaders", "true");
    options.set("kafka.isolation.level", "read_committed");
    Table { name: table.name.clone(), columns: None, options }
}

/// Payloads of letters, decoded as the values of a table's records are now.
pub struct ValuePayloads(pub Arc<Rows>);

impl Payloads for ValuePayloads {
    fn decode(
        &self,
        payloads: &[Option<&[u8]>],
        projection: &[usize],
        reject: &mut dyn FnMut(usize, String),
    ) -> Result<RecordBatch, Failure> {
        let values: BinaryArray = payloads.iter().copied().collect();
        self.0.reader(projection)?.read_values(&values, reject)
    }
}
