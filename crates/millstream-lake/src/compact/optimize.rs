//! Compaction on request: `millstream table optimize`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema, SchemaRef};
use parking_lot::Mutex;

use super::bins::{self, Bin};
use super::left_behind;
use super::rewrite::Rewriter;
use super::small_files::{self, Wanted};
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::store::TableStore;
use crate::table::Table;

/// Small files in memory at one time, a kilobyte each: a table of more is done in several rounds.
const FILES_MAX: usize = 100_000;
/// A commit is made when so many bytes are rewritten, or so many files: a crash loses no more.
const COMMIT_BYTES: u64 = 1 << 30;
const COMMIT_FILES: usize = 10_000;
/// Rounds that find the table changed by others before they are done.
const CHANGES_MAX: u32 = 3;

/// Says for each row, which is a partition, whether its files are compacted.
pub type Partitions<'a> = dyn Fn(&RecordBatch) -> Result<Vec<bool>, String> + 'a;

/// What is to be compacted.
pub struct OptimizeOptions<'a> {
    /// Files below this size are put together, to this size at most. Bytes.
    pub target_bytes: u64,
    /// Which partitions; all if it is not given. Its columns are the partition columns.
    pub partitions: Option<&'a Partitions<'a>>,
    /// The words for it, which the commit tells.
    pub condition: Option<&'a str>,
    /// Only tells what would be done.
    pub is_dry_run: bool,
}

/// What was done, or would have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Optimized {
    /// Commits.
    pub commits: u64,
    /// Files that were removed from the newest version, and their bytes.
    pub files_removed: u64,
    /// Their bytes.
    pub bytes_removed: u64,
    /// Files that took their place. Before it is done: at most.
    pub files_added: u64,
    /// Their bytes; 0 before it is done.
    pub bytes_added: u64,
    /// Files that others removed while they were rewritten.
    pub files_given_up: u64,
    /// The newest version.
    pub version: u64,
}

/// The partition columns of a table, for a condition on them.
pub fn partition_schema(store: &TableStore) -> Result<SchemaRef, TableError> {
    let table = Table::open(store)?;
    Ok(Arc::new(Schema::new(partition_fields(&table)?)))
}

fn partition_fields(table: &Table) -> Result<Vec<Field>, TableError> {
    let (schema, columns) = (table.schema()?, table.partition_columns());
    let field = |name: &String| {
        let field = schema.field_with_name(name).expect("a partition column is a column");
        Field::new(name, field.data_type().clone(), true)
    };
    Ok(columns.iter().map(field).collect())
}

/// Puts small files of the table together, and leaves out rows that deletion vectors name.
///
/// Errors: [`TableError::Unsupported`] with the feature's name; [`TableError::Condition`] where
/// the partitions cannot be chosen.
pub fn optimize(
    store: &TableStore,
    options: &OptimizeOptions<'_>,
) -> Result<Optimized, TableError> {
    let table = Table::open(store)?;
    table.watch_removals();
    left_behind::clear(&table, store, None)?;
    let owner = store.env().random_uuid().simple().to_string();
    let engine = KernelEngine::new(store);
    let optimizer = Optimizer { table: &table, store, engine: &engine, options, owner };
    let (mut done, mut changes) = (Optimized::default(), 0);
    loop {
        match optimizer.round(&mut done) {
            Ok(Round::Over) => break,
            Ok(Round::MoreToDo) => {}
            Err(TableError::Changed { .. }) if changes < CHANGES_MAX => changes += 1,
            Err(error) => return Err(error),
        }
    }
    done.version = table.version();
    Ok(done)
}

struct Optimizer<'a> {
    table: &'a Table,
    store: &'a TableStore,
    engine: &'a KernelEngine,
    options: &'a OptimizeOptions<'a>,
    owner: String,
}

enum Round {
    Over,
    MoreToDo,
}

impl Optimizer<'_> {
    /// Goes through the small files, as many as memory is for.
    fn round(&self, done: &mut Optimized) -> Result<Round, TableError> {
        let rewriter = Rewriter::new(self.table, self.store, self.engine, None)?;
        let chosen = Chosen::new(self.table, self.options)?;
        let wanted = Wanted {
            bytes: self.options.target_bytes,
            files_max: FILES_MAX,
            partition: &|values| chosen.has(values),
        };
        let files = small_files::find(self.engine, rewriter.snapshot(), &wanted)?;
        chosen.check(self.store)?;
        let is_all = files.len() < FILES_MAX;
        let bins = bins::packed(files, self.options.target_bytes);
        let is_over = is_all || bins.is_empty() || self.options.is_dry_run;
        for bins in commits(bins) {
            if self.options.is_dry_run {
                done.plan(&bins);
            } else {
                self.swap(&rewriter, &bins, done)?;
            }
        }
        Ok(if is_over { Round::Over } else { Round::MoreToDo })
    }

    fn swap(
        &self,
        rewriter: &Rewriter<'_>,
        bins: &[Bin],
        done: &mut Optimized,
    ) -> Result<(), TableError> {
        let condition = self.options.condition.map(|condition| vec![condition.to_owned()]);
        let predicate = serde_json::to_string(&condition.unwrap_or_default()).expect("texts");
        let parameters = vec![
            ("predicate", predicate),
            ("zOrderBy", "[]".to_owned()),
            ("auto", "false".to_owned()),
        ];
        let rewritten = rewriter.rewrite(bins, &self.owner, parameters)?;
        let published = self.table.replace(rewritten.replacement());
        if let Ok(published) = &published {
            let swaps = rewritten.replacement().swaps.iter().enumerate();
            let chosen = published.as_ref().map(|published| published.swaps.as_slice());
            let chosen = chosen.unwrap_or_default();
            done.commits += u64::from(published.is_some());
            let before = done.files_removed;
            for (_, swap) in swaps.filter(|(index, _)| chosen.contains(index)) {
                done.files_removed += swap.removed.len() as u64;
                done.bytes_removed += swap.removed.iter().map(|file| file.size).sum::<u64>();
                done.files_added += swap.added.len() as u64;
                done.bytes_added += swap.added.iter().map(|file| file.size).sum::<u64>();
            }
            let tried: usize = bins.iter().map(|bin| bin.files.len()).sum();
            done.files_given_up += tried as u64 - (done.files_removed - before);
        }
        rewritten.settle(self.store, &published);
        published.map(drop)
    }
}

impl Optimized {
    fn plan(&mut self, bins: &[Bin]) {
        self.commits += 1;
        self.files_added += bins.len() as u64;
        for bin in bins {
            self.files_removed += bin.files.len() as u64;
            self.bytes_removed += bin.bytes();
        }
    }
}

/// Bins that are published together.
fn commits(bins: Vec<Bin>) -> Vec<Vec<Bin>> {
    let (mut commits, mut bytes, mut files) = (vec![Vec::new()], 0, 0);
    for bin in bins {
        (bytes, files) = (bytes + bin.bytes(), files + bin.files.len());
        let last = commits.last_mut().expect("there is one");
        if !last.is_empty() && (bytes > COMMIT_BYTES || files > COMMIT_FILES) {
            (bytes, files) = (bin.bytes(), bin.files.len());
            commits.push(vec![bin]);
        } else {
            last.push(bin);
        }
    }
    commits.retain(|bins| !bins.is_empty());
    commits
}

/// Partitions that are chosen: each is looked at once.
struct Chosen<'a> {
    partitions: Option<&'a Partitions<'a>>,
    fields: Vec<Field>,
    /// Their names in the log.
    physical: Vec<String>,
    known: Mutex<BTreeMap<BTreeMap<String, String>, bool>>,
    problems: Mutex<BTreeSet<String>>,
}

impl<'a> Chosen<'a> {
    fn new(table: &Table, options: &OptimizeOptions<'a>) -> Result<Self, TableError> {
        let (fields, physical) = (partition_fields(table)?, table.physical_partition_columns());
        let (known, problems) = (Mutex::default(), Mutex::default());
        Ok(Self { partitions: options.partitions, fields, physical, known, problems })
    }

    fn has(&self, values: &BTreeMap<String, String>) -> bool {
        let Some(partitions) = self.partitions else { return true };
        if let Some(known) = self.known.lock().get(values) {
            return *known;
        }
        let is_chosen = self.row(values).and_then(|row| partitions(&row));
        let is_chosen = match is_chosen {
            Ok(flags) => flags == [true],
            Err(problem) => {
                self.problems.lock().insert(problem);
                false
            }
        };
        self.known.lock().insert(values.clone(), is_chosen);
        is_chosen
    }

    fn row(&self, values: &BTreeMap<String, String>) -> Result<RecordBatch, String> {
        let columns = self.fields.iter().zip(&self.physical).map(|(field, name)| {
            let text: ArrayRef = Arc::new(StringArray::from(vec![values.get(name).cloned()]));
            cast(&text, field.data_type()).map_err(|error| error.to_string())
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let schema = Arc::new(Schema::new(self.fields.clone()));
        RecordBatch::try_new(schema, columns).map_err(|error| error.to_string())
    }

    fn check(&self, store: &TableStore) -> Result<(), TableError> {
        match self.problems.lock().first() {
            None => Ok(()),
            Some(problem) => {
                Err(TableError::Condition { table: store.shown(), problem: problem.clone() })
            }
        }
    }
}
