//! Going through the log of a table, from a position on.

use std::sync::Arc;

use delta_kernel::schema::StructType;
use delta_kernel::table_features::ColumnMappingMode;

use super::actions::{FileLine, Metadata};
use super::changes;
use super::commit::{self, Commit, CommitFile, Glance, Lines};
use super::error::StreamError;
use super::file::{Change, Position, Step, StreamFile};
use super::initial::Pages;
use super::schema::Layout;
use super::{StreamTable, id_of, layout_of};
use crate::checkpoint::span;
use crate::error::TableError;
use crate::read::TableReader;

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
    /// The last version that was read, with its file.
    seen: Option<(u64, CommitFile)>,
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
        let mut follower = Self { table, rules, position, stage: Stage::Between, seen: None };
        let is_due = !position.is_in_snapshot && position.version <= follower.table.version;
        if is_due && commit::look(follower.table.store(), position.version)?.is_none() {
            follower.look_around()?;
        }
        follower.check_start()?;
        let seen = match follower.position.version.checked_sub(1) {
            Some(before) if !position.is_in_snapshot => {
                commit::look(follower.table.store(), before)?.map(|file| (before, file))
            }
            _ => None,
        };
        Ok(Self { seen, ..follower })
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
                    let next = pages.next().map_err(|cause| self.snapshot_gone(cause))?;
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
        let commit_ms = match commit::look(self.table.store(), version)? {
            Some(file) if self.table.gives_changes => {
                let stated = Commit::open(self.table.store(), version, file)?.glance()?;
                stated.in_commit_ms.unwrap_or(file.modified_ms)
            }
            Some(file) => file.modified_ms,
            None => 0,
        };
        let pages = Pages::new(reader, commit_ms, self.position.next_index());
        self.stage = Stage::Snapshot(pages);
        Ok(())
    }

    fn snapshot_gone(&self, cause: TableError) -> StreamError {
        match cause {
            cause @ (TableError::NotReadable { .. } | TableError::Irreplaceable { .. }) => {
                let (table, version) = (self.table.store().shown(), self.position.version);
                StreamError::SnapshotGone { table, version, cause }
            }
            cause => cause.into(),
        }
    }

    /// Opens the next commit, if it is there.
    fn open_commit(&mut self) -> Result<bool, StreamError> {
        let version = self.position.version;
        let Some(file) = commit::look(self.table.store(), version)? else { return Ok(false) };
        self.check_same_table()?;
        let commit = Commit::open(self.table.store(), version, file)?;
        let glance = commit.glance()?;
        if let Some(metadata) = &glance.metadata {
            self.check_metadata(version, metadata)?;
        }
        if glance.changes_protocol && version > self.table.version {
            // Whether it can be read any more is the library's to say.
            self.table.reader.at_newest()?;
        }
        let commit_ms = glance.in_commit_ms.unwrap_or(file.modified_ms);
        let files = self.files(&commit, &glance, commit_ms)?;
        let first = self.position.next_index();
        self.stage = Stage::Commit(Opened { commit, files, index: 0, first, commit_ms });
        self.seen = Some((version, file));
        Ok(true)
    }

    /// What is given of a commit. Origin: `validateCommitAndDecideSkipping`, `filterCDCActions`.
    fn files(&self, commit: &Commit, glance: &Glance, ms: i64) -> Result<Files, StreamError> {
        if self.table.gives_changes {
            return Ok(match glance {
                glance if glance.change_files > 0 => Files::Changes(commit.lines()),
                glance if glance.is_merge_of_nothing => Files::None,
                glance if glance.has_vectors => {
                    Files::Together(changes::of_vectors(commit, ms)?.into_iter())
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

    /// A table that was deleted and made anew may have reached the next version by now.
    fn check_same_table(&self) -> Result<(), StreamError> {
        let Some((version, file)) = self.seen else { return Ok(()) };
        if commit::look(self.table.store(), version)? == Some(file) {
            return Ok(());
        }
        self.check_id()
    }

    /// Refuses another table at the same place.
    fn check_id(&self) -> Result<(), StreamError> {
        let store = self.table.store();
        let found = id_of(&TableReader::open(store)?)?;
        let wanted = self.table.id.clone();
        if found == wanted {
            return Ok(());
        }
        Err(StreamError::OtherTable { table: store.shown(), wanted, found })
    }

    /// Looks around while the next version is not there: whether the table is still the same one,
    /// and whether the version is missing in a log that goes on behind it. Costs a listing.
    ///
    /// # Errors
    /// [`StreamError::Lost`] unless the rules let it pass; then the next version that is there is
    /// read next.
    pub fn look_around(&mut self) -> Result<(), StreamError> {
        if !matches!(self.stage, Stage::Between) || self.position.is_in_snapshot {
            return Ok(());
        }
        self.check_same_table()?;
        let (store, from) = (self.table.store(), self.position.version);
        let failed = |error| TableError::store("cannot list", &store.shown(), &error);
        let Some(next) = span::first_after(store, from).map_err(failed)? else { return Ok(()) };
        // It may have come meanwhile.
        if commit::look(store, from)?.is_some() {
            return Ok(());
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
        self.seen = None;
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
        let Some(change) = self.table.layout.misses(layout) else { return Ok(()) };
        let is_new = version > read;
        // A query that starts now has the new schema; may it read what this one has read?
        if is_new && layout.misses(&self.table.layout).is_none() {
            return Err(StreamError::SchemaChanged { table, version, change });
        }
        Err(StreamError::SchemaIncompatible { table, version, read, change })
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
            let file = changes::file(&self.commit, action, change, self.commit_ms);
            return Ok(Some((index, file, !of_changes)));
        }
        Ok(None)
    }
}
