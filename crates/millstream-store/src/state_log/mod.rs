//! The state log: what each micro-batch changed in the state of a query's operators.
//!
//! Entry N has the changes of micro-batch N, as bytes that the operators alone understand, and the
//! facts that another run needs to continue after it ([`Facts`]). State is the result of applying
//! the entries in order, so a restart reads a snapshot, if there is one, and the entries after it.
//!
//! ```text
//! state/millstream-state     describes the operators that made the state, in JSON
//! state/changes-<N>          the entries of micro-batches N, N+1, ...; see [`file`] for the bytes
//! state/snapshot-<N>         all state after micro-batch N, or the names of its pieces
//! state/piece-<N>-<random>   a piece of it, where it has several
//! ```
//!
//! Entries are handed over one by one and written several to a file, in the background: a file is
//! begun when [`WriteSettings::gathering`] has passed since the last one, or at once when somebody
//! waits. Who publishes rows waits ([`Ticket::written`]): what the outside has seen must follow
//! from state that survives. A micro-batch that only gathers rows, as most do that fill a window,
//! waits for nothing; after a crash its rows are read again.
//!
//! Files are flushed to the disk. Their names are taken from the first entry, so a second process
//! that goes on from the same place finds the name taken and stops.

mod error;
pub mod file;
mod read;
mod snapshot_reader;
mod snapshot_writer;
mod write;

pub use error::ReadError;
pub use file::Section;
pub use read::StateReader;
pub use snapshot_reader::{SnapshotPiece, SnapshotReader};
pub use snapshot_writer::SnapshotWriter;
pub use write::{KeptFiles, StateLog, Ticket, WriteSettings};

use serde::{Deserialize, Serialize};

use crate::layout;
use crate::offset::{BatchId, SourceOffset};

/// Where a query stands after a micro-batch, besides its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// The micro-batch.
    pub batch_id: u64,
    /// Its time, milliseconds since the epoch.
    pub batch_time_ms: i64,
    /// Where each source was read from, in plan order; `None` at its initial offset.
    pub starts: Vec<Option<SourceOffset>>,
    /// Where each source was read to, exclusive, in plan order; `None` before its first offset.
    pub ends: Vec<Option<SourceOffset>>,
    /// The watermark it ran with, milliseconds since the epoch: what has ended by then is closed.
    pub watermark_ms: i64,
    /// The watermark of the micro-batch before: rows that are older are late.
    pub late_ms: i64,
    /// The watermark of the next micro-batch.
    pub next_watermark_ms: i64,
    /// By source, the watermark that follows from its rows alone; `None` before its first row.
    #[serde(default)]
    pub seen_ms: Vec<Option<i64>>,
    /// The lowest entry that was needed beside this one to rebuild the state.
    #[serde(default)]
    pub needs: u64,
    /// The last micro-batch that all sinks had acknowledged by then.
    #[serde(default)]
    pub acknowledged: Option<u64>,
    /// The files with the pieces of a snapshot, in order; none where it is in one piece.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<String>,
}

impl Facts {
    /// The micro-batch.
    pub fn id(&self) -> BatchId {
        BatchId(self.batch_id)
    }
}

/// A micro-batch's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where the query stands after it.
    pub facts: Facts,
    /// By operator, what changed; empty where nothing did.
    pub sections: Vec<Vec<u8>>,
}

impl Entry {
    /// The micro-batch.
    pub fn id(&self) -> BatchId {
        self.facts.id()
    }
}

const CHANGES: &str = "changes-";
const SNAPSHOT: &str = "snapshot-";
const PIECE: &str = "piece-";

fn changes_name(first: BatchId) -> String {
    format!("{}/{CHANGES}{first}", layout::STATE)
}

fn snapshot_name(id: BatchId) -> String {
    format!("{}/{SNAPSHOT}{id}", layout::STATE)
}

fn path_of(name: &str) -> String {
    format!("{}/{name}", layout::STATE)
}

/// The ids in the names that begin with `prefix`, ascending.
fn ids_of(names: &[String], prefix: &str) -> Vec<BatchId> {
    let ids = names.iter().filter_map(|name| layout::batch_id(name.strip_prefix(prefix)?));
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids
}

#[cfg(test)]
mod tests;
