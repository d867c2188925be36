//! Functions of arrays that take a function: `transform`, `filter`, `aggregate` and `reduce`.
//!
//! A function such as `x -> x + y` is evaluated over the elements of all arrays of a record batch
//! at once, with columns like `y` repeated for each element. `aggregate` goes through the arrays
//! side by side: all first elements, then all second ones, and so on.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, UInt32Array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat, filter, take, take_arrays};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature,
    HigherOrderUDF, HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda,
    Volatility,
};

use super::cast::cast;
use super::define::{Param, known_by_name};
use crate::types::spark_type;

use ValueOrLambda::{Lambda, Value};

/// All of them.
pub(super) fn functions() -> Vec<Arc<HigherOrderUDF>> {
    let of = |kind, name, aliases| {
        let signature = HigherOrderSignature::user_defined(Volatility::Immutable);
        Arc::new(HigherOrderUDF::new_from_impl(OfElements { kind, name, aliases, signature }))
    };
    vec![
        of(Kind::Transform, "transform", vec![]),
        of(Kind::Filter, "filter", vec![]),
        of(Kind::Aggregate, "aggregate", vec!["reduce".to_owned()]),
    ]
}

#[derive(Clone, Copy)]
enum Kind {
    /// An array, and a function of an element and, if it takes two, its index from 0.
    Transform,
    /// The same, of which the result is a condition.
    Filter,
    /// An array, a start, a function of what there is so far and an element, and if wanted a
    /// function of the result.
    Aggregate,
}

struct OfElements {
    kind: Kind,
    name: &'static str,
    aliases: Vec<String>,
    signature: HigherOrderSignature,
}

known_by_name!(OfElements);

impl OfElements {
    fn refused<T>(&self) -> Result<T> {
        match self.kind {
            Kind::Transform => plan_err!("transform takes an array and a function: x -> x + 1"),
            Kind::Filter => plan_err!("filter takes an array and a condition: x -> x > 1"),
            Kind::Aggregate => plan_err!(
                "aggregate takes an array, a start and a function: (sum, x) -> sum + x; and if \
                 wanted a function of the result"
            ),
        }
    }
}

/// The field of the elements of arrays of the type `list`.
pub(super) fn element(list: &DataType) -> Result<FieldRef> {
    match list {
        DataType::List(item) => Ok(Arc::clone(item)),
        other => plan_err!("expected an ARRAY, found {}", spark_type(other)),
    }
}

fn list_field(of: DataType) -> FieldRef {
    Arc::new(Field::new_list_field(of, true))
}

/// What `aggregate` makes is cast to the type of its start.
///
/// # Errors
/// A cast that would cut digits off, or read a text.
fn fits(made: &DataType, start: &DataType) -> Result<()> {
    let digits = |of: &DataType| match of {
        of if of.is_floating() => i8::MAX,
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    let is_cut = start.is_numeric() && digits(made) > digits(start);
    let is_read = made.is_string() != start.is_string() && !start.is_null() && !made.is_null();
    if is_cut || is_read || (made.is_nested() && start.is_nested() && !is_alike(made, start)) {
        let (made, start) = (spark_type(made), spark_type(start));
        return plan_err!(
            "the function of aggregate makes {made}, and the start is {start}; cast the start, as \
             in aggregate(array, CAST(0 AS {made}), (sum, x) -> sum + x)"
        );
    }
    Ok(())
}

/// Whether two types are nested in the same way, with text in the same places.
fn is_alike(made: &DataType, start: &DataType) -> bool {
    match (made, start) {
        (DataType::List(made), DataType::List(start))
        | (DataType::Map(made, _), DataType::Map(start, _)) => {
            is_alike(made.data_type(), start.data_type())
        }
        (DataType::Struct(made), DataType::Struct(start)) => {
            let mut pairs = made.iter().zip(start);
            made.len() == start.len()
                && pairs.all(|(made, start)| is_alike(made.data_type(), start.data_type()))
        }
        (made, start) => {
            made.is_nested() == start.is_nested()
                && made.is_null() == start.is_null()
                && made.is_string() == start.is_string()
        }
    }
}

impl HigherOrderUDFImpl for OfElements {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match (self.kind, given) {
            (Kind::Transform | Kind::Filter, [list]) => Ok(vec![Param::Array.coerced(list)?]),
            (Kind::Aggregate, [list, start]) => {
                Ok(vec![Param::Array.coerced(list)?, Param::Any.coerced(start)?])
            }
            _ => self.refused(),
        }
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let nullable = |name: &str, of: &DataType| Arc::new(Field::new(name, of.clone(), true));
        let parameters = match (self.kind, fields) {
            (Kind::Transform | Kind::Filter, [Value(list), Lambda(_)]) => {
                let index = Arc::new(Field::new("index", DataType::Int32, false));
                vec![vec![element(list.data_type())?, index]]
            }
            (Kind::Aggregate, [Value(list), Value(start), Lambda(_), finish @ ..])
                if matches!(finish, [] | [Lambda(_)]) =>
            {
                let so_far = nullable("so_far", start.data_type());
                let merge = vec![Arc::clone(&so_far), element(list.data_type())?];
                let finish = finish.iter().map(|_| vec![Arc::clone(&so_far)]);
                std::iter::once(merge).chain(finish).collect()
            }
            _ => return self.refused(),
        };
        Ok(LambdaParametersProgress::Complete(parameters))
    }

    fn return_field_from_args(&self, args: HigherOrderReturnFieldArgs<'_>) -> Result<FieldRef> {
        let returns = match (self.kind, args.arg_fields) {
            (Kind::Transform, [Value(_), Lambda(body)]) => {
                DataType::List(list_field(body.data_type().clone()))
            }
            (Kind::Filter, [Value(list), Lambda(_)]) => list.data_type().clone(),
            (Kind::Aggregate, [Value(_), Value(start), Lambda(merge), finish @ ..]) => {
                fits(merge.data_type(), start.data_type())?;
                match finish {
                    [Lambda(finish)] => finish.data_type().clone(),
                    _ => start.data_type().clone(),
                }
            }
            _ => return self.refused(),
        };
        Ok(Arc::new(Field::new("", returns, true)))
    }

    fn invoke_with_args(&self, args: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let result = match (self.kind, args.args.as_slice()) {
            (Kind::Transform, [Value(list), Lambda(function)]) => {
                Elements::of(list, rows)?.transformed(function, args.return_type())?
            }
            (Kind::Filter, [Value(list), Lambda(condition)]) => {
                Elements::of(list, rows)?.filtered(condition)?
            }
            (Kind::Aggregate, [Value(list), Value(start), Lambda(merge), finish @ ..]) => {
                let elements = Elements::of(list, rows)?;
                let aggregated = elements.aggregated(start.to_array(rows)?, merge)?;
                let result = match finish {
                    [Lambda(finish)] => {
                        let result = || Ok(Arc::clone(&aggregated));
                        let finished =
                            finish.evaluate(&[&result], |columns| Ok(columns.to_vec()))?;
                        finished.into_array(rows)?
                    }
                    _ => aggregated,
                };
                elements.null_where_array_is(&result)?
            }
            _ => return self.refused(),
        };
        Ok(ColumnarValue::Array(result))
    }
}

/// The same arrays, with no elements that lie under a NULL: nobody sees them, so a function that
/// fails with one must not be given it.
fn without_hidden(lists: ListArray) -> Result<ListArray> {
    let offsets = lists.value_offsets();
    let hides = |row: usize| lists.is_null(row) && offsets[row] != offsets[row + 1];
    if lists.null_count() == 0 || !(0..lists.len()).any(hides) {
        return Ok(lists);
    }
    let rows = UInt32Array::from_iter_values(0..lists.len() as u32);
    Ok(take(&lists, &rows, None)?.as_list().clone())
}

/// The elements of the arrays of a record batch.
struct Elements {
    lists: ListArray,
    /// Of all arrays, without what lies before the first or after the last.
    values: ArrayRef,
    /// By array, where its elements begin in `values`, and at last where all end.
    offsets: Vec<usize>,
}

impl Elements {
    fn of(lists: &ColumnarValue, rows: usize) -> Result<Self> {
        let lists = lists.to_array(rows)?;
        let Some(lists) = lists.as_list_opt::<i32>().cloned() else {
            return exec_err!("an ARRAY has elements");
        };
        let lists = without_hidden(lists)?;
        let first = lists.value_offsets()[0];
        let offsets: Vec<usize> =
            lists.value_offsets().iter().map(|offset| (offset - first) as usize).collect();
        let count = offsets.last().copied().unwrap_or(0);
        let values = lists.values().slice(first as usize, count);
        Ok(Self { lists, values, offsets })
    }

    fn length(&self, row: usize) -> usize {
        if self.lists.is_null(row) { 0 } else { self.offsets[row + 1] - self.offsets[row] }
    }

    /// What a function makes of each element.
    fn mapped(&self, function: &LambdaArgument) -> Result<ArrayRef> {
        let ranges = || self.offsets.windows(2).map(|bounds| bounds[0]..bounds[1]);
        let values = || Ok(Arc::clone(&self.values));
        let indices = || -> Result<ArrayRef> {
            let indices = ranges().flat_map(|range| 0..range.len() as i32);
            Ok(Arc::new(Int32Array::from_iter_values(indices)))
        };
        let results = function.evaluate(&[&values, &indices], |columns| {
            let rows = ranges().enumerate();
            let rows = rows.flat_map(|(row, range)| std::iter::repeat_n(row as u32, range.len()));
            Ok(take_arrays(columns, &UInt32Array::from_iter_values(rows), None)?)
        })?;
        results.into_array(self.values.len())
    }

    fn transformed(&self, function: &LambdaArgument, returns: &DataType) -> Result<ArrayRef> {
        let item = element(returns)?;
        let values = cast(&self.mapped(function)?, item.data_type(), true)?;
        let offsets = OffsetBuffer::from_lengths(self.offsets.windows(2).map(|at| at[1] - at[0]));
        Ok(Arc::new(ListArray::try_new(item, offsets, values, self.lists.nulls().cloned())?))
    }

    fn filtered(&self, condition: &LambdaArgument) -> Result<ArrayRef> {
        let holds = self.mapped(condition)?;
        let Some(holds) = holds.as_boolean_opt() else {
            return exec_err!("the function of filter is a condition, of type BOOLEAN");
        };
        let is_kept = |at: &usize| holds.is_valid(*at) && holds.value(*at);
        let lengths = self.offsets.windows(2).map(|at| (at[0]..at[1]).filter(is_kept).count());
        let offsets = OffsetBuffer::from_lengths(lengths);
        let item = element(self.lists.data_type())?;
        let values = filter(&self.values, holds)?;
        Ok(Arc::new(ListArray::try_new(item, offsets, values, self.lists.nulls().cloned())?))
    }

    /// From `start`, what `merge` makes of it and of each element in turn.
    fn aggregated(&self, start: ArrayRef, merge: &LambdaArgument) -> Result<ArrayRef> {
        // The longest first, so that the arrays that have an element at an index are the first
        // ones of this order.
        let mut order: Vec<u32> = (0..self.lists.len() as u32).collect();
        order.sort_by_key(|row| std::cmp::Reverse(self.length(*row as usize)));
        let wanted = start.data_type().clone();
        let mut so_far = take(&start, &UInt32Array::from(order.clone()), None)?;
        let mut done: Vec<ArrayRef> = Vec::new();
        for index in 0.. {
            let going = order.partition_point(|row| self.length(*row as usize) > index);
            if going < so_far.len() {
                done.push(so_far.slice(going, so_far.len() - going));
                so_far = so_far.slice(0, going);
            }
            if going == 0 {
                break;
            }
            let rows = UInt32Array::from_iter_values(order[..going].iter().copied());
            let places =
                rows.values().iter().map(|row| (self.offsets[*row as usize] + index) as u32);
            let element = take(&self.values, &UInt32Array::from_iter_values(places), None)?;
            let merged = merge.evaluate(
                &[&|| Ok(Arc::clone(&so_far)), &|| Ok(Arc::clone(&element))],
                |columns| Ok(take_arrays(columns, &rows, None)?),
            )?;
            so_far = cast(&merged.into_array(going)?, &wanted, true)?;
        }
        done.reverse();
        let Some(_) = done.first() else { return Ok(start) };
        let done: Vec<&dyn Array> = done.iter().map(AsRef::as_ref).collect();
        let mut places = vec![0_u32; order.len()];
        for (place, row) in order.iter().enumerate() {
            places[*row as usize] = place as u32;
        }
        Ok(take(&concat(&done)?, &UInt32Array::from(places), None)?)
    }

    fn null_where_array_is(&self, results: &ArrayRef) -> Result<ArrayRef> {
        if self.lists.null_count() == 0 {
            return Ok(Arc::clone(results));
        }
        let rows = 0..self.lists.len();
        let places: UInt32Array =
            rows.map(|row| self.lists.is_valid(row).then_some(row as u32)).collect();
        Ok(take(results, &places, None)?)
    }
}
