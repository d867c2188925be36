//! Look-up tables: rows that are asked for by their key and never read whole, such as those of a
//! key-value store.
//!
//! A stream is joined with such a table by an equality on its key. Per micro-batch the keys are
//! gathered, each once, and asked for in calls of several; the rows are those that the table has
//! at that moment.

use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use super::source::Failure;

/// A table whose rows are asked for by key. A key has one row, or none.
#[async_trait]
pub trait LookupTable: Send + Sync {
    /// How many keys one call may have, at most.
    fn keys_max(&self) -> usize;

    /// The rows of some keys, as they are now. `keys` has a column for each key column, in the
    /// order of [`LookupForm::key`] and of their types, without NULL and without repetitions;
    /// `columns` are indices into [`LookupForm::schema`]. A call is repeated within for as long as
    /// it makes sense.
    ///
    /// # Errors
    /// `Retry` where the table's server is away for long; `Data` for a row that cannot be read.
    async fn look_up(&self, keys: &[ArrayRef], columns: &[usize]) -> Result<LookedUp, Failure>;
}

/// The answer to some keys.
pub struct LookedUp {
    /// A row for each key, in their order, with the columns asked for; of a key without a row,
    /// whatever is in it is ignored.
    pub rows: RecordBatch,
    /// By key, whether it has a row.
    pub found: BooleanBuffer,
}

/// What a look-up table is, known before anything is touched.
#[derive(Clone, Debug)]
pub struct LookupForm {
    /// The columns that a query sees.
    pub schema: SchemaRef,
    /// The key's columns, as indices into `schema`.
    pub key: Vec<usize>,
    /// Whether rows are kept for later micro-batches, and for how long.
    pub cache: Option<CacheLimits>,
}

/// How much of a look-up table is kept in memory, by each join with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Keys that are kept, at most.
    pub rows_max: usize,
    /// Bytes of keys and rows together, about, at most.
    pub bytes_max: usize,
    /// How long a row counts after it was asked for.
    pub expire_after_write: Duration,
    /// Whether it is kept, too, that a key has no row.
    pub keeps_missing_keys: bool,
}
