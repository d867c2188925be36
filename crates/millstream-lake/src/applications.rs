//! Who has published to a table: the newest `txn` action of each application, and what its commit
//! said.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use delta_kernel::engine::arrow_conversion::TryIntoKernel;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::schema::StructType;
use delta_kernel::{KernelError, SnapshotRef};

use crate::error::TableError;
use crate::table::Table;

/// How many entries of the log are looked through for what commits said, newest first.
const ENTRIES_SEARCHED_MAX: u64 = 2_000;

/// What one application published last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// The application's id: a streaming query's, say.
    pub id: String,
    /// Its own count.
    pub version: i64,
    /// When, milliseconds since the epoch, where the action says it.
    pub updated_ms: Option<i64>,
    /// What its commit said.
    pub said: Said,
}

/// What the commit of an application said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The note of one of our commits.
    Note(String),
    /// It is another program's.
    Foreign,
    /// It is not in the log any more, or far back.
    Forgotten,
}

impl Table {
    /// All applications that have published to the table, as far as it remembers them. Reads the
    /// whole log: for questions at a start.
    pub fn applications(&self) -> Result<Vec<Application>, TableError> {
        let mut snapshot = self.snapshot();
        let mut open = loop {
            match self.transactions(&snapshot) {
                Ok(open) => break open,
                Err(error) => {
                    let version = Some(snapshot.version());
                    self.engine().pass_over(version, error)?;
                    snapshot = self.engine().snapshot(version)?;
                }
            }
        };
        let mut found = Vec::with_capacity(open.len());
        let newest = snapshot.version();
        for version in (newest.saturating_sub(ENTRIES_SEARCHED_MAX)..=newest).rev() {
            if open.is_empty() {
                break;
            }
            let Some(entry) = self.entry(version)? else { break };
            for (id, published) in &entry.applications {
                // One that published an earlier version later has gone backwards: no query does.
                if open.get(id).is_some_and(|(newest, _)| newest == published)
                    && let Some((version, updated_ms)) = open.remove(id)
                {
                    let said = match (&entry.mark, &entry.note) {
                        (Some(_), Some(note)) => Said::Note(note.clone()),
                        _ => Said::Foreign,
                    };
                    found.push(Application { id: id.clone(), version, updated_ms, said });
                }
            }
        }
        let rest = open.into_iter().map(|(id, (version, updated_ms))| Application {
            id,
            version,
            updated_ms,
            said: Said::Forgotten,
        });
        found.extend(rest);
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    /// The newest `txn` of each application: its version, and when.
    fn transactions(&self, snapshot: &SnapshotRef) -> Result<Newest, KernelError> {
        let fields = Fields::from(vec![
            Field::new("appId", DataType::Utf8, false),
            Field::new("version", DataType::Int64, false),
            Field::new("lastUpdated", DataType::Int64, true),
        ]);
        let schema = Schema::new(vec![Field::new("txn", DataType::Struct(fields), true)]);
        let schema: StructType = (&schema).try_into_kernel()?;
        let mut newest = Newest::new();
        for actions in snapshot.log_segment().read_actions(self.engine(), Arc::new(schema))? {
            let actions = ArrowEngineData::try_from_engine_data(actions?.actions)?;
            note_newest(actions.record_batch(), &mut newest);
        }
        Ok(newest)
    }
}

type Newest = HashMap<String, (i64, Option<i64>)>;

/// Adds what is not known yet: the log is read from its end.
fn note_newest(actions: &RecordBatch, newest: &mut Newest) {
    let Some(txn) = actions.column_by_name("txn").map(|column| column.as_struct()) else { return };
    let (Some(id), Some(version)) = (txn.column_by_name("appId"), txn.column_by_name("version"))
    else {
        return;
    };
    let (id, version) = (id.as_string::<i32>(), version.as_primitive::<Int64Type>());
    let updated = txn.column_by_name("lastUpdated").map(|at| at.as_primitive::<Int64Type>());
    for row in (0..txn.len()).filter(|row| txn.is_valid(*row) && id.is_valid(*row)) {
        let updated = updated.filter(|at| at.is_valid(row)).map(|at| at.value(row));
        newest.entry(id.value(row).to_owned()).or_insert((version.value(row), updated));
    }
}
