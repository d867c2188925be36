//! Rows of other writers, in our columns.
//!
//! Columns are found by name, at every depth. What the other writer does not have becomes null, and
//! what only it has, parsed statistics say, is dropped.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ListArray, MapArray, RecordBatch, RecordBatchOptions, StructArray,
    new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, SchemaRef};
use arrow::error::ArrowError;

/// `rows` in the columns of `schema`.
pub(super) fn conform(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if rows.schema_ref() == schema {
        return Ok(rows.clone());
    }
    let columns = schema.fields().iter().map(|field| match rows.column_by_name(field.name()) {
        Some(column) => conform_array(column, field),
        None => Ok(new_null_array(field.data_type(), rows.num_rows())),
    });
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn conform_array(array: &ArrayRef, to: &Field) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == to.data_type() {
        return Ok(Arc::clone(array));
    }
    match (to.data_type(), array.data_type()) {
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let array = array.as_any().downcast_ref().expect("its type says so");
            Ok(Arc::new(conform_struct(array, fields)?))
        }
        (DataType::Map(entries, sorted), DataType::Map(..)) => {
            let array: &MapArray = array.as_any().downcast_ref().expect("its type says so");
            let DataType::Struct(fields) = entries.data_type() else {
                unreachable!("a map's entries are a struct")
            };
            let columns = [array.keys(), array.values()];
            let columns = columns.iter().zip(fields).map(|(column, to)| conform_array(column, to));
            let pairs =
                StructArray::try_new(fields.clone(), columns.collect::<Result<_, _>>()?, None)?;
            let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
            let map = MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, *sorted)?;
            Ok(Arc::new(map))
        }
        (DataType::List(element), DataType::List(_)) => {
            let array: &ListArray = array.as_any().downcast_ref().expect("its type says so");
            let values = conform_array(array.values(), element)?;
            let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(Arc::clone(element), offsets, values, nulls)?))
        }
        (to, _) => cast(array, to),
    }
}

fn conform_struct(array: &StructArray, fields: &Fields) -> Result<StructArray, ArrowError> {
    let columns = fields.iter().map(|field| match array.column_by_name(field.name()) {
        Some(column) => conform_array(column, field),
        None => Ok(new_null_array(field.data_type(), array.len())),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    StructArray::try_new_with_length(fields.clone(), columns, array.nulls().cloned(), array.len())
}
