//! Rows of other writers, in our columns.
//!
//! Columns are found by name, at every depth. What the other writer does not have becomes null, and
//! what only it has, parsed statistics say, is dropped. A field that is required in the other's
//! actions has some value even where the action is null; in ours it is null there.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ListArray, MapArray, RecordBatch, RecordBatchOptions, StructArray, make_array,
    new_null_array,
};
use arrow::buffer::NullBuffer;
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
        Some(column) => conform_array(&null_where(array, column)?, field),
        None => Ok(new_null_array(field.data_type(), array.len())),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let nulls = array.nulls().cloned();
    StructArray::try_new_with_length(fields.clone(), columns, nulls, array.len())
}

/// `column`, null also where `parent` is.
fn null_where(parent: &StructArray, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if parent.null_count() == 0 {
        return Ok(Arc::clone(column));
    }
    let nulls = NullBuffer::union(parent.nulls(), column.nulls());
    Ok(make_array(column.to_data().into_builder().nulls(nulls).build()?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int32Array, StringArray};
    use arrow::datatypes::{Int64Type, Schema};

    use super::*;

    #[test]
    fn required_fields_of_a_null_action_are_null() {
        let path: ArrayRef = Arc::new(StringArray::from(vec!["a", ""]));
        let size: ArrayRef = Arc::new(Int32Array::from(vec![1, 0]));
        let theirs = Fields::from(vec![
            Field::new("size", DataType::Int32, false),
            Field::new("path", DataType::Utf8, false),
            Field::new("unknown", DataType::Utf8, false),
        ]);
        let nulls = Some(NullBuffer::from(vec![true, false]));
        let columns = vec![size, Arc::clone(&path), path];
        let add = StructArray::try_new(theirs.clone(), columns, nulls).unwrap();
        let schema = Schema::new(vec![Field::new("add", DataType::Struct(theirs), true)]);
        let rows = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(add)]).unwrap();
        let ours = conform(&rows, &super::super::actions::FILES).unwrap();
        let add = ours.column(0).as_struct();
        let path = add.column_by_name("path").unwrap().as_string::<i32>();
        let size = add.column_by_name("size").unwrap().as_primitive::<Int64Type>();
        assert_eq!((path.value(0), path.is_null(1)), ("a", true));
        assert_eq!((size.value(0), size.is_null(1)), (1, true));
        assert_eq!(ours.column(1).null_count(), 2);
    }
}
