//! The record of progress: fields of one hash for each table, `millstream:progress:{TABLE}`.
//!
//! ```text
//! QUERY:claim     3-9f2c...    who may write: how many claimed before, and a token
//! QUERY:batch     41           the last micro-batch published
//! QUERY:record    {"version":1,"batchId":41,"batchTimeMs":...,"ends":["..."],"flow":"pii"}
//! QUERY:staged    41           while pieces of that micro-batch wait to be applied
//! QUERY:applied   3            in a cluster: those of them that were
//! ```
//!
//! The pieces of a micro-batch that is larger than one script may write are in the list
//! `millstream:staged:{TABLE}:QUERY`. The braces keep both in one slot of a cluster, where the keys
//! `millstream:written:{TAG}:TABLE:QUERY` say what was written in each slot.

use millstream_engine::api::sink::{BatchId, EndOffsets, OtherQuery, Published, SourceOffset};
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

/// The names of a query's keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// The hash with the record of progress.
    pub(super) record: String,
    /// The list of staged pieces.
    pub(super) staged: String,
    /// What the query's fields begin with.
    pub(super) query: String,
    table: String,
}

impl Keys {
    pub(super) fn new(table: &str, query: &str) -> Self {
        Self {
            record: format!("millstream:progress:{{{table}}}"),
            staged: format!("millstream:staged:{{{table}}}:{query}"),
            query: query.to_owned(),
            table: table.to_owned(),
        }
    }

    /// The key that says what was written in the slot of `tag`.
    pub(super) fn written(&self, tag: &str) -> String {
        format!("millstream:written:{{{tag}}}:{}:{}", self.table, self.query)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    version: u32,
    batch_id: u64,
    batch_time_ms: i64,
    /// Where each source stood after it, exclusive.
    ends: Vec<Option<SourceOffset>>,
    flow: String,
}

/// The record of micro-batch `batch_id` of the flow `flow`.
pub(super) fn encode(batch_id: BatchId, end_offsets: &EndOffsets, flow: &str) -> String {
    let text = Text {
        version: VERSION,
        batch_id: batch_id.0,
        batch_time_ms: end_offsets.batch_time_ms,
        ends: end_offsets.ends.clone(),
        flow: flow.to_owned(),
    };
    serde_json::to_string(&text).expect("texts and numbers are JSON")
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// What is wrong with it.
pub(super) fn decode(text: &str) -> Result<Published, String> {
    read(text).map(|text| Published {
        batch_id: BatchId(text.batch_id),
        end_offsets: Some(EndOffsets { ends: text.ends, batch_time_ms: text.batch_time_ms }),
    })
}

/// The queries whose records are among `fields`, names and values by turns, but for `own`.
pub(super) fn others(fields: &[(String, String)], own: &str) -> Vec<OtherQuery> {
    let other = |(name, value): &(String, String)| {
        let query_id = name.strip_suffix(":record").filter(|query| *query != own)?;
        let text = read(value).ok()?;
        Some(OtherQuery {
            query_id: query_id.to_owned(),
            flow: Some(text.flow),
            batch_id: BatchId(text.batch_id),
            at_ms: Some(text.batch_time_ms),
        })
    };
    fields.iter().filter_map(other).collect()
}

fn read(text: &str) -> Result<Text, String> {
    let read: Text = serde_json::from_str(text).map_err(|error| format!("{text}: {error}"))?;
    match read.version {
        VERSION => Ok(read),
        version => Err(format!("{text}: its version is {version}, not {VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back() {
        let ends = vec![Some(SourceOffset::new("{\"rows\":7}")), None];
        let end_offsets = EndOffsets { ends, batch_time_ms: 5 };
        let text = encode(BatchId(41), &end_offsets, "pii");
        let published = Published { batch_id: BatchId(41), end_offsets: Some(end_offsets) };
        assert_eq!(decode(&text), Ok(published));
        for damaged in ["", "{}", &text.replace("\"version\":1", "\"version\":2")] {
            assert!(decode(damaged).unwrap_err().contains(damaged), "{damaged}");
        }
    }

    #[test]
    fn records_of_others_are_told_from_the_rest() {
        let text = encode(BatchId(3), &EndOffsets::default(), "pii");
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = [
            field("own:record", &text),
            field("other:record", &text),
            field("other:claim", "1-a"),
            field("damaged:record", "{"),
        ];
        let found = others(&fields, "own");
        let [other] = &*found else { panic!("{found:?}") };
        assert_eq!((&*other.query_id, other.batch_id), ("other", BatchId(3)));
        assert_eq!(other.flow.as_deref(), Some("pii"));
    }
}
