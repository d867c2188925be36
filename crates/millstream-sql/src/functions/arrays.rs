//! Functions of arrays in which NULL, as an element or as the whole, means something else in Spark
//! than in DataFusion.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Int32Type};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, exec_err, plan_err};

use super::common_types::common_type;
use super::define::{Arguments, Function, Param, returns_boolean};
use super::one_zero::ones;
use crate::types::spark_type;

use Param::{Any, Int};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("flatten", &[Param::Array], flat_type, flatten),
    Function::new("arrays_overlap", &[Param::Array, Param::Array], returns_boolean, overlap),
    Function::new("array_append", &[Param::Array, Any], with_item, |args| {
        added(args, |length| length)
    }),
    Function::new("array_prepend", &[Param::Array, Any], with_item, |args| added(args, |_| 0)),
    Function::new("array_insert", &[Param::Array, Int, Any], inserted_type, insert),
    // What DataFusion calls it.
    Function::new("array_remove_all", &[Param::Array, Any], with_item, without)
        .aliases(&["array_remove"]),
    Function::new(
        "array_repeat",
        &[Any, Int],
        |args| Ok(DataType::new_list(args[0].clone(), true)),
        repeat,
    ),
    Function::new("slice", &[Param::Array, Int, Int], |args| Ok(args[0].clone()), slice),
    Function::new(ONE_EARLIER, &[Int], |_| Ok(DataType::Int32), one_earlier),
];

/// The place for `array_insert` that a place is which is counted from the last element, where it is
/// below zero, and not from the end.
pub(crate) const ONE_EARLIER: &str = "one_earlier";

fn one_earlier(args: &Arguments) -> Result<ArrayRef> {
    let places = args.int(0);
    args.primitives::<Int32Type>(|row| match places.get(row) {
        Some(place) if place < 0 => match place.checked_sub(1) {
            Some(earlier) => Ok(Some(earlier)),
            None => exec_err!("array_insert: {place} is before the first place of any array"),
        },
        place => Ok(place),
    })
}

fn item_of(data_type: &DataType) -> Result<DataType> {
    match data_type {
        DataType::List(item) => Ok(item.data_type().clone()),
        other => plan_err!("expected an ARRAY, found {}", spark_type(other)),
    }
}

fn flat_type(args: &[DataType]) -> Result<DataType> {
    match item_of(&args[0])? {
        inner @ DataType::List(_) => Ok(inner),
        other => plan_err!("flatten takes an ARRAY of ARRAYs, not of {}", spark_type(&other)),
    }
}

/// NULL if the array or any array in it is.
fn flatten(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let outer = values.as_list::<i32>();
    let inner = outer.values().as_list::<i32>();
    let is_whole = |row: usize| {
        let range = outer.value_offsets()[row] as usize..outer.value_offsets()[row + 1] as usize;
        outer.is_valid(row) && range.clone().all(|at| inner.is_valid(at))
    };
    let (mut indices, mut offsets, mut valid) = (Vec::new(), vec![0_i32], Vec::new());
    for row in 0..args.rows {
        let whole = is_whole(row);
        if whole {
            let range =
                outer.value_offsets()[row] as usize..outer.value_offsets()[row + 1] as usize;
            for at in range {
                let items = inner.value_offsets()[at] as u32..inner.value_offsets()[at + 1] as u32;
                indices.extend(items);
            }
        }
        valid.push(whole);
        offsets.push(indices.len() as i32);
    }
    list_of(&args.returns, take(inner.values(), &UInt32Array::from(indices), None)?, offsets, valid)
}

fn list_of(
    data_type: &DataType,
    items: ArrayRef,
    offsets: Vec<i32>,
    valid: Vec<bool>,
) -> Result<ArrayRef> {
    let DataType::List(item) = data_type else { return exec_err!("a list has items") };
    let items = super::cast::cast(&items, item.data_type(), true)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?))
}

/// Elements in a form in which they can be hashed and compared, also arrays and structs, and those
/// that are equal are the same.
fn comparable(columns: [&ArrayRef; 2]) -> Result<[Rows; 2]> {
    let converter = RowConverter::new(vec![SortField::new(columns[0].data_type().clone())])?;
    let rows =
        |column: &ArrayRef| -> Result<Rows> { Ok(converter.convert_columns(&[ones(column)?])?) };
    Ok([rows(columns[0])?, rows(columns[1])?])
}

/// The arrays without the elements that are equal to argument 1. NULLs stay in them.
fn without(args: &Arguments) -> Result<ArrayRef> {
    let DataType::List(field) = &args.returns else { return exec_err!("a list has items") };
    if field.data_type().is_null() {
        return Ok(new_null_array(&args.returns, args.rows));
    }
    let values = args.expanded(0)?;
    let list = values.as_list::<i32>();
    let items = super::cast::cast(list.values(), field.data_type(), true)?;
    let wanted = super::cast::cast(&args.expanded(1)?, field.data_type(), true)?;
    let [item_rows, wanted_rows] = comparable([&items, &wanted])?;
    let (mut indices, mut offsets, mut valid) = (Vec::new(), vec![0_i32], Vec::new());
    for row in 0..args.rows {
        let is_whole = list.is_valid(row) && wanted.is_valid(row);
        if is_whole {
            let range = list.value_offsets()[row] as u32..list.value_offsets()[row + 1] as u32;
            let is_kept = |at: &u32| {
                let at = *at as usize;
                items.is_null(at) || item_rows.row(at) != wanted_rows.row(row)
            };
            indices.extend(range.filter(is_kept));
        }
        valid.push(is_whole);
        offsets.push(indices.len() as i32);
    }
    list_of(&args.returns, take(&items, &UInt32Array::from(indices), None)?, offsets, valid)
}

/// True if an element that is not NULL is in both; NULL if none is, but a NULL is in one of them
/// and the other has anything.
fn overlap(args: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (args.expanded(0)?, args.expanded(1)?);
    let types = [item_of(left.data_type())?, item_of(right.data_type())?];
    let Some(common) = common_type(&types) else {
        return exec_err!("the elements of the arrays have no common type");
    };
    let (left, right) = (left.as_list::<i32>(), right.as_list::<i32>());
    let items = [left, right].map(|list| super::cast::cast(list.values(), &common, true));
    let [left_items, right_items] = items;
    let (left_items, right_items) = (left_items?, right_items?);
    let [left_rows, right_rows] = comparable([&left_items, &right_items])?;
    // An array of the type NULL says of no element that it is one.
    let is_valid = |items: &ArrayRef, at: usize| !common.is_null() && items.is_valid(at);
    let range = |list: &ListArray, row: usize| {
        list.value_offsets()[row] as usize..list.value_offsets()[row + 1] as usize
    };
    args.booleans(|row| {
        if left.is_null(row) || right.is_null(row) {
            return Ok(None);
        }
        let (left, right) = (range(left, row), range(right, row));
        let known: std::collections::HashSet<_> = left
            .clone()
            .filter(|at| is_valid(&left_items, *at))
            .map(|at| left_rows.row(at))
            .collect();
        let is_in_both =
            |at: usize| is_valid(&right_items, at) && known.contains(&right_rows.row(at));
        if right.clone().any(is_in_both) {
            return Ok(Some(true));
        }
        let has_null = left.clone().any(|at| !is_valid(&left_items, at))
            || right.clone().any(|at| !is_valid(&right_items, at));
        let open = has_null && !left.is_empty() && !right.is_empty();
        Ok(if open { None } else { Some(false) })
    })
}

/// Argument 0 as often as argument 1 says.
fn repeat(args: &Arguments) -> Result<ArrayRef> {
    let (values, counts) = (args.expanded(0)?, args.int(1));
    let (mut indices, mut offsets, mut valid) = (Vec::new(), vec![0_i32], Vec::new());
    for row in 0..args.rows {
        let count = counts.get(row);
        let length = usize::try_from(count.unwrap_or(0)).unwrap_or(0);
        if length > MOST_ELEMENTS || indices.len() + length > i32::MAX as usize {
            return exec_err!("array_repeat: an array has up to {MOST_ELEMENTS} elements");
        }
        indices.extend(std::iter::repeat_n(row as u32, length));
        valid.push(count.is_some());
        offsets.push(indices.len() as i32);
    }
    list_of(&args.returns, take(&values, &UInt32Array::from(indices), None)?, offsets, valid)
}

/// So many elements as argument 2 says from a place on, which counts from 1, or from -1 at the end.
fn slice(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let list = values.as_list::<i32>();
    let (places, counts) = (args.int(1), args.int(2));
    let range = |row: usize| {
        let (Some(place), Some(count)) = (places.get(row), counts.get(row)) else {
            return Ok(None);
        };
        if list.is_null(row) {
            return Ok(None);
        }
        let Ok(count) = u32::try_from(count) else {
            return exec_err!("slice: the length is {count}, which is below zero");
        };
        let length = i64::from(list.value_length(row));
        let first = match place {
            0 => return exec_err!("slice counts from 1, or from -1 at the end; the start is 0"),
            1.. => i64::from(place) - 1,
            _ => length + i64::from(place),
        };
        let end = list.value_offsets()[row + 1] as u32;
        // An end beyond the range of an INT is one below zero in Spark.
        let overflows = first + i64::from(count) > i64::from(i32::MAX);
        if overflows || !(0..length).contains(&first) {
            return Ok(Some(end..end));
        }
        let first = list.value_offsets()[row] as u32 + first as u32;
        Ok(Some(first..first.saturating_add(count).min(end)))
    };
    let (mut indices, mut offsets, mut valid) = (Vec::new(), vec![0_i32], Vec::new());
    for row in 0..args.rows {
        let range = range(row)?;
        valid.push(range.is_some());
        indices.extend(range.into_iter().flatten());
        offsets.push(indices.len() as i32);
    }
    list_of(&args.returns, take(list.values(), &UInt32Array::from(indices), None)?, offsets, valid)
}

fn list_with(list: &DataType, item: &DataType) -> Result<DataType> {
    match common_type(&[item_of(list)?, item.clone()]) {
        Some(common) => Ok(DataType::new_list(common, true)),
        None => plan_err!("{} does not fit into {}", spark_type(item), spark_type(list)),
    }
}

fn with_item(args: &[DataType]) -> Result<DataType> {
    list_with(&args[0], &args[1])
}

fn inserted_type(args: &[DataType]) -> Result<DataType> {
    list_with(&args[0], &args[2])
}

/// The array with argument 1 before element `at(length)`.
fn added(args: &Arguments, at: fn(usize) -> usize) -> Result<ArrayRef> {
    spliced(args, 1, |_, length| Ok(Some((at(length), 0))))
}

/// Positions count from 1, or from -1 behind the end; beyond the array NULLs fill up.
fn insert(args: &Arguments) -> Result<ArrayRef> {
    let positions = args.int(1);
    spliced(args, 2, |row, length| {
        let Some(position) = positions.get(row) else { return Ok(None) };
        let wanted = usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX);
        if wanted > MOST_ELEMENTS {
            return exec_err!("array_insert at {position}: an array has up to {MOST_ELEMENTS}");
        }
        match position {
            0 => exec_err!("array_insert counts from 1, or from -1 at the end; the index is 0"),
            // As many NULLs as are missing come before the element, or behind it.
            1.. => Ok(Some((wanted - 1, 0))),
            _ if wanted <= length + 1 => Ok(Some((length + 1 - wanted, 0))),
            _ => Ok(Some((0, wanted - length - 1))),
        }
    })
}

/// A position comes from the data, and one mistaken value must not take all memory.
const MOST_ELEMENTS: usize = 1 << 27;

/// Each array with the element argument `item` at a place of it, and NULLs behind that element.
/// `place` gives both for a row and the array's length; none makes the whole NULL.
fn spliced(
    args: &Arguments,
    item: usize,
    place: impl Fn(usize, usize) -> Result<Option<(usize, usize)>>,
) -> Result<ArrayRef> {
    let DataType::List(field) = &args.returns else { return exec_err!("a list has items") };
    let values = args.expanded(0)?;
    let list = values.as_list::<i32>();
    let items = super::cast::cast(list.values(), field.data_type(), true)?;
    let new = super::cast::cast(&args.expanded(item)?, field.data_type(), true)?;
    let first_new = items.len() as u32;
    // One array to take from, with the new elements behind the old ones.
    let all = concat(&[items.as_ref(), new.as_ref()])?;
    let (mut indices, mut offsets, mut valid) = (Vec::new(), vec![0_i32], Vec::new());
    for row in 0..args.rows {
        let old = list.value_offsets()[row] as u32..list.value_offsets()[row + 1] as u32;
        let place = if list.is_valid(row) { place(row, old.len())? } else { None };
        if let Some((at, nulls)) = place {
            let split = old.start + at.min(old.len()) as u32;
            indices.extend((old.start..split).map(Some));
            // An index of NULL takes a NULL: no NULL needs to be among the elements.
            indices.extend((old.len()..at).map(|_| None));
            indices.push(Some(first_new + row as u32));
            indices.extend((0..nulls).map(|_| None));
            indices.extend((split..old.end).map(Some));
        }
        valid.push(place.is_some());
        offsets.push(indices.len() as i32);
    }
    list_of(&args.returns, take(&all, &UInt32Array::from(indices), None)?, offsets, valid)
}

/// `array[index]`, from 0; beyond the array is an error.
pub(super) fn at_index(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let list = values.as_list::<i32>();
    let index = super::cast::cast(&args.expanded(1)?, &DataType::Int32, true)?;
    let index = index.as_primitive::<Int32Type>();
    let find = |row: usize| {
        if list.is_null(row) || index.is_null(row) {
            return Ok(None);
        }
        let (index, length) = (index.value(row), list.value_length(row));
        if (0..length).contains(&index) {
            Ok(Some((list.value_offsets()[row] + index) as u32))
        } else {
            exec_err!(
                "the array has {length} elements and [{index}] is asked for, which counts from 0 \
                 (INVALID_ARRAY_INDEX); use get(array, index) to get NULL instead"
            )
        }
    };
    let indices = (0..args.rows).map(find).collect::<Result<UInt32Array>>()?;
    Ok(take(list.values(), &indices, None)?)
}
