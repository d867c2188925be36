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
];

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

fn made(name: &str, better: Ordering, args: &AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
    if args.exprs.len() == 2 {
        return Ok(Box::new(By::new(better, args)?));
    }
    match constant(name, args, 2)? {
        ScalarValue::Int32(Some(most)) if (1..=ROWS_MAX).contains(&most) => {
            Ok(Box::new(BestRows::new(better, most as usize, args)))
        }
        other => plan_err!("function '{name}' takes from 1 to {ROWS_MAX} rows, not {other}"),
    }
}

/// The most rows of a call, as in Spark.
const ROWS_MAX: i32 = 100_000;

#[derive(Debug)]
struct By {
    /// The order of a key to the best so far that replaces it. An equal key replaces it too, as in
    /// Spark.
    better: Ordering,
    value: ScalarValue,
    /// Null before the first row.
    key: ScalarValue,
}

impl By {
    fn new(better: Ordering, args: &AccumulatorArgs<'_>) -> Result<Self> {
        let nothing = |at: usize| ScalarValue::try_from(&input(args, at));
        Ok(Self { better, value: nothing(0)?, key: nothing(1)? })
    }

    fn is_better(&self, order: Ordering) -> bool {
        order == self.better || order == Ordering::Equal
    }
}

impl Accumulator for By {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (values, keys) = (&values[0], &values[1]);
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
