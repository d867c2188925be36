//! Rows as batches of messages, by partition.

use std::collections::HashMap;

use arrow::array::RecordBatch;

use super::columns::SinkColumns;
use crate::error::PulsarError;
use crate::protocol::compression::Compression;
use crate::protocol::messages::MessageMetadata;
use crate::protocol::payload::MessageBatch;
use crate::topic;

/// A batch is full at so many bytes or messages: large enough that what an entry costs is shared,
/// small enough for a broker to cache.
const BATCH_BYTES: usize = 256 << 10;
const BATCH_MESSAGES: usize = 2_000;
/// What metadata of a batch may take of the largest message.
const METADATA_BYTES: usize = 16 << 10;

/// A batch that is ready.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) partition: String,
    pub(super) metadata: MessageMetadata,
    pub(super) payload: Vec<u8>,
}

/// The partitions of each topic that is written to.
pub(super) type Partitions = HashMap<String, Vec<String>>;

/// How rows become messages.
pub(super) struct Encoder<'a> {
    pub(super) columns: &'a SinkColumns,
    pub(super) topic: Option<&'a str>,
    pub(super) compression: Compression,
    /// The largest message that brokers take.
    pub(super) message_bytes_max: usize,
    /// Who takes them, for messages.
    pub(super) broker: &'a str,
}

/// The full names of the topics of some rows.
///
/// # Errors
/// A row without a topic.
pub(super) fn topics(
    columns: &SinkColumns,
    topic: Option<&str>,
    rows: &[RecordBatch],
) -> Result<Vec<String>, PulsarError> {
    let mut found: Vec<String> = Vec::new();
    for rows in rows.iter().filter(|rows| rows.num_rows() > 0) {
        let rows = columns.of(rows)?;
        let mut last = None;
        for row in 0..rows.rows {
            let own = rows.topic(row);
            if row > 0 && own == last {
                continue;
            }
            last = own;
            let name = named(own, topic)?;
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    Ok(found)
}

fn named(own: Option<&str>, topic: Option<&str>) -> Result<String, PulsarError> {
    match (own, topic) {
        (Some(own), _) => topic::full_name(own)
            .map_err(|problem| PulsarError::TopicName { topic: own.to_owned(), problem }),
        (None, Some(topic)) => Ok(topic.to_owned()),
        (None, None) => Err(PulsarError::NullTopic),
    }
}

impl Encoder<'_> {
    /// All rows as batches, those of a partition in order. `turn` goes on from call to call.
    ///
    /// # Errors
    /// A row that is too large.
    pub(super) fn encode(
        &self,
        rows: &[RecordBatch],
        partitions: &Partitions,
        turn: &mut usize,
    ) -> Result<Vec<Entry>, PulsarError> {
        let mut entries = Vec::new();
        let mut open: HashMap<&str, MessageBatch> = HashMap::new();
        let mut name = String::new();
        let mut last: Option<Option<String>> = None;
        for rows in rows.iter().filter(|rows| rows.num_rows() > 0) {
            let rows = self.columns.of(rows)?;
            for row in 0..rows.rows {
                let own = rows.topic(row);
                if last.as_ref().is_none_or(|last| last.as_deref() != own) {
                    name = named(own, self.topic)?;
                    last = Some(own.map(str::to_owned));
                }
                let all = partitions.get(&name).ok_or(PulsarError::NullTopic)?;
                let message = rows.message(row);
                let index = match &message.key {
                    Some((text, _)) => partition_of(text, all.len()),
                    None => *turn % all.len(),
                };
                let partition = all[index].as_str();
                let batch = open.entry(partition).or_default();
                let is_keyed = message.key.is_some();
                self.check(batch.add(message))?;
                let is_full = batch.bytes() >= BATCH_BYTES.min(self.message_bytes_max / 2)
                    || batch.messages() >= BATCH_MESSAGES;
                if is_full {
                    entries.push(self.entry(partition, batch));
                    if !is_keyed {
                        *turn = turn.wrapping_add(1);
                    }
                }
            }
        }
        let mut rest: Vec<(&str, MessageBatch)> =
            open.into_iter().filter(|(_, batch)| batch.messages() > 0).collect();
        // The order of a map is another in each run, which would be hard to follow.
        rest.sort_unstable_by_key(|(partition, _)| *partition);
        for (partition, batch) in &mut rest {
            entries.push(self.entry(partition, batch));
        }
        *turn = turn.wrapping_add(1);
        Ok(entries)
    }

    fn check(&self, bytes: usize) -> Result<(), PulsarError> {
        // A message may come behind others that have up to half of it.
        let max = self.message_bytes_max.saturating_sub(METADATA_BYTES) / 2;
        if bytes <= max {
            return Ok(());
        }
        Err(PulsarError::TooLarge { broker: self.broker.to_owned(), bytes, max })
    }

    fn entry(&self, partition: &str, batch: &mut MessageBatch) -> Entry {
        let (metadata, payload) = batch.take(self.compression);
        Entry { partition: partition.to_owned(), metadata, payload }
    }
}

/// The partition of a key, as Java's client chooses it unless it is told otherwise: by
/// `String.hashCode`.
fn partition_of(key: &str, partitions: usize) -> usize {
    let hash = key
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    (hash & i32::MAX) as usize % partitions
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};
    use bytes::Bytes;

    use super::*;
    use crate::protocol::payload::unpack;

    #[test]
    fn keys_have_the_partitions_of_javas_client() {
        // "hello".hashCode() is 99162322, "polygenelubricants".hashCode() the least of all numbers.
        assert_eq!(partition_of("hello", 1_000), 322);
        assert_eq!(partition_of("polygenelubricants", 7), 0);
        assert_eq!(partition_of("ä😀", 1_000_000), java_hash(&[0xe4, 0xd83d, 0xde00]));
    }

    fn java_hash(units: &[i64]) -> usize {
        let hash = units.iter().fold(0_i64, |hash, unit| (hash * 31 + unit) & 0xffff_ffff);
        (hash & 0x7fff_ffff) as usize % 1_000_000
    }

    fn rows(values: &[&str], topics: &[Option<&str>]) -> RecordBatch {
        let values: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
        let topics: ArrayRef = Arc::new(StringArray::from(topics.to_vec()));
        let columns = [("value", values, true), ("__topic", topics, true)];
        RecordBatch::try_from_iter_with_nullable(columns).expect("they are as long")
    }

    #[test]
    fn rows_go_to_their_topics_in_order() {
        let rows = rows(&["a", "b", "c"], &[Some("x"), None, Some("x")]);
        let columns = SinkColumns::find(&rows.schema(), true).expect("they fit");
        let own = "persistent://public/default/own";
        let encoder = Encoder {
            columns: &columns,
            topic: Some(own),
            compression: Compression::Lz4,
            message_bytes_max: 1 << 20,
            broker: "b",
        };
        let rows = [rows];
        let names = topics(&columns, Some(own), &rows).expect("they are names");
        assert_eq!(names, ["persistent://public/default/x", own]);
        let partitions = names.iter().map(|name| (name.clone(), vec![name.clone()])).collect();
        let entries = encoder.encode(&rows, &partitions, &mut 0).expect("they are small");
        let values = |entry: &Entry| -> Vec<Bytes> {
            let payload = Bytes::from(entry.payload.clone());
            let messages = unpack(&entry.metadata, payload).expect("it was packed");
            messages.into_iter().filter_map(|message| message.value).collect()
        };
        assert_eq!(entries.len(), 2);
        assert_eq!((&*entries[0].partition, values(&entries[0])), (own, vec!["b".into()]));
        assert_eq!(values(&entries[1]), ["a", "c"]);
        assert!(topics(&columns, None, &rows).is_err());
        let small = Encoder { message_bytes_max: 10, ..encoder };
        assert!(matches!(
            small.encode(&rows, &partitions, &mut 0),
            Err(PulsarError::TooLarge { .. })
        ));
    }
}
