//! `sequence` of whole numbers and of dates by days. Of times by INTERVALs it is DataFusion's.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, Int64Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::ScalarUDF;

use super::define::{Arguments, Function, Param};

/// As many elements as Spark makes at most fit an array; this many fit a record batch besides.
const LENGTH_MAX: i64 = 1 << 27;

const SEQUENCE: Function = Function::new(
    "whole_sequence",
    &[Param::Any, Param::Any, Param::Any],
    |args| match args {
        args if args.contains(&DataType::Int64) => Ok(DataType::new_list(DataType::Int64, true)),
        [DataType::Date32, ..] => Ok(DataType::new_list(DataType::Date32, true)),
        [_, ..] => Ok(DataType::new_list(DataType::Int32, true)),
        [] => plan_err!("sequence takes a start and an end"),
    },
    sequence,
)
.required(2);

/// What takes the place of DataFusion's function for arguments of these types, if anything does.
pub(super) fn for_types(types: &[DataType]) -> Option<Arc<ScalarUDF>> {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| SEQUENCE.udf());
    let whole = |found: &DataType| found.is_signed_integer() || found.is_null();
    let is_ours = match types {
        [DataType::Date32, DataType::Date32] => true,
        [DataType::Null, DataType::Null, ..] => false,
        [_, _] | [_, _, _] => types.iter().all(whole),
        _ => false,
    };
    is_ours.then(|| Arc::clone(&FUNCTION))
}

/// From argument 0 to argument 1, both in it, by argument 2, or by one in their direction.
fn sequence(args: &Arguments) -> Result<ArrayRef> {
    let DataType::List(item) = &args.returns else { return exec_err!("a list has items") };
    let whole = |at: usize| -> Result<ArrayRef> {
        let values = args.expanded(at)?;
        let days = match values.data_type() {
            DataType::Date32 => arrow::compute::cast(&values, &DataType::Int32)?,
            _ => values,
        };
        Ok(arrow::compute::cast(&days, &DataType::Int64)?)
    };
    let (starts, ends) = (whole(0)?, whole(1)?);
    let steps = if args.len() > 2 { Some(whole(2)?) } else { None };
    let value = |values: &ArrayRef, row: usize| -> Option<i64> {
        let values = values.as_primitive::<Int64Type>();
        arrow::array::Array::is_valid(values, row).then(|| values.value(row))
    };
    let (mut items, mut offsets, mut valid) = (Vec::new(), vec![0_i32], Vec::new());
    for row in 0..args.rows {
        let ends = value(&starts, row).zip(value(&ends, row));
        let step = match &steps {
            Some(steps) => value(steps, row),
            None => ends.map(|(start, end)| if start <= end { 1 } else { -1 }),
        };
        if let (Some((start, end)), Some(step)) = (ends, step) {
            extend(&mut items, start, end, step)?;
        }
        valid.push(ends.is_some() && step.is_some());
        match i32::try_from(items.len()) {
            Ok(length) => offsets.push(length),
            Err(_) => return exec_err!("the sequences of a micro-batch have too many elements"),
        }
    }
    let items: ArrayRef = Arc::new(Int64Array::from(items));
    let items = match item.data_type() {
        DataType::Date32 => arrow::compute::cast(&items, &DataType::Int32)?,
        _ => items,
    };
    let items = arrow::compute::cast(&items, item.data_type())?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, nulls)?))
}

fn extend(items: &mut Vec<i64>, start: i64, end: i64, step: i64) -> Result<()> {
    let reaches = (step > 0 && start <= end) || (step < 0 && start >= end) || start == end;
    if !reaches {
        return exec_err!("sequence: {end} is not reached from {start} by steps of {step}");
    }
    let (mut at, last) = (i128::from(start), i128::from(end));
    let step = i128::from(step);
    let length = if step == 0 { 1 } else { (last - at) / step + 1 };
    if length > i128::from(LENGTH_MAX) {
        return exec_err!("sequence: {length} elements are too many; {LENGTH_MAX} is the most");
    }
    for _ in 0..length {
        // All lie between the start and the end.
        items.push(at as i64);
        at += step;
    }
    Ok(())
}
