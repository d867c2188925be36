//! Rows as the bytes of their cells, one for each key.
//!
//! All rows of a micro-batch have one write time, and of two values with the same time Cassandra
//! keeps the greater, cell by cell. So of rows with the same key only what comes of them in their
//! order is sent.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use millstream_engine::api::sink::Output;

use crate::error::CassandraProblem;
use crate::table::Target;
use crate::types::{ValueProblem, append_cell};

/// The length that stands for NULL.
const NULL: i32 = -1;
/// The length that leaves a column as it is.
const UNSET: i32 = -2;
/// The most that a column of a key can have.
pub(crate) const KEY_BYTES_MAX: usize = 0xFFFF;

/// What becomes of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// The cells of the target's columns, each with its length before it; those of the key alone
    /// where nothing is written.
    pub(crate) cells: Vec<u8>,
    /// How many of these bytes are the partition key's.
    pub(crate) partition_bytes: usize,
    /// How many are the whole key's.
    pub(crate) key_bytes: usize,
    /// What was there is deleted first.
    pub(crate) removes: bool,
    /// Its columns are written.
    pub(crate) writes: bool,
}

impl Row {
    /// Its cells one after the other; `None` for an unset one.
    pub(crate) fn cells(bytes: &[u8]) -> impl Iterator<Item = Cell<'_>> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let length = i32::from_be_bytes(*length);
            let (value, behind) = behind.split_at(usize::try_from(length).unwrap_or(0));
            let whole = &rest[..4 + value.len()];
            rest = behind;
            Some(match length {
                UNSET => Cell { whole, value: Value::Unset },
                NULL => Cell { whole, value: Value::Null },
                _ => Cell { whole, value: Value::Bytes(value) },
            })
        })
    }

    /// The bytes of its key.
    pub(crate) fn key(&self) -> &[u8] {
        &self.cells[..self.key_bytes]
    }

    /// The bytes of its partition key.
    pub(crate) fn partition(&self) -> &[u8] {
        &self.cells[..self.partition_bytes]
    }

    /// What comes of this row and then `later`, of the same key.
    fn followed_by(&mut self, later: Self) {
        if later.removes {
            *self = later;
            return;
        }
        let cells = if self.writes { merged(&self.cells, &later.cells) } else { later.cells };
        *self = Self { cells, writes: true, removes: self.removes, ..later };
    }
}

/// A cell of a row.
pub(crate) struct Cell<'a> {
    /// With its length.
    whole: &'a [u8],
    pub(crate) value: Value<'a>,
}

/// What a cell holds.
pub(crate) enum Value<'a> {
    Unset,
    Null,
    Bytes(&'a [u8]),
}

/// The cells of `later`, and where those are unset, the earlier ones.
fn merged(earlier: &[u8], later: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(later.len());
    for (earlier, later) in Row::cells(earlier).zip(Row::cells(later)) {
        let is_unset = matches!(later.value, Value::Unset);
        bytes.extend_from_slice(if is_unset { earlier.whole } else { later.whole });
    }
    bytes
}

/// Makes rows of record batches.
#[derive(Clone)]
pub(crate) struct Encoder {
    /// The table, for messages.
    pub(crate) table: String,
    pub(crate) target: Target,
    /// Whether NULL leaves a column as it is.
    pub(crate) ignores_nulls: bool,
}

impl Encoder {
    /// The rows of a micro-batch, one for each key, in the order in which keys first came.
    ///
    /// # Errors
    /// A row that Cassandra cannot hold.
    pub(crate) fn rows(&self, output: &Output) -> Result<Vec<Row>, CassandraProblem> {
        let mut rows: Vec<Row> = Vec::new();
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        for batch in output.record_batches() {
            self.each(batch, |row| match places.get(row.key()) {
                Some(at) => rows[*at].followed_by(row),
                None => {
                    places.insert(row.key().to_vec(), rows.len());
                    rows.push(row);
                }
            })?;
        }
        Ok(rows)
    }

    /// Calls `take` with the row of each line of `batch`.
    ///
    /// # Errors
    /// As [`Self::rows`].
    pub(crate) fn each(
        &self,
        batch: &RecordBatch,
        mut take: impl FnMut(Row),
    ) -> Result<(), CassandraProblem> {
        let columns = self.cast(batch)?;
        let deletes = self.target.delete.map(|index| batch.column(index).as_boolean());
        for line in 0..batch.num_rows() {
            let is_deleted =
                deletes.is_some_and(|deletes| deletes.is_valid(line) && deletes.value(line));
            take(self.row(&columns, line, is_deleted)?);
        }
        Ok(())
    }

    /// The target's columns, as its encodings read them.
    fn cast(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, CassandraProblem> {
        let exactly = CastOptions { safe: false, ..CastOptions::default() };
        let cast = |column: &crate::table::TargetColumn| {
            let found = batch.column(column.source);
            if *found.data_type() == column.cast {
                return Ok(ArrayRef::clone(found));
            }
            cast_with_options(found, &column.cast, &exactly).map_err(|error| {
                let (table, column) = (self.table.clone(), column.name.clone());
                CassandraProblem::Cast { table, column, error }
            })
        };
        self.target.columns.iter().map(cast).collect()
    }

    fn row(
        &self,
        columns: &[ArrayRef],
        line: usize,
        is_deleted: bool,
    ) -> Result<Row, CassandraProblem> {
        let Target { partition_columns, key_columns, .. } = self.target;
        let mut cells = Vec::with_capacity(columns.len() * 12);
        let mut partition_bytes = 0;
        for (at, array) in columns[..key_columns].iter().enumerate() {
            self.append_key(at, &**array, line, &mut cells)?;
            if at + 1 == partition_columns {
                partition_bytes = cells.len();
            }
        }
        let key_bytes = cells.len();
        if !is_deleted {
            let null = if self.ignores_nulls { UNSET } else { NULL };
            for (at, array) in columns.iter().enumerate().skip(key_columns) {
                let encoding = &self.target.columns[at].encoding;
                append_cell(encoding, &**array, line, null, &mut cells)
                    .map_err(|problem| self.value(at, problem))?;
            }
        }
        let (removes, writes) = (is_deleted, !is_deleted);
        Ok(Row { cells, partition_bytes, key_bytes, removes, writes })
    }

    fn append_key(
        &self,
        at: usize,
        array: &dyn Array,
        line: usize,
        cells: &mut Vec<u8>,
    ) -> Result<(), CassandraProblem> {
        let column = &self.target.columns[at];
        if array.is_null(line) || array.data_type().is_null() {
            let (table, column) = (self.table.clone(), column.name.clone());
            return Err(CassandraProblem::NoKey { table, column });
        }
        let start = cells.len();
        append_cell(&column.encoding, array, line, NULL, cells)
            .map_err(|problem| self.value(at, problem))?;
        let bytes = cells.len() - start - 4;
        // A partition key of one column is not empty; those of several may have empty parts.
        let is_empty = bytes == 0 && self.target.partition_columns == 1 && at == 0;
        if is_empty || bytes > KEY_BYTES_MAX {
            let (table, bytes_max) = (self.table.clone(), KEY_BYTES_MAX);
            return Err(CassandraProblem::KeyBytes { table, bytes, bytes_max });
        }
        Ok(())
    }

    fn value(&self, at: usize, problem: ValueProblem) -> CassandraProblem {
        let column = self.target.columns[at].name.clone();
        CassandraProblem::Value { table: self.table.clone(), column, problem }
    }
}

#[cfg(test)]
mod tests;
