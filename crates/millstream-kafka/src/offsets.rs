//! Offsets of many partitions, and their JSON, which is Spark's:
//! `{"topicA":{"0":123,"1":456},"topicB":{"0":7}}`, topics and partitions ascending, each number
//! the next offset to read.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use millstream_engine::api::source::SourcePartition;
use millstream_store::offset::SourceOffset;

/// Names one partition. Ordered by topic, then number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number in the topic.
    pub partition: i32,
}

impl PartitionId {
    /// The partition `partition` of `topic`.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }

    /// What the engine knows the partition by.
    pub fn source_partition(&self) -> SourcePartition {
        // The keys of `DefaultHasher::new` are fixed, so the number is the same in every run.
        let mut hasher = std::hash::DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// The newest offset, in options.
pub const LATEST: i64 = -1;
/// The oldest offset there is, in options.
pub const EARLIEST: i64 = -2;

/// A number for each of some partitions: an offset, or a timestamp.
pub type PerPartition = BTreeMap<PartitionId, i64>;

/// What is wrong with a text that should be per-partition numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotOffsets(pub String);

/// Reads `{"topic":{"0":123}}`.
/// Errors: a text of another form.
pub fn parse(json: &str) -> Result<PerPartition, NotOffsets> {
    let topics: BTreeMap<String, BTreeMap<String, i64>> =
        serde_json::from_str(json).map_err(|error| NotOffsets(error.to_string()))?;
    let mut offsets = PerPartition::new();
    for (topic, partitions) in topics {
        let topic: Arc<str> = topic.into();
        for (partition, offset) in partitions {
            let number = parse_partition(&partition)?;
            offsets.insert(PartitionId::new(topic.clone(), number), offset);
        }
    }
    Ok(offsets)
}

fn parse_partition(text: &str) -> Result<i32, NotOffsets> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| NotOffsets(format!("'{text}' is not a partition number")))
}

/// Reads an offset of this connector's own making, or of Spark's.
/// Errors: a text of another form, or with offsets that are not positions.
pub fn parse_source_offset(offset: &SourceOffset) -> Result<PerPartition, NotOffsets> {
    let offsets = parse(offset.as_str())?;
    match offsets.iter().find(|(_, offset)| **offset < 0) {
        Some((id, offset)) => Err(NotOffsets(format!("{id} has the offset {offset}"))),
        None => Ok(offsets),
    }
}

/// Writes per-partition numbers as Spark does.
pub fn to_json<'a>(offsets: impl IntoIterator<Item = (&'a PartitionId, i64)>) -> String {
    let mut json = String::from("{");
    let mut last: Option<&str> = None;
    for (id, offset) in offsets {
        match last {
            Some(topic) if topic == &*id.topic => json.push(','),
            Some(_) => json.push_str("},"),
            None => {}
        }
        if last != Some(&*id.topic) {
            // Kafka allows only letters, digits, '.', '_' and '-' in a topic's name.
            write!(json, "{}:{{", serde_json::Value::from(&*id.topic)).expect("a String grows");
            last = Some(&id.topic);
        }
        write!(json, "\"{}\":{offset}", id.partition).expect("a String grows");
    }
    if last.is_some() {
        json.push('}');
    }
    json.push('}');
    json
}

/// Writes positions as a source's offset.
pub fn to_source_offset(offsets: &PerPartition) -> SourceOffset {
    SourceOffset::new(to_json(offsets.iter().map(|(id, offset)| (id, *offset))))
}

/// Entry 0 of the source's private log, as Spark writes it: a zero byte, for readers older than
/// Spark 2.1, a line with the version, and the initial offsets.
pub fn to_initial_entry(offsets: &PerPartition) -> Vec<u8> {
    let json = to_json(offsets.iter().map(|(id, offset)| (id, *offset)));
    format!("\0v1\n{json}").into_bytes()
}

/// Reads entry 0 of the source's private log.
/// Errors: another version, or a text that is not offsets.
pub fn parse_initial_entry(entry: &[u8]) -> Result<PerPartition, NotOffsets> {
    let entry = entry.strip_prefix(b"\0").unwrap_or(entry);
    let text = std::str::from_utf8(entry).map_err(|error| NotOffsets(error.to_string()))?;
    // Spark before 2.1 wrote the JSON alone.
    let Some(rest) = text.strip_prefix('v') else { return parse(text) };
    match rest.split_once('\n') {
        Some(("1", json)) => parse(json.trim_end()),
        Some((version, _)) => Err(NotOffsets(format!("version v{version} is not known, only v1"))),
        None => Err(NotOffsets("the entry ends after its version".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use millstream_fuzz::{Target, outcome};
    use proptest::prelude::*;

    use super::*;

    fn offsets(entries: &[(&str, i32, i64)]) -> PerPartition {
        let entry = |(topic, partition, offset): &(&str, i32, i64)| {
            (PartitionId::new(*topic, *partition), *offset)
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn json_is_spark_s() {
        let offsets =
            offsets(&[("topicB", 0, 7), ("topicA", 10, 1), ("topicA", 2, 456), ("topicA", 0, 123)]);
        let json = r#"{"topicA":{"0":123,"2":456,"10":1},"topicB":{"0":7}}"#;
        assert_eq!(to_source_offset(&offsets).as_str(), json);
        assert_eq!(parse(json), Ok(offsets));
        assert_eq!(to_source_offset(&PerPartition::new()).as_str(), "{}");
    }

    #[test]
    fn the_initial_entry_is_spark_s_byte_for_byte() {
        let offsets = offsets(&[("in", 0, 0), ("in", 1, 0)]);
        let bytes = [
            0x00, 0x76, 0x31, 0x0a, 0x7b, 0x22, 0x69, 0x6e, 0x22, 0x3a, 0x7b, 0x22, 0x30, 0x22,
            0x3a, 0x30, 0x2c, 0x22, 0x31, 0x22, 0x3a, 0x30, 0x7d, 0x7d,
        ];
        assert_eq!(to_initial_entry(&offsets), bytes);
        assert_eq!(parse_initial_entry(&bytes), Ok(offsets));
    }

    #[test]
    fn other_versions_and_torn_entries_are_refused() {
        assert!(parse_initial_entry(b"\0v2\n{}").is_err());
        assert!(parse_initial_entry(b"\0v1").is_err());
        assert!(parse_initial_entry(b"\0v1\n{\"in\":{\"0\":").is_err());
        assert!(parse_initial_entry(b"\0{\"in\":{\"0\":1}}").is_ok());
    }

    #[test]
    fn odd_texts_are_refused() {
        for text in ["", "[]", "3", r#"{"a":3}"#, r#"{"a":{"x":1}}"#, r#"{"a":{"-1":1}}"#] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse_source_offset(&SourceOffset::new(r#"{"a":{"0":-2}}"#)).is_err());
    }

    proptest! {
        #[test]
        fn json_round_trips(entries in proptest::collection::btree_map(
            ("[a-zA-Z0-9._-]{1,8}", 0..200_i32), 0..i64::MAX, 0..20)) {
            let offsets: PerPartition = entries
                .into_iter()
                .map(|((topic, partition), offset)| (PartitionId::new(topic, partition), offset))
                .collect();
            let written = to_source_offset(&offsets);
            prop_assert_eq!(parse_source_offset(&written), Ok(offsets.clone()));
            prop_assert_eq!(parse_initial_entry(&to_initial_entry(&offsets)), Ok(offsets.clone()));
            let value: serde_json::Value = serde_json::from_str(written.as_str()).unwrap();
            prop_assert_eq!(value.to_string().len(), written.as_str().len());
        }
    }

    #[test]
    fn fuzz_offsets_of_partitions() {
        let seeds =
            [r#"{"topicA":{"0":123,"1":456},"topicB":{"0":7}}"#, "\0v1\n{\"in\":{\"0\":0}}"];
        let words = &["\0v1\n", "\"0\":", "\"a\":{", "-2"];
        Target::text("kafka_offsets").seeds(seeds).words(words).run(|input| {
            let initial = parse_initial_entry(input);
            let text = String::from_utf8_lossy(input).replace('\n', " ");
            let parsed = parse_source_offset(&SourceOffset::new(text));
            if let Ok(offsets) = &parsed {
                let again = to_source_offset(offsets);
                assert_eq!(parse_source_offset(&again).as_ref(), Ok(offsets));
            }
            format!("{} {}", outcome(&initial), outcome(&parsed))
        });
    }
}
