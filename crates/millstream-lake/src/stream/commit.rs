//! One commit of the log, read line by line, twice: what it does as a whole decides whether any of
//! its files is given, and a `remove` may be its last line.
//!
//! A commit of some megabytes is fetched once. A larger one is fetched in pieces, and again for
//! the second pass, so that a commit of a million files is never in memory as a whole.

use std::hash::{DefaultHasher, Hasher};

use bytes::{Bytes, BytesMut};
use object_store::Error;
use serde::de::DeserializeOwned;

use super::actions::{GlanceLine, Metadata};
use crate::entry;
use crate::error::TableError;
use crate::store::{Listed, TableStore};

/// What is fetched at once.
const PIECE_BYTES: u64 = 4 << 20;

/// A commit that is there.
#[derive(Clone)]
pub(super) struct Commit {
    store: TableStore,
    pub(super) version: u64,
    pub(super) file: CommitFile,
    /// Its content, where it is one piece.
    whole: Option<Bytes>,
}

/// What tells one file from another of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommitFile {
    pub(super) bytes: u64,
    /// Milliseconds since the epoch.
    pub(super) modified_ms: i64,
}

/// A commit that was read, to be compared with what stands in its place later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) version: u64,
    pub(super) file: CommitFile,
    /// A hash of its content, unless that is large.
    content: Option<u64>,
}

impl Mark {
    /// Whether `other`, a commit of the same version, says the same.
    pub(super) fn is_of(&self, other: &Commit) -> bool {
        let other = other.mark();
        self.file.bytes == other.file.bytes && self.content == other.content
    }

    /// The same commit, whose file is now `file`.
    pub(super) fn with_file(self, file: CommitFile) -> Self {
        Self { file, ..self }
    }
}

/// What [`find_some`] has found.
pub(super) struct Found {
    /// The file of the version that was asked for besides.
    pub(super) besides: Option<CommitFile>,
    /// Versions that follow each other.
    pub(super) commits: Vec<Commit>,
}

/// Up to `count` commits from `first` on, as far as they are there, and the facts of the commit
/// `besides`: all in one round trip.
pub(super) fn find_some(
    store: &TableStore,
    besides: Option<u64>,
    first: u64,
    count: u64,
) -> Result<Found, TableError> {
    let asked = besides.map(|version| (entry::name(version), 0));
    let versions = first..first.saturating_add(count);
    let asked: Vec<(String, u64)> = asked
        .into_iter()
        .chain(versions.clone().map(|version| (entry::name(version), PIECE_BYTES)))
        .collect();
    let failed = |name: &str, error: &Error| {
        TableError::store("cannot read", &store.shown_file(name), error)
    };
    let answers = store.get_small(&asked).map_err(|error| failed(&entry::name(first), &error))?;
    let mut answers = answers.into_iter().zip(&asked);
    let mut found = Found { besides: None, commits: Vec::new() };
    if let Some((answer, (name, _))) = besides.and_then(|_| answers.next()) {
        let file = answer.map_err(|error| failed(name, &error))?;
        found.besides = file.map(|(file, _)| CommitFile::of(&file));
    }
    for ((answer, (name, _)), version) in answers.zip(versions) {
        match answer {
            Ok(Some((file, whole))) => {
                let (store, file) = (store.clone(), CommitFile::of(&file));
                found.commits.push(Commit { store, version, file, whole });
            }
            Ok(None) => break,
            Err(error) if found.commits.is_empty() => return Err(failed(name, &error)),
            // It is asked for again when it is the first.
            Err(_) => break,
        }
    }
    Ok(found)
}

impl CommitFile {
    fn of(file: &Listed) -> Self {
        Self { bytes: file.size, modified_ms: file.modified_ms }
    }
}

/// The facts of the commit `version`, if it is there: one request.
pub(super) fn look(store: &TableStore, version: u64) -> Result<Option<CommitFile>, TableError> {
    let name = entry::name(version);
    match store.head(&name) {
        Ok(file) => Ok(Some(CommitFile::of(&file))),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(TableError::store("cannot read", &store.shown_file(&name), &error)),
    }
}

impl Commit {
    /// The commit `version`, if it is there: one request.
    pub(super) fn find(store: &TableStore, version: u64) -> Result<Option<Self>, TableError> {
        Ok(find_some(store, None, version, 1)?.commits.pop())
    }

    /// What it is known again by.
    pub(super) fn mark(&self) -> Mark {
        let content = self.whole.as_ref().map(|whole| {
            let mut hasher = DefaultHasher::new();
            hasher.write(whole);
            hasher.finish()
        });
        Mark { version: self.version, file: self.file, content }
    }

    /// Its lines, from the first on.
    pub(super) fn lines(&self) -> Lines {
        Lines { commit: self.clone(), fetched: 0, held: Bytes::new(), number: 0 }
    }

    /// What it does as a whole.
    pub(super) fn glance(&self) -> Result<Glance, TableError> {
        if self.file.bytes == 0 {
            return Err(self.damaged("it is empty".to_owned()));
        }
        let mut glance = Glance::default();
        let mut lines = self.lines();
        while let Some(line) = lines.next::<GlanceLine>()? {
            glance.add(line);
        }
        Ok(glance)
    }

    /// The table's location, for people.
    pub(super) fn shown_table(&self) -> String {
        self.store.shown()
    }

    pub(super) fn damaged(&self, problem: String) -> TableError {
        let table = self.store.shown_file(&entry::name(self.version));
        TableError::Damaged { table, problem }
    }
}

fn fetch(
    store: &TableStore,
    version: u64,
    range: std::ops::Range<u64>,
) -> Result<Bytes, TableError> {
    let name = entry::name(version);
    let failed = |error| TableError::store("cannot read", &store.shown_file(&name), &error);
    store.get_range(&name, range).map_err(failed)
}

/// The lines of a commit, one after the other.
pub(super) struct Lines {
    commit: Commit,
    /// Bytes fetched so far.
    fetched: u64,
    /// Those that were not given yet.
    held: Bytes,
    /// Lines given, for messages.
    number: u64,
}

impl Lines {
    /// The next line that is not blank, decoded; `None` at the end.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, TableError> {
        loop {
            let Some(line) = self.next_bytes()? else { return Ok(None) };
            self.number += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let decoded = serde_json::from_slice(&line);
            return decoded.map(Some).map_err(|error| {
                self.commit.damaged(format!("line {} is no action: {error}", self.number))
            });
        }
    }

    fn next_bytes(&mut self) -> Result<Option<Bytes>, TableError> {
        let mut searched = 0;
        loop {
            let found = self.held[searched..].iter().position(|byte| *byte == b'\n');
            if let Some(found) = found {
                let mut line = self.held.split_to(searched + found + 1);
                line.truncate(searched + found);
                return Ok(Some(line));
            }
            searched = self.held.len();
            if self.fetched == self.commit.file.bytes {
                return Ok((searched > 0).then(|| std::mem::take(&mut self.held)));
            }
            self.fetch_more()?;
        }
    }

    fn fetch_more(&mut self) -> Result<(), TableError> {
        if let Some(whole) = &self.commit.whole {
            (self.held, self.fetched) = (whole.clone(), self.commit.file.bytes);
            return Ok(());
        }
        let end = (self.fetched + PIECE_BYTES).min(self.commit.file.bytes);
        let piece = fetch(&self.commit.store, self.commit.version, self.fetched..end)?;
        if piece.len() as u64 != end - self.fetched {
            let problem = format!("it has fewer than {} bytes now", self.commit.file.bytes);
            return Err(self.commit.damaged(problem));
        }
        self.fetched = end;
        self.held = if self.held.is_empty() {
            piece
        } else {
            let mut joined = BytesMut::with_capacity(self.held.len() + piece.len());
            joined.extend_from_slice(&self.held);
            joined.extend_from_slice(&piece);
            joined.freeze()
        };
        Ok(())
    }
}

/// What a commit does as a whole.
#[derive(Default)]
pub(super) struct Glance {
    /// It adds a file whose rows are new.
    pub(super) adds_rows: bool,
    /// A file that it removes, with its rows.
    pub(super) removed: Option<String>,
    /// Files that hold its changes.
    pub(super) change_files: u64,
    /// A file that is added or removed with its rows has a deletion vector.
    pub(super) has_vectors: bool,
    pub(super) metadata: Option<Metadata>,
    pub(super) changes_protocol: bool,
    /// What its writer calls it.
    pub(super) operation: Option<String>,
    /// The time that it states, milliseconds since the epoch.
    pub(super) in_commit_ms: Option<i64>,
    pub(super) is_merge_of_nothing: bool,
}

impl Glance {
    fn add(&mut self, line: GlanceLine) {
        if let Some(add) = line.add.filter(|add| add.data_change) {
            self.adds_rows = true;
            self.has_vectors |= add.deletion_vector.is_some();
        }
        if let Some(remove) = line.remove.filter(|remove| remove.data_change) {
            self.has_vectors |= remove.deletion_vector.is_some();
            self.removed.get_or_insert(remove.path);
        }
        self.change_files += u64::from(line.cdc.is_some());
        self.changes_protocol |= line.protocol.is_some();
        if line.meta_data.is_some() {
            self.metadata = line.meta_data;
        }
        if let Some(info) = line.commit_info {
            self.is_merge_of_nothing = info.is_merge_of_nothing();
            self.in_commit_ms = info.in_commit_timestamp;
            self.operation = info.operation;
        }
    }
}
