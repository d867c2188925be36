//! The shared handle.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use millstream_engine::api::sink::BatchId;
use parking_lot::Mutex;
use tokio::sync::watch;

/// All named tables of the process. They are for tests, which choose names of their own.
static TABLES: LazyLock<Mutex<HashMap<String, MemoryTable>>> = LazyLock::new(Mutex::default);

/// One micro-batch as a sink published it.
#[derive(Clone, Debug)]
pub struct Published {
    /// The micro-batch's number.
    pub batch_id: BatchId,
    /// Its rows, partition by partition.
    pub record_batches: Vec<RecordBatch>,
}

/// Rows in this process. Clones are the same table.
#[derive(Clone)]
pub struct MemoryTable {
    content: Arc<Mutex<Content>>,
    /// Rows pushed so far; readers wait on it.
    rows: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Content {
    record_batches: Vec<RecordBatch>,
    published: Vec<Published>,
    version: u64,
}

impl Default for MemoryTable {
    fn default() -> Self {
        Self { content: Arc::default(), rows: Arc::new(watch::Sender::new(0)) }
    }
}

impl MemoryTable {
    /// The table called `name`; an empty one where there was none.
    pub fn named(name: &str) -> Self {
        TABLES.lock().entry(name.to_owned()).or_default().clone()
    }

    /// Adds rows, which sources that read this table will see.
    pub fn push(&self, rows: RecordBatch) {
        let mut content = self.content.lock();
        content.version += 1;
        let count = rows.num_rows() as u64;
        content.record_batches.push(rows);
        self.rows.send_modify(|rows| *rows += count);
    }

    /// Adds a micro-batch as a sink does.
    pub(super) fn publish(&self, published: Published) {
        for rows in &published.record_batches {
            self.push(rows.clone());
        }
        self.content.lock().published.push(published);
    }

    /// The columns of the first rows pushed.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.content.lock().record_batches.first().map(RecordBatch::schema)
    }

    /// All rows, in the order pushed.
    pub fn record_batches(&self) -> Vec<RecordBatch> {
        self.content.lock().record_batches.clone()
    }

    /// Rows pushed so far.
    pub fn row_count(&self) -> u64 {
        *self.rows.borrow()
    }

    /// What sinks published, in order: a repeated micro-batch stands here twice.
    pub fn published(&self) -> Vec<Published> {
        self.content.lock().published.clone()
    }

    /// Changes with every push.
    pub(super) fn version(&self) -> u64 {
        self.content.lock().version
    }

    /// Completes when more than `seen` rows were pushed.
    pub async fn more_than(&self, seen: u64) {
        // The sender is alive: it is in `self`.
        let _ = self.rows.subscribe().wait_for(|rows| *rows > seen).await;
    }

    /// Rows `start` to `end`, cut out of what was pushed.
    pub(super) fn range(&self, start: u64, end: u64) -> Vec<RecordBatch> {
        let mut first_row = 0;
        let mut found = Vec::new();
        for rows in &self.content.lock().record_batches {
            let next_row = first_row + rows.num_rows() as u64;
            let (from, to) = (start.max(first_row), end.min(next_row));
            if from < to {
                found.push(rows.slice((from - first_row) as usize, (to - from) as usize));
            }
            first_row = next_row;
        }
        found
    }
}
