//! The record that a transaction leaves of how far the query came: an offset of a consumer group.
//!
//! Its offset is the micro-batch's number, and its metadata, a text that Kafka stores beside an
//! offset, says where the sources stand: `1 0/1 {"batchTimeMs":...,"ends":[...]}`, the version, the
//! piece and how many pieces there are, and JSON. A broker takes 4096 bytes of metadata by default,
//! some 250 partitions; what is longer is cut into pieces, each in a group of its own.
//!
//! The offset belongs to partition 0 of a topic that the micro-batch writes to, only because an
//! offset must belong to one that exists. A reader looks at all offsets of the group and takes the
//! highest, so the topic may change from micro-batch to micro-batch.
//!
//! Why not the offsets of the source's own partitions: they would exist only for Kafka sources on
//! the same cluster, and other commits to that group, for lag monitors, could move them back.

use std::collections::BTreeMap;

use millstream_engine::sink::{BatchId, Published, Reached, SourceOffset};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::kafka::native::CommittedOffset;

/// Metadata of one offset, some less than the brokers' default limit of 4096.
const PIECE_BYTES_MAX: usize = 4_000;
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    batch_time_ms: i64,
    /// Each source's own JSON.
    ends: Vec<Option<Box<RawValue>>>,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotARecord(String);

/// The record as pieces of metadata, at least one.
pub fn encode(reached: &Reached) -> Vec<String> {
    let raw = |end: &SourceOffset| {
        RawValue::from_string(end.as_str().to_owned()).expect("a source's offset is JSON")
    };
    let ends = reached.ends.iter().map(|end| end.as_ref().map(raw)).collect();
    let body = Body { batch_time_ms: reached.batch_time_ms, ends };
    let body = serde_json::to_string(&body).expect("texts and integers are JSON");
    let pieces = cut(&body, PIECE_BYTES_MAX);
    let count = pieces.len();
    let piece = |(index, piece): (usize, &&str)| format!("{VERSION} {index}/{count} {piece}");
    pieces.iter().enumerate().map(piece).collect()
}

/// Cuts a text at character boundaries into pieces of at most `bytes_max`; at least one.
fn cut(text: &str, bytes_max: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > bytes_max {
        let mut end = bytes_max;
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, more) = rest.split_at(end);
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    pieces
}

/// The newest record among the offsets of a query's groups. `group` gives all offsets of the group
/// for piece N.
pub fn decode<E: From<NotARecord>>(
    mut group: impl FnMut(usize) -> Result<Vec<CommittedOffset>, E>,
) -> Result<Option<Published>, E> {
    let Some(first) = group(0)?.into_iter().max_by_key(|committed| committed.offset) else {
        return Ok(None);
    };
    let (offset, pieces) = (first.offset, piece(&first.metadata, 0)?);
    let mut text = pieces.text.to_owned();
    for index in 1..pieces.count {
        let committed: BTreeMap<i64, Vec<u8>> =
            group(index)?.into_iter().map(|more| (more.offset, more.metadata)).collect();
        let missing = || NotARecord(format!("piece {index} of micro-batch {offset} is missing"));
        let metadata = committed.get(&offset).ok_or_else(missing)?;
        text.push_str(piece(metadata, index)?.text);
    }
    let body: Body =
        serde_json::from_str(&text).map_err(|error| NotARecord(format!("{text}: {error}")))?;
    let end = |raw: Option<Box<RawValue>>| raw.map(|raw| SourceOffset::new(raw.get()));
    let ends = body.ends.into_iter().map(end).collect();
    let number =
        u64::try_from(offset).map_err(|_| NotARecord(format!("its offset is {offset}")))?;
    let reached = Some(Reached { ends, batch_time_ms: body.batch_time_ms });
    Ok(Some(Published { batch_id: BatchId(number), reached }))
}

struct Piece<'a> {
    count: usize,
    text: &'a str,
}

fn piece(metadata: &[u8], index: usize) -> Result<Piece<'_>, NotARecord> {
    let parse = || {
        let metadata = std::str::from_utf8(metadata).ok()?;
        let (version, rest) = metadata.split_once(' ')?;
        let (place, text) = rest.split_once(' ')?;
        let (found, count) = place.split_once('/')?;
        let known = version.parse() == Ok(VERSION) && found.parse() == Ok(index);
        known.then_some(Piece { count: count.parse().ok()?, text })
    };
    parse().ok_or_else(|| {
        let shown = String::from_utf8_lossy(metadata);
        NotARecord(format!("'{shown}' is not piece {index} of a record of version {VERSION}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(partitions: usize) -> Reached {
        let offsets: Vec<String> = (0..partitions).map(|p| format!("\"{p}\":1234567890")).collect();
        let kafka = SourceOffset::new(format!("{{\"in\":{{{}}}}}", offsets.join(",")));
        Reached { ends: vec![Some(kafka), None, Some(SourceOffset::new("7"))], batch_time_ms: 5 }
    }

    fn committed(id: i64, reached: &Reached, piece: usize) -> CommittedOffset {
        let metadata = encode(reached)[piece].clone().into_bytes();
        CommittedOffset { offset: id, metadata }
    }

    #[test]
    fn records_are_read_back() {
        for partitions in [1, 200, 5_000] {
            let (old, new) = (reached(1), reached(partitions));
            let pieces = encode(&new).len();
            let group = |piece: usize| {
                assert!(piece < pieces);
                // In a group of one topic per row the record before stands there as well.
                let older = (piece == 0).then(|| committed(8, &old, 0));
                Ok::<_, NotARecord>(older.into_iter().chain([committed(9, &new, piece)]).collect())
            };
            let expected = Published { batch_id: BatchId(9), reached: Some(new.clone()) };
            assert_eq!(decode(group), Ok(Some(expected)));
        }
    }

    #[test]
    fn pieces_fit_the_brokers_default() {
        let pieces = encode(&reached(5_000));
        assert!(pieces.len() > 10);
        assert!(pieces.iter().all(|piece| piece.len() <= 4_096));
        assert_eq!(cut("aé", 2), ["a", "é"]);
    }

    #[test]
    fn no_offsets_are_no_record() {
        assert_eq!(decode(|_| Ok::<_, NotARecord>(Vec::new())), Ok(None));
    }

    #[test]
    fn foreign_metadata_is_shown() {
        let foreign = |_| {
            Ok::<_, NotARecord>(vec![CommittedOffset { offset: 3, metadata: b"2 0/1 {}".to_vec() }])
        };
        let error = decode(foreign).unwrap_err();
        assert!(error.to_string().contains("'2 0/1 {}'"), "{error}");
        let long = reached(5_000);
        let torn = |piece: usize| match piece {
            0 => Ok::<_, NotARecord>(vec![committed(9, &long, 0)]),
            _ => Ok(Vec::new()),
        };
        assert!(decode(torn).unwrap_err().to_string().contains("piece 1"));
    }
}
