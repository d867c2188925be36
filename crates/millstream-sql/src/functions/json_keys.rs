//! Keys of maps in what `to_json` writes. For a date or a time Spark writes the number that it
//! keeps it as: the days or the microseconds since 1970, of a TIME the nanoseconds since midnight.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Time64MicrosecondType, TimeUnit};
use datafusion::common::{Result, plan_err};

/// Refuses keys for which Spark writes what is no value of theirs.
///
/// # Errors
/// There are keys that are BINARY.
pub(super) fn check(of: &DataType) -> Result<()> {
    if has_keys(of, &|key: &DataType| *key == DataType::Binary) {
        return plan_err!(
            "to_json has no form for a MAP whose keys are BINARY; make texts of them, as in \
             transform_keys(m, (k, v) -> base64(k))"
        );
    }
    Ok(())
}

fn is_time(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_))
}

/// Whether there is a map with such keys in values of a type.
fn has_keys(of: &DataType, is_meant: &dyn Fn(&DataType) -> bool) -> bool {
    match of {
        DataType::List(item) => has_keys(item.data_type(), is_meant),
        DataType::Struct(fields) => {
            fields.iter().any(|field| has_keys(field.data_type(), is_meant))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => {
                parts.first().is_some_and(|key| is_meant(key.data_type()))
                    || parts.iter().any(|part| has_keys(part.data_type(), is_meant))
            }
            _ => false,
        },
        _ => false,
    }
}

/// `values`, in which keys of maps that are dates or times are numbers.
pub(super) fn as_numbers(values: &ArrayRef) -> Result<ArrayRef> {
    if !has_keys(values.data_type(), &is_time) {
        return Ok(Arc::clone(values));
    }
    Ok(match values.data_type() {
        DataType::List(item) => {
            let list = values.as_list::<i32>();
            let items = as_numbers(list.values())?;
            let item = item.as_ref().clone().with_data_type(items.data_type().clone());
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(ListArray::try_new(Arc::new(item), offsets, items, nulls)?)
        }
        DataType::Map(entries, sorted) => {
            let map = values.as_map();
            let columns = vec![numbers(map.keys())?, as_numbers(map.values())?];
            let fields = typed(map.entries().fields(), &columns);
            let pairs = StructArray::try_new(fields.clone(), columns, None)?;
            let entry = Arc::new(Field::new(entries.name(), DataType::Struct(fields), false));
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(MapArray::try_new(entry, offsets, pairs, nulls, *sorted)?)
        }
        _ => {
            let of = values.as_struct();
            let columns = of.columns().iter().map(as_numbers).collect::<Result<Vec<_>>>()?;
            let fields = typed(of.fields(), &columns);
            let (nulls, length) = (of.nulls().cloned(), of.len());
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, length)?)
        }
    })
}

/// The fields, with the types of the columns.
fn typed(fields: &Fields, columns: &[ArrayRef]) -> Fields {
    let typed = fields.iter().zip(columns).map(|(field, column)| {
        Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone()))
    });
    typed.collect()
}

fn numbers(keys: &ArrayRef) -> Result<ArrayRef> {
    Ok(match keys.data_type() {
        DataType::Date32 => arrow_cast(keys, &DataType::Int32)?,
        DataType::Timestamp(_, zone) => {
            let us = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            arrow_cast(&arrow_cast(keys, &us)?, &DataType::Int64)?
        }
        DataType::Time64(_) => {
            let us = arrow_cast(keys, &DataType::Time64(TimeUnit::Microsecond))?;
            let us = us.as_primitive::<Time64MicrosecondType>();
            Arc::new(us.unary::<_, Int64Type>(|us| us * 1000))
        }
        _ => Arc::clone(keys),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Int32Array};
    use arrow::buffer::OffsetBuffer;

    use super::*;
    use crate::types::map_of;

    #[test]
    fn a_date_as_a_key_is_its_days() {
        let keys: ArrayRef = Arc::new(Date32Array::from(vec![20_454]));
        let values: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let DataType::Map(entry, sorted) = map_of(DataType::Date32, DataType::Int32) else {
            panic!("a map is one")
        };
        let DataType::Struct(fields) = entry.data_type().clone() else {
            panic!("a map has entries")
        };
        let pairs = StructArray::new(fields, vec![keys, values], None);
        let offsets = OffsetBuffer::from_lengths([1]);
        let map: ArrayRef = Arc::new(MapArray::new(entry, offsets, pairs, None, sorted));
        let made = as_numbers(&map).expect("it is a map of numbers");
        assert_eq!(*made.data_type(), map_of(DataType::Int32, DataType::Int32));
        assert!(check(map.data_type()).is_ok());
        assert!(check(&map_of(DataType::Binary, DataType::Int32)).is_err());
    }
}
