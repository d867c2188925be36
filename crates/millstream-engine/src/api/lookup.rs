//! Look-up tables: rows that are asked for by their key and never read whole, such as those of a
//! key-value store.
//!
//! A stream is joined with such a table by an equality on its key. Per micro-batch the keys are
//! gathered, each once, and asked for in calls of several; the rows are those that the table has
//! at that moment.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;

use super::duration;
use super::options::{OptionError, Options};
use super::source::Failure;

/// Whether there is a cache.
const CACHE: &str = "lookup.cache";
const ROWS_MAX: &str = "lookup.partial-cache.max-rows";
const BYTES_MAX: &str = "lookup.partial-cache.max-bytes";
const EXPIRE: &str = "lookup.partial-cache.expire-after-write";
const MISSING: &str = "lookup.partial-cache.cache-missing-key";

const ROWS_DEFAULT: usize = 10_000;
const BYTES_DEFAULT: usize = 16 << 20;
const EXPIRE_DEFAULT: Duration = Duration::from_secs(10);

/// A table whose rows are asked for by key. A key has one row, or none.
#[async_trait]
pub trait LookupTable: Send + Sync {
    /// Makes ready to be asked, and checks what can be known only then; called once, when a run
    /// starts.
    ///
    /// # Errors
    /// The server is away, or what it has are not rows of the declared columns.
    async fn open(&self) -> Result<(), Failure> {
        Ok(())
    }

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

/// The declared columns of a table that is looked up, each of which may be NULL: what the other
/// side lacks is.
///
/// # Errors
/// None are declared.
pub fn declared_columns(columns: Option<&SchemaRef>) -> Result<SchemaRef, OptionError> {
    let Some(columns) = columns else {
        let help = "declare the key and the columns, for example (id STRING, address STRING)";
        let problem = "the columns of a table that is looked up must be declared";
        return Err(OptionError::table(problem, Some(help.to_owned())));
    };
    let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
    let fields: Vec<Field> = columns.fields().iter().map(nullable).collect();
    Ok(Arc::new(Schema::new(fields)))
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

impl CacheLimits {
    /// Reads the options `lookup.cache` and `lookup.partial-cache.*`, whose names are Flink's.
    /// `None` without a cache.
    ///
    /// # Errors
    /// A value that cannot be, or a limit without a cache.
    pub fn parse(options: &Options) -> Result<Option<Self>, OptionError> {
        let is_partial = match options.get(CACHE).map(|text| text.trim().to_ascii_uppercase()) {
            None => false,
            Some(text) if text == "NONE" => false,
            Some(text) if text == "PARTIAL" => true,
            Some(text) => return Err(OptionError::invalid(CACHE, &text, "NONE or PARTIAL")),
        };
        if !is_partial {
            let limits = [ROWS_MAX, BYTES_MAX, EXPIRE, MISSING];
            if let Some(limit) = limits.into_iter().find(|limit| options.get(limit).is_some()) {
                let problem = format!("'{limit}' is given, but there is no cache");
                let help = format!("set '{CACHE}' = 'PARTIAL'");
                return Err(OptionError::of(limit, problem, Some(help)));
            }
            return Ok(None);
        }
        let rows_max =
            options.parse(ROWS_MAX, "a whole number, 1 or more")?.unwrap_or(ROWS_DEFAULT);
        if rows_max == 0 {
            return Err(OptionError::invalid(ROWS_MAX, "0", "a whole number, 1 or more"));
        }
        let bytes_max = options.parse_bytes(BYTES_MAX)?;
        let bytes_max =
            bytes_max.map_or(BYTES_DEFAULT, |bytes| bytes.try_into().unwrap_or(usize::MAX));
        let expire_after_write = duration::option(options, EXPIRE)?.unwrap_or(EXPIRE_DEFAULT);
        if expire_after_write.is_zero() {
            let wanted = "a duration such as '10s'; without a cache leave 'lookup.cache' out";
            return Err(OptionError::invalid(EXPIRE, "0", wanted));
        }
        let keeps_missing_keys = options.parse_bool(MISSING)?.unwrap_or(true);
        Ok(Some(Self { rows_max, bytes_max, expire_after_write, keeps_missing_keys }))
    }
}
