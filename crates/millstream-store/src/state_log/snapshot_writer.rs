//! Snapshots, written in pieces: all state may be more than fits into memory.
//!
//! A snapshot of one piece is one file, an entry like any other. One of several has each piece in a
//! file of its own, and last comes the file that says which they are: before that there is no
//! snapshot. The pieces' names have something random in them, so that a crash in between leaves
//! no name that the next snapshot would need; what it leaves is deleted at the next restart.

use std::sync::Arc;

use super::file::Encoder;
use super::snapshot_reader::SnapshotPiece;
use super::write::{Shared, StateLog};
use super::{Entry, Facts, PIECE, path_of, snapshot_name};
use crate::layout;
use crate::log_writer::WriteError;
use crate::offset::BatchId;
use crate::storage::Durability;

/// Writes one snapshot. Before [`Self::finish`] there is none.
pub struct SnapshotWriter {
    shared: Arc<Shared>,
    facts: Facts,
    /// The last piece added, not written yet: if it stays the only one it goes into the snapshot.
    held: SnapshotPiece,
    names: Vec<String>,
    bytes: u64,
}

impl StateLog {
    /// Begins to write all state after the micro-batch of `facts`. The entries that it replaces
    /// go once a later one says that it does not need them.
    pub fn begin_snapshot(&self, facts: Facts) -> SnapshotWriter {
        SnapshotWriter::new(Arc::clone(&self.shared), facts)
    }
}

impl SnapshotWriter {
    fn new(shared: Arc<Shared>, facts: Facts) -> Self {
        Self { shared, facts, held: Vec::new(), names: Vec::new(), bytes: 0 }
    }

    /// Adds a piece.
    ///
    /// # Errors
    ///
    /// A piece before it cannot be written.
    pub async fn add(&mut self, piece: SnapshotPiece) -> Result<(), WriteError> {
        self.bytes += piece.iter().map(|section| section.len() as u64).sum::<u64>();
        let held = std::mem::replace(&mut self.held, piece);
        if !held.is_empty() {
            self.put_piece(held).await?;
        }
        Ok(())
    }

    async fn put_piece(&mut self, sections: SnapshotPiece) -> Result<(), WriteError> {
        let (id, random) = (self.facts.id(), self.shared.env.random_uuid());
        let name = format!("{PIECE}{id}-{random}");
        self.put(&path_of(&name), sections, Vec::new()).await?;
        self.names.push(name);
        Ok(())
    }

    /// Deletes the pieces written so far, so that they take no room from the next snapshot.
    pub async fn abandon(self) {
        let names = self.names.iter().map(|name| path_of(name)).collect();
        if let Err(error) = self.shared.storage.delete_many(names).await {
            tracing::warn!(%error, "pieces of a snapshot of the state cannot be deleted");
        }
    }

    async fn put(
        &self,
        name: &str,
        sections: SnapshotPiece,
        pieces: Vec<String>,
    ) -> Result<(), WriteError> {
        let mut encoder = Encoder::default();
        encoder.add(&Entry { facts: Facts { pieces, ..self.facts.clone() }, sections });
        let (storage, bytes) = (&self.shared.storage, encoder.finish());
        Ok(storage.put_if_absent(name, bytes, Durability::PowerAside).await?)
    }

    /// Makes it the snapshot, and deletes older ones. Gives the bytes of its sections. Nothing is
    /// added afterwards.
    ///
    /// # Errors
    ///
    /// It cannot be written; the one before is still there then.
    pub async fn finish(&mut self) -> Result<u64, WriteError> {
        let mut last = std::mem::take(&mut self.held);
        if !self.names.is_empty() {
            self.put_piece(std::mem::take(&mut last)).await?;
        }
        let id = self.facts.id();
        // From here on the pieces may be needed: a put that reports a failure may have succeeded.
        let pieces = std::mem::take(&mut self.names);
        self.put(&snapshot_name(id), last, pieces.clone()).await?;
        let older = std::mem::replace(&mut self.shared.queue.lock().snapshots, vec![id]);
        self.delete(older.into_iter().filter(|older| *older < id), &pieces).await;
        Ok(self.bytes)
    }

    /// Deletes `older` snapshots, and their pieces and those of unfinished snapshots, but not
    /// `own`. Later ones belong to another process, which has taken over.
    async fn delete(&self, older: impl Iterator<Item = BatchId>, own: &[String]) {
        let storage = &self.shared.storage;
        let mut names: Vec<String> = older.map(snapshot_name).collect();
        match storage.list(layout::STATE).await {
            Ok(found) => {
                let is_old = |name: &String| {
                    let id = name.strip_prefix(PIECE).and_then(|rest| rest.split('-').next());
                    let id = id.and_then(layout::batch_id);
                    id.is_some_and(|id| id <= self.facts.id()) && !own.contains(name)
                };
                let old = found.into_iter().filter(is_old);
                names.extend(old.map(|name| path_of(&name)));
            }
            Err(error) => tracing::warn!(%error, "old snapshots of the state cannot be listed"),
        }
        if let Err(error) = storage.delete_many(names).await {
            tracing::warn!(%error, "old snapshots of the state cannot be deleted");
        }
    }
}
