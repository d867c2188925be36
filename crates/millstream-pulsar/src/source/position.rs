//! Offsets: where each partition has been read to.
//!
//! ```text
//! {"persistent://public/default/in-partition-0":"12:40","persistent://public/default/new":"earliest"}
//! ```
//!
//! A position is the last message that was read, as its ledger and its entry. An entry of several
//! messages is read as a whole, except where a query begins in the middle of one: then the index of
//! the message follows. Where messages in chunks are not complete there, the first chunk of the
//! oldest of them follows: `12:40 from 12:35`.

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
    After {
        ledger: u64,
        entry: u64,
        index: Option<u32>,
        /// The first entry that is needed still, for messages that are not complete.
        from: Option<(u64, u64)>,
    },
}

/// By the full name of each partition.
pub(super) type Positions = BTreeMap<String, Position>;

const EARLIEST: &str = "earliest";
const FROM: &str = " from ";

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Earliest => f.write_str(EARLIEST),
            Self::After { ledger, entry, index, from } => {
                write!(f, "{ledger}:{entry}")?;
                if let Some(index) = index {
                    write!(f, ":{index}")?;
                }
                match from {
                    Some((ledger, entry)) => write!(f, "{FROM}{ledger}:{entry}"),
                    None => Ok(()),
                }
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

    /// The first entry that is needed to read on, as far as it is known: with it reading begins.
    pub(super) fn needed(self) -> Option<(u64, u64)> {
        match self {
            Self::After { from: Some(from), .. } => Some(from),
            other => other.entry(),
        }
    }

    /// Behind a whole entry.
    pub(super) fn after(entry: (u64, u64)) -> Self {
        Self::with_incomplete(entry, None)
    }

    /// Behind a whole entry, where messages are not complete of which the first begins with `from`.
    pub(super) fn with_incomplete((ledger, entry): (u64, u64), from: Option<(u64, u64)>) -> Self {
        Self::After { ledger, entry, index: None, from }
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
        let (text, from) = match text.split_once(FROM) {
            None => (text, None),
            Some((text, from)) => {
                let (ledger, entry) = from.split_once(':')?;
                (text, Some((number(ledger)?, number(entry)?)))
            }
        };
        let mut parts = text.split(':');
        let (ledger, entry) = (number(parts.next()?)?, number(parts.next()?)?);
        let index = match parts.next() {
            None => None,
            Some(index) => Some(u32::try_from(number(index)?).ok()?),
        };
        let is_all = parts.next().is_none() && from.is_none_or(|from| from <= (ledger, entry));
        is_all.then_some(Self::After { ledger, entry, index, from })
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
        Some(Self::After { ledger, entry, index, from: None })
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
            ("c".to_owned(), Position::After { ledger: 3, entry: 4, index: Some(5), from: None }),
            ("d".to_owned(), Position::with_incomplete((12, 40), Some((11, 5)))),
        ]);
        let offset = to_offset(&positions);
        let text = r#"{"a":"earliest","b":"12:0","c":"3:4:5","d":"12:40 from 11:5"}"#;
        assert_eq!(offset.as_str(), text);
        assert_eq!(parse_offset(offset.as_str()).unwrap(), positions);
        for wrong in
            ["", "[]", r#"{"a":1}"#, r#"{"a":"1"}"#, r#"{"a":"1:+2"}"#, r#"{"a":"1:2:3:4"}"#]
                .into_iter()
                .chain([r#"{"a":"1:2 from 1"}"#, r#"{"a":"1:2 from 1:3"}"#])
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
        let index = Some(2);
        assert_eq!(position, Some(Position::After { ledger: 300, entry: 7, index, from: None }));
        assert_eq!(Position::parse_written(&json!("1:2")), Some(Position::after((1, 2))));
        assert_eq!(Position::parse_written(&json!([1, 2, 3_000])), None);
    }

    #[test]
    fn fuzzed_offsets() {
        let seed = br#"{"a":"earliest","b":"12:0","c":"3:4:5","d":"12:40 from 11:5"}"#;
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
