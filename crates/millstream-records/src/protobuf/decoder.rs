//! Batches of rows from one record after another.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, FieldRef, Schema as Columns};

use super::fault::{Fault, MAX_BYTES, RecordError};
use super::plan::{Plan, fingerprint, projected};
use super::state::State;

use crate::columns::Column;
use crate::types::spark_type;

/// Decodes records into the rows of one batch after another.
pub struct Decoder {
    columns: Vec<Column>,
    fields: Vec<FieldRef>,
    fingerprint: u64,
    rows: usize,
    state: State,
}

/// A column of a type that no record can fill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the column {column} has the type {}, which Protobuf records cannot fill",
    spark_type(data_type)
)]
pub struct UnsupportedColumn {
    /// The column.
    pub column: String,
    /// The type, or the part of it.
    pub data_type: DataType,
}

impl Decoder {
    /// For the columns that `projection` lists.
    ///
    /// # Errors
    /// When one of them has a type that no record can fill.
    pub fn new(columns: &Columns, projection: &[usize]) -> Result<Self, UnsupportedColumn> {
        let fields = projected(columns, projection);
        let new = |field: &FieldRef| {
            Column::new(field.data_type())
                .map_err(|data_type| UnsupportedColumn { column: field.name().clone(), data_type })
        };
        Ok(Self {
            columns: fields.iter().map(new).collect::<Result<_, _>>()?,
            fingerprint: fingerprint(&fields),
            fields,
            rows: 0,
            state: State::new(MAX_BYTES),
        })
    }

    /// The same with another limit of a batch's bytes.
    #[cfg(test)]
    pub(super) fn limited(mut self, bytes: usize) -> Self {
        self.state.limit = bytes;
        self
    }

    /// Appends the row of one record.
    ///
    /// # Errors
    /// When the record is malformed. Then nothing is appended.
    pub fn append(&mut self, plan: &Plan, record: &[u8]) -> Result<(), RecordError> {
        if plan.fingerprint != self.fingerprint {
            return Err(RecordError { path: Vec::new(), fault: Fault::OtherColumns });
        }
        let before = self.state.bytes;
        let result = self.state.grow(record.len() + plan.root.width);
        let result = result
            .and_then(|()| self.state.message(&plan.root, &mut self.columns, self.rows, record, 0));
        match result {
            Ok(()) => {
                self.rows += 1;
                Ok(())
            }
            Err(error) => {
                self.columns.iter_mut().for_each(|column| column.truncate(self.rows));
                self.state.reset(before);
                Err(*error)
            }
        }
    }

    /// Appends a row of nulls.
    pub fn append_null(&mut self) {
        self.columns.iter_mut().for_each(Column::append_null);
        self.rows += 1;
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows so far; the next batch starts empty. A column that is declared NOT NULL but has
    /// nulls, which only [`append_null`](Self::append_null) makes, is nullable in this batch.
    pub fn finish(&mut self) -> RecordBatch {
        let arrays: Vec<_> = self.columns.iter_mut().map(Column::finish).collect();
        let fields = self.fields.iter().zip(&arrays).map(|(field, array)| {
            let is_violated = !field.is_nullable() && array.null_count() > 0;
            match is_violated {
                true => Arc::new(field.as_ref().clone().with_nullable(true)),
                false => Arc::clone(field),
            }
        });
        let schema = Arc::new(Columns::new(fields.collect::<Vec<_>>()));
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        self.state.bytes = 0;
        RecordBatch::try_new_with_options(schema, arrays, &options)
            .expect("every row has a value in every column")
    }
}
