//! Deleting data files that no reader can ask for any more.
//!
//! A file may go if all of this holds:
//! - the newest version does not name it, as a data file or as a deletion vector;
//! - it was not removed within the retention: readers of older versions are promised that long;
//! - it was written before the retention began. A file that is about to be committed is younger.
//!
//! The directory is listed before the log is read, so a file that gets committed in between is
//! found in the log. Names that begin with `_` or `.` are not data and are left alone, directories
//! of partition columns that are called so excepted.
//!
//! Files are told apart by their names after decoding, and a name is kept in its encoded form too:
//! should a writer have encoded otherwise than the protocol says, its file stays.
//!
//! Origin: <https://docs.delta.io/latest/delta-utility.html>, "Remove files no longer referenced".

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, StructArray};
use arrow::datatypes::{Int64Type, Schema};
use delta_kernel::actions::deletion_vector::{DeletionVectorDescriptor, DeletionVectorStorageType};
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::engine::arrow_conversion::TryIntoKernel;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::schema::StructType;
use delta_kernel::transaction::UpdateTableOperation;
use delta_kernel::{KernelResult, SnapshotRef};
use url::Url;

use crate::checkpoint::interval_ms;
use crate::error::TableError;
use crate::read::{TableReader, live_files};
use crate::store::{Listed, TableStore};
use crate::table::ENGINE;

/// Where the table does not say: a week.
const RETENTION_MS: i64 = 7 * 86_400_000;
/// Deletions under one request's error.
const DELETED_AT_ONCE: usize = 1_000;

/// What is to be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacuumOptions {
    /// How long removed files are kept, in milliseconds; `None` for what the table says.
    pub retention_ms: Option<i64>,
    /// Allows a retention shorter than the table's. Readers of older versions may fail then, and
    /// writers may lose files that they have yet to commit.
    pub is_forced: bool,
    /// Only tells what would be deleted.
    pub is_dry_run: bool,
}

/// What was deleted, or would have been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vacuumed {
    /// The files, relative to the table's directory.
    pub files: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
    /// Files that nothing refers to and that are too young.
    pub files_young: u64,
}

/// Deletes the data files of the table that are not needed any more.
///
/// Errors: [`TableError::Retention`] for too short a retention; `Unsupported` if the table has a
/// feature that is not known here, as it may refer to files in ways of its own.
pub fn vacuum(store: &TableStore, options: &VacuumOptions) -> Result<Vacuumed, TableError> {
    let first = TableReader::open(store)?;
    let kept_ms = retention_ms(&first)?;
    let asked_ms = options.retention_ms.unwrap_or(kept_ms).max(0);
    if asked_ms < kept_ms && !options.is_forced {
        return Err(TableError::Retention { table: store.shown(), asked_ms, kept_ms });
    }
    let oldest_kept_ms = store.env().now_ms().saturating_sub(asked_ms);
    let failed = |error| TableError::store("cannot list", &store.shown(), &error);
    let listed = store.list("", None).map_err(failed)?;

    let reader = TableReader::open(store)?;
    check_features(&reader)?;
    let needed = needed(&reader, oldest_kept_ms)?;
    let columns = partition_directories(&reader);
    let mut vacuumed = Vacuumed::default();
    for file in listed.into_iter().filter(|file| is_data(&file.name, &columns)) {
        if needed.contains(&file.name) {
            continue;
        }
        match file {
            Listed { modified_ms, .. } if modified_ms >= oldest_kept_ms => {
                vacuumed.files_young += 1;
            }
            Listed { name, size, .. } => {
                vacuumed.bytes += size;
                vacuumed.files.push(name);
            }
        }
    }
    if !options.is_dry_run {
        for names in vacuumed.files.chunks(DELETED_AT_ONCE) {
            store.delete_many(names).map_err(|error| {
                TableError::store("cannot delete files of", &store.shown(), &error)
            })?;
        }
    }
    Ok(vacuumed)
}

/// How long the table wants removed files kept.
fn retention_ms(reader: &TableReader) -> Result<i64, TableError> {
    const KEY: &str = "delta.deletedFileRetentionDuration";
    let snapshot = reader.snapshot();
    let Some(text) = snapshot.metadata_configuration().get(KEY) else { return Ok(RETENTION_MS) };
    interval_ms(text).ok_or_else(|| TableError::Unsupported {
        table: reader.store().shown(),
        action: "written",
        problem: format!("its property {KEY} is {text:?}, which is no interval known here"),
    })
}

/// Whoever may not write to a table may not delete from it either.
fn check_features(reader: &TableReader) -> Result<(), TableError> {
    let snapshot = reader.snapshot();
    let operation = UpdateTableOperation::StreamingUpdate;
    let builder = Arc::clone(&snapshot).update_table(operation, ENGINE, true);
    let transaction = builder.build(reader.engine().as_ref(), Box::new(FileSystemCommitter::new()));
    let scan = transaction.and_then(|_| snapshot.scan_builder().build());
    scan.map(drop).map_err(|error| TableError::kernel("written", &reader.store().shown(), error))
}

/// The names of all files that some reader may ask for.
fn needed(reader: &TableReader, oldest_kept_ms: i64) -> Result<HashSet<String>, TableError> {
    let mut needed = Names { store: reader.store(), names: HashSet::new() };
    let root = reader.store().url().clone();
    for file in live_files(reader)? {
        needed.add(&root, &file.path);
    }
    // Deletion vectors of live files are found together with those of removed ones: all that the
    // log mentions stay, as a vector more costs little.
    let removed = reader.replay(|snapshot| mentioned(reader, snapshot, oldest_kept_ms))?;
    for path in removed {
        needed.add(&root, &path);
    }
    Ok(needed.names)
}

struct Names<'a> {
    store: &'a TableStore,
    names: HashSet<String>,
}

impl Names<'_> {
    fn add(&mut self, root: &Url, path: &str) {
        if let Ok(url) = root.join(path)
            && let Some(name) = self.store.name_of(&url)
        {
            self.names.insert(name);
        }
        self.names.insert(path.to_owned());
    }
}

/// The paths of files removed since `oldest_kept_ms`, and of deletion vectors.
fn mentioned(
    reader: &TableReader,
    snapshot: &SnapshotRef,
    oldest_kept_ms: i64,
) -> KernelResult<Vec<String>> {
    let schema = Schema::new(crate::checkpoint::file_actions());
    let schema: StructType = (&schema).try_into_kernel()?;
    let log = snapshot.log_segment();
    let mut paths = Vec::new();
    for actions in log.read_actions(reader.engine().as_ref(), Arc::new(schema))? {
        let actions = ArrowEngineData::try_from_engine_data(actions?.actions)?;
        let actions = actions.record_batch();
        let column = |name: &str| actions.column_by_name(name).map(|column| column.as_struct());
        if let Some(removes) = column("remove") {
            removed_since(removes, oldest_kept_ms, &mut paths);
        }
        for files in [column("add"), column("remove")].into_iter().flatten() {
            vectors(files, snapshot.table_root(), &mut paths)?;
        }
    }
    Ok(paths)
}

fn removed_since(removes: &StructArray, oldest_kept_ms: i64, paths: &mut Vec<String>) {
    let (Some(path), Some(at)) =
        (removes.column_by_name("path"), removes.column_by_name("deletionTimestamp"))
    else {
        return;
    };
    let (path, at) = (path.as_string::<i32>(), at.as_primitive::<Int64Type>());
    for row in (0..removes.len()).filter(|row| removes.is_valid(*row) && path.is_valid(*row)) {
        // One without a time is as old as can be.
        if at.is_valid(row) && at.value(row) >= oldest_kept_ms {
            paths.push(path.value(row).to_owned());
        }
    }
}

/// The files of the deletion vectors of these actions.
fn vectors(files: &StructArray, root: &Url, paths: &mut Vec<String>) -> KernelResult<()> {
    let Some(vector) = files.column_by_name("deletionVector") else { return Ok(()) };
    let vector = vector.as_struct();
    let (Some(storage), Some(place)) =
        (vector.column_by_name("storageType"), vector.column_by_name("pathOrInlineDv"))
    else {
        return Ok(());
    };
    let (storage, place) = (storage.as_string::<i32>(), place.as_string::<i32>());
    for row in (0..files.len()).filter(|row| vector.is_valid(*row) && storage.is_valid(*row)) {
        let storage_type = match storage.value(row) {
            "u" => DeletionVectorStorageType::PersistedRelative,
            "p" => DeletionVectorStorageType::PersistedAbsolute,
            _ => continue,
        };
        let descriptor = DeletionVectorDescriptor::try_new(
            storage_type,
            place.value(row).to_owned(),
            Some(0),
            1,
            0,
        )?;
        paths.extend(descriptor.absolute_path(root)?.map(String::from));
    }
    Ok(())
}

/// What the directories of partition columns may begin with.
fn partition_directories(reader: &TableReader) -> Vec<String> {
    let snapshot = reader.snapshot();
    let mapping = snapshot.table_configuration().column_mapping_mode();
    let mut names = reader.partition_columns();
    for name in names.clone() {
        if let Some(field) = snapshot.schema().field(&name) {
            names.push(field.physical_name(mapping).to_owned());
        }
    }
    names.iter().map(|name| format!("{name}=")).collect()
}

/// False for what is hidden and no partition.
fn is_data(name: &str, partition_directories: &[String]) -> bool {
    let mut pieces = name.split('/').peekable();
    while let Some(piece) = pieces.next() {
        let is_partition = pieces.peek().is_some()
            && partition_directories.iter().any(|column| piece.starts_with(column.as_str()));
        if piece.starts_with(['_', '.']) && !is_partition {
            return false;
        }
    }
    true
}
