//! `corr` and `regr_r2`: how near pairs of numbers are to a line.
//!
//! From the means and the sums of the products of distances to them, updated with each pair. Sums
//! of the numbers themselves would lose all digits that matter where the numbers are large and
//! near each other, as seconds since the epoch are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::define::{Aggregate, Make, counted, number};
use super::grouped::{is_let_through, states_of_rows};

pub(super) const AGGREGATES: &[Aggregate] = &[
    Aggregate {
        name: "corr",
        aliases: &[],
        coerce: |given| coerced("corr", given),
        returns: |_| Ok(DataType::Float64),
        state: |_| vec![DataType::Float64; SUMS],
        never_null: false,
        make: Make::Groups(|_| Ok(Box::new(Pairs::new(correlation)))),
        moving: None,
    },
    Aggregate {
        name: "regr_r2",
        aliases: &[],
        coerce: |given| coerced("regr_r2", given),
        returns: |_| Ok(DataType::Float64),
        state: |_| vec![DataType::Float64; SUMS],
        never_null: false,
        make: Make::Groups(|_| Ok(Box::new(Pairs::new(determination)))),
        moving: None,
    },
];

fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 2, 2)?;
    given.iter().map(|given| number(name, given)).collect()
}

/// How many numbers a group's sums are.
const SUMS: usize = 6;

/// Sums over the pairs of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    mean_y: f64,
    mean_x: f64,
    /// Of the squares of the distances to the mean.
    yy: f64,
    xx: f64,
    /// Of the products of the distances to the means.
    xy: f64,
}

impl Sums {
    fn of(y: f64, x: f64) -> Self {
        Self { count: 1.0, mean_y: y, mean_x: x, ..Self::default() }
    }

    /// The sums over the pairs of both, by Chan's formula for merging variances; a pair alone is a
    /// group of one.
    fn and(self, other: Self) -> Self {
        // Not only quicker: by the formula, the mean would be divided and multiplied, and so
        // rounded.
        if self.count == 0.0 {
            return other;
        }
        if other.count == 0.0 {
            return self;
        }
        let count = self.count + other.count;
        let (delta_y, delta_x) = (other.mean_y - self.mean_y, other.mean_x - self.mean_x);
        let (step_y, step_x) = (delta_y / count, delta_x / count);
        let both = self.count * other.count;
        Self {
            count,
            mean_y: self.mean_y + step_y * other.count,
            mean_x: self.mean_x + step_x * other.count,
            yy: self.yy + other.yy + delta_y * step_y * both,
            xx: self.xx + other.xx + delta_x * step_x * both,
            xy: self.xy + other.xy + delta_y * step_x * both,
        }
    }

    fn numbers(self) -> [f64; SUMS] {
        [self.count, self.mean_y, self.mean_x, self.yy, self.xx, self.xy]
    }

    fn from_numbers(number: impl Fn(usize) -> f64) -> Self {
        let [count, mean_y, mean_x, yy, xx, xy] = std::array::from_fn(number);
        Self { count, mean_y, mean_x, yy, xx, xy }
    }
}

/// Pearson's coefficient.
fn correlation(sums: &Sums) -> Result<Option<f64>> {
    if sums.count < 2.0 {
        return Ok(None);
    }
    let spread = (sums.xx * sums.yy).sqrt();
    if spread == 0.0 {
        // As in Spark, whose ANSI mode does not divide by zero.
        return exec_err!(
            "corr divides by zero, as all values of a column are the same; \
             try_divide(covar_pop(x, y), stddev_pop(x) * stddev_pop(y)) is NULL instead"
        );
    }
    Ok(Some(sums.xy / spread))
}

/// The share of the spread of y that a line over x explains.
fn determination(sums: &Sums) -> Result<Option<f64>> {
    Ok(match (sums.count == 0.0 || sums.xx == 0.0, sums.yy == 0.0) {
        (true, _) => None,
        // A level line explains y wholly where y is always the same.
        (false, true) => Some(1.0),
        (false, false) => Some((sums.xy / sums.xx) * (sums.xy / sums.yy)),
    })
}

/// The sums of each group.
struct Pairs {
    groups: Vec<Sums>,
    result: fn(&Sums) -> Result<Option<f64>>,
}

impl Pairs {
    fn new(result: fn(&Sums) -> Result<Option<f64>>) -> Self {
        Self { groups: Vec::new(), result }
    }
}

impl GroupsAccumulator for Pairs {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.groups.resize(count, Sums::default());
        let y = values[0].as_primitive::<Float64Type>();
        let x = values[1].as_primitive::<Float64Type>();
        for (row, group) in groups.iter().enumerate() {
            if y.is_valid(row) && x.is_valid(row) && is_let_through(filter, row) {
                self.groups[*group] = self.groups[*group].and(Sums::of(y.value(row), x.value(row)));
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.groups.resize(count, Sums::default());
        let columns: Vec<&Float64Array> =
            states.iter().map(|state| state.as_primitive::<Float64Type>()).collect();
        for (row, group) in groups.iter().enumerate() {
            if columns[0].is_valid(row) {
                let other = Sums::from_numbers(|at| columns[at].value(row));
                self.groups[*group] = self.groups[*group].and(other);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = emit_to.take_needed(&mut self.groups);
        let results = groups.iter().map(self.result);
        Ok(Arc::new(results.collect::<Result<Float64Array>>()?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let groups = emit_to.take_needed(&mut self.groups);
        let column = |at: usize| -> ArrayRef {
            let numbers = groups.iter().map(|sums| sums.numbers()[at]);
            Arc::new(Float64Array::from_iter_values(numbers))
        };
        Ok((0..SUMS).map(column).collect())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        states_of_rows(Self::new(self.result), values, filter)
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Sums>()
    }
}
