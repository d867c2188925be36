//! Reading the state log at a restart.

use std::collections::VecDeque;

use super::error::ReadError;
use super::file::{DecodeError, read};
use super::snapshot_reader::SnapshotReader;
use super::{CHANGES, Entry, Facts, PIECE, SNAPSHOT, changes_name, ids_of, path_of, snapshot_name};
use crate::checkpoint::Checkpoint;
use crate::layout;
use crate::offset::BatchId;
use crate::storage::{Durability, Storage, StorageError};

/// Reads `state/` piece by piece.
pub struct StateReader {
    storage: Storage,
    snapshots: Vec<BatchId>,
    /// First entries of the files that are still to be read.
    files: VecDeque<BatchId>,
    decoded: VecDeque<Entry>,
    last: Option<Facts>,
    /// First entries of all files, and all snapshots, as they were listed.
    listed: (Vec<BatchId>, Vec<BatchId>),
    /// The snapshot pieces that were listed; empty where another process may be writing some.
    pieces: Vec<String>,
}

impl StateReader {
    /// Lists what there is, deletes what a crash left half-written, and moves a last file aside
    /// that a power cut has torn: no ticket for it had completed.
    pub async fn open(checkpoint: &Checkpoint) -> Result<Self, ReadError> {
        let storage = checkpoint.storage().clone();
        let names = storage.list(layout::STATE).await?;
        // Only a local checkpoint has a lock. In an object store another process may still be
        // writing, and what looks left over may be its file.
        let is_alone = matches!(storage, Storage::Local(_));
        if is_alone {
            let half_written = names.iter().filter(|name| layout::is_temporary(name));
            storage.delete_many(half_written.map(|name| path_of(name)).collect()).await?;
        }
        check_numbers(&storage, &names)?;
        let (mut files, mut last) = (ids_of(&names, CHANGES), None);
        while let Some(first) = files.last() {
            let name = changes_name(*first);
            match read_changes(&storage, *first).await? {
                Ok(entries) => {
                    last = entries.last().map(|entry| entry.facts.clone());
                    break;
                }
                Err(DecodeError::CutOff) if is_alone => {
                    let aside = format!(
                        "{}/.{CHANGES}{first}.torn-{}",
                        layout::STATE,
                        checkpoint.env().random_uuid()
                    );
                    storage.rename(&name, &aside).await?;
                    let aside = storage.path_of(&aside);
                    tracing::warn!(name, aside, "a state file was torn; moved it aside");
                    files.pop();
                }
                Err(problem) => {
                    return Err(ReadError::Damaged { path: storage.path_of(&name), problem });
                }
            }
        }
        let reader = Self::of(storage, files, ids_of(&names, SNAPSHOT), last);
        let pieces = names.into_iter().filter(|name| is_alone && name.starts_with(PIECE));
        Ok(Self { pieces: pieces.collect(), ..reader })
    }

    /// As [`Self::open`], while somebody writes: nothing is repaired, and there is no last entry.
    pub async fn beside_a_writer(checkpoint: &Checkpoint) -> Result<Self, ReadError> {
        let storage = checkpoint.storage().clone();
        let names = storage.list(layout::STATE).await?;
        Ok(Self::of(storage, ids_of(&names, CHANGES), ids_of(&names, SNAPSHOT), None))
    }

    fn of(
        storage: Storage,
        files: Vec<BatchId>,
        snapshots: Vec<BatchId>,
        last: Option<Facts>,
    ) -> Self {
        let listed = (files.clone(), snapshots.clone());
        let (files, decoded) = (files.into(), VecDeque::new());
        Self { storage, snapshots, files, decoded, last, listed, pieces: Vec::new() }
    }

    /// Validates the state's marker, which describes the operators, against `form`; the first
    /// time the marker is written. `describe` says in words what is different.
    pub async fn check_form(
        &self,
        form: &str,
        describe: impl FnOnce(&str) -> String,
    ) -> Result<(), ReadError> {
        let name = format!("{}/{}", layout::STATE, layout::STATE_MARKER);
        match self.storage.get(&name).await? {
            None => {
                let bytes = form.as_bytes().to_vec();
                Ok(self.storage.put_if_absent(&name, bytes, Durability::Power).await?)
            }
            Some(known) if known == form.as_bytes() => Ok(()),
            Some(known) => {
                let changed = describe(&String::from_utf8_lossy(&known));
                Err(ReadError::QueryChanged { location: self.storage.location(), changed })
            }
        }
    }

    /// The newest snapshot; the entries up to it are then passed over. Pieces of other snapshots
    /// are deleted where nobody else writes and no snapshot is damaged: that one may be restored.
    ///
    /// # Errors
    ///
    /// A file cannot be read; or a snapshot is damaged, and its rows are nowhere else.
    pub async fn snapshot(&mut self) -> Result<Option<SnapshotReader>, ReadError> {
        let mut damaged = None;
        while let Some(id) = self.snapshots.pop() {
            let name = snapshot_name(id);
            let problem = match read(&self.storage, &name).await? {
                Ok(entries) if entries.first().is_some_and(|entry| entry.id() != id) => {
                    DecodeError::OfAnother
                }
                Ok(mut entries) if !entries.is_empty() => {
                    self.pass_below(id.next()).await?;
                    let snapshot = entries.swap_remove(0);
                    if damaged.is_none() {
                        self.delete_pieces_but(&snapshot.facts.pieces).await?;
                    }
                    let snapshot = SnapshotReader::new(self.storage.clone(), snapshot);
                    self.last.get_or_insert_with(|| snapshot.facts().clone());
                    return Ok(Some(snapshot));
                }
                Ok(_) => DecodeError::CutOff,
                Err(problem) => problem,
            };
            let path = self.storage.path_of(&name);
            // An older snapshot with more entries after it gives the same state.
            tracing::warn!(path, %problem, "a state snapshot cannot be read");
            damaged.get_or_insert((id, ReadError::Damaged { path, problem }));
        }
        // The last entry says from where on it needs entries, and it counts on the damaged
        // snapshot for everything before. If it needs just what follows that snapshot, the rows
        // in it are nowhere else, and the damage has to be reported.
        if damaged.is_none() {
            self.delete_pieces_but(&[]).await?;
        }
        match damaged {
            Some((id, error))
                if self.last.as_ref().is_none_or(|last| last.needs == id.next().0) =>
            {
                Err(error)
            }
            _ => Ok(None),
        }
    }

    /// Deletes the pieces of snapshots that a crash has left unfinished: together they could leave
    /// no room for the next one.
    async fn delete_pieces_but(&mut self, own: &[String]) -> Result<(), StorageError> {
        let mut others = std::mem::take(&mut self.pieces);
        others.retain(|name| !own.contains(name));
        self.storage.delete_many(others.iter().map(|name| path_of(name)).collect()).await
    }

    /// Passes over the entries below `first`.
    pub async fn pass_below(&mut self, first: BatchId) -> Result<(), ReadError> {
        while self.files.get(1).is_some_and(|next| *next <= first) {
            self.files.pop_front();
        }
        while self.peek().await?.is_some_and(|entry| entry.id() < first) {
            self.decoded.pop_front();
        }
        Ok(())
    }

    /// The micro-batch of the next entry.
    pub async fn next_id(&mut self) -> Result<Option<BatchId>, ReadError> {
        Ok(self.peek().await?.map(Entry::id))
    }

    /// The files that are there, first and last entry of each, ascending.
    pub(super) fn files(&self) -> Vec<(BatchId, BatchId)> {
        let firsts = &self.listed.0;
        let next = firsts.iter().skip(1).map(|next| BatchId(next.0 - 1));
        let last = self.last.as_ref().map_or(BatchId(0), Facts::id);
        firsts.iter().copied().zip(next.chain([last])).collect()
    }

    pub(super) fn snapshots(&self) -> &[BatchId] {
        &self.listed.1
    }

    /// The facts of the last entry, which may be a snapshot.
    pub fn last(&self) -> Option<&Facts> {
        self.last.as_ref()
    }

    /// The next entry.
    pub async fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        self.peek().await?;
        Ok(self.decoded.pop_front())
    }

    /// The next entry, unless it is above `end`.
    pub async fn next_up_to(&mut self, end: BatchId) -> Result<Option<Entry>, ReadError> {
        let is_wanted = self.peek().await?.is_some_and(|entry| entry.id() <= end);
        Ok(if is_wanted { self.decoded.pop_front() } else { None })
    }

    async fn peek(&mut self) -> Result<Option<&Entry>, ReadError> {
        while self.decoded.is_empty() {
            let Some(first) = self.files.pop_front() else { return Ok(None) };
            let name = changes_name(first);
            match read_changes(&self.storage, first).await? {
                Ok(entries) => self.decoded = entries.into(),
                Err(problem) => {
                    return Err(ReadError::Damaged { path: self.storage.path_of(&name), problem });
                }
            }
        }
        Ok(self.decoded.front())
    }

    /// The error that entries up to `missing` are not there.
    pub fn missing(&self, missing: BatchId) -> ReadError {
        let last = self.last.as_ref().map_or(missing, Facts::id);
        let location = self.storage.path_of(layout::STATE);
        ReadError::Missing { location, missing, last }
    }
}

fn check_numbers(storage: &Storage, names: &[String]) -> Result<(), ReadError> {
    let changes = layout::out_of_reach(&ids_of(names, CHANGES)).map(changes_name);
    let snapshot = layout::out_of_reach(&ids_of(names, SNAPSHOT)).map(snapshot_name);
    match changes.or(snapshot) {
        Some(name) => Err(ReadError::OutOfReach { path: storage.path_of(&name) }),
        None => Ok(()),
    }
}

/// The entries of the file that begins with entry `first`.
async fn read_changes(
    storage: &Storage,
    first: BatchId,
) -> Result<Result<Vec<Entry>, DecodeError>, StorageError> {
    let entries = read(storage, &changes_name(first)).await?;
    Ok(entries.and_then(|entries| match entries.first() {
        Some(entry) if entry.id() != first => Err(DecodeError::OfAnother),
        _ => Ok(entries),
    }))
}
