//! Sums and averages over window frames that move: rows come in at one end and go at the other.

use std::fmt;
use std::mem::size_of_val;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, DurationSecondType, Float64Type, Int64Type,
    IntervalYearMonthType, TimeUnit, i256,
};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;

/// The result of a sum of so many values; of no sum where it is beyond 128 bits.
pub(super) type Finish = Box<dyn Fn(Option<i128>, i64) -> Result<ScalarValue> + Send + Sync>;

/// A sum of whole numbers, decimals or INTERVALs in a frame. It is wider than any result, so that
/// only a frame's own sum can be too large, and not one on the way from frame to frame.
pub(super) struct MovingSum {
    sum: i256,
    count: i64,
    finish: Finish,
}

impl MovingSum {
    pub fn new(finish: Finish) -> Self {
        Self { sum: i256::ZERO, count: 0, finish }
    }
}

impl fmt::Debug for MovingSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MovingSum")
    }
}

/// The sum of values and how many are not null.
fn summed(values: &ArrayRef) -> (i256, i64) {
    let count = (values.len() - values.null_count()) as i64;
    let sum = match values.data_type() {
        DataType::Int64 => {
            let values = values.as_primitive::<Int64Type>().iter().flatten();
            i256::from_i128(values.map(i128::from).sum())
        }
        DataType::Interval(_) => {
            let values = values.as_primitive::<IntervalYearMonthType>().iter().flatten();
            i256::from_i128(values.map(i128::from).sum())
        }
        DataType::Duration(TimeUnit::Second) => {
            let values = values.as_primitive::<DurationSecondType>().iter().flatten();
            i256::from_i128(values.map(i128::from).sum())
        }
        DataType::Duration(_) => {
            let values = values.as_primitive::<DurationMicrosecondType>().iter().flatten();
            i256::from_i128(values.map(i128::from).sum())
        }
        _ => {
            let values = values.as_primitive::<Decimal128Type>().iter().flatten();
            // Wrapping is safe: it takes 2^127 values of 128 bits to fill 256.
            values.fold(i256::ZERO, |sum, value| sum.wrapping_add(i256::from_i128(value)))
        }
    };
    (sum, count)
}

impl Accumulator for MovingSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = summed(&values[0]);
        self.sum = self.sum.wrapping_add(sum);
        self.count += count;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (sum, count) = summed(&values[0]);
        self.sum = self.sum.wrapping_sub(sum);
        self.count -= count;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        (self.finish)(self.sum.to_i128(), self.count)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window frame that moves has no partial state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("window frames that move are not merged")
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// A sum or an average of doubles in a frame.
///
/// To take a double out of a sum again would leave its rounding there, and a NaN for good. So the
/// values are kept: of the older ones the sums from each to the last of them, of the newer ones
/// the sum. When the older ones are used up, the newer ones take their place.
#[derive(Debug, Default)]
pub(super) struct MovingDoubles {
    is_average: bool,
    /// The oldest value's sum is the last one.
    older_sums: Vec<f64>,
    newer: Vec<f64>,
    newer_sum: f64,
}

impl MovingDoubles {
    pub fn sum() -> Self {
        Self::default()
    }

    pub fn average() -> Self {
        Self { is_average: true, ..Self::default() }
    }

    fn forget_oldest(&mut self) {
        // Each value moves from the newer ones to the older ones once, so a step of the frame costs
        // the same however long the frame is.
        if self.older_sums.is_empty() {
            let mut sum = 0.0;
            // From the newest back to the oldest, so that the last sum is of all the values and the
            // one before it is without the oldest: forgetting the oldest is then a pop.
            self.older_sums.extend(self.newer.drain(..).rev().map(|value| {
                sum += value;
                sum
            }));
            self.newer_sum = 0.0;
        }
        self.older_sums.pop();
    }
}

impl Accumulator for MovingDoubles {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
            self.newer.push(value);
            self.newer_sum += value;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        // Which values go is known: those that came first. Nulls were never kept.
        for _ in values[0].null_count()..values[0].len() {
            self.forget_oldest();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let count = self.older_sums.len() + self.newer.len();
        let sum = self.older_sums.last().unwrap_or(&0.0) + self.newer_sum;
        let result = if self.is_average { sum / count as f64 } else { sum };
        Ok(ScalarValue::Float64((count > 0).then_some(result)))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window frame that moves has no partial state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("window frames that move are not merged")
    }

    fn size(&self) -> usize {
        let values = self.older_sums.capacity() + self.newer.capacity();
        size_of_val(self) + values * size_of::<f64>()
    }
}
