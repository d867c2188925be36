//! Batch ids and source offsets: what the logs are about.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a micro-batch, from 0, without gaps within one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

impl BatchId {
    /// The id of the micro-batch after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How far a source has been read: JSON on one line, whose meaning is the source's own.
///
/// It stands in the offset log byte for byte, as Spark writes it for the same source, for example
/// `{"in":{"0":10,"1":12}}` for Kafka.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceOffset(String);

impl SourceOffset {
    /// Wraps a source's offset JSON.
    ///
    /// # Panics
    /// When the text has a line break: the offset log has a line per source.
    pub fn new(json: impl Into<String>) -> Self {
        let json = json.into();
        assert!(!json.contains('\n'), "a source offset is one line of JSON");
        Self(json)
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SourceOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
