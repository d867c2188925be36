//! `array_max` and `array_min`, also of arrays and structs, in which a NULL is less than all
//! values; DataFusion takes it to be the greatest.

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::row::{RowConverter, SortField};
use datafusion::common::Result;

use super::collections::element_type;
use super::define::{Arguments, Function, Param};
use super::one_zero::ones;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("array_max", &[Param::Array], element_type, |args| {
        extreme(args, Ordering::Greater)
    }),
    Function::new("array_min", &[Param::Array], element_type, |args| extreme(args, Ordering::Less)),
];

/// The first of the elements that are not NULL to which all others are equal or are not `wanted`.
fn extreme(args: &Arguments, wanted: Ordering) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let list = values.as_list::<i32>();
    let items = list.values();
    if items.data_type().is_null() {
        return Ok(new_null_array(&args.returns, args.rows));
    }
    let converter = RowConverter::new(vec![SortField::new(items.data_type().clone())])?;
    let rows = converter.convert_columns(&[ones(items)?])?;
    let offsets = list.value_offsets();
    let place = |row: usize| {
        let range = if list.is_valid(row) { offsets[row]..offsets[row + 1] } else { 0..0 };
        let candidates = range.map(|at| at as usize).filter(|at| items.is_valid(*at));
        let best = candidates
            .reduce(|best, at| if rows.row(at).cmp(&rows.row(best)) == wanted { at } else { best });
        best.map(|at| at as u32)
    };
    let places: UInt32Array = (0..args.rows).map(place).collect();
    Ok(take(items, &places, None)?)
}
