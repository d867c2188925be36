//! `skewness` and `kurtosis`: from sums of powers of the distances to the mean.

use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

use super::define::{Aggregate, Make, counted, number};

pub(super) const AGGREGATES: &[Aggregate] = &[
    of_moments(
        "skewness",
        |given| coerced("skewness", given),
        Make::Single(|_| {
            Ok(Box::new(Moments {
                shape: |sums| sums.count.sqrt() * sums.m3 / sums.m2.powf(1.5),
                ..EMPTY
            }))
        }),
    ),
    of_moments(
        "kurtosis",
        |given| coerced("kurtosis", given),
        Make::Single(|_| {
            Ok(Box::new(Moments {
                shape: |sums| sums.count * sums.m4 / (sums.m2 * sums.m2) - 3.0,
                ..EMPTY
            }))
        }),
    ),
];

const fn of_moments(
    name: &'static str,
    coerce: fn(&[DataType]) -> Result<Vec<DataType>>,
    make: Make,
) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce,
        returns: |_| Ok(DataType::Float64),
        state: |_| vec![DataType::Float64; 5],
        never_null: false,
        make,
        moving: None,
    }
}

fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 1, 1)?;
    Ok(vec![number(name, &given[0])?])
}

/// Sums over the values so far; `m2` is of the squares of the distances to the mean, and so on.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    mean: f64,
    m2: f64,
    m3: f64,
    m4: f64,
}

const EMPTY: Moments =
    Moments { sums: Sums { count: 0.0, mean: 0.0, m2: 0.0, m3: 0.0, m4: 0.0 }, shape: |_| 0.0 };

impl Sums {
    fn of(value: f64) -> Self {
        Self { count: 1.0, mean: value, ..Self::default() }
    }

    /// The sums over the values of both, after Pébay, "Formulas for Robust, One-Pass Parallel
    /// Computation of Covariances and Arbitrary-Order Statistical Moments" (2008).
    ///
    /// Sums of the values' own powers would be simpler. But where the values are large and near
    /// each other, those differ only in digits that a double does not have.
    fn and(self, other: Self) -> Self {
        let count = self.count + other.count;
        // Two empty groups: the division below would make a NaN of them.
        if count == 0.0 {
            return self;
        }
        let (n1, n2) = (self.count, other.count);
        let delta = other.mean - self.mean;
        let step = delta / count;
        let m2 = self.m2 + other.m2 + delta * step * n1 * n2;
        let m3 = self.m3
            + other.m3
            + step * step * delta * n1 * n2 * (n1 - n2)
            + 3.0 * step * (n1 * other.m2 - n2 * self.m2);
        let m4 = self.m4
            + other.m4
            + step * step * step * delta * n1 * n2 * (n1 * n1 - n1 * n2 + n2 * n2)
            + 6.0 * step * step * (n1 * n1 * other.m2 + n2 * n2 * self.m2)
            + 4.0 * step * (n1 * other.m3 - n2 * self.m3);
        Self { count, mean: self.mean + step * n2, m2, m3, m4 }
    }
}

#[derive(Debug)]
struct Moments {
    sums: Sums,
    /// The result, where the values differ.
    shape: fn(&Sums) -> f64,
}

impl Accumulator for Moments {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<Float64Type>();
        self.sums =
            values.iter().flatten().fold(self.sums, |sums, value| sums.and(Sums::of(value)));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let column = |at: usize| states[at].as_primitive::<Float64Type>();
        for row in 0..states[0].len() {
            let value = |at: usize| column(at).value(row);
            let other =
                Sums { count: value(0), mean: value(1), m2: value(2), m3: value(3), m4: value(4) };
            self.sums = self.sums.and(other);
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let Sums { count, mean, m2, m3, m4 } = self.sums;
        Ok([count, mean, m2, m3, m4].map(|value| ScalarValue::Float64(Some(value))).to_vec())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let differ = self.sums.count > 0.0 && self.sums.m2 != 0.0;
        Ok(ScalarValue::Float64(differ.then(|| (self.shape)(&self.sums))))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}
