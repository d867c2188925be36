//! Reading a snapshot, one piece in memory at a time.

use std::collections::VecDeque;

use super::error::ReadError;
use super::{Entry, Facts, file, path_of};
use crate::storage::Storage;

/// The sections of a piece, as an entry has them: by operator input, rows; empty for none.
pub type SnapshotPiece = Vec<Vec<u8>>;

/// Reads one snapshot, piece by piece.
pub struct SnapshotReader {
    storage: Storage,
    facts: Facts,
    /// The first one where there is only one.
    whole: Option<SnapshotPiece>,
    names: VecDeque<String>,
}

impl SnapshotReader {
    pub(super) fn new(storage: Storage, snapshot: Entry) -> Self {
        let Entry { mut facts, sections } = snapshot;
        let names = VecDeque::from(std::mem::take(&mut facts.pieces));
        let whole = names.is_empty().then_some(sections);
        Self { storage, facts, whole, names }
    }

    /// Where the query stood.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The next piece.
    ///
    /// # Errors
    ///
    /// It is damaged, or cannot be read.
    pub async fn next(&mut self) -> Result<Option<SnapshotPiece>, ReadError> {
        if let Some(whole) = self.whole.take() {
            return Ok(Some(whole));
        }
        let Some(name) = self.names.pop_front() else { return Ok(None) };
        let name = path_of(&name);
        match file::read(&self.storage, &name).await? {
            Ok(entries) => Ok(entries.into_iter().next().map(|piece| piece.sections)),
            Err(problem) => Err(ReadError::Damaged { path: self.storage.path_of(&name), problem }),
        }
    }
}
