//! A table that is open: its newest snapshot, in memory, and the sequence of our own commits.
//!
//! [`Table::append`] is the only thing on a stream's path. It makes one request, the put-if-absent
//! of version N+1, and the snapshot of that version follows from the one of N without reading
//! anything. Nothing is listed, no checkpoint is written there, and the cost does not depend on how
//! many files the table has.
//!
//! Every answer other than success leaves open whether the version is ours: a request may have been
//! carried out and its answer lost, and a client that repeats it hears that the name is taken. So
//! the version is read back and looked at (protocol, "Delta Log Entries"):
//!
//! - it is not there: the same attempt again;
//! - it has our attempt's mark: it is published;
//! - it is somebody else's: the attempt goes on at the version after the newest.
//!
//! However the snapshot comes to a version that was not committed here, every entry up to it is
//! looked at ([`Table::advance`]). Another schema or protocol ends what was prepared by the one
//! before, and a commit for one of our queries by another process ends that query here: its rows
//! and ours overlap, whatever the numbers of their micro-batches.
//!
//! A blind append conflicts with nothing else: it has read no files. A commit that puts files in
//! place of others ([`replace`]) conflicts with whoever has removed one of them.

mod commit;
pub(crate) mod merge;
pub(crate) mod replace;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::engine::arrow_conversion::{TryFromArrow, TryFromKernel, TryIntoKernel};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::schema::{StructField, StructType};
use delta_kernel::table_features::TableFeature;
use delta_kernel::transaction::data_layout::DataLayout;
use delta_kernel::transaction::{CommitResult, Transaction, UpdateTableOperation};
use delta_kernel::{KernelError, SnapshotRef};
use parking_lot::Mutex;

use crate::columns;
use crate::data_file::{self, DataFile};
use crate::entry::{self, Entry};
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::store::TableStore;

/// What commits say wrote them.
pub(crate) const ENGINE: &str = concat!("Millstream/", env!("CARGO_PKG_VERSION"));
/// After so long a table forgets who published what, if this is set.
const TRANSACTION_RETENTION: &str = "delta.setTransactionRetentionDuration";
/// How far back an entry is searched for: over two hours of a commit a second.
const ENTRIES_SEARCHED_MAX: u64 = 10_000;

/// A Delta table, open for writing. To be shared by all that write to it from this process.
pub struct Table {
    store: TableStore,
    engine: KernelEngine,
    state: Mutex<State>,
    /// The names of files that others, or merges here, have removed, and the last version that has,
    /// while somebody wants to know.
    removals: Mutex<Option<HashMap<String, u64>>>,
}

/// What became of an attempt to commit, and the names of the files that it changes.
type Attempted = (Result<CommitResult, KernelError>, Vec<String>);

struct State {
    snapshot: SnapshotRef,
    /// The last version that each application published, as far as it was asked for.
    published: HashMap<String, Option<i64>>,
    /// What others published for an application since it was last asked for.
    overtaken: HashMap<String, i64>,
    /// The last version by others that changed what rows are prepared by, and what it changed.
    changed: Option<(u64, &'static str)>,
    /// A version that was there and is not any more, and what is there instead.
    gone: Option<(u64, String)>,
}

/// What is to be appended in one commit.
pub struct Append<'a> {
    /// Who appends: the query's id.
    pub application: &'a str,
    /// The application's own count, the number of the last micro-batch in it. Must grow.
    pub version: i64,
    /// The files, already written.
    pub files: &'a [DataFile],
    /// The table's version that the files were prepared by
    /// ([`WritePlan::version`](crate::file_writer::WritePlan::version)).
    pub prepared_by: u64,
    /// What the commit says about itself (`userMetadata`), to be found again with
    /// [`Table::note_of`].
    pub note: &'a str,
}

/// An append that was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The table's version.
    pub version: u64,
    /// Commits by others that it had to go behind.
    pub conflicts: u32,
}

/// What [`Table::create`] makes.
pub struct NewTable<'a> {
    /// All columns, the partition columns among them.
    pub schema: &'a Schema,
    /// The columns that files are sorted into directories by.
    pub partition_by: &'a [String],
    /// `delta.*` and other properties.
    pub properties: &'a [(String, String)],
}

impl Table {
    /// Opens the table. Errors: [`TableError::Missing`] if there is none.
    pub fn open(store: &TableStore) -> Result<Self, TableError> {
        if !store.may_exist() {
            return Err(TableError::Missing { table: store.shown() });
        }
        let engine = KernelEngine::new(store);
        let snapshot = engine.snapshot(None)?;
        Ok(Self::at(store, engine, snapshot))
    }

    fn at(store: &TableStore, engine: KernelEngine, snapshot: SnapshotRef) -> Self {
        let (published, overtaken) = (HashMap::new(), HashMap::new());
        let state = Mutex::new(State { snapshot, published, overtaken, changed: None, gone: None });
        Self { store: store.clone(), engine, state, removals: Mutex::default() }
    }

    /// Makes a table without rows, or opens the one that somebody made at the same time.
    pub fn create(store: &TableStore, new: &NewTable<'_>) -> Result<Self, TableError> {
        let engine = KernelEngine::new(store);
        let failed = |error| TableError::kernel("written", &store.shown(), error);
        store.make_directory().map_err(|error| failed(KernelError::IOError(error)))?;
        let schema: StructType = new
            .schema
            .try_into_kernel()
            .map_err(|error: arrow::error::ArrowError| failed(KernelError::from(error)))?;
        let mut builder = delta_kernel::transaction::create_table::create_table(
            store.url().as_str(),
            Arc::new(schema),
            ENGINE,
            true,
        )
        .with_table_properties(new.properties.iter().cloned());
        if !new.partition_by.is_empty() {
            builder = builder.with_data_layout(DataLayout::partitioned(new.partition_by.iter()));
        }
        let committed = builder
            .build(&engine, Box::new(FileSystemCommitter::new()))
            .and_then(|transaction| transaction.commit(&engine));
        match committed {
            Ok(CommitResult::Committed(committed)) => match committed.post_commit_snapshot() {
                Some(snapshot) => Ok(Self::at(store, engine, Arc::clone(snapshot))),
                None => Self::open(store),
            },
            Ok(_) | Err(KernelError::TableAlreadyExistsAtPath(_)) => Self::open(store),
            Err(error) => Err(failed(error)),
        }
    }

    /// Where the table's files are.
    pub fn store(&self) -> &TableStore {
        &self.store
    }

    /// The table's own identifier, which another at the same place does not have.
    pub fn id(&self) -> String {
        let snapshot = self.snapshot();
        let metadata = serde_json::to_value(snapshot.table_configuration().metadata());
        let metadata = metadata.unwrap_or_default();
        metadata["id"].as_str().unwrap_or_default().to_owned()
    }

    /// The newest version known here.
    pub fn version(&self) -> u64 {
        self.snapshot().version()
    }

    pub(crate) fn snapshot(&self) -> SnapshotRef {
        Arc::clone(&self.state.lock().snapshot)
    }

    pub(crate) fn engine(&self) -> &KernelEngine {
        &self.engine
    }

    /// The table's columns, partition columns among them, in Arrow's types.
    pub fn schema(&self) -> Result<SchemaRef, TableError> {
        self.schema_of(&self.snapshot())
    }

    pub(crate) fn schema_of(&self, snapshot: &SnapshotRef) -> Result<SchemaRef, TableError> {
        let schema = Schema::try_from_kernel(snapshot.schema().as_ref());
        let schema = schema.map_err(|error| self.kernel_error("read", error.into()))?;
        Ok(Arc::new(schema))
    }

    /// The columns that files are sorted into directories by.
    pub fn partition_columns(&self) -> Vec<String> {
        self.snapshot().table_configuration().logical_partition_columns().to_vec()
    }

    /// Their names in files and in the log.
    pub(crate) fn physical_partition_columns(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        let mapping = snapshot.table_configuration().column_mapping_mode();
        let physical = |name: String| {
            let schema = snapshot.schema();
            let field = schema.field(&name);
            field.map_or(name.clone(), |field| field.physical_name(mapping).to_owned())
        };
        self.partition_columns().into_iter().map(physical).collect()
    }

    /// The number of live files: each one's action is read, and none is kept.
    pub fn count_files(&self) -> Result<u64, KernelError> {
        let scan = self.snapshot().scan_builder().build()?;
        let mut count = 0;
        for metadata in scan.scan_metadata(&self.engine)? {
            count = metadata?.visit_scan_files(count, |count, _| *count += 1)?;
        }
        Ok(count)
    }

    /// Whether the table has the feature that V2 checkpoints need.
    pub fn has_v2_checkpoints(&self) -> bool {
        let snapshot = self.snapshot();
        snapshot.table_configuration().is_feature_supported(&TableFeature::V2Checkpoint)
    }

    /// A property of the table, `delta.checkpointInterval` say.
    pub fn property(&self, key: &str) -> Option<String> {
        self.snapshot().metadata_configuration().get(key).cloned()
    }

    /// The version that `application` published last, from here or anywhere. To be asked before it
    /// appends; what others publish for it from now on ends it.
    pub fn last_published(&self, application: &str) -> Result<Option<i64>, TableError> {
        let mut state = self.state.lock();
        self.advance(&mut state, None)?;
        state.published.remove(application);
        state.overtaken.remove(application);
        self.last_in(&mut state, application)
    }

    fn last_in(&self, state: &mut State, application: &str) -> Result<Option<i64>, TableError> {
        if let Some(known) = state.published.get(application) {
            return Ok(*known);
        }
        let mut found = loop {
            match state.snapshot.get_app_id_version(application, &self.engine) {
                Ok(found) => break found,
                Err(error) => {
                    let version = Some(state.snapshot.version());
                    self.engine.pass_over(version, error)?;
                    state.snapshot = self.engine.snapshot(version)?;
                }
            }
        };
        let configuration = state.snapshot.metadata_configuration();
        if found.is_none() && configuration.contains_key(TRANSACTION_RETENTION) {
            // It may have been there and be forgotten by now. The log remembers longer.
            let version = state.snapshot.version();
            let by = self.find_entry(version, |entry| entry.published(application).is_some())?;
            found = by.and_then(|entry| entry.published(application));
        }
        state.published.insert(application.to_owned(), found);
        Ok(found)
    }

    /// What the commit said in which `application` published `version`: its `note`. `None` if the
    /// log has been cleaned up that far.
    pub fn note_of(&self, application: &str, version: i64) -> Result<Option<String>, TableError> {
        let is_it = |entry: &Entry| entry.published(application) == Some(version);
        Ok(self.find_entry(self.version(), is_it)?.and_then(|entry| entry.note))
    }

    /// The newest entry up to `version` that is as wanted, as far back as the log goes, but not
    /// through months of other writers' commits.
    fn find_entry(
        &self,
        version: u64,
        is_wanted: impl Fn(&Entry) -> bool,
    ) -> Result<Option<Entry>, TableError> {
        let oldest = version.saturating_sub(ENTRIES_SEARCHED_MAX);
        for at in (oldest..=version).rev() {
            match self.entry(at)? {
                Some(entry) if is_wanted(&entry) => return Ok(Some(entry)),
                Some(_) => {}
                None => break,
            }
        }
        Ok(None)
    }

    /// Entry `version` of the log, `None` if it is not there.
    pub(crate) fn entry(&self, version: u64) -> Result<Option<Entry>, TableError> {
        let name = entry::name(version);
        match self.store.get(&name) {
            Ok(bytes) => {
                let entry = Entry::parse(&bytes);
                let table = self.store.shown_file(&name);
                Ok(Some(entry.map_err(|problem| TableError::Damaged { table, problem })?))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => {
                Err(TableError::store("cannot read", &self.store.shown_file(&name), &error))
            }
        }
    }

    /// Publishes files in one commit. Gives `None` if the application has published this version,
    /// or a later one, before: then nothing is done.
    pub fn append(&self, append: &Append<'_>) -> Result<Option<Appended>, TableError> {
        Ok(self.append_then(append)?.map(|(appended, _)| appended))
    }

    /// [`Table::append`], with the snapshot of the version that it made, or of a later one.
    pub(crate) fn append_then(
        &self,
        append: &Append<'_>,
    ) -> Result<Option<(Appended, SnapshotRef)>, TableError> {
        self.publish(append, |snapshot, note| {
            Ok((self.attempt(snapshot, append, note), Vec::new()))
        })
    }

    /// Publishes the micro-batch of `append` by one commit, unless the application has published
    /// it, or a later one. `attempt` makes the commit on top of a version, with the note that it is
    /// given, and names the files that are then not as they were; it is asked again after each
    /// commit by others.
    fn publish(
        &self,
        append: &Append<'_>,
        mut attempt: impl FnMut(&SnapshotRef, &str) -> Result<Attempted, TableError>,
    ) -> Result<Option<(Appended, SnapshotRef)>, TableError> {
        let mut state = self.state.lock();
        if self.last_in(&mut state, append.application)? >= Some(append.version) {
            return Ok(None);
        }
        let _turn = self.store.in_foreground();
        let mark = self.store.env().random_uuid().to_string();
        let note = entry::marked(append.note, &mark);
        let mut touched = Vec::new();
        let attempt = |state: &State| {
            self.check_valid(state, append)?;
            self.check_is_there(state)?;
            let (result, files) = attempt(&state.snapshot, &note)?;
            touched = files;
            Ok(Some(result))
        };
        let appended = self.commit(&mut state, &mark, attempt)?.expect("it is never given up");
        state.published.insert(append.application.to_owned(), Some(append.version));
        self.note_removals(touched, appended.version);
        Ok(Some((appended, Arc::clone(&state.snapshot))))
    }

    /// Refuses to go behind a version that is gone: the table was deleted, or put back from a copy,
    /// and the next version would be the beginning of another, or stand behind a hole. On a local
    /// disk this is looked at each time; on an object store, where it would be a request,
    /// [`Self::look_again`] does.
    fn check_is_there(&self, state: &State) -> Result<(), TableError> {
        let version = state.snapshot.version();
        if let Some((version, found)) = state.gone.clone() {
            return Err(TableError::Gone { table: self.store.shown(), version, found });
        }
        match self.store.has_on_disk(&entry::name(version)) {
            Some(false) => self.look_for(version),
            Some(true) | None => Ok(()),
        }
    }

    /// Looks whether the newest version is there still, beside appends; if not, the next one is
    /// refused. To be called now and then where the table is on an object store. Blocks.
    pub fn look_again(&self) {
        let version = self.version();
        let name = entry::name(version);
        let is_away = self.store.has_on_disk(&name).is_none()
            && matches!(self.store.head(&name), Err(object_store::Error::NotFound { .. }));
        if is_away && let Err(TableError::Gone { version, found, .. }) = self.look_for(version) {
            self.state.lock().gone = Some((version, found));
        }
    }

    /// Whether the table has `version`, whose entry is not there: an old one goes where a
    /// checkpoint has all that it said.
    fn look_for(&self, version: u64) -> Result<(), TableError> {
        match self.engine.snapshot(None).map(|newest| newest.version()) {
            Ok(newest) if newest >= version => Ok(()),
            newest => {
                let found = found_instead(newest.ok());
                Err(TableError::Gone { table: self.store.shown(), version, found })
            }
        }
    }

    /// Refuses what others' commits have made void.
    fn check_valid(&self, state: &State, append: &Append<'_>) -> Result<(), TableError> {
        let table = || self.store.shown();
        if let Some(theirs) = state.overtaken.get(append.application) {
            let (theirs, ours) = (*theirs, append.version);
            return Err(TableError::Fenced { table: table(), theirs, ours });
        }
        match state.changed {
            Some((version, what)) if version > append.prepared_by => {
                Err(TableError::Changed { table: table(), what, version })
            }
            _ => Ok(()),
        }
    }

    fn attempt(
        &self,
        snapshot: &SnapshotRef,
        append: &Append<'_>,
        note: &str,
    ) -> Result<CommitResult, KernelError> {
        let mut transaction = self.transaction(snapshot, !append.files.is_empty())?;
        if !append.files.is_empty() {
            let stats_schema = transaction.stats_schema()?;
            let files = data_file::add_actions(append.files, &stats_schema)?;
            transaction.add_files(Box::new(ArrowEngineData::new(files)));
        }
        let (info, schema) = commit_info(note)?;
        transaction
            .with_transaction_id(append.application.to_owned(), append.version)
            .with_commit_info(info, schema)
            .commit(&self.engine)
    }

    /// A transaction on `snapshot`; fails if the table has a feature that is not written here.
    pub(crate) fn transaction(
        &self,
        snapshot: &SnapshotRef,
        is_blind_append: bool,
    ) -> Result<Transaction, KernelError> {
        let operation = UpdateTableOperation::StreamingUpdate;
        let builder = Arc::clone(snapshot).update_table(operation, ENGINE, true);
        let builder = if is_blind_append { builder.with_blind_append() } else { builder };
        builder.build(&self.engine, Box::new(FileSystemCommitter::new()))
    }

    /// Brings the snapshot to the newest version, and remembers what others did on the way. `mark`
    /// is that of an attempt of our own that may be among them. If something cannot be read, all
    /// is as it was.
    fn advance(&self, state: &mut State, mark: Option<&str>) -> Result<(), TableError> {
        let newer = self.engine.newer(&state.snapshot)?;
        let seen = state.snapshot.version();
        let mut entries = Vec::new();
        for version in seen + 1..=newer.version() {
            // It was there a moment ago; without it nothing can be said about it.
            let Some(entry) = self.entry(version)? else {
                let problem = format!("version {version} is gone while it was needed");
                return Err(TableError::Damaged { table: self.store.shown(), problem });
            };
            entries.push((version, entry));
        }
        state.snapshot = newer;
        for (version, entry) in entries {
            if let Some(what) = entry.changed() {
                state.changed = Some((version, what));
            }
            let is_ours = mark.is_some() && entry.mark.as_deref() == mark;
            if !is_ours {
                self.note_removals(entry.removed.iter().map(|path| self.file_name(path)), version);
            }
            for (application, published) in entry.applications {
                if !is_ours && state.published.contains_key(&application) {
                    state.overtaken.insert(application.clone(), published);
                }
                state.published.insert(application, Some(published));
            }
        }
        Ok(())
    }

    /// Adds the columns of `query` that the table has not, at its end (Spark's `mergeSchema`). One
    /// commit of its own, before any rows that have them.
    pub fn add_columns(&self, query: &Schema) -> Result<(), TableError> {
        loop {
            let mut state = self.state.lock();
            let unknown = columns::unknown_columns(query, &*self.schema_of(&state.snapshot)?);
            if unknown.is_empty() {
                return Ok(());
            }
            let committed = self.alter(&state.snapshot, &unknown);
            match committed.map_err(|error| self.kernel_error("written", error))? {
                // Rows that were prepared before are as good as they were: they lack the columns.
                CommitResult::Committed(committed) => match committed.post_commit_snapshot() {
                    Some(snapshot) => state.snapshot = Arc::clone(snapshot),
                    None => self.advance(&mut state, None)?,
                },
                // Somebody else may have added them, or others.
                CommitResult::Conflicted(_) => self.advance(&mut state, None)?,
                CommitResult::Retryable(retryable) => {
                    return Err(self.kernel_error("written", retryable.error));
                }
            }
        }
    }

    fn alter(
        &self,
        snapshot: &SnapshotRef,
        columns: &[FieldRef],
    ) -> Result<CommitResult, KernelError> {
        let mut builder =
            Arc::clone(snapshot).update_table(UpdateTableOperation::AlterTable, ENGINE, false);
        for column in columns {
            // Rows that are there already have no value for it.
            let column = column.as_ref().clone().with_nullable(true);
            builder = builder.add_column(StructField::try_from_arrow(&column)?);
        }
        builder.build(&self.engine, Box::new(FileSystemCommitter::new()))?.commit(&self.engine)
    }

    /// Takes the newest checkpoint into use: the snapshot in memory has every commit since the one
    /// it was opened with. Reads outside the lock; if a commit is made meanwhile, nothing is taken.
    pub(crate) fn renew(&self) -> Result<(), TableError> {
        let fresh = self.engine.snapshot(None)?;
        let mut state = self.state.lock();
        if fresh.version() == state.snapshot.version() {
            state.snapshot = fresh;
        }
        Ok(())
    }

    pub(crate) fn kernel_error(&self, action: &'static str, error: KernelError) -> TableError {
        TableError::kernel(action, &self.store.shown(), error)
    }
}

/// What is there in place of a version that is gone, in words.
pub fn found_instead(newest: Option<u64>) -> String {
    match newest {
        Some(newest) => format!("the table ends at version {newest}"),
        None => "there is no table that can be read".to_owned(),
    }
}

/// The commit's own words, as the protocol library takes them.
fn commit_info(
    note: &str,
) -> Result<(Box<dyn delta_kernel::EngineData>, delta_kernel::schema::SchemaRef), KernelError> {
    let schema = Schema::new(vec![Field::new("userMetadata", DataType::Utf8, true)]);
    let kernel_schema: StructType = (&schema).try_into_kernel()?;
    let column = Arc::new(StringArray::from(vec![note]));
    let row = RecordBatch::try_new(Arc::new(schema), vec![column])?;
    Ok((Box::new(ArrowEngineData::new(row)), Arc::new(kernel_schema)))
}
