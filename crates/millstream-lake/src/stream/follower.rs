//! Going through the log of a table, from a position on.

use std::collections::VecDeque;
use std::sync::Arc;

use delta_kernel::schema::StructType;
use delta_kernel::table_features::ColumnMappingMode;

use super::actions::{FileLine, Metadata};
use super::changes;
use super::commit::{self, Commit, CommitFile, Glance, Lines, Mark};
use super::error::StreamError;
use super::file::{Change, Position, Step, StreamFile};
use super::initial::Pages;
use super::schema::Layout;
use super::{StreamTable, id_of, layout_of};
use crate::checkpoint::span;
use crate::error::TableError;
use crate::read::TableReader;

/// Commits that are fetched together while the stream is behind: of 4 MB each at most.
const AHEAD_MAX: u64 = 8;

/// What a stream does about commits that do more than add rows. The names are those of Spark's
/// options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Commits that only delete rows are left out.
    pub ignore_deletes: bool,
    /// Files that a commit adds are given, also if it removes others.
    pub ignore_changes: bool,
    /// Commits that remove rows are left out as a whole.
    pub skip_change_commits: bool,
    /// Versions that are gone are an error; else they are passed over.
    pub fail_on_data_loss: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            ignore_deletes: false,
            ignore_changes: false,
            skip_change_commits: false,
            fail_on_data_loss: true,
        }
    }
}

/// Goes through the log of a table. Its methods block.
pub struct Follower {
    table: Arc<StreamTable>,
    rules: Rules,
    position: Position,
    stage: Stage,
    /// The last version that was read.
    seen: Option<Mark>,
    /// The table's id was compared since nothing is seen.
    is_same_table: bool,
    /// Commits from the position on, fetched.
    ahead: VecDeque<Commit>,
    /// Commits that were there one after the other.
    found_in_a_row: u64,
    /// A version that is known to have been there.
    known: u64,
}

/// Where the next step comes from.
enum Stage {
    /// Nothing is open.
    Between,
    Snapshot(Pages),
    Commit(Opened),
}

/// A commit whose files are given.
struct Opened {
    commit: Commit,
    files: Files,
    /// The number of the next file.
    index: u64,
    /// Files with lower numbers were given before.
    first: u64,
    commit_ms: i64,
    is_partitioned: bool,
}

enum Files {
    /// Those that it adds.
    Added(Lines),
    /// Those that it adds and removes.
    AddedAndRemoved(Lines),
    /// Those of its changes.
    Changes(Lines),
    /// Those of a commit with deletion vectors.
    Together(std::vec::IntoIter<(u64, StreamFile)>),
    /// It is left out.
    None,
}

impl Follower {
    /// Goes on behind `position`, of the table with the id that `table` has.
    ///
    /// # Errors
    /// What is there cannot be read with the table's schema, or is not there any more.
    pub fn new(
        table: Arc<StreamTable>,
        position: Position,
        rules: Rules,
    ) -> Result<Self, StreamError> {
        let mut follower = Self {
            rules,
            position,
            stage: Stage::Between,
            seen: None,
            is_same_table: false,
            ahead: VecDeque::new(),
            found_in_a_row: 0,
            known: table.version,
            table,
        };
        let is_due = !position.is_in_snapshot && position.version <= follower.table.version;
        if is_due && commit::look(follower.table.store(), position.version)?.is_none() {
            follower.look_around()?;
        }
        follower.check_start()?;
        let seen = match follower.position.version.checked_sub(1) {
            Some(before) if !position.is_in_snapshot => {
                Commit::find(follower.table.store(), before)?.map(|commit| commit.mark())
            }
            _ => None,
        };
        Ok(Self { seen, ..follower })
    }

    /// Says that `version` is or was there: should it not come, that is an error.
    pub fn expect(&mut self, version: u64) {
        self.known = self.known.max(version);
    }

    /// Behind which place the next step lies.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The next step; `None` if the next version is not there yet.
    pub fn next_step(&mut self) -> Result<Option<Step>, StreamError> {
        loop {
            match &mut self.stage {
                Stage::Between if self.position.is_in_snapshot => self.open_snapshot()?,
                Stage::Between => {
                    if !self.open_commit()? {
                        return Ok(None);
                    }
                }
                Stage::Snapshot(pages) => {
                    let begins_page = pages.is_at_end_of_page();
                    let next = pages.next().map_err(|cause| self.snapshot_gone(cause))?;
                    if begins_page {
                        // The log was replayed once more.
                        self.check_same_table()?;
                    }
                    return Ok(Some(match next {
                        Some(file) => self.went_past(self.position.next_index(), file, true),
                        None => self.end_of_version(),
                    }));
                }
                Stage::Commit(opened) => {
                    let Some((index, file, may_end)) = opened.next()? else {
                        return Ok(Some(self.end_of_version()));
                    };
                    if index >= opened.first {
                        return Ok(Some(self.went_past(index, file, may_end)));
                    }
                }
            }
        }
    }

    fn went_past(&mut self, index: u64, file: StreamFile, may_end: bool) -> Step {
        self.position.index = Some(index);
        Step { after: self.position, file: Some(file), may_end }
    }

    fn end_of_version(&mut self) -> Step {
        self.stage = Stage::Between;
        self.position = Position::before(self.position.version + 1);
        Step { after: self.position, file: None, may_end: true }
    }

    fn open_snapshot(&mut self) -> Result<(), StreamError> {
        let version = self.position.version;
        let opened = self.table.reader.at_version(version);
        let reader = opened.map_err(|cause| self.snapshot_gone(cause))?;
        self.compare_id(id_of(&reader)?)?;
        let commit = Commit::find(self.table.store(), version)?;
        let commit_ms = match &commit {
            Some(commit) if self.table.gives_changes => {
                Some(commit.glance()?.in_commit_ms.unwrap_or(commit.file.modified_ms))
            }
            Some(commit) => Some(commit.file.modified_ms),
            None => None,
        };
        self.seen = commit.map(|commit| commit.mark());
        let pages = Pages::new(reader, commit_ms, self.position.next_index());
        self.stage = Stage::Snapshot(pages);
        Ok(())
    }

    fn snapshot_gone(&self, cause: TableError) -> StreamError {
        match cause {
            cause @ (TableError::NotReadable { .. }
            | TableError::Irreplaceable { .. }
            // It was there when the stream began.
            | TableError::Missing { .. }) => {
                let (table, version) = (self.table.store().shown(), self.position.version);
                StreamError::SnapshotGone { table, version, cause }
            }
            cause => cause.into(),
        }
    }

    /// Opens the next commit, if it is there.
    fn open_commit(&mut self) -> Result<bool, StreamError> {
        let version = self.position.version;
        if self.ahead.front().is_none_or(|commit| commit.version != version) {
            self.fetch_ahead()?;
        }
        let Some(commit) = self.ahead.pop_front() else { return Ok(false) };
        let glance = commit.glance()?;
        if let Some(metadata) = &glance.metadata {
            self.check_metadata(version, metadata)?;
        }
        if glance.changes_protocol && version > self.table.version {
            // Whether it can be read any more is the library's to say.
            self.table.reader.at_newest()?;
        }
        let commit_ms = glance.in_commit_ms.unwrap_or(commit.file.modified_ms);
        let files = self.files(&commit, &glance, commit_ms)?;
        let first = self.position.next_index();
        let is_partitioned = self.is_partitioned();
        self.seen = Some(commit.mark());
        self.stage =
            Stage::Commit(Opened { commit, files, index: 0, first, commit_ms, is_partitioned });
        Ok(true)
    }

    /// Fetches the next commits, as far as they are there: one while the stream waits for it, and
    /// more while there is one after the other. Whether the last one that was read is still the
    /// same is asked together with the next ones, or once something has come.
    fn fetch_ahead(&mut self) -> Result<(), StreamError> {
        self.ahead.clear();
        let is_behind = self.found_in_a_row > 0;
        let seen = self.seen.filter(|_| is_behind);
        let count = self.found_in_a_row.clamp(1, AHEAD_MAX);
        let (besides, first) = (seen.map(|seen| seen.version), self.position.version);
        let found = commit::find_some(self.table.store(), besides, first, count)?;
        if found.commits.is_empty() {
            self.found_in_a_row = 0;
            return Ok(());
        }
        match seen {
            Some(seen) => self.check_seen(seen, found.besides)?,
            None => self.check_same_table()?,
        }
        self.found_in_a_row += found.commits.len() as u64;
        self.ahead = found.commits.into();
        Ok(())
    }

    fn is_partitioned(&self) -> bool {
        !self.table.layout.partition_columns.is_empty()
    }

    /// What is given of a commit. Origin: `validateCommitAndDecideSkipping`, `filterCDCActions`.
    fn files(&self, commit: &Commit, glance: &Glance, ms: i64) -> Result<Files, StreamError> {
        if self.table.gives_changes {
            return Ok(match glance {
                glance if glance.change_files > 0 => Files::Changes(commit.lines()),
                glance if glance.is_merge_of_nothing => Files::None,
                glance if glance.has_vectors => {
                    Files::Together(self.together(commit, ms)?.into_iter())
                }
                _ => Files::AddedAndRemoved(commit.lines()),
            });
        }
        let Some(removed) = &glance.removed else { return Ok(Files::Added(commit.lines())) };
        let Rules { ignore_deletes, ignore_changes, skip_change_commits, .. } = self.rules;
        if skip_change_commits {
            return Ok(Files::None);
        }
        let (table, version) = (self.table.store().shown(), commit.version);
        match glance.adds_rows {
            true if !ignore_changes => {
                let change = glance.operation.clone().unwrap_or_else(|| removed.clone());
                Err(StreamError::Changed { table, version, change })
            }
            false if !ignore_deletes && !ignore_changes => {
                Err(StreamError::Deleted { table, version, file: removed.clone() })
            }
            _ => Ok(Files::Added(commit.lines())),
        }
    }

    fn together(&self, commit: &Commit, ms: i64) -> Result<Vec<(u64, StreamFile)>, StreamError> {
        changes::of_vectors(commit, self.is_partitioned(), ms)
    }

    /// A table that was deleted and made anew, or put back from a copy, may have reached the next
    /// version by now.
    fn check_same_table(&mut self) -> Result<(), StreamError> {
        if let Some(seen) = self.seen {
            let there = commit::look(self.table.store(), seen.version)?;
            return self.check_seen(seen, there);
        }
        if !self.is_same_table {
            match self.check_id() {
                // With a version missing the table has no id; what is behind it may be read.
                Err(StreamError::Table(TableError::Damaged { .. })) => {}
                checked => drop(checked?),
            }
            self.is_same_table = true;
        }
        Ok(())
    }

    /// Whether the commit that was `seen`, in whose place the file `there` is, is still the same.
    fn check_seen(&mut self, seen: Mark, there: Option<CommitFile>) -> Result<(), StreamError> {
        if there == Some(seen.file) {
            return Ok(());
        }
        let newest = self.check_id()?;
        let (store, version) = (self.table.store(), seen.version);
        let Some(commit) = Commit::find(store, version)? else {
            if newest >= version {
                // It was cleaned up.
                return Ok(());
            }
            return Err(StreamError::Shrunk { table: store.shown(), read: version, newest });
        };
        if !seen.is_of(&commit) {
            return Err(StreamError::Rewritten { table: store.shown(), version });
        }
        // A copy of the same table.
        self.seen = Some(seen.with_file(commit.file));
        Ok(())
    }

    /// Refuses another table at the same place; gives the newest version of the same.
    fn check_id(&self) -> Result<u64, StreamError> {
        let reader = TableReader::open(self.table.store())?;
        self.compare_id(id_of(&reader)?)?;
        Ok(reader.version())
    }

    fn compare_id(&self, found: String) -> Result<(), StreamError> {
        let wanted = self.table.id.clone();
        if found == wanted {
            return Ok(());
        }
        Err(StreamError::OtherTable { table: self.table.store().shown(), wanted, found })
    }

    /// Looks around while the next version is not there: whether the table is still the same one,
    /// and whether the version is missing in a log that goes on behind it. Costs a listing.
    ///
    /// # Errors
    /// [`StreamError::Lost`] unless the rules let it pass; then the next version that is there is
    /// read next. [`StreamError::Shrunk`] if a version that was [expected](Self::expect) is not
    /// there, nor one behind it.
    pub fn look_around(&mut self) -> Result<(), StreamError> {
        if !matches!(self.stage, Stage::Between) || self.position.is_in_snapshot {
            return Ok(());
        }
        self.check_same_table()?;
        let (store, from) = (self.table.store(), self.position.version);
        let failed = |error| TableError::store("cannot list", &store.shown(), &error);
        let next = span::first_after(store, from).map_err(failed)?;
        // It may have come meanwhile.
        if (next.is_none() && from > self.known) || commit::look(store, from)?.is_some() {
            return Ok(());
        }
        let next = match next {
            Some(next) => next,
            // A checkpoint may be all that is left of it.
            None => TableReader::open(store)?.version() + 1,
        };
        if next <= from {
            let (table, read) = (store.shown(), self.known);
            return Err(StreamError::Shrunk { table, read, newest: next - 1 });
        }
        let lost = match commit::look(store, from.saturating_sub(1))? {
            Some(_) => "they are missing in the middle of the log",
            None => "they were cleaned up",
        };
        let (table, to) = (store.shown(), next - 1);
        if self.rules.fail_on_data_loss {
            return Err(StreamError::Lost { table, from, to, lost, next });
        }
        tracing::warn!(table, from, to, lost, "versions are lost; going on behind them");
        self.position = Position::before(next);
        (self.seen, self.is_same_table) = (None, false);
        Ok(())
    }

    /// What is checked before the first step.
    fn check_start(&self) -> Result<(), StreamError> {
        let (table, position) = (&self.table, self.position);
        if position.version > table.version + 1 {
            let newest = table.newest()?;
            if position.version > newest + 1 {
                let (table, read) = (table.store().shown(), position.version - 1);
                return Err(StreamError::Shrunk { table, read, newest });
            }
        }
        if position.version >= table.version {
            return Ok(());
        }
        let old = match table.reader.at_version(position.version) {
            Ok(old) => old,
            // The commits alone may still be there; each says if it changes the schema.
            Err(
                TableError::NotReadable { .. }
                | TableError::Irreplaceable { .. }
                | TableError::Damaged { .. },
            ) if !position.is_in_snapshot && self.may_begin_blindly() => return Ok(()),
            Err(cause) if position.is_in_snapshot => return Err(self.snapshot_gone(cause)),
            Err(cause) => return Err(cause.into()),
        };
        let snapshot = old.snapshot();
        let has_feed = super::actions::has_change_feed(snapshot.metadata_configuration());
        self.check_layout(position.version, &layout_of(&snapshot), has_feed)
    }

    /// Whether rows of a version are read right without its schema.
    fn may_begin_blindly(&self) -> bool {
        !self.table.gives_changes && self.table.layout.mapping == ColumnMappingMode::None
    }

    fn check_metadata(&self, version: u64, metadata: &Metadata) -> Result<(), StreamError> {
        if metadata.id != self.table.id {
            let (table, wanted) = (self.table.store().shown(), self.table.id.clone());
            return Err(StreamError::OtherTable { table, wanted, found: metadata.id.clone() });
        }
        let schema: Result<StructType, _> = serde_json::from_str(&metadata.schema_string);
        let schema = schema.map_err(|error| TableError::Damaged {
            table: self.table.store().shown(),
            problem: format!("the schema of version {version} makes no sense: {error}"),
        })?;
        let mapping = metadata.configuration.get("delta.columnMapping.mode");
        let layout = Layout {
            schema,
            partition_columns: metadata.partition_columns.clone(),
            mapping: match mapping.and_then(|mode| mode.as_deref()) {
                Some("name") => ColumnMappingMode::Name,
                Some("id") => ColumnMappingMode::Id,
                _ => ColumnMappingMode::None,
            },
        };
        self.check_layout(version, &layout, metadata.has_change_feed())
    }

    /// Whether files of `version`, which are written under `layout`, can be read.
    fn check_layout(
        &self,
        version: u64,
        layout: &Layout,
        has_feed: bool,
    ) -> Result<(), StreamError> {
        let (table, read) = (self.table.store().shown(), self.table.version);
        if self.table.gives_changes && !has_feed {
            return Err(StreamError::NoChangeFeed { table, version });
        }
        let (ours, is_new) = (&self.table.layout, version > read);
        let missed = ours.misses(layout);
        // Files without a column could be read, and nobody would hear that it was dropped.
        let missed = missed.or_else(|| layout.lacks(ours).filter(|_| is_new));
        let Some(change) = missed else { return Ok(()) };
        if !is_new {
            let changed = self.first_fitting(version);
            return Err(StreamError::SchemaIncompatible { table, version, read, changed, change });
        }
        // A query that starts now has the new schema; may it read what this one has read?
        Err(match layout.misses(ours) {
            None => StreamError::SchemaChanged { table, version, change },
            Some(_) => StreamError::SchemaReplaced { table, version, change },
        })
    }

    /// The first version behind `misfit` whose files can be read; by halves, for a message.
    fn first_fitting(&self, misfit: u64) -> u64 {
        let (mut misfit, mut fits) = (misfit, self.table.version);
        while fits - misfit > 1 {
            let middle = misfit.midpoint(fits);
            let old = self.table.reader.at_version(middle);
            let is_fit = old
                .is_ok_and(|old| self.table.layout.misses(&layout_of(&old.snapshot())).is_none());
            if is_fit { fits = middle } else { misfit = middle }
        }
        fits
    }
}

impl Opened {
    /// The next file with its number, and whether a micro-batch may end behind it.
    fn next(&mut self) -> Result<Option<(u64, StreamFile, bool)>, StreamError> {
        let (lines, with_removed, of_changes) = match &mut self.files {
            Files::None => return Ok(None),
            Files::Together(files) => {
                return Ok(files.next().map(|(index, file)| (index, file, false)));
            }
            Files::Added(lines) => (lines, false, false),
            Files::AddedAndRemoved(lines) => (lines, true, false),
            Files::Changes(lines) => (lines, false, true),
        };
        while let Some(FileLine { add, remove, cdc }) = lines.next()? {
            let found = if of_changes {
                cdc.map(|file| (file, Change::Stated))
            } else if with_removed {
                let add = add.map(|file| (file, Change::Insert));
                let remove = remove.map(|file| (file, Change::Delete));
                add.or(remove).filter(|(file, _)| file.data_change)
            } else {
                add.filter(|file| file.data_change).map(|file| (file, Change::Insert))
            };
            let Some((action, change)) = found else { continue };
            let index = self.index;
            self.index += 1;
            let (commit, ms) = (&self.commit, self.commit_ms);
            let file = match change {
                Change::Delete => changes::removed_file(commit, action, self.is_partitioned, ms)?,
                _ => changes::file(commit, action, change, ms),
            };
            return Ok(Some((index, file, !of_changes)));
        }
        Ok(None)
    }
}
