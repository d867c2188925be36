//! Batch ids and source offsets: what the logs are about.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
#[serde(into = "String", try_from = "String")]
pub struct SourceOffset(String);

/// A text that should be a source's offset has a line break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a source's offset is one line of JSON, and this one has a line break")]
pub struct LineBreak;

impl SourceOffset {
    /// Wraps a source's offset JSON.
    ///
    /// # Panics
    /// When the text has a line break: the offset log has a line per source.
    pub fn new(json: impl Into<String>) -> Self {
        Self::try_from(json.into()).expect("a source offset is one line of JSON")
    }

    /// True if a number in it is less than the one at the same place in `before`: all sources count
    /// upwards, whatever they count. What is only in one of them is not compared. A Delta table
    /// counts the files of each version anew, so these are compared within a version only.
    pub fn is_behind(&self, before: &Self) -> bool {
        let read = |offset: &Self| serde_json::from_str::<Value>(&offset.0).ok();
        match (read(self), read(before)) {
            (Some(own), Some(before)) => is_behind(&own, &before),
            _ => false,
        }
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The version of a Delta table, in the offset of its source.
const DELTA_VERSION: &str = "reservoirVersion";

fn is_behind(own: &Value, before: &Value) -> bool {
    match (own, before) {
        (Value::Number(own), Value::Number(before)) => match (own.as_i64(), before.as_i64()) {
            (Some(own), Some(before)) => own < before,
            _ => own.as_f64() < before.as_f64(),
        },
        (Value::Object(own), Value::Object(before)) if own.contains_key(DELTA_VERSION) => {
            let place = |of: &serde_json::Map<String, Value>| {
                let number = |key| of.get(key).and_then(Value::as_i64);
                number(DELTA_VERSION).zip(number("index"))
            };
            place(own).zip(place(before)).is_some_and(|(own, before)| own < before)
        }
        (Value::Object(own), Value::Object(before)) => before
            .iter()
            .any(|(key, before)| own.get(key).is_some_and(|own| is_behind(own, before))),
        (Value::Array(own), Value::Array(before)) => {
            own.iter().zip(before).any(|(own, before)| is_behind(own, before))
        }
        _ => false,
    }
}

/// For texts that come from outside.
impl TryFrom<String> for SourceOffset {
    type Error = LineBreak;

    fn try_from(json: String) -> Result<Self, LineBreak> {
        if json.contains('\n') { Err(LineBreak) } else { Ok(Self(json)) }
    }
}

impl From<SourceOffset> for String {
    fn from(offset: SourceOffset) -> Self {
        offset.0
    }
}

impl fmt::Display for SourceOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_delta_table_are_counted_within_a_version() {
        let at = |version: u64, index: i64| {
            SourceOffset::new(format!(
                r#"{{"sourceVersion":1,"reservoirVersion":{version},"index":{index}}}"#
            ))
        };
        assert!(!at(3, -1).is_behind(&at(2, 7)) && at(2, 7).is_behind(&at(3, -1)));
        assert!(at(2, 6).is_behind(&at(2, 7)) && !at(2, 7).is_behind(&at(2, 7)));
    }
}
