//! Keys: what the values of a row's key columns come to, in sixteen bytes.
//!
//! An index of a table's rows cannot hold the values themselves. Two hashes of 64 bits, with seeds
//! that are drawn for each process, tell keys apart: among a billion keys the chance that any two
//! are taken for one is below one in 10^20, and nobody who writes rows can bring it about.

use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};

use crate::columns::{ColumnMap, retyped};
use crate::error::TableError;
use crate::file_writer::WritePlan;
use crate::table::Table;

/// The values of a row's key columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key([u64; 2]);

// Half of it is as good a hash as any.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0[0]);
    }
}

impl Key {
    /// One of `shards`.
    pub(super) fn shard(self, shards: usize) -> usize {
        (self.0[1] >> 32) as usize % shards
    }
}

/// A hasher for [`Key`], which is a hash already.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

pub(super) type KeyHasher = BuildHasherDefault<AsItIs>;

/// The columns that are a row's key.
pub(crate) struct KeyColumns {
    /// As the table has them.
    schema: SchemaRef,
    /// Of those that are partition columns, where they stand in `schema`.
    in_partition: Vec<usize>,
    /// Where they stand in the query's columns.
    in_query: Vec<usize>,
    /// From those to `schema`.
    of_query: ColumnMap,
    converter: RowConverter,
    seeds: [u64; 2],
}

impl KeyColumns {
    /// The columns `names` of `table`, for rows of `query`.
    pub(crate) fn new(
        table: &Table,
        names: &[String],
        query: &Schema,
        plan: &WritePlan,
    ) -> Result<Self, TableError> {
        let mismatch = |problem| TableError::Mismatch { table: table.store().shown(), problem };
        let (columns, partitions) = (plan.columns(), table.partition_columns());
        let (mut fields, mut in_partition) = (Vec::new(), Vec::new());
        for name in names {
            let is_it = |field: &&Arc<Field>| field.name().eq_ignore_ascii_case(name);
            let Some(field) = columns.fields().iter().find(is_it) else {
                return Err(mismatch(format!("it has no column {name}, which 'keys' names")));
            };
            if !can_be_key(field.data_type()) {
                return Err(mismatch(format!("its column {name} cannot be a key: {NO_KEY}")));
            }
            if partitions.contains(field.name()) {
                in_partition.push(fields.len());
            }
            // A NULL is refused in words of its own.
            fields.push(field.as_ref().clone().with_nullable(true));
        }
        let sorts = fields.iter().map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(sorts.collect());
        let converter = converter.map_err(|error| mismatch(error.to_string()))?;
        let schema = Arc::new(Schema::new(fields));
        let is_key =
            |field: &&Arc<Field>| names.iter().any(|key| key.eq_ignore_ascii_case(field.name()));
        let in_query: Vec<usize> =
            (0..query.fields().len()).filter(|index| is_key(&&query.fields()[*index])).collect();
        if in_query.len() != names.len() {
            return Err(mismatch("the query does not have each column of 'keys' once".to_owned()));
        }
        let narrow = query.project(&in_query).expect("they are columns of it");
        let of_query =
            ColumnMap::new(&narrow, &schema).map_err(|misfit| mismatch(misfit.to_string()))?;
        let env = table.store().env();
        let seeds = [env.random_u64(), env.random_u64()];
        Ok(Self { schema, in_partition, in_query, of_query, converter, seeds })
    }

    /// Their names in the table.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.schema.fields().iter().map(|field| field.name().as_str())
    }

    /// The key columns of rows of the query, as the table has them.
    pub(super) fn columns_of_query(&self, rows: &RecordBatch) -> Result<RecordBatch, String> {
        let rows = rows.project(&self.in_query).map_err(|error| error.to_string())?;
        self.of_query.apply(&rows)
    }

    /// The keys of rows of the query. Errors: the rule that one breaks.
    pub(crate) fn of_query(&self, rows: &RecordBatch) -> Result<Vec<Key>, String> {
        let rows = self.columns_of_query(rows)?;
        for (index, column) in rows.columns().iter().enumerate() {
            let name = self.schema.field(index).name();
            if column.logical_null_count() > 0 {
                return Err(format!(
                    "{name} is NULL, and it is one of 'keys': a NULL is equal to nothing, so the \
                     row could never be found again; leave such rows out (WHERE {name} IS NOT NULL)"
                ));
            }
            // In the log an empty text stands for NULL.
            if self.in_partition.contains(&index) && has_empty_text(column) {
                return Err(format!(
                    "{name} is empty, and it is one of 'keys' and a partition column, in which an \
                     empty text is NULL; leave such rows out (WHERE {name} <> '')"
                ));
            }
        }
        let keys = self.of_columns(rows.columns()).map_err(|error| error.to_string())?;
        Ok(keys.into_iter().map(|key| key.expect("none is NULL")).collect())
    }

    /// The keys of rows of the table: `columns` are the key columns in order. `None` for a row in
    /// which one is NULL, which is equal to no key.
    pub(super) fn of_columns(
        &self,
        columns: &[ArrayRef],
    ) -> Result<Vec<Option<Key>>, arrow::error::ArrowError> {
        let columns = columns.iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| retyped(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let rows = self.converter.convert_columns(&columns)?;
        let nulls: Vec<_> = columns.iter().filter_map(|column| column.logical_nulls()).collect();
        let key = |(index, row): (usize, arrow::row::Row<'_>)| {
            let is_null = nulls.iter().any(|nulls| nulls.is_null(index));
            (!is_null).then(|| Key(self.seeds.map(|seed| hashed(seed, row.as_ref()))))
        };
        Ok(rows.iter().enumerate().map(key).collect())
    }
}

fn hashed(seed: u64, bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(seed);
    hasher.write(bytes);
    hasher.finish()
}

fn has_empty_text(column: &ArrayRef) -> bool {
    let Ok(text) = arrow::compute::cast(column, &DataType::Utf8) else { return false };
    let text = arrow::array::AsArray::as_string::<i32>(&text);
    text.iter().any(|value| value == Some(""))
}

/// Which types have one form for each value.
pub fn can_be_key(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Decimal128(_, _)
            | DataType::Date32
            | DataType::Timestamp(_, _)
            | DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

/// Which types those are, in words.
pub const NO_KEY: &str =
    "keys are whole numbers, decimals, texts, dates, times, BOOLEAN and BINARY";
