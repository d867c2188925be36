//! `min_by` and `max_by`: the value of the row whose key is the least or the greatest, or with a
//! third argument the values of so many rows, the best one first.

use std::cmp::Ordering;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, AsArray, make_comparator};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::define::{Aggregate, Make, constant, counted, input, refused};
use crate::types::list_of;

pub(super) const AGGREGATES: &[Aggregate] = &[
    by("min_by", |given| coerced("min_by", given), |args| made("min_by", Ordering::Less, args)),
    by("max_by", |given| coerced("max_by", given), |args| made("max_by", Ordering::Greater, args)),
    by(MIN_FIRST, |given| pair(MIN_FIRST, given), |args| first_of(Ordering::Less, args)),
    by(MAX_FIRST, |given| pair(MAX_FIRST, given), |args| first_of(Ordering::Greater, args)),
    of_rows(MIN_OF_ROWS, |args| extreme(Ordering::Less, args)),
    of_rows(MAX_OF_ROWS, |args| extreme(Ordering::Greater, args)),
];

/// `min` of structs or arrays, whose state is one column, as that of DataFusion's `min` is.
pub(super) const MIN_OF_ROWS: &str = "__min_of_rows";
/// As [`MIN_OF_ROWS`], for `max`.
pub(super) const MAX_OF_ROWS: &str = "__max_of_rows";

/// As `min_by` of two arguments, but of rows with equal keys the first one counts: `min` of values
/// that are compared by a key.
pub(crate) const MIN_FIRST: &str = "__min_first";
/// As [`MIN_FIRST`], for `max`.
pub(crate) const MAX_FIRST: &str = "__max_first";

const fn by(
    name: &'static str,
    coerce: fn(&[DataType]) -> Result<Vec<DataType>>,
    make: fn(&AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>,
) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce,
        returns: |args| {
            Ok(if args.len() == 3 { list_of(args[0].clone()) } else { args[0].clone() })
        },
        state: |args| match args {
            [value, key, _] => vec![list_of(value.clone()), list_of(key.clone())],
            _ => args.to_vec(),
        },
        never_null: false,
        make: Make::Single(make),
        moving: None,
    }
}

const fn of_rows(
    name: &'static str,
    make: fn(&AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>>,
) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce: |given| {
            counted("min", given, 1, 1)?;
            Ok(given.to_vec())
        },
        returns: |args| Ok(args[0].clone()),
        state: <[DataType]>::to_vec,
        never_null: false,
        make: Make::Single(make),
        moving: None,
    }
}

fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 2, 3)?;
    if matches!(given[1], DataType::Map(..)) {
        return refused(name, "a key that can be ordered", &given[1]);
    }
    let mut types = given.to_vec();
    if let Some(count) = types.get_mut(2) {
        if !count.is_numeric() {
            return refused(name, "an INT as its number of rows", count);
        }
        *count = DataType::Int32;
    }
    Ok(types)
}

fn pair(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 2, 2)?;
    coerced(name, given)
}

fn made(name: &str, better: Ordering, args: &AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
    if args.exprs.len() == 2 {
        return Ok(Box::new(By::new(better, true, args)?));
    }
    match constant(name, args, 2)? {
        ScalarValue::Int32(Some(most)) if (1..=ROWS_MAX).contains(&most) => {
            Ok(Box::new(BestRows::new(better, most as usize, args)))
        }
        other => plan_err!("function '{name}' takes from 1 to {ROWS_MAX} rows, not {other}"),
    }
}

fn first_of(better: Ordering, args: &AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
    Ok(Box::new(By::new(better, false, args)?))
}

/// The most rows of a call, as in Spark.
const ROWS_MAX: i32 = 100_000;

#[derive(Debug)]
struct By {
    /// The order of a key to the best so far that replaces it.
    better: Ordering,
    /// Whether an equal key replaces it too, as in Spark's `min_by` and `max_by`.
    takes_equal: bool,
    value: ScalarValue,
    /// Null before the first row.
    key: ScalarValue,
}

impl By {
    fn new(better: Ordering, takes_equal: bool, args: &AccumulatorArgs<'_>) -> Result<Self> {
        let nothing = |at: usize| ScalarValue::try_from(&input(args, at));
        Ok(Self { better, takes_equal, value: nothing(0)?, key: nothing(1)? })
    }

    fn is_better(&self, order: Ordering) -> bool {
        order == self.better || (self.takes_equal && order == Ordering::Equal)
    }
}

impl Accumulator for By {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (values, keys) = (&values[0], &values[1]);
        // A NULL without a type is a column that has no bits for its NULLs.
        if keys.data_type().is_null() {
            return Ok(());
        }
        let compare = make_comparator(keys, keys, SortOptions::default())?;
        let rows = (0..keys.len()).filter(|row| keys.is_valid(*row));
        // First among the rows of the batch, so that a `ScalarValue` is made once a batch only.
        let best =
            rows.reduce(|best, row| if self.is_better(compare(row, best)) { row } else { best });
        let Some(best) = best else { return Ok(()) };
        let key = ScalarValue::try_from_array(keys, best)?;
        if self.key.is_null() || self.is_better(order_of(&key, &self.key)?) {
            self.value = ScalarValue::try_from_array(values, best)?;
            self.key = key;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), self.key.clone()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() + self.key.size()
    }
}

fn extreme(better: Ordering, args: &AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
    Ok(Box::new(Extreme { better, value: ScalarValue::try_from(&input(args, 0))? }))
}

/// The least or the greatest value.
#[derive(Debug)]
struct Extreme {
    /// The order of a value to the best so far that replaces it.
    better: Ordering,
    /// Null before the first row.
    value: ScalarValue,
}

impl Accumulator for Extreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = &values[0];
        let compare = make_comparator(values, values, SortOptions::default())?;
        let rows = (0..values.len()).filter(|row| values.is_valid(*row));
        let best =
            rows.reduce(|best, row| if compare(row, best) == self.better { row } else { best });
        let Some(best) = best else { return Ok(()) };
        let value = ScalarValue::try_from_array(values, best)?;
        if self.value.is_null() || order_of(&value, &self.value)? == self.better {
            self.value = value;
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone()])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size()
    }
}

/// The order of two keys. Of structs and arrays a NULL in them is less than all values, as it is
/// among the keys of one record batch.
fn order_of(one: &ScalarValue, other: &ScalarValue) -> Result<Ordering> {
    if !one.data_type().is_nested() {
        return Ok(one.partial_cmp(other).unwrap_or(Ordering::Equal));
    }
    let (one, other) = (one.to_array()?, other.to_array()?);
    Ok(make_comparator(&one, &other, SortOptions::default())?(0, 0))
}

/// A row that counts.
#[derive(Debug)]
struct Row {
    key: ScalarValue,
    value: ScalarValue,
}

#[derive(Debug)]
struct BestRows {
    /// The order of a key to one that stands after it.
    better: Ordering,
    most: usize,
    value_type: DataType,
    key_type: DataType,
    /// The best one first; of equal keys the earlier one.
    rows: Vec<Row>,
}

impl BestRows {
    fn new(better: Ordering, most: usize, args: &AccumulatorArgs<'_>) -> Self {
        let (value_type, key_type) = (input(args, 0), input(args, 1));
        Self { better, most, value_type, key_type, rows: Vec::new() }
    }

    fn take(&mut self, values: &ArrayRef, keys: &ArrayRef) -> Result<()> {
        if keys.data_type().is_null() {
            return Ok(());
        }
        let compare = make_comparator(keys, keys, SortOptions::default())?;
        let mut rows: Vec<usize> = (0..keys.len()).filter(|row| keys.is_valid(*row)).collect();
        rows.sort_by(|one, other| match self.better {
            Ordering::Greater => compare(*other, *one),
            _ => compare(*one, *other),
        });
        let row = |row: usize| -> Result<Row> {
            let key = ScalarValue::try_from_array(keys, row)?;
            Ok(Row { key, value: ScalarValue::try_from_array(values, row)? })
        };
        let found = rows.into_iter().take(self.most).map(row).collect::<Result<Vec<Row>>>()?;
        self.merge(found)
    }

    /// Merges rows that are in order with those so far.
    fn merge(&mut self, found: Vec<Row>) -> Result<()> {
        let mut held = std::mem::take(&mut self.rows).into_iter().peekable();
        let mut found = found.into_iter().peekable();
        while self.rows.len() < self.most {
            let replaces = match (held.peek(), found.peek()) {
                (Some(held), Some(found)) => order_of(&found.key, &held.key)? == self.better,
                (None, Some(_)) => true,
                _ => false,
            };
            let next = if replaces { found.next() } else { held.next() };
            let Some(row) = next else { break };
            self.rows.push(row);
        }
        Ok(())
    }

    fn list(&self, of: &DataType, part: impl Fn(&Row) -> &ScalarValue) -> ScalarValue {
        let parts: Vec<ScalarValue> = self.rows.iter().map(|row| part(row).clone()).collect();
        ScalarValue::List(ScalarValue::new_list_nullable(&parts, of))
    }
}

impl Accumulator for BestRows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.take(&values[0], &values[1])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (values, keys) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        let mut rows = (0..values.len()).filter(|row| values.is_valid(*row));
        rows.try_for_each(|row| self.take(&values.value(row), &keys.value(row)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.list(&self.value_type, |row| &row.value);
        Ok(vec![values, self.list(&self.key_type, |row| &row.key)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.rows.is_empty() {
            return ScalarValue::try_from(&list_of(self.value_type.clone()));
        }
        Ok(self.list(&self.value_type, |row| &row.value))
    }

    fn size(&self) -> usize {
        let rows = self.rows.iter().map(|row| row.key.size() + row.value.size());
        size_of_val(self) + rows.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, StructArray};
    use arrow::datatypes::Field;

    use super::*;

    /// A struct of two numbers.
    fn row(x: i32, y: Option<i32>) -> ArrayRef {
        let field = |name: &str| Arc::new(Field::new(name, DataType::Int32, true));
        let x: ArrayRef = Arc::new(Int32Array::from(vec![x]));
        let y: ArrayRef = Arc::new(Int32Array::from(vec![y]));
        Arc::new(StructArray::from(vec![(field("x"), x), (field("y"), y)]))
    }

    #[test]
    fn a_null_in_a_struct_is_less_than_all_values_in_whatever_order() {
        let rows = [row(2, None), row(2, Some(1)), row(1, Some(9))];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let best = |better: Ordering| {
                let value = ScalarValue::try_from(rows[0].data_type()).unwrap();
                let mut extreme = Extreme { better, value };
                for at in order {
                    extreme.update_batch(&[Arc::clone(&rows[at])]).unwrap();
                }
                extreme.evaluate().unwrap().to_array().unwrap()
            };
            assert_eq!(&best(Ordering::Greater), &rows[1]);
            assert_eq!(&best(Ordering::Less), &rows[2]);
        }
    }

    #[test]
    fn of_equal_keys_the_last_value_counts_or_the_first() {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let keys: ArrayRef = Arc::new(Int32Array::from(vec![7, 7]));
        for (takes_equal, wanted) in [(true, 2), (false, 1)] {
            let (value, key) = (ScalarValue::Int32(None), ScalarValue::Int32(None));
            let mut by = By { better: Ordering::Greater, takes_equal, value, key };
            by.update_batch(&[Arc::clone(&values), Arc::clone(&keys)]).unwrap();
            by.update_batch(&[Arc::clone(&values), Arc::clone(&keys)]).unwrap();
            assert_eq!(by.evaluate().unwrap(), ScalarValue::Int32(Some(wanted)));
        }
    }
}
