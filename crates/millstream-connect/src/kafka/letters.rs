//! Records that are dead letters, and letters that are read as records once more.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use millstream_engine::connector::{Options, Table};
use millstream_engine::source::{Failure, Letter, Place, RecordBatches, Split};

use super::chunk::{Chunk, ChunkBuilder};
use super::offsets::PartitionId;
use super::split::KafkaSplit;
use super::value::Rows;

impl Chunk {
    /// The record in row `row` as a dead letter.
    pub fn letter(&self, id: &PartitionId, row: usize, error: String) -> Letter {
        let bytes = |column: &arrow::array::BinaryArray| {
            column.is_valid(row).then(|| column.value(row).to_vec())
        };
        let (partition, offset) = (id.partition, self.offset.value(row));
        Letter {
            payload: bytes(&self.value),
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
const SHARED_SETTINGS: [&str; 4] =
    ["kafka.bootstrap.servers", "kafka.security.", "kafka.sasl.", "kafka.ssl."];

/// A topic of dead letters as a table that is read: all committed records, with their headers.
pub fn readable(table: &Table) -> Table {
    let is_shared = |key: &str| {
        let key = key.to_ascii_lowercase();
        SHARED_SETTINGS.iter().any(|shared| key.starts_with(shared))
    };
    let kept = table.options.iter().filter(|(key, _)| is_shared(key));
    let mut options = Options::new(kept.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if let Some(topics) = table.options.get("subscribe").or(table.options.get("topic")) {
        options.set("subscribe", topics);
    }
    options.set("includeHeaders", "true");
    options.set("kafka.isolation.level", "read_committed");
    Table { name: table.name.clone(), columns: None, options }
}

/// Payloads of letters, decoded as a table says now.
pub struct LetterSplit {
    letters: Vec<Letter>,
    records: KafkaSplit,
}

impl LetterSplit {
    /// The letters as records of `rows`, in their order.
    pub fn new(letters: Vec<Letter>, rows: Rows) -> Self {
        let mut records = ChunkBuilder::new(false);
        for (index, letter) in (0_i64..).zip(&letters) {
            let time_ms = letter.record_time_us.unwrap_or_default() / 1_000;
            records.push(letter.key.as_deref(), letter.payload.as_deref(), index, time_ms, 0);
        }
        // Which letter a record is shows in its offset, which no decoded column has.
        let id = PartitionId::new("letters", 0);
        let records = KafkaSplit { id, chunks: vec![records.finish(0)], rows: Arc::new(rows) };
        Self { letters, records }
    }
}

impl Split for LetterSplit {
    fn rows(&self) -> u64 {
        self.letters.len() as u64
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        Box::new(self.records).read(projection)
    }

    fn read_apart(
        self: Box<Self>,
        projection: &[usize],
        letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let Self { letters: mut own, records } = *self;
        let mut rejected = Vec::new();
        let rows = Box::new(records).read_apart(projection, &mut rejected)?;
        for again in rejected {
            let Some(Place::Record { offset, .. }) = again.place else { continue };
            let index = usize::try_from(offset).expect("it was counted from zero");
            letters.push(Letter { error: again.error, ..std::mem::take(&mut own[index]) });
        }
        Ok(rows)
    }
}
