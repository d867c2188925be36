//! The record that a transaction leaves of how far the query came: a record of a topic of the
//! query's own, or an offset of a consumer group.
//!
//! The protocol client writes into the [topic](super::record_topic): the record goes in one request
//! with the rows. librdkafka's transactions have offsets anyway, which Kafka's other tools show.
//! Both are read at the start, and the later one counts.
//!
//! In a topic the record is one text,
//! `{"version":1,"batchId":7,"batchTimeMs":...,"ends":[...],"origin":{...}}`.
//!
//! In a group the offset is the micro-batch's number, and its metadata, a text that Kafka stores
//! beside an offset, says where the sources stand:
//! `1 0/1 {"batchTimeMs":...,"ends":[...],"origin":{...}}`, the version, the piece and how many
//! pieces there are, and JSON. The [`Origin`] is for other queries; earlier versions left it out. A
//! broker takes 4096 bytes of metadata by default, some 250 partitions; a longer text is cut into
//! pieces, each in a group of its own.
//!
//! The offset belongs to partition 0 of the table's topic, only because an offset must belong to a
//! partition that exists. Where each row names its topic it is that of Kafka's own topic of
//! offsets, which exists on every cluster.
//!
//! Why not the offsets of the source's own partitions: they would exist only for Kafka sources on
//! the same cluster, and other commits to that group, for lag monitors, could move them back.

use std::fmt;

use millstream_engine::api::sink::{BatchId, EndOffsets, Published, SourceOffset};
use millstream_store::offset::LineBreak;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Kafka's own topic of offsets.
const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Metadata of one offset, some less than the brokers' default limit of 4096.
const PIECE_BYTES_MAX: usize = 4_000;
const VERSION: u32 = 1;

/// The query that a record belongs to, and the table that its rows were written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The query's id, with the name of the sink where it has several.
    pub query: String,
    /// The flow's name.
    pub flow: String,
    /// The topic of all rows; `None` where each row names its own.
    pub topic: Option<String>,
    /// The table's name in the pipeline.
    pub table: String,
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it says of the query's progress.
    pub published: Published,
    /// Whose it is, where it says so.
    pub origin: Option<Origin>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    batch_time_ms: i64,
    /// Each source's own JSON.
    ends: Vec<Option<Box<RawValue>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
}

impl Body {
    fn of(end_offsets: &EndOffsets, origin: &Origin) -> Self {
        let raw = |end: &SourceOffset| {
            RawValue::from_string(end.as_str().to_owned()).expect("a source's offset is JSON")
        };
        let ends = end_offsets.ends.iter().map(|end| end.as_ref().map(raw)).collect();
        Self { batch_time_ms: end_offsets.batch_time_ms, ends, origin: Some(origin.clone()) }
    }

    /// Errors: an offset of several lines, which no source has.
    fn into_record(self, batch_id: BatchId) -> Result<Record, LineBreak> {
        let end = |raw: Option<Box<RawValue>>| {
            raw.map(|raw| SourceOffset::try_from(raw.get().to_owned())).transpose()
        };
        let ends = self.ends.into_iter().map(end).collect::<Result<_, _>>()?;
        let end_offsets = Some(EndOffsets { ends, batch_time_ms: self.batch_time_ms });
        Ok(Record { published: Published { batch_id, end_offsets }, origin: self.origin })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    version: u32,
    batch_id: u64,
    batch_time_ms: i64,
    ends: Vec<Option<Box<RawValue>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
}

/// What a consumer group has for the partition of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The offset.
    pub offset: i64,
    /// What stands beside it.
    pub metadata: String,
}

/// The topic whose partition 0 the record belongs to; `topic` is the table's option.
pub fn carrier(topic: Option<&str>) -> &str {
    topic.unwrap_or(OFFSETS_TOPIC)
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotARecord(String);

/// The record as pieces of metadata, at least one.
pub fn encode(end_offsets: &EndOffsets, origin: &Origin) -> Vec<String> {
    let body =
        serde_json::to_string(&Body::of(end_offsets, origin)).expect("texts and integers are JSON");
    let pieces = cut(&body, PIECE_BYTES_MAX);
    let count = pieces.len();
    let piece = |(index, piece): (usize, &&str)| format!("{VERSION} {index}/{count} {piece}");
    pieces.iter().enumerate().map(piece).collect()
}

/// The record as one text with the number of the micro-batch: the value of a record of a topic.
pub fn to_text(batch_id: BatchId, end_offsets: &EndOffsets, origin: &Origin) -> String {
    let Body { batch_time_ms, ends, origin } = Body::of(end_offsets, origin);
    let text = Text { version: VERSION, batch_id: batch_id.0, batch_time_ms, ends, origin };
    serde_json::to_string(&text).expect("texts and integers are JSON")
}

/// Reads what [`to_text`] wrote.
pub fn parse(text: &str) -> Result<Record, NotARecord> {
    let unread = |problem: &dyn fmt::Display| NotARecord(format!("{text}: {problem}"));
    let Text { version, batch_id, batch_time_ms, ends, origin } =
        serde_json::from_str(text).map_err(|error| unread(&error))?;
    if version != VERSION {
        return Err(unread(&format_args!("its version is not {VERSION}")));
    }
    let body = Body { batch_time_ms, ends, origin };
    body.into_record(BatchId(batch_id)).map_err(|error| unread(&error))
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

/// The record that a query's groups hold. `group` gives the offset of the group for piece N.
pub fn decode<E: From<NotARecord>>(
    mut group: impl FnMut(usize) -> Result<Option<CommittedOffset>, E>,
) -> Result<Option<Record>, E> {
    let Some(first) = group(0)? else { return Ok(None) };
    let (offset, pieces) = (first.offset, piece(&first.metadata, 0)?);
    let mut text = pieces.text.to_owned();
    for index in 1..pieces.count {
        let missing = || NotARecord(format!("piece {index} of micro-batch {offset} is missing"));
        // A crash between two transactions cannot mix pieces, since all are in one transaction; a
        // piece with another number was left by an older and longer record.
        let more = group(index)?.filter(|more| more.offset == offset).ok_or_else(missing)?;
        text.push_str(piece(&more.metadata, index)?.text);
    }
    let body: Body =
        serde_json::from_str(&text).map_err(|error| NotARecord(format!("{text}: {error}")))?;
    let number =
        u64::try_from(offset).map_err(|_| NotARecord(format!("its offset is {offset}")))?;
    let record = body.into_record(BatchId(number));
    Ok(Some(record.map_err(|error| NotARecord(format!("{text}: {error}")))?))
}

struct MetadataChunk<'a> {
    count: usize,
    text: &'a str,
}

fn piece(metadata: &str, index: usize) -> Result<MetadataChunk<'_>, NotARecord> {
    let parse = || {
        let (version, rest) = metadata.split_once(' ')?;
        let (place, text) = rest.split_once(' ')?;
        let (found, count) = place.split_once('/')?;
        let known = version.parse() == Ok(VERSION) && found.parse() == Ok(index);
        known.then_some(MetadataChunk { count: count.parse().ok()?, text })
    };
    parse().ok_or_else(|| {
        let version = format!("of a record of version {VERSION}");
        NotARecord(format!("'{metadata}' is not piece {index} {version}"))
    })
}

#[cfg(test)]
mod tests {
    use millstream_fuzz::{Target, outcome};

    use super::*;

    fn end_offsets(partitions: usize) -> EndOffsets {
        let offsets: Vec<String> = (0..partitions).map(|p| format!("\"{p}\":1234567890")).collect();
        let kafka = SourceOffset::new(format!("{{\"in\":{{{}}}}}", offsets.join(",")));
        EndOffsets { ends: vec![Some(kafka), None, Some(SourceOffset::new("7"))], batch_time_ms: 5 }
    }

    fn origin() -> Origin {
        let [query, flow, table] = ["q", "pii", "alerts"].map(str::to_owned);
        Origin { query, flow, topic: Some("out".to_owned()), table }
    }

    fn record(id: u64, end_offsets: EndOffsets) -> Record {
        let published = Published { batch_id: BatchId(id), end_offsets: Some(end_offsets) };
        Record { published, origin: Some(origin()) }
    }

    fn committed(id: i64, end_offsets: &EndOffsets, piece: usize) -> CommittedOffset {
        CommittedOffset { offset: id, metadata: encode(end_offsets, &origin())[piece].clone() }
    }

    #[test]
    fn records_are_read_back() {
        for partitions in [1, 200, 5_000] {
            let end_offsets = end_offsets(partitions);
            let pieces = encode(&end_offsets, &origin()).len();
            let group = |piece: usize| {
                assert!(piece < pieces);
                Ok::<_, NotARecord>(Some(committed(9, &end_offsets, piece)))
            };
            assert_eq!(decode(group), Ok(Some(record(9, end_offsets.clone()))));
        }
    }

    #[test]
    fn texts_are_read_back() {
        for partitions in [1, 5_000] {
            let end_offsets = end_offsets(partitions);
            let text = to_text(BatchId(7), &end_offsets, &origin());
            assert_eq!(parse(&text), Ok(record(7, end_offsets)));
        }
        let earlier = r#"{"version":1,"batchId":1,"batchTimeMs":1,"ends":[]}"#;
        assert_eq!(parse(earlier).map(|record| record.origin), Ok(None));
        for text in ["", "{}", r#"{"version":2,"batchId":1,"batchTimeMs":1,"ends":[]}"#] {
            assert!(parse(text).unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn pieces_fit_the_brokers_default() {
        let pieces = encode(&end_offsets(5_000), &origin());
        assert!(pieces.len() > 10);
        assert!(pieces.iter().all(|piece| piece.len() <= 4_096));
        assert_eq!(cut("aé", 2), ["a", "é"]);
    }

    #[test]
    fn no_offsets_are_no_record() {
        assert_eq!(decode(|_| Ok::<_, NotARecord>(None)), Ok(None));
    }

    #[test]
    fn foreign_metadata_is_shown() {
        let metadata = "2 0/1 {}".to_owned();
        let foreign = |_| {
            Ok::<_, NotARecord>(Some(CommittedOffset { offset: 3, metadata: metadata.clone() }))
        };
        let error = decode(foreign).unwrap_err();
        assert!(error.to_string().contains("'2 0/1 {}'"), "{error}");
        let long = end_offsets(5_000);
        // The other pieces are of an earlier, longer record.
        let torn = |piece: usize| {
            let id = if piece == 0 { 9 } else { 8 };
            Ok::<_, NotARecord>(Some(committed(id, &long, piece)))
        };
        assert!(decode(torn).unwrap_err().to_string().contains("piece 1"));
        let turned = |piece: usize| Ok::<_, NotARecord>(Some(committed(9, &long, 1 - piece)));
        let error = decode(turned).unwrap_err();
        assert!(error.to_string().contains("is not piece 0"), "{error}");
    }

    /// A record of progress, as a text of a topic and as pieces of metadata, one a line.
    #[test]
    fn fuzz_records_of_progress() {
        let seeds = [
            r#"{"version":1,"batchId":7,"batchTimeMs":5,"ends":[{"in":{"0":1}},null,7],
                "origin":{"query":"q","flow":"f","topic":null,"table":"t"}}"#,
            r#"{"version":1,"batchId":1,"batchTimeMs":1,"ends":[]}"#,
            "1 0/2 {\"batchTimeMs\":1,\n1 1/2 \"ends\":[]}",
            "1 0/1 {\"batchTimeMs\":1,\"ends\":[{\"in\":{\"0\":1}}]}",
        ];
        let words = &["1 0/1 ", "/", "\"ends\":[", "null", "{\n}", "\"batchId\":"];
        Target::text("kafka_progress").seeds(seeds).words(words).run(|input| {
            let text = String::from_utf8_lossy(input);
            let parsed = parse(&text);
            let pieces: Vec<&str> = text.split("\n1 ").collect();
            let group = |index: usize| {
                let piece = pieces.get(index).map(|piece| match index {
                    0 => (*piece).to_owned(),
                    _ => format!("1 {piece}"),
                });
                let committed = |metadata| CommittedOffset { offset: 3, metadata };
                Ok::<_, NotARecord>(piece.map(committed))
            };
            let decoded = decode(group);
            if let (Ok(record), Some(origin)) =
                (&parsed, parsed.as_ref().ok().and_then(|record| record.origin.as_ref()))
            {
                let ends = record.published.end_offsets.as_ref().expect("they are there");
                let again = to_text(record.published.batch_id, ends, origin);
                assert_eq!(parse(&again).as_ref(), Ok(record));
            }
            format!("{} {}", outcome(&parsed), outcome(&decoded))
        });
    }
}
