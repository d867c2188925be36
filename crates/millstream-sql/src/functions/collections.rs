//! Functions of arrays and maps.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::builder::BinaryBuilder;
use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, StringArray, StructArray, new_empty_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{SortOptions, interleave, sort_to_indices, take};
use arrow::datatypes::{DataType, FieldRef, Int32Type, Int64Type, UInt32Type};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{Expr, ScalarUDF};

use super::common_types::common_type;
use super::define::{
    Arguments, Function, Param, returns_boolean, returns_int, returns_long, within_column,
};
use super::map_lambdas::refuse_key_type;
use super::one_zero::{holds_float, ones};

use crate::types::{map_of, spark_type};

use Param::{Any, Boolean, Int};

const ELEMENT_AT: Function = Function::new("element_at", &[Any, Any], element_type, found_element);

/// The function.
pub(super) fn element_at() -> Arc<ScalarUDF> {
    ELEMENT_AT.udf()
}

pub(super) const FUNCTIONS: &[Function] = &[
    ELEMENT_AT,
    Function::new("at_index", &[Param::Array, Any], element_type, super::arrays::at_index),
    Function::new("get", &[Param::Array, Int], element_type, get),
    Function::new("try_element_at", &[Any, Any], element_type, try_element_at),
    Function::new("map", &[Any], type_of_map, map).required(0).variadic(),
    Function::new(NO_ENTRIES, &[], |_| Ok(map_of(DataType::Null, DataType::Null)), map),
    Function::new("map_contains_key", &[Any, Any], returns_boolean, map_contains_key),
    Function::new("array_position", &[Param::Array, Any], returns_long, array_position),
    Function::new("sort_array", &[Param::Array, Boolean], same, sort_array).required(1),
    Function::new("array_sort", &[Param::Array], same, array_sort),
    Function::new("concat", &[Any], concat_type, concat).required(0).variadic(),
    // Streams that began before this was ours have a BIGINT in their state.
    Function::new("elt", &[Param::Long, Param::TextOrBinary], elt_type, elt).variadic(),
    Function::new("array_size", &[Param::Array], returns_int, size),
    Function::new("size", &[Any], returns_int, size).aliases(&["cardinality"]),
];

/// `map()`: DataFusion plans no call of `map` that has no arguments.
pub(crate) const NO_ENTRIES: &str = "__no_entries";

fn same(args: &[DataType]) -> Result<DataType> {
    Ok(args[0].clone())
}

pub(super) fn element_type(args: &[DataType]) -> Result<DataType> {
    match &args[0] {
        DataType::List(item) => Ok(item.data_type().clone()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => Ok(fields[1].data_type().clone()),
            other => plan_err!("a map cannot have entries of type {other}"),
        },
        other => plan_err!("expected an ARRAY or a MAP, found {}", spark_type(other)),
    }
}

/// Takes from `values` at `indices`, null where there is none.
fn pick(values: &ArrayRef, indices: Vec<Option<usize>>) -> Result<ArrayRef> {
    let indices = indices.into_iter().map(|index| index.map(|index| index as u32));
    let indices: arrow::array::UInt32Array = indices.collect();
    Ok(take(values, &indices, None)?)
}

fn found_element(args: &Arguments) -> Result<ArrayRef> {
    one_element(args, true)
}

fn try_element_at(args: &Arguments) -> Result<ArrayRef> {
    one_element(args, false)
}

fn one_element(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    if let Some(map) = values.as_map_opt() {
        return pick(map.values(), map_indices(map, args)?);
    }
    let list = values.as_list::<i32>();
    let index = arrow::compute::cast(&args.expanded(1)?, &DataType::Int64)?;
    let index = index.as_primitive::<Int64Type>();
    let find = |row: usize| {
        if list.is_null(row) || index.is_null(row) {
            return Ok(None);
        }
        let (index, length) = (index.value(row), i64::from(list.value_length(row)));
        let at = if index < 0 { length + index } else { index - 1 };
        if index == 0 {
            return exec_err!("element_at counts from 1, or from -1 at the end; the index is 0");
        }
        if (0..length).contains(&at) {
            return Ok(Some(list.value_offsets()[row] as usize + at as usize));
        }
        if strict {
            return exec_err!(
                "the array has {length} elements and element {index} is asked for; use \
                 try_element_at or get to get NULL instead"
            );
        }
        Ok(None)
    };
    let indices = (0..args.rows).map(find).collect::<Result<Vec<_>>>()?;
    pick(list.values(), indices)
}

fn get(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let (list, index) = (values.as_list::<i32>(), args.int(1));
    let find = |row: usize| {
        let index = index.get(row).filter(|_| list.is_valid(row))?;
        let inside = (0..list.value_length(row)).contains(&index);
        inside.then(|| (list.value_offsets()[row] + index) as usize)
    };
    pick(list.values(), (0..args.rows).map(find).collect())
}

/// Items of an array or a map, and what is looked for among them, in a type that both have. Both
/// zeros are one in it.
fn in_one_type(items: &ArrayRef, wanted: &ArrayRef) -> Result<[ArrayRef; 2]> {
    let (own, given) = (items.data_type(), wanted.data_type());
    let common = if own == given { None } else { common_type(&[own.clone(), given.clone()]) };
    let common = common.unwrap_or_else(|| own.clone());
    let same = |values: &ArrayRef| ones(&arrow::compute::cast(values, &common)?);
    Ok([same(items)?, same(wanted)?])
}

/// Where in a map's entries the key argument 1 is, for each row.
fn map_indices(map: &MapArray, args: &Arguments) -> Result<Vec<Option<usize>>> {
    let [keys, wanted] = in_one_type(map.keys(), &args.expanded(1)?)?;
    let rows = RowConverter::new(vec![SortField::new(keys.data_type().clone())])?;
    let keys = rows.convert_columns(&[keys])?;
    let wanted_rows = rows.convert_columns(&[Arc::clone(&wanted)])?;
    let offsets = map.value_offsets();
    let find = |row: usize| {
        if map.is_null(row) || wanted.is_null(row) {
            return None;
        }
        let mut entries = offsets[row] as usize..offsets[row + 1] as usize;
        entries.find(|entry| keys.row(*entry) == wanted_rows.row(row))
    };
    Ok((0..args.rows).map(find).collect())
}

fn map_contains_key(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let Some(map) = values.as_map_opt() else {
        return exec_err!("map_contains_key takes a MAP, not {}", spark_type(values.data_type()));
    };
    let found = map_indices(map, args)?;
    args.booleans(|row| Ok(map.is_valid(row).then(|| found[row].is_some())))
}

/// A map of literal texts as a literal itself: the type of a call may depend on options. None for
/// any other map, and for one with the same key twice, which is an error when it is computed.
pub(super) fn literal_map(args: &[Expr]) -> Option<Expr> {
    let texts = args.iter().map(|arg| match arg {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text.as_str()),
        _ => None,
    });
    map_of_texts(&texts.collect::<Option<Vec<&str>>>()?).map(|map| Expr::Literal(map, None))
}

/// A map of keys and values in turn. None where a key is there twice.
pub(crate) fn map_of_texts(texts: &[&str]) -> Option<ScalarValue> {
    let (pairs, []) = texts.as_chunks::<2>() else { return None };
    let keys: HashSet<&str> = pairs.iter().map(|[key, _]| *key).collect();
    if pairs.is_empty() || keys.len() < pairs.len() {
        return None;
    }
    let DataType::Map(entries, _) = map_of(DataType::Utf8, DataType::Utf8) else { return None };
    let DataType::Struct(fields) = entries.data_type() else { return None };
    let column = |at: usize| -> ArrayRef {
        Arc::new(pairs.iter().map(|pair| Some(pair[at])).collect::<StringArray>())
    };
    let parts = StructArray::try_new(fields.clone(), vec![column(0), column(1)], None).ok()?;
    let offsets = OffsetBuffer::from_lengths([pairs.len()]);
    let map = MapArray::try_new(Arc::clone(&entries), offsets, parts, None, false).ok()?;
    Some(ScalarValue::Map(Arc::new(map)))
}

fn type_of_map(args: &[DataType]) -> Result<DataType> {
    if !args.len().is_multiple_of(2) {
        return plan_err!("map takes keys and values in turn, and got {} arguments", args.len());
    }
    let common = |from: usize| {
        let types: Vec<DataType> = args.iter().skip(from).step_by(2).cloned().collect();
        match common_type(&types) {
            Some(common) => Ok(common),
            None if types.is_empty() => Ok(DataType::Utf8),
            None => plan_err!("map: the types {types:?} have no common type"),
        }
    };
    let keys = common(0)?;
    refuse_key_type(&keys)?;
    Ok(map_of(keys, common(1)?))
}

fn map(args: &Arguments) -> Result<ArrayRef> {
    let DataType::Map(entries, _) = &args.returns else {
        return exec_err!("map returns a MAP");
    };
    let DataType::Struct(fields) = entries.data_type() else {
        return exec_err!("a map has entries");
    };
    let pairs = args.len() / 2;
    let column = |from: usize, data_type: &DataType| -> Result<ArrayRef> {
        let columns = (0..pairs).map(|pair| {
            arrow::compute::cast(&args.expanded(2 * pair + from)?, data_type)
                .map_err(datafusion::common::DataFusionError::from)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        if pairs == 0 {
            return Ok(new_empty_array(data_type));
        }
        let order: Vec<_> =
            (0..args.rows).flat_map(|row| (0..pairs).map(move |pair| (pair, row))).collect();
        let columns: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
        Ok(interleave(&columns, &order)?)
    };
    let keys = column(0, fields[0].data_type())?;
    if keys.null_count() > 0 {
        return exec_err!("a map cannot have NULL as a key");
    }
    let plain = ones(&keys)?;
    refuse_duplicates(&plain, pairs)?;
    // As in Spark a number as a key loses the sign of its zero, and an array as one does not.
    let keys = if keys.data_type().is_nested() { keys } else { plain };
    let values = column(1, fields[1].data_type())?;
    let offsets: Vec<i32> = (0..=args.rows).map(|row| (row * pairs) as i32).collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let parts = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, parts, None, false)?))
}

fn refuse_duplicates(keys: &ArrayRef, pairs: usize) -> Result<()> {
    if pairs < 2 || keys.is_empty() {
        return Ok(());
    }
    let rows = RowConverter::new(vec![SortField::new(keys.data_type().clone())])?;
    let rows = rows.convert_columns(&[Arc::clone(keys)])?;
    for start in (0..keys.len()).step_by(pairs) {
        for at in start..start + pairs {
            if (start..at).any(|before| rows.row(before) == rows.row(at)) {
                return exec_err!("a map cannot have the same key twice");
            }
        }
    }
    Ok(())
}

/// The number of the first element equal to argument 1, from 1; 0 if there is none.
fn array_position(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let list = values.as_list::<i32>();
    let item = list.values().data_type();
    if item.is_null() {
        return args.primitives::<Int64Type>(|row| Ok(list.is_valid(row).then_some(0)));
    }
    let [items, wanted] = in_one_type(list.values(), &args.expanded(1)?)?;
    let rows = RowConverter::new(vec![SortField::new(items.data_type().clone())])?;
    let items = rows.convert_columns(&[items])?;
    let wanted_rows = rows.convert_columns(&[Arc::clone(&wanted)])?;
    let offsets = list.value_offsets();
    args.primitives::<Int64Type>(|row| {
        if list.is_null(row) || wanted.is_null(row) {
            return Ok(None);
        }
        let mut range = offsets[row] as usize..offsets[row + 1] as usize;
        let found = range.position(|at| items.row(at) == wanted_rows.row(row));
        Ok(Some(found.map_or(0, |at| at as i64 + 1)))
    })
}

/// Nulls stand first in ascending order and last in descending order.
fn sort_array(args: &Arguments) -> Result<ArrayRef> {
    let ascending = (args.len() > 1).then(|| args.boolean(1));
    sorted(args, |row| {
        let ascending = ascending.as_ref().map_or(Some(true), |ascending| ascending.get(row))?;
        Some(SortOptions { descending: !ascending, nulls_first: ascending })
    })
}

/// Ascending, nulls last.
fn array_sort(args: &Arguments) -> Result<ArrayRef> {
    sorted(args, |_| Some(SortOptions { descending: false, nulls_first: false }))
}

fn sorted(args: &Arguments, order: impl Fn(usize) -> Option<SortOptions>) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let list = values.as_list::<i32>();
    let DataType::List(item) = list.data_type() else {
        return exec_err!("a list has items");
    };
    let of = item.data_type();
    let nested =
        if of.is_nested() || holds_float(of) { Some(NestedOrder::of(list)?) } else { None };
    let mut indices: Vec<u32> = Vec::with_capacity(list.values().len());
    let mut offsets = vec![0];
    let mut valid = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        let order = order(row).filter(|_| list.is_valid(row));
        if let Some(order) = order {
            let (start, end) = (list.value_offsets()[row] as u32, list.value_offsets()[row + 1]);
            match &nested {
                Some(nested) => indices.extend(nested.sorted(start..end as u32, order)),
                None => {
                    let sorted = sort_to_indices(&list.value(row), Some(order), None)?;
                    indices.extend(sorted.values().iter().map(|index| index + start));
                }
            }
        }
        valid.push(order.is_some());
        offsets.push(indices.len() as i32);
    }
    let indices = arrow::array::PrimitiveArray::<UInt32Type>::from_iter_values(indices);
    let items = take(list.values(), &indices, None)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?))
}

/// The order of structs and lists, which Arrow's sort does not know, and of numbers among which
/// both zeros are equal. As in Spark, a null inside of a struct or list is less than everything
/// else, wherever a null beside them stands.
struct NestedOrder<'a> {
    values: &'a ArrayRef,
    rows: Rows,
}

impl<'a> NestedOrder<'a> {
    /// Of the items of all lists.
    fn of(lists: &'a ListArray) -> Result<Self> {
        let values = lists.values();
        let rows = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
        let rows = rows.convert_columns(&[ones(values)?])?;
        Ok(Self { values, rows })
    }

    fn sorted(&self, range: Range<u32>, order: SortOptions) -> Vec<u32> {
        let is_null = |index: u32| self.values.is_null(index as usize);
        let mut indices: Vec<_> = range.collect();
        indices.sort_by(|&left, &right| match (is_null(left), is_null(right)) {
            (true, true) => Ordering::Equal,
            (true, false) if order.nulls_first => Ordering::Less,
            (false, true) if !order.nulls_first => Ordering::Less,
            (true, false) | (false, true) => Ordering::Greater,
            (false, false) => {
                let ascending = self.rows.row(left as usize).cmp(&self.rows.row(right as usize));
                if order.descending { ascending.reverse() } else { ascending }
            }
        });
        indices
    }
}

/// With ANSI mode on, the size of NULL is NULL.
fn size(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    if values.data_type().is_null() {
        return Ok(arrow::array::new_null_array(&args.returns, args.rows));
    }
    let offsets = match (values.as_list_opt::<i32>(), values.as_map_opt()) {
        (Some(list), _) => list.offsets(),
        (_, Some(map)) => map.offsets(),
        _ => return exec_err!("size takes an ARRAY or a MAP"),
    };
    args.primitives::<Int32Type>(|row| {
        Ok(values.is_valid(row).then(|| offsets[row + 1] - offsets[row]))
    })
}

/// An ARRAY if arrays are joined, BINARY if nothing but bytes, else a STRING.
fn concat_type(args: &[DataType]) -> Result<DataType> {
    if !args.iter().any(|arg| matches!(arg, DataType::List(_))) {
        let bytes = !args.is_empty() && args.iter().all(|arg| *arg == DataType::Binary);
        return Ok(if bytes { DataType::Binary } else { DataType::Utf8 });
    }
    // To Spark it is a STRING then, which is no array.
    if args.iter().any(DataType::is_null) {
        return plan_err!(
            "concat joins an ARRAY with a NULL without a type (DATATYPE_MISMATCH); write CAST(NULL \
             AS {})",
            args.iter().find(|arg| !arg.is_null()).map(spark_type).unwrap_or_default()
        );
    }
    match common_type(args) {
        Some(common @ DataType::List(_)) => Ok(common),
        _ => {
            let names: Vec<String> = args.iter().map(spark_type).collect();
            plan_err!("concat cannot join {}", names.join(" and "))
        }
    }
}

/// NULL if any part is.
fn concat(args: &Arguments) -> Result<ArrayRef> {
    let parts = (0..args.len()).map(|at| {
        let (values, constant) = args.array(at);
        Ok((super::cast::cast(values, &args.returns, true)?, constant))
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    match &args.returns {
        DataType::List(item) => concat_lists(&parts, item, args.rows),
        DataType::Binary => concat_bytes(&parts, args.rows),
        _ => {
            let parts: Vec<_> =
                parts.iter().map(|(part, constant)| (part.as_string::<i32>(), *constant)).collect();
            args.write(|row, out| {
                for (part, constant) in &parts {
                    let row = if *constant { 0 } else { row };
                    if part.is_null(row) {
                        return Ok(false);
                    }
                    out.push_str(part.value(row));
                }
                Ok(true)
            })
        }
    }
}

pub(super) fn elt_type(args: &[DataType]) -> Result<DataType> {
    concat_type(&args[1..])
}

/// One of the arguments after the first, by its number from 1.
fn elt(args: &Arguments) -> Result<ArrayRef> {
    elements(args, true)
}

/// `elt` without ANSI mode: NULL where there is no value of the number.
pub(super) fn elt_or_null(args: &Arguments) -> Result<ArrayRef> {
    elements(args, false)
}

fn elements(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let values = (1..args.len()).map(|at| {
        let (values, constant) = args.array(at);
        Ok((super::cast::cast(values, &args.returns, true)?, constant))
    });
    let values = values.collect::<Result<Vec<_>>>()?;
    let count = values.len();
    let numbers = args.long(0);
    let place = |row: usize| {
        // What stands after the values is NULL.
        let Some(number) = numbers.get(row) else { return Ok((count, 0)) };
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        match at.filter(|at| *at < count) {
            Some(at) => Ok((at, if values[at].1 { 0 } else { row })),
            None if !strict => Ok((count, 0)),
            None => exec_err!("elt: value {number} is asked for and there are {count}"),
        }
    };
    let places = (0..args.rows).map(place).collect::<Result<Vec<_>>>()?;
    let nothing = arrow::array::new_null_array(&args.returns, 1);
    let mut columns: Vec<&dyn Array> = values.iter().map(|(value, _)| value.as_ref()).collect();
    columns.push(nothing.as_ref());
    Ok(interleave(&columns, &places)?)
}

fn concat_bytes(parts: &[(ArrayRef, bool)], rows: usize) -> Result<ArrayRef> {
    let parts: Vec<_> =
        parts.iter().map(|(part, constant)| (part.as_binary::<i32>(), *constant)).collect();
    let (mut out, mut value, mut total) = (BinaryBuilder::new(), Vec::new(), 0);
    for row in 0..rows {
        value.clear();
        let row_of = |constant: bool| if constant { 0 } else { row };
        if parts.iter().any(|(part, constant)| part.is_null(row_of(*constant))) {
            out.append_null();
            continue;
        }
        parts.iter().for_each(|(part, constant)| value.extend(part.value(row_of(*constant))));
        within_column(&mut total, value.len())?;
        out.append_value(&value);
    }
    Ok(Arc::new(out.finish()))
}

fn concat_lists(parts: &[(ArrayRef, bool)], item: &FieldRef, rows: usize) -> Result<ArrayRef> {
    let lists: Vec<_> =
        parts.iter().map(|(part, constant)| (part.as_list::<i32>(), *constant)).collect();
    let mut order = Vec::new();
    let mut offsets = vec![0];
    let mut valid = Vec::with_capacity(rows);
    for row in 0..rows {
        let row_of = |constant: bool| if constant { 0 } else { row };
        let is_valid = lists.iter().all(|(list, constant)| list.is_valid(row_of(*constant)));
        if is_valid {
            for (at, (list, constant)) in lists.iter().enumerate() {
                let row = row_of(*constant);
                let range = list.value_offsets()[row]..list.value_offsets()[row + 1];
                order.extend(range.map(|index| (at, index as usize)));
            }
        }
        valid.push(is_valid);
        offsets.push(order.len() as i32);
    }
    let values: Vec<&dyn Array> = lists.iter().map(|(list, _)| list.values().as_ref()).collect();
    let items = interleave(&values, &order)?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?))
}
