//! The offset log: entry N says what micro-batch N is going to read, before it does.
//!
//! Format v1, which every release of Spark reads, without a line break at the end:
//!
//! ```text
//! v1
//! {"batchWatermarkMs":0,"batchTimestampMs":1767225600123,"conf":{"key":"value",...}}
//! {"in":{"0":10,"1":12}}           one line per source, in plan order; `-` where it has no offset
//! ```
//!
//! Format v2 (Spark 4.2, opt-in) names the sources, `0:{"in":{"0":10,"1":12}}`. It is read, so that
//! such a query can be continued, and never written.

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::{DecodeError, json_line, json_object, versioned_lines};
use crate::offset::SourceOffset;

/// The highest version that can be read.
pub const VERSION_MAX: u32 = 2;

/// The Spark settings that Spark 4.2 records with each entry, with its defaults, in the order in
/// which it writes them (the iteration order of a Scala hash map; readers do not care).
const DEFAULT_CONF: [(&str, &str); 15] = [
    (
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    ),
    ("spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion", "2"),
    ("spark.sql.streaming.stateStore.rocksdb.formatVersion", "5"),
    ("spark.sql.streaming.queryEvolution.enableSourceEvolution", "false"),
    ("spark.sql.streaming.stateStore.encodingFormat", "unsaferow"),
    ("spark.sql.streaming.statefulOperator.useStrictDistribution", "true"),
    ("spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion", "2"),
    ("spark.sql.streaming.multipleWatermarkPolicy", "min"),
    ("spark.sql.streaming.stateStore.rowChecksum.enabled", "false"),
    ("spark.sql.streaming.aggregation.stateFormatVersion", "2"),
    ("spark.sql.function.protobufExtensions.enabled", "false"),
    (SHUFFLE_PARTITIONS, "200"),
    ("spark.sql.streaming.join.stateFormatVersion", "2"),
    ("spark.sql.streaming.stateStore.compression.codec", "lz4"),
    ("spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan", "false"),
];

const SHUFFLE_PARTITIONS: &str = "spark.sql.shuffle.partitions";

/// What one micro-batch is going to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The watermark the micro-batch runs with, milliseconds since the epoch; 0 without one.
    pub batch_watermark_ms: i64,
    /// The micro-batch's time, milliseconds since the epoch; a replay has the same.
    pub batch_timestamp_ms: i64,
    /// Spark settings the query depends on, in file order. An entry read from disk keeps its own.
    pub conf: Vec<(String, String)>,
    /// Where the micro-batch ends (exclusive), per source in plan order; at least one.
    pub offsets: Vec<Option<SourceOffset>>,
}

/// The settings of a new query: Spark 4.2's defaults.
pub fn default_conf() -> Vec<(String, String)> {
    DEFAULT_CONF.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// [`default_conf`] with the number of partitions that Spark would shuffle to.
pub fn spark_conf(shuffle_partitions: usize) -> Vec<(String, String)> {
    let mut conf = default_conf();
    for (key, value) in &mut conf {
        if key == SHUFFLE_PARTITIONS {
            *value = shuffle_partitions.to_string();
        }
    }
    conf
}

impl Entry {
    /// True where a source's offset, or the watermark, is less than in `before`.
    pub fn is_behind(&self, before: &Self) -> bool {
        let mut offsets = self.offsets.iter().zip(&before.offsets);
        self.batch_watermark_ms < before.batch_watermark_ms
            || offsets.any(|pair| match pair {
                (Some(own), Some(before)) => own.is_behind(before),
                (None, Some(_)) => true,
                (_, None) => false,
            })
    }

    /// Where the sources are, for messages.
    pub fn shown(&self) -> String {
        let ends = self.offsets.iter();
        let texts = ends.map(|end| end.as_ref().map_or("-", SourceOffset::as_str));
        texts.collect::<Vec<_>>().join(", ")
    }

    /// The entry's bytes, format v1.
    pub fn encode(&self) -> Vec<u8> {
        let facts = Facts {
            batch_watermark_ms: self.batch_watermark_ms,
            batch_timestamp_ms: self.batch_timestamp_ms,
            conf: Conf(self.conf.clone()),
        };
        let mut bytes = b"v1\n".to_vec();
        serde_json::to_writer(&mut bytes, &facts).expect("strings and integers are JSON");
        for offset in &self.offsets {
            bytes.push(b'\n');
            bytes.extend_from_slice(offset.as_ref().map_or("-", SourceOffset::as_str).as_bytes());
        }
        bytes
    }

    /// Reads an entry of format v1 or v2.
    ///
    /// Lenient like Spark: line 2 may be empty or lack any field (old releases, continuous mode).
    /// Strict where a torn file would otherwise pass: a source line must be whole JSON, and there
    /// must be one.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, mut lines) = versioned_lines(bytes, VERSION_MAX)?;
        let facts: Facts = match lines.next().map(str::trim) {
            None => return Err(DecodeError::malformed("it ends after the version")),
            Some("") => Facts::default(),
            Some(line) => json_object("line 2", line)?,
        };
        let offsets = if version == 1 { numbered(lines)? } else { named(lines)? };
        if offsets.is_empty() {
            return Err(DecodeError::malformed("it ends before the sources' offsets"));
        }
        Ok(Self {
            batch_watermark_ms: facts.batch_watermark_ms,
            batch_timestamp_ms: facts.batch_timestamp_ms,
            conf: facts.conf.0,
            offsets,
        })
    }
}

/// v1: a line per source in plan order.
fn numbered<'a>(
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<Option<SourceOffset>>, DecodeError> {
    lines.map(offset).collect()
}

/// v2: `id:offset`, in any order; the ids of unnamed sources are their places in the plan.
fn named<'a>(
    lines: impl Iterator<Item = &'a str>,
) -> Result<Vec<Option<SourceOffset>>, DecodeError> {
    let mut sources = Vec::new();
    for line in lines {
        let (id, text) = line
            .split_once(':')
            .ok_or_else(|| DecodeError::malformed("a source's line has no `id:`"))?;
        let id: usize = id.parse().map_err(|_| DecodeError::Unsupported {
            problem: format!("source {id:?} is named; only unnamed sources can be carried on"),
        })?;
        sources.push((id, offset(text)?));
    }
    sources.sort_by_key(|(id, _)| *id);
    if sources.iter().enumerate().any(|(place, (id, _))| place != *id) {
        return Err(DecodeError::malformed("the sources are not numbered 0, 1, 2, ..."));
    }
    Ok(sources.into_iter().map(|(_, offset)| offset).collect())
}

fn offset(text: &str) -> Result<Option<SourceOffset>, DecodeError> {
    if text == "-" {
        return Ok(None);
    }
    // Checked for being whole, and kept as text: parsing and printing again could change the bytes,
    // which Spark and the source must find as they were written.
    json_line::<IgnoredAny>("a source's offset", text)?;
    Ok(Some(SourceOffset::new(text)))
}

/// Line 2.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Facts {
    batch_watermark_ms: i64,
    batch_timestamp_ms: i64,
    conf: Conf,
}

/// A JSON object of strings that keeps their order: an entry that is read and written again has
/// the same bytes.
#[derive(Default)]
struct Conf(Vec<(String, String)>);

impl Serialize for Conf {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl<'de> Deserialize<'de> for Conf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Conf;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Conf, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Conf(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests;
