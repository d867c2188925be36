//! Record batches of the query as those that are sent.
//!
//! BigQuery knows no NULL in an array and no NULL instead of one. An array that is NULL is sent as
//! an empty one, as all of BigQuery's own tools do; an element that is NULL cannot be sent.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, OffsetSizeTrait, RecordBatch, RecordBatchOptions,
    StructArray, UInt64Array, new_empty_array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Field, Fields};
use arrow::error::ArrowError;
use thiserror::Error;

use super::mapping::{Mapping, relaxed, relaxed_fields};

/// A row cannot be sent.
#[derive(Debug, Error)]
pub(super) enum RowProblem {
    /// A column that must have a value has none.
    #[error("{column} is NULL, and the table requires a value (mode REQUIRED)")]
    Null { column: String },
    /// An array has an element that is NULL.
    #[error(
        "the array {column} has an element that is NULL, which BigQuery does not know; remove \
         such elements, as with filter({column}, x -> x IS NOT NULL)"
    )]
    NullElement { column: String },
    /// A value is out of the range of its column.
    #[error("{column} has a value that the table's column cannot hold: {error}")]
    Value { column: String, error: ArrowError },
    /// The row alone is larger than a request may be.
    #[error("it has {bytes} bytes as a message, and BigQuery takes at most {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: usize },
}

/// `rows` of the query as the table takes them.
///
/// # Errors
/// Some row cannot be written; which one is not said.
pub(super) fn convert(mapping: &Mapping, rows: &RecordBatch) -> Result<RecordBatch, RowProblem> {
    let mut columns = Vec::with_capacity(rows.num_columns());
    for (field, column) in mapping.checked.fields().iter().zip(rows.columns()) {
        columns.push(converted(field.name(), field, column, None)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let schema = Arc::clone(&mapping.sent);
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)
        .expect("each column was converted to the type of its field"))
}

/// One column, or a field of a record whose own rows are NULL where `absent` says so.
fn converted(
    name: &str,
    field: &Field,
    column: &ArrayRef,
    absent: Option<&NullBuffer>,
) -> Result<ArrayRef, RowProblem> {
    let column = match column.data_type() {
        DataType::Dictionary(_, value) => cast(name, column, value)?,
        _ => Arc::clone(column),
    };
    let converted: ArrayRef = match (field.data_type(), column.data_type()) {
        (DataType::List(element), DataType::Null) => empty_lists(element.data_type(), column.len()),
        (wanted, DataType::Null) => new_null_array(&relaxed(wanted), column.len()),
        (DataType::List(element), DataType::List(_)) => {
            let lists = column.as_list::<i32>();
            list(name, element, lists.values(), lists.offsets(), lists.nulls())?
        }
        (DataType::List(element), DataType::LargeList(_)) => {
            let lists = column.as_list::<i64>();
            list(name, element, lists.values(), lists.offsets(), lists.nulls())?
        }
        (DataType::List(element), DataType::Map(..)) => {
            let maps = column.as_map();
            let entries: ArrayRef = Arc::new(maps.entries().clone());
            list(name, element, &entries, maps.offsets(), maps.nulls())?
        }
        (DataType::Struct(fields), DataType::Struct(_)) => {
            Arc::new(record(name, fields, column.as_struct())?)
        }
        (wanted, found) if wanted == found => column,
        (wanted, _) => cast(name, &column, wanted)?,
    };
    if !field.is_nullable() && has_null(&converted, absent) {
        return Err(RowProblem::Null { column: name.to_owned() });
    }
    Ok(converted)
}

/// Whether a value is NULL where the record that it belongs to is there.
fn has_null(column: &ArrayRef, absent: Option<&NullBuffer>) -> bool {
    let Some(nulls) = column.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
        return false;
    };
    match absent {
        None => true,
        Some(outer) => (0..column.len()).any(|row| nulls.is_null(row) && outer.is_valid(row)),
    }
}

fn cast(name: &str, column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, RowProblem> {
    // A value that does not fit is an error, and never NULL.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, wanted, &options)
        .map_err(|error| RowProblem::Value { column: name.to_owned(), error })
}

fn record(name: &str, fields: &Fields, rows: &StructArray) -> Result<StructArray, RowProblem> {
    let absent = rows.nulls();
    let mut columns = Vec::with_capacity(fields.len());
    for (field, column) in fields.iter().zip(rows.columns()) {
        columns.push(converted(&format!("{name}.{}", field.name()), field, column, absent)?);
    }
    if columns.is_empty() {
        return Ok(StructArray::new_empty_fields(rows.len(), absent.cloned()));
    }
    Ok(StructArray::new(relaxed_fields(fields), columns, absent.cloned()))
}

/// Lists with elements of `element`; those that are NULL become empty.
fn list<O: OffsetSizeTrait>(
    name: &str,
    element: &Arc<Field>,
    values: &ArrayRef,
    offsets: &OffsetBuffer<O>,
    nulls: Option<&NullBuffer>,
) -> Result<ArrayRef, RowProblem> {
    let rows = offsets.len() - 1;
    let (first, last) = (offsets[0].as_usize(), offsets[rows].as_usize());
    let mut lengths = Vec::with_capacity(rows);
    let mut has_hidden = false;
    for row in 0..rows {
        let length = (offsets[row + 1] - offsets[row]).as_usize();
        let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
        has_hidden |= is_null && length > 0;
        lengths.push(if is_null { 0 } else { length });
    }
    let values = match has_hidden {
        false => values.slice(first, last - first),
        // What lies behind a NULL is not part of any list.
        true => {
            let kept = (0..rows).filter(|row| lengths[*row] > 0);
            let indices: Vec<u64> = kept
                .flat_map(|row| offsets[row].as_usize()..offsets[row + 1].as_usize())
                .map(|index| index as u64)
                .collect();
            let indices = UInt64Array::from(indices);
            take(values, &indices, None)
                .map_err(|error| RowProblem::Value { column: name.to_owned(), error })?
        }
    };
    let nullable = element.as_ref().clone().with_nullable(true);
    let values = converted(name, &nullable, &values, None)?;
    if has_null(&values, None) {
        return Err(RowProblem::NullElement { column: name.to_owned() });
    }
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    let element = Arc::new(Field::new("item", values.data_type().clone(), true));
    Ok(Arc::new(ListArray::new(element, offsets, values, None)))
}

fn empty_lists(element: &DataType, rows: usize) -> ArrayRef {
    let element = Arc::new(Field::new("item", relaxed(element), true));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0_i32; rows + 1]));
    let values = new_empty_array(element.data_type());
    Arc::new(ListArray::new(element, offsets, values, None))
}

#[cfg(test)]
mod tests;
