//! The words of a commit: the last micro-batch in it, and where the sources stood then.

use millstream_engine::api::sink::{BatchId, EndOffsets, SourceOffset};
use serde::{Deserialize, Serialize};

/// What a commit says in its `userMetadata`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Note {
    batch_id: u64,
    /// The flow's name; earlier versions did not tell.
    #[serde(default)]
    pub(super) flow: Option<String>,
    pub(super) batch_timestamp_ms: i64,
    /// Where each source stood after it, exclusive.
    pub(super) offsets: Vec<Option<SourceOffset>>,
}

impl Note {
    /// Where the query stood.
    pub(super) fn end_offsets(self) -> EndOffsets {
        EndOffsets { ends: self.offsets, batch_time_ms: self.batch_timestamp_ms }
    }
}

/// The words of a commit that takes the query of `flow` to `end_offsets`.
pub(super) fn note(flow: &str, batch_id: BatchId, end_offsets: &EndOffsets) -> String {
    let note = Note {
        batch_id: batch_id.0,
        flow: Some(flow.to_owned()),
        batch_timestamp_ms: end_offsets.batch_time_ms,
        offsets: end_offsets.ends.clone(),
    };
    serde_json::to_string(&note).expect("numbers and text")
}
