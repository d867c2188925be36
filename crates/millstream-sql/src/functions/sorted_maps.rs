//! `__sorted_maps`: a value whose maps have their entries in the order of the keys.
//!
//! Two maps are equal in Spark if they have the same entries, in whatever order these were put in;
//! DataFusion compares entry by entry. So where maps are keys of groups, alone or within arrays,
//! structs and other maps, they are grouped by in this form, which Spark shows, too.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, StructArray, UInt32Array, make_comparator,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, take};
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::ScalarUDF;

use super::define::{Function, Param};

const SORTED_MAPS: Function = Function::new(
    "__sorted_maps",
    &[Param::Any],
    |args| Ok(args[0].clone()),
    |args| sorted(&args.expanded(0)?),
);

/// The function.
pub(crate) fn sorted_maps() -> Arc<ScalarUDF> {
    SORTED_MAPS.udf()
}

/// Whether values of a type are maps, or have maps in them.
pub(crate) fn holds_map(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(..) => true,
        DataType::List(element) => holds_map(element.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_map(field.data_type())),
        _ => false,
    }
}

fn sorted(values: &ArrayRef) -> Result<ArrayRef> {
    if !holds_map(values.data_type()) {
        return Ok(Arc::clone(values));
    }
    Ok(match values.data_type() {
        DataType::List(element) => {
            let list = values.as_list::<i32>();
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            let elements = sorted(list.values())?;
            Arc::new(ListArray::try_new(Arc::clone(element), offsets, elements, nulls)?)
        }
        DataType::Struct(fields) => {
            let of = values.as_struct();
            let columns = of.columns().iter().map(sorted).collect::<Result<Vec<_>>>()?;
            Arc::new(StructArray::try_new(fields.clone(), columns, of.nulls().cloned())?)
        }
        _ => Arc::new(sorted_entries(values.as_map())?),
    })
}

fn sorted_entries(maps: &MapArray) -> Result<MapArray> {
    let (keys, values) = (sorted(maps.keys())?, sorted(maps.values())?);
    let compare = make_comparator(&keys, &keys, SortOptions::default())?;
    let mut places: Vec<u32> = Vec::with_capacity(keys.len());
    let mut lengths = Vec::with_capacity(maps.len());
    for row in 0..maps.len() {
        let before = places.len();
        if maps.is_valid(row) {
            let (start, end) = (maps.value_offsets()[row], maps.value_offsets()[row + 1]);
            places.extend((start..end).map(i32::cast_unsigned));
        }
        places[before..].sort_by(|one, other| compare(*one as usize, *other as usize));
        lengths.push(places.len() - before);
    }
    let places = UInt32Array::from(places);
    let columns = vec![take(&keys, &places, None)?, take(&values, &places, None)?];
    let entries = StructArray::try_new(maps.entries().fields().clone(), columns, None)?;
    let DataType::Map(field, is_sorted) = maps.data_type() else {
        return internal_err!("a map has the type of one");
    };
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = maps.nulls().cloned();
    Ok(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *is_sorted)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use arrow::buffer::NullBuffer;

    use super::*;
    use crate::types::map_of;

    /// Maps of whole numbers to whole numbers.
    fn maps(rows: &[Option<&[(i32, i32)]>]) -> ArrayRef {
        let DataType::Map(field, is_sorted) = map_of(DataType::Int32, DataType::Int32) else {
            unreachable!("it is a map");
        };
        let DataType::Struct(fields) = field.data_type().clone() else {
            unreachable!("entries are structs");
        };
        let entries: Vec<_> = rows.iter().flatten().copied().flatten().copied().collect();
        let keys = entries.iter().map(|entry| entry.0).collect::<Int32Array>();
        let values = entries.iter().map(|entry| entry.1).collect::<Int32Array>();
        let entries = StructArray::new(fields, vec![Arc::new(keys), Arc::new(values)], None);
        let offsets = OffsetBuffer::from_lengths(rows.iter().map(|row| row.map_or(0, <[_]>::len)));
        let nulls: NullBuffer = rows.iter().map(Option::is_some).collect();
        Arc::new(MapArray::new(field, offsets, entries, Some(nulls), is_sorted))
    }

    #[test]
    fn maps_of_the_same_entries_become_the_same() {
        let given = maps(&[Some(&[(2, 3), (1, 2)]), None, Some(&[]), Some(&[(1, 2), (2, 3)])]);
        let wanted = maps(&[Some(&[(1, 2), (2, 3)]), None, Some(&[]), Some(&[(1, 2), (2, 3)])]);
        assert_eq!(&sorted(&given).expect("it is a map"), &wanted);
        // A part of a column, whose entries do not begin with the first.
        let part = sorted(&given.slice(1, 3)).expect("it is a map");
        assert_eq!(&part, &wanted.slice(1, 3));
    }

    #[test]
    fn maps_within_arrays_become_the_same() {
        let element = Arc::new(arrow::datatypes::Field::new_list_field(
            map_of(DataType::Int32, DataType::Int32),
            true,
        ));
        let list = |maps: ArrayRef| -> ArrayRef {
            let offsets = OffsetBuffer::from_lengths([maps.len()]);
            Arc::new(ListArray::new(Arc::clone(&element), offsets, maps, None))
        };
        let given = list(maps(&[Some(&[(2, 3), (1, 2)]), Some(&[(7, 7)])]));
        let wanted = list(maps(&[Some(&[(1, 2), (2, 3)]), Some(&[(7, 7)])]));
        assert_eq!(&sorted(&given).expect("it is an array"), &wanted);
    }
}
