//! `min_by` and `max_by`: the value of the row whose key is the least or the greatest.

use std::cmp::Ordering;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, make_comparator};
use arrow::compute::SortOptions;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::define::{Aggregate, Make, counted, input, refused};

pub(super) const AGGREGATES: &[Aggregate] = &[
    by(
        "min_by",
        |given| coerced("min_by", given),
        |args| Ok(Box::new(By::new(Ordering::Less, args)?)),
    ),
    by(
        "max_by",
        |given| coerced("max_by", given),
        |args| Ok(Box::new(By::new(Ordering::Greater, args)?)),
    ),
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
        returns: |args| Ok(args[0].clone()),
        state: |args| args.to_vec(),
        never_null: false,
        make: Make::Single(make),
        moving: None,
    }
}

fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 2, 2)?;
    if matches!(given[1], DataType::Map(..)) {
        return refused(name, "a key that can be ordered", &given[1]);
    }
    Ok(given.to_vec())
}

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
        let order = key.partial_cmp(&self.key).unwrap_or(Ordering::Equal);
        if self.key.is_null() || self.is_better(order) {
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
