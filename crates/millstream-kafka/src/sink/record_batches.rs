//! Divides the rows of a micro-batch among partitions, as record batches.
//!
//! A row goes where its column `partition` says, or else where its key belongs, or else, without a
//! key, to one partition for all such rows of the micro-batch.

use std::collections::{HashMap, VecDeque};

use rdkafka::types::RDKafkaErrorCode;

use crate::client::delivery_reports::explain;
use crate::error::SinkError;
use crate::protocol::compression::Compression;
use crate::protocol::partitioner::partition_of;
use crate::protocol::record_batch::{self, Record, RecordBatch};
use crate::sink::columns::SinkRows;

/// A batch, and the row that an error names if the brokers refuse it.
#[derive(Debug)]
pub struct Packed {
    /// The batch.
    pub batch: RecordBatch,
    /// Its largest record that is a row: its bytes, the index of its `SinkRows`, and the row.
    largest: Option<(usize, usize, usize)>,
}

/// The batches of one partition.
#[derive(Debug)]
pub struct PartitionBatches {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Batches that the brokers do not have yet, in order.
    pub batches: VecDeque<Packed>,
    /// How many records the brokers have of this writer, or of this transaction: the next batch's
    /// sequence.
    pub sequence: i32,
}

/// How large records and batches may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A record with its batch.
    pub record_bytes: usize,
    /// A batch of several records.
    pub batch_bytes: usize,
    /// How a batch is compressed. Its size is limited before that.
    pub compression: Compression,
}

/// Divides rows.
pub struct Packing<'a> {
    rows: &'a [SinkRows],
    limits: Limits,
    /// Chooses the partition of rows without a key.
    chance: u64,
    /// How many partitions each topic has.
    partitions: &'a HashMap<String, usize>,
    places: HashMap<(&'a str, i32), usize>,
    parts: Vec<PartitionBatches>,
}

/// The topics of rows, each once; `topic` is the table's option.
pub fn topics<'a>(rows: &'a [SinkRows], topic: Option<&'a str>) -> Result<Vec<&'a str>, SinkError> {
    if let Some(topic) = topic {
        return Ok(vec![topic]);
    }
    let mut topics: Vec<&str> = Vec::new();
    for rows in rows {
        for row in 0..rows.rows {
            let topic = rows.topic(row).ok_or(SinkError::NullTopic)?;
            if !topics.contains(&topic) {
                topics.push(topic);
            }
        }
    }
    Ok(topics)
}

impl<'a> Packing<'a> {
    /// For rows of topics whose numbers of partitions are known.
    pub fn new(
        rows: &'a [SinkRows],
        limits: Limits,
        chance: u64,
        partitions: &'a HashMap<String, usize>,
    ) -> Self {
        Self { rows, limits, chance, partitions, places: HashMap::new(), parts: Vec::new() }
    }

    /// All rows, by partition. `topic` is the table's option.
    /// Errors: a row that cannot be sent, whatever the brokers say.
    pub fn pack(mut self, topic: Option<&'a str>) -> Result<Vec<PartitionBatches>, SinkError> {
        let all = self.rows;
        for (number, rows) in all.iter().enumerate() {
            for row in 0..rows.rows {
                let topic = topic.or_else(|| rows.topic(row)).ok_or(SinkError::NullTopic)?;
                let headers: Vec<_> = rows.headers(row).collect();
                let record =
                    Record { key: rows.key(row), value: rows.value(row), headers: &headers };
                let partition = self.partition(topic, rows, row)?;
                self.put(topic, partition, &record, (number, row))?;
            }
        }
        Ok(self.parts)
    }

    fn partition(&self, topic: &str, rows: &SinkRows, row: usize) -> Result<i32, SinkError> {
        let count = self.partitions[topic];
        let wrong = |code| {
            let (key, value) = (rows.key(row), rows.value(row));
            explain(topic, key, value, code, self.limits.record_bytes as u64)
        };
        let chosen = match (rows.partition(row), rows.key(row)) {
            (Some(wanted), _) => usize::try_from(wanted).ok().filter(|wanted| *wanted < count),
            (None, Some(key)) => Some(partition_of(key, count)),
            // One partition for all rows of a micro-batch without a key: one batch, and so one
            // request, instead of one for each partition.
            (None, None) => Some((self.chance % count as u64) as usize),
        };
        let chosen = chosen.ok_or_else(|| wrong(RDKafkaErrorCode::UnknownPartition))?;
        Ok(i32::try_from(chosen).expect("Kafka numbers partitions so"))
    }

    fn put(
        &mut self,
        topic: &'a str,
        partition: i32,
        record: &Record<'_>,
        (number, row): (usize, usize),
    ) -> Result<(), SinkError> {
        let bytes = record_batch::bytes_of(record);
        if bytes + record_batch::OVERHEAD > self.limits.record_bytes {
            let (code, max) = (RDKafkaErrorCode::MessageSizeTooLarge, self.limits.record_bytes);
            return Err(explain(topic, record.key, record.value, code, max as u64));
        }
        let parts = &mut self.parts;
        let place = *self.places.entry((topic, partition)).or_insert_with(|| {
            let batches = VecDeque::new();
            parts.push(PartitionBatches {
                topic: topic.to_owned(),
                partition,
                batches,
                sequence: 0,
            });
            parts.len() - 1
        });
        let batches = &mut parts[place].batches;
        let fits = |packed: &Packed| packed.batch.bytes() + bytes <= self.limits.batch_bytes;
        if !batches.back().is_some_and(fits) {
            batches.push_back(Packed { batch: RecordBatch::default(), largest: None });
        }
        let packed = batches.back_mut().expect("there is one now");
        packed.batch.push(record);
        if packed.largest.is_none_or(|(largest, ..)| bytes > largest) {
            packed.largest = Some((bytes, number, row));
        }
        Ok(())
    }
}

impl PartitionBatches {
    /// How many records there are.
    pub fn records(&self) -> i32 {
        self.batches.iter().map(|packed| packed.batch.count()).sum()
    }

    /// A part of one record whose value is `text`; the record is no row of the sink.
    pub fn from_text(topic: String, text: &str) -> Self {
        let mut batch = RecordBatch::default();
        batch.push(&Record { key: None, value: Some(text.as_bytes()), headers: &[] });
        let batches = VecDeque::from([Packed { batch, largest: None }]);
        Self { topic, partition: 0, batches, sequence: 0 }
    }

    /// Why the next batch was refused; names its largest record.
    pub fn refused(&self, rows: &[SinkRows], code: RDKafkaErrorCode, limits: Limits) -> SinkError {
        let largest = self.batches.front().and_then(|packed| packed.largest);
        let (key, value) = largest.map_or((None, None), |(_, number, row)| {
            (rows[number].key(row), rows[number].value(row))
        });
        explain(&self.topic, key, value, code, limits.record_bytes as u64)
    }
}
