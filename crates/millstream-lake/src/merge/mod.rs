//! Rows of a stream merged into a table by key: a row takes the place of the one with its key.
//!
//! What Spark's `MERGE INTO` does for each micro-batch, with a commit of one request and without
//! reading the table each time. From rows to a commit:
//! 1. a [`MergeWriter`] keeps the last row of each [key](keys) and writes those that stay into
//!    files ([`writer`]);
//! 2. an [index](index) in memory says in which rows of which files the keys are. It follows the
//!    log: what each commit, of whomever, has added and removed ([`log`], [`files`]). Of new files
//!    the key columns are read ([`scan`]), but for those of this flow's rows, which are known;
//! 3. these rows are named in deletion vectors ([`vectors`]), or, where the table has none, their
//!    files are written anew without them ([`rewrite`]);
//! 4. one commit adds the new files, changes the old ones, and moves the query's progress on
//!    ([`crate::table::merge`]). If somebody else was first, the index follows the log and steps 2
//!    to 4 are done again: nobody's row with one of the keys is left over.
//!
//! The index has a limit. What does not fit is read: the key columns of files that may have one of
//! the keys, by their partition and [bounds], with each commit.

mod bounds;
mod files;
mod index;
pub(crate) mod keys;
mod log;
mod resolve;
mod rewrite;
mod scan;
mod sync;
mod vectors;
mod writer;

use std::sync::Arc;

use arrow::datatypes::Schema;
use delta_kernel::table_features::TableFeature;
use serde_json::json;

use crate::error::TableError;
use crate::file_writer::{FileSettings, WritePlan};
use crate::kernel::KernelEngine;
use crate::maintenance::LiveTable;
use crate::store::TableStore;
use crate::table::{Append, Appended, Table};

pub use keys::{NO_KEY, can_be_key};
pub use writer::{MergePlan, MergeRows, MergeWriter};

use files::LiveFiles;
use index::KeyIndex;
use keys::KeyColumns;
use resolve::Resolved;

/// Memory of a commit's keys, about, for each.
const KEY_BYTES: usize = 64;
/// Bytes of rows that a commit holds at most, before they go into files.
const HELD_BYTES: usize = 64 << 20;

/// How rows are merged.
#[derive(Clone, Debug)]
pub struct MergeSettings {
    /// The key columns.
    pub keys: Vec<String>,
    /// The query's column that says which rows are deleted, BOOLEAN.
    pub delete_column: Option<String>,
    /// Memory for the index, in bytes; up to as much again is for the keys of one commit, and a
    /// quarter of it for its rows.
    pub index_bytes: usize,
    /// A key that comes twice in a commit is an error: nothing says which row is the last.
    pub refuses_repeated: bool,
    /// How files are written.
    pub files: FileSettings,
}

/// Merges rows into one table, for one query.
pub struct Merger {
    live: Arc<LiveTable>,
    store: TableStore,
    engine: KernelEngine,
    plan: MergePlan,
    files: LiveFiles,
    index: KeyIndex,
    index_bytes: usize,
    has_vectors: bool,
    parameters: Vec<(&'static str, String)>,
    /// The version that files and index are of.
    synced: Option<u64>,
    /// Files that are not in the index yet: new ones, and those that there was no room for.
    fresh: Vec<u32>,
    /// Whether files were removed since entries of rows that are gone were let go.
    has_gone: bool,
    /// What the commit under way changes, and the version before it.
    pending: Option<(u64, Resolved)>,
}

impl Merger {
    /// For rows of `query`. Reads the key columns of the table, as far as memory goes.
    ///
    /// Errors: [`TableError::Unsupported`] where the table has a property that rules it out,
    /// [`TableError::Mismatch`] where the keys do not fit it.
    pub fn open(
        live: &Arc<LiveTable>,
        query: &Schema,
        settings: &MergeSettings,
    ) -> Result<Self, TableError> {
        let table = live.table();
        check_features(table)?;
        let store = table.store().clone();
        let plan = plan(table, query, settings)?;
        let mut merger = Self {
            live: Arc::clone(live),
            engine: KernelEngine::new(&store),
            store,
            files: LiveFiles::default(),
            index: KeyIndex::new(),
            index_bytes: settings.index_bytes,
            has_vectors: has_vectors(table),
            parameters: parameters(&plan.keys, settings.delete_column.as_deref()),
            plan,
            synced: None,
            fresh: Vec::new(),
            has_gone: false,
            pending: None,
        };
        merger.sync(&table.snapshot())?;
        Ok(merger)
    }

    /// How rows are merged.
    pub fn plan(&self) -> &MergePlan {
        &self.plan
    }

    /// Whether the rows that are replaced are named in deletion vectors.
    pub fn has_vectors(&self) -> bool {
        self.has_vectors
    }

    /// How many files the index has the keys of, and how many there are.
    pub fn files_indexed(&self) -> (usize, usize) {
        let indexed = self.files.iter().filter(|(_, file)| file.is_indexed).count();
        (indexed, self.files.iter().count())
    }

    /// Publishes `rows` in one commit, as micro-batch `append`, whose files are not looked at.
    /// Gives `None` if the query has published it, or a later one, before: then nothing is done.
    pub fn commit(
        &mut self,
        append: &Append<'_>,
        rows: &MergeRows,
    ) -> Result<Option<Appended>, TableError> {
        self.pending = None;
        let live = Arc::clone(&self.live);
        let parameters = self.parameters.clone();
        let merged = live.merge(append, &parameters, |snapshot| self.changes(snapshot, rows));
        let Some(appended) = merged? else { return Ok(None) };
        let files = self.applied(appended.version, rows);
        live.merged(append.application, appended.version, files);
        Ok(Some(appended))
    }
}

fn plan(table: &Table, query: &Schema, settings: &MergeSettings) -> Result<MergePlan, TableError> {
    let mismatch = |problem| TableError::Mismatch { table: table.store().shown(), problem };
    let is_it = |name: &str| query.fields().iter().position(|field| field.name() == name);
    let delete = match settings.delete_column.as_deref() {
        None => None,
        Some(name) => Some(is_it(name).ok_or_else(|| {
            mismatch(format!("the query has no column {name}, which 'delete.column' names"))
        })?),
    };
    let written = (0..query.fields().len()).filter(|index| Some(*index) != delete);
    let written = query.project(&written.collect::<Vec<_>>()).expect("they are columns of it");
    // What comes for one place between two commits is one file: rows are numbered in it.
    let files = FileSettings { target_bytes: u64::MAX, ..settings.files.clone() };
    let plan = WritePlan::new(table, &written, files)?;
    let keys = Arc::new(KeyColumns::new(table, &settings.keys, query, &plan)?);
    let keys_max = (settings.index_bytes / KEY_BYTES).max(1);
    let held_bytes_max = HELD_BYTES.min(settings.index_bytes / 4);
    let refuses_repeated = settings.refuses_repeated;
    Ok(MergePlan { keys, plan, delete, keys_max, held_bytes_max, refuses_repeated })
}

fn has_vectors(table: &Table) -> bool {
    let snapshot = table.snapshot();
    snapshot.table_configuration().is_feature_enabled(&TableFeature::DeletionVectors)
}

/// What the commit says was asked for, as Spark's `MERGE` does.
fn parameters(keys: &KeyColumns, delete: Option<&str>) -> Vec<(&'static str, String)> {
    let equal = keys.names().map(|name| format!("(target.{name} = source.{name})"));
    let predicate = equal.collect::<Vec<_>>().join(" AND ");
    let mut matched = vec![json!({ "actionType": "update" })];
    let mut not_matched = json!({ "actionType": "insert" });
    if let Some(delete) = delete {
        matched
            .insert(0, json!({ "actionType": "delete", "predicate": format!("source.{delete}") }));
        not_matched["predicate"] = json!(format!("NOT source.{delete}"));
    }
    vec![
        ("predicate", json!([predicate]).to_string()),
        ("matchedPredicates", json!(matched).to_string()),
        ("notMatchedPredicates", json!([not_matched]).to_string()),
        ("notMatchedBySourcePredicates", "[]".to_owned()),
    ]
}

/// Refuses tables whose rules a merge would break.
fn check_features(table: &Table) -> Result<(), TableError> {
    let snapshot = table.snapshot();
    let configuration = snapshot.table_configuration();
    let unsupported = |problem: &str| {
        Err(TableError::Unsupported {
            table: table.store().shown(),
            action: "merged into",
            problem: problem.to_owned(),
        })
    };
    if configuration.is_feature_enabled(&TableFeature::AppendOnly) {
        return unsupported(
            "its property delta.appendOnly is true, so no row of it may be changed; set it to \
             false (ALTER TABLE ... SET TBLPROPERTIES in Spark), or leave 'mode' = 'merge' out",
        );
    }
    if configuration.is_feature_enabled(&TableFeature::ChangeDataFeed) {
        return unsupported(
            "its property delta.enableChangeDataFeed is true, and the changes of a merge are not \
             recorded; set it to false (ALTER TABLE ... SET TBLPROPERTIES in Spark), or append to \
             a table and let Spark merge it",
        );
    }
    if configuration.is_feature_supported(&TableFeature::RowTracking) {
        return unsupported(
            "it has the feature rowTracking: its rows have identities, which a row that takes the \
             place of another would not keep; use a table without it",
        );
    }
    Ok(())
}
