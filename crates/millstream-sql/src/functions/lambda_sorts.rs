//! `array_sort` with a function that compares two elements.
//!
//! All arrays of a record batch are sorted side by side: runs of one element are merged to runs of
//! two, these to runs of four, and so on, and the function is evaluated for one pair of each of the
//! runs that are being merged at once. So it is evaluated about twice as often as the longest array
//! has elements.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{take, take_arrays};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

use super::cast::cast;
use super::define::{Param, known_by_name};
use super::lambdas::element;
use super::map_lambdas::Parts;
use crate::types::spark_type;

use ValueOrLambda::{Lambda, Value};

/// What the function is called.
pub(crate) const SORTED_BY: &str = "__sorted_by";

/// The function.
pub(super) fn sorted_by() -> Arc<HigherOrderUDF> {
    let signature = HigherOrderSignature::user_defined(Volatility::Immutable);
    Arc::new(HigherOrderUDF::new_from_impl(SortedBy { signature }))
}

struct SortedBy {
    signature: HigherOrderSignature,
}

known_by_name!(SortedBy);

fn refused<T>() -> Result<T> {
    plan_err!("array_sort takes an array and a function of two elements: (x, y) -> x - y")
}

impl HigherOrderUDFImpl for SortedBy {
    fn name(&self) -> &str {
        SORTED_BY
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [list] => Ok(vec![Param::Array.coerced(list)?]),
            _ => refused(),
        }
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let [Value(list), Lambda(_)] = fields else { return refused() };
        let item = element(list.data_type())?;
        Ok(LambdaParametersProgress::Complete(vec![vec![Arc::clone(&item), item]]))
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs<'_>) -> Result<FieldRef> {
        let [Value(list), Lambda(made)] = args.arg_fields else { return refused() };
        match made.data_type() {
            of if of.is_signed_integer() || of.is_null() => {
                Ok(Arc::new(Field::new("", list.data_type().clone(), true)))
            }
            other => plan_err!(
                "the function of array_sort makes an INT, which is below zero for the lesser \
                 element first, and not a {}",
                spark_type(other)
            ),
        }
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let [Value(list), Lambda(function)] = args.args.as_slice() else { return refused() };
        let item = element(args.return_type())?;
        let parts = Parts::of(list, args.number_rows)?;
        let rows = 0..args.number_rows;
        let ranges: Vec<Range<usize>> = rows.clone().map(|row| parts.range(row)).collect();
        let values = parts.column(0)?;
        let places = Elements { values, ranges: &ranges, function }.sorted()?;
        let values = take(values, &UInt32Array::from(places), None)?;
        let offsets = OffsetBuffer::from_lengths(ranges.iter().map(Range::len));
        let nulls: NullBuffer = rows.map(|row| parts.is_valid(row)).collect();
        Ok(ColumnarValue::Array(Arc::new(ListArray::try_new(item, offsets, values, Some(nulls))?)))
    }
}

/// Two runs of sorted elements of a row, side by side, and what is left of them.
struct Merge {
    row: u32,
    left: Range<usize>,
    right: Range<usize>,
    /// Where the next of their elements goes.
    to: usize,
}

/// The elements of the arrays, and by array where they are.
struct Elements<'a> {
    values: &'a ArrayRef,
    ranges: &'a [Range<usize>],
    function: &'a LambdaArgument,
}

impl Elements<'_> {
    /// The places of the elements in their order. Those that are equal keep theirs.
    fn sorted(&self) -> Result<Vec<u32>> {
        let mut places: Vec<u32> = (0..self.values.len() as u32).collect();
        let longest = self.ranges.iter().map(Range::len).max().unwrap_or(0);
        let mut width = 1;
        while width < longest {
            places = self.merged(&places, width)?;
            width *= 2;
        }
        Ok(places)
    }

    /// The places with each two runs of so many elements merged.
    fn merged(&self, places: &[u32], width: usize) -> Result<Vec<u32>> {
        let mut merged = places.to_vec();
        let mut open = self.runs(width);
        while !open.is_empty() {
            let is_greater = self.compared(places, &open)?;
            for (merge, is_greater) in open.iter_mut().zip(is_greater) {
                let side = if is_greater { &mut merge.right } else { &mut merge.left };
                merged[merge.to] = places[side.start];
                side.start += 1;
                merge.to += 1;
            }
            open.retain(|merge| {
                let is_open = !merge.left.is_empty() && !merge.right.is_empty();
                if !is_open {
                    let rest = merge.left.clone().chain(merge.right.clone());
                    (merge.to..).zip(rest).for_each(|(to, at)| merged[to] = places[at]);
                }
                is_open
            });
        }
        Ok(merged)
    }

    fn runs(&self, width: usize) -> Vec<Merge> {
        let of_row = |(row, range): (usize, &Range<usize>)| {
            let end = range.end;
            let merge = move |start: usize| {
                let middle = (start + width).min(end);
                let right = middle..(start + 2 * width).min(end);
                Merge { row: row as u32, left: start..middle, right, to: start }
            };
            range.clone().step_by(2 * width).map(merge)
        };
        let all = self.ranges.iter().enumerate().flat_map(of_row);
        all.filter(|merge| !merge.right.is_empty()).collect()
    }

    /// Of each two runs, whether the first element of the left one is greater than that of the
    /// right one.
    fn compared(&self, places: &[u32], open: &[Merge]) -> Result<Vec<bool>> {
        let side = |first: fn(&Merge) -> usize| -> Result<ArrayRef> {
            let first = open.iter().map(|merge| places[first(merge)]);
            Ok(take(self.values, &UInt32Array::from_iter_values(first), None)?)
        };
        let left = side(|merge| merge.left.start)?;
        let right = side(|merge| merge.right.start)?;
        let found = self.function.evaluate(
            &[&|| Ok(Arc::clone(&left)), &|| Ok(Arc::clone(&right))],
            |columns| {
                let rows = UInt32Array::from_iter_values(open.iter().map(|merge| merge.row));
                Ok(take_arrays(columns, &rows, None)?)
            },
        )?;
        let found = cast(&found.into_array(open.len())?, &DataType::Int64, true)?;
        let found = found.as_primitive::<Int64Type>();
        if found.null_count() > 0 {
            return exec_err!(
                "the function of array_sort has made a NULL of two elements \
                 (COMPARATOR_RETURNS_NULL); let it make 0 where they are in any order"
            );
        }
        Ok(found.values().iter().map(|found| *found > 0).collect())
    }
}
