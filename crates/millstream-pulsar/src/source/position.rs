//! Offsets: where each partition has been read to.
//!
//! ```text
//! {"persistent://public/default/in-partition-0":"12:40","persistent://public/default/new":"earliest"}
//! ```
//!
//! A position is the last message that was read, as its ledger and its entry. An entry of several
//! messages is read as a whole, except where a query begins in the middle of one: then the index of
//! the message follows.

use std::collections::BTreeMap;
use std::fmt;

use millstream_engine::api::source::SourceOffset;
use prost::Message as _;
use serde_json::Value;

use crate::error::PulsarError;
use crate::protocol::messages::MessageIdData;

/// Where a partition has been read to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Position {
    /// Nothing was read yet.
    Earliest,
    /// All up to a message, and that too.
    After { ledger: u64, entry: u64, index: Option<u32> },
}

/// By the full name of each partition.
pub(super) type Positions = BTreeMap<String, Position>;

const EARLIEST: &str = "earliest";

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Earliest => f.write_str(EARLIEST),
            Self::After { ledger, entry, index: None } => write!(f, "{ledger}:{entry}"),
            Self::After { ledger, entry, index: Some(index) } => {
                write!(f, "{ledger}:{entry}:{index}")
            }
        }
    }
}

impl Position {
    /// The entry that was read last.
    pub(super) fn entry(self) -> Option<(u64, u64)> {
        match self {
            Self::Earliest => None,
            Self::After { ledger, entry, .. } => Some((ledger, entry)),
        }
    }

    /// Behind a whole entry.
    pub(super) fn after((ledger, entry): (u64, u64)) -> Self {
        Self::After { ledger, entry, index: None }
    }

    /// Behind the last message of a topic; an entry of -1 means that there is none.
    pub(super) fn after_last(id: &MessageIdData) -> Self {
        match last_entry(id) {
            Some(entry) => Self::after(entry),
            None => Self::Earliest,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == EARLIEST {
            return Some(Self::Earliest);
        }
        let mut parts = text.split(':');
        let (ledger, entry) = (number(parts.next()?)?, number(parts.next()?)?);
        let index = match parts.next() {
            None => None,
            Some(index) => Some(u32::try_from(number(index)?).ok()?),
        };
        let is_all = parts.next().is_none();
        is_all.then_some(Self::After { ledger, entry, index })
    }

    /// A position that a person writes: as here, or as Spark does, the bytes of a message id.
    pub(super) fn parse_written(value: &Value) -> Option<Self> {
        if let Value::String(text) = value {
            return Self::parse(text.trim());
        }
        let numbers = value.as_array()?.iter();
        // Java's bytes have signs.
        let bytes = numbers.map(|number| {
            let number = number.as_i64()?;
            u8::try_from(number).ok().or_else(|| Some(i8::try_from(number).ok()?.cast_unsigned()))
        });
        let id = MessageIdData::decode(&*bytes.collect::<Option<Vec<u8>>>()?).ok()?;
        let (ledger, entry) = last_entry(&id)?;
        let index = id.batch_index.and_then(|index| u32::try_from(index).ok());
        Some(Self::After { ledger, entry, index })
    }
}

/// Digits only, so that each position has one text.
fn number(text: &str) -> Option<u64> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok()).flatten()
}

/// The entry of a message id, unless that stands for one before all others.
pub(super) fn last_entry(id: &MessageIdData) -> Option<(u64, u64)> {
    let is_one = id.entry_id.cast_signed() >= 0 && id.ledger_id.cast_signed() >= 0;
    is_one.then_some((id.ledger_id, id.entry_id))
}

/// Positions as an offset.
pub(super) fn to_offset(positions: &Positions) -> SourceOffset {
    let texts =
        positions.iter().map(|(name, position)| (name.clone(), position.to_string().into()));
    let object: serde_json::Map<String, Value> = texts.collect();
    SourceOffset::new(Value::Object(object).to_string())
}

/// Reads what [`to_offset`] wrote.
///
/// # Errors
/// It is none of this source.
pub(super) fn parse_offset(text: &str) -> Result<Positions, PulsarError> {
    let wrong = |problem: String| PulsarError::Offset { offset: text.to_owned(), problem };
    let object: serde_json::Map<String, Value> =
        serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let positions = object.into_iter().map(|(name, value)| {
        let position = value.as_str().and_then(Position::parse);
        let position = position.ok_or_else(|| wrong(format!("'{name}' has no LEDGER:ENTRY")))?;
        Ok((name, position))
    });
    positions.collect()
}

#[cfg(test)]
mod tests {
    use millstream_fuzz::{Target, outcome};
    use serde_json::json;

    use super::*;

    #[test]
    fn offsets_are_read_back() {
        let positions = Positions::from([
            ("a".to_owned(), Position::Earliest),
            ("b".to_owned(), Position::after((12, 0))),
            ("c".to_owned(), Position::After { ledger: 3, entry: 4, index: Some(5) }),
        ]);
        let offset = to_offset(&positions);
        assert_eq!(offset.as_str(), r#"{"a":"earliest","b":"12:0","c":"3:4:5"}"#);
        assert_eq!(parse_offset(offset.as_str()).unwrap(), positions);
        for wrong in
            ["", "[]", r#"{"a":1}"#, r#"{"a":"1"}"#, r#"{"a":"1:+2"}"#, r#"{"a":"1:2:3:4"}"#]
        {
            assert!(parse_offset(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn positions_may_be_written_as_spark_does() {
        let id = MessageIdData {
            ledger_id: 300,
            entry_id: 7,
            partition: Some(-1),
            batch_index: Some(2),
        };
        let signed: Vec<i8> = id.encode_to_vec().into_iter().map(u8::cast_signed).collect();
        let position = Position::parse_written(&json!(signed));
        assert_eq!(position, Some(Position::After { ledger: 300, entry: 7, index: Some(2) }));
        assert_eq!(Position::parse_written(&json!("1:2")), Some(Position::after((1, 2))));
        assert_eq!(Position::parse_written(&json!([1, 2, 3_000])), None);
    }

    #[test]
    fn fuzzed_offsets() {
        let seed = br#"{"a":"earliest","b":"12:0","c":"3:4:5"}"#;
        Target::text("pulsar_offsets").seeds([seed.to_vec()]).run(|bytes| {
            let text = String::from_utf8_lossy(bytes);
            let read = parse_offset(&text);
            if let Ok(positions) = &read {
                let again = parse_offset(to_offset(positions).as_str());
                assert_eq!(again.ok().as_ref(), Some(positions));
            }
            outcome(&read.map_err(|error| match error {
                PulsarError::Offset { problem, .. } => problem,
                other => other.to_string(),
            }))
        });
    }
}
