//! Positions in streams, and how they stand in the offset log.
//!
//! ```text
//! {"offsets":{"orders":{"groupName":"redis-source","offset":"1526919030474-55","entriesRead":91}}}
//! ```
//!
//! That is the form of spark-redis, with the number of entries that were ever added up to that one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use millstream_engine::api::source::SourceOffset;
use serde::{Deserialize, Serialize};

use crate::redis::error::RedisProblem;

/// The group that spark-redis names; there is none here.
const GROUP: &str = "redis-source";

/// The id of an entry: milliseconds, and a number within them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    ms: u64,
    number: u64,
}

impl FromStr for Id {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (ms, number) = text.split_once('-').unwrap_or((text, "0"));
        let parse = |text: &str| text.parse().map_err(drop);
        Ok(Self { ms: parse(ms)?, number: parse(number)? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.number)
    }
}

/// Behind an entry of a stream; before all of them by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// The entry.
    pub(super) id: Id,
    /// How many entries were added to the stream up to that one, as far as the server knows.
    pub(super) read: u64,
}

#[derive(Serialize, Deserialize)]
struct Text {
    offsets: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    group_name: String,
    offset: String,
    #[serde(default)]
    entries_read: u64,
}

/// The position of each of `keys`, as the offset log has it.
pub(super) fn encode(keys: &[String], positions: &[Position]) -> SourceOffset {
    let entry = |position: &Position| Entry {
        group_name: GROUP.to_owned(),
        offset: position.id.to_string(),
        entries_read: position.read,
    };
    let offsets = keys.iter().cloned().zip(positions.iter().map(entry)).collect();
    let text = serde_json::to_string(&Text { offsets }).expect("texts and numbers are JSON");
    SourceOffset::new(text)
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// An offset of another source, or of other streams.
pub(super) fn decode(
    keys: &[String],
    offset: &SourceOffset,
) -> Result<Vec<Position>, RedisProblem> {
    let foreign = |()| RedisProblem::ForeignOffset { offset: offset.to_string() };
    read(keys, offset.as_str()).map_err(foreign)
}

/// The same, of any text.
pub(super) fn read(keys: &[String], text: &str) -> Result<Vec<Position>, ()> {
    let Text { offsets } = serde_json::from_str(text).map_err(drop)?;
    if offsets.len() != keys.len() {
        return Err(());
    }
    let position = |key: &String| {
        let entry = offsets.get(key).ok_or(())?;
        Ok(Position { id: entry.offset.parse()?, read: entry.entries_read })
    };
    keys.iter().map(position).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_back() {
        let keys = ["a", "b"].map(str::to_owned);
        let position = |ms, number, read| Position { id: Id { ms, number }, read };
        let positions = [position(1_526_919_030_474, 55, 91), Position::default()];
        let offset = encode(&keys, &positions);
        assert_eq!(decode(&keys, &offset).unwrap(), positions);
        assert!(decode(&keys[..1], &offset).is_err(), "other streams");
        for foreign in
            ["", "{}", "{\"offsets\":{\"a\":{\"offset\":\"x\"},\"b\":{\"offset\":\"1\"}}}"]
        {
            assert!(read(&keys, foreign).is_err(), "{foreign}");
        }
        let of_spark = "{\"offsets\":{\"a\":{\"groupName\":\"redis-source\",\"offset\":\"7-0\"}}}";
        assert_eq!(read(&keys[..1], of_spark), Ok(vec![position(7, 0, 0)]));
    }

    #[test]
    fn ids_are_ordered_as_numbers() {
        let id = |text: &str| text.parse::<Id>().unwrap();
        assert!(id("9-1") < id("10-0") && id("10-2") < id("10-10") && id("10") == id("10-0"));
    }
}
