//! Averages of INTERVALs: INTERVALs of months or of microseconds, of which half a unit is rounded
//! away from zero. A sum that does not fit the type ends the query, or makes the average of
//! `try_avg` NULL, as does one that fits again with later rows: so it is in Spark.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, PrimitiveArray};
use arrow::datatypes::{DataType, DurationMicrosecondType, Int64Type, IntervalYearMonthType};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::super::interval_arithmetic::half_up;
use super::grouped::{states_of_rows, try_for_each};
use super::moving::MovingSum;
use super::sum::interval_value;

/// The count of values whose sum did not fit.
pub(super) const OVERFLOWED: i64 = -1;

/// The result for an average that does not fit its type: an error, or NULL for `try_avg`.
pub(super) fn too_large<T>(overflow_fails: bool) -> Result<Option<T>> {
    if overflow_fails {
        return exec_err!("an average is too large for its type; try_avg makes it NULL instead");
    }
    Ok(None)
}

/// For each group the sum of INTERVALs and how many they are.
pub(super) struct IntervalAverages {
    data_type: DataType,
    overflow_fails: bool,
    sums: Vec<i64>,
    counts: Vec<i64>,
}

impl IntervalAverages {
    /// Without groups, of values of the type.
    pub fn new(data_type: &DataType, overflow_fails: bool) -> Self {
        let (sums, counts) = (Vec::new(), Vec::new());
        Self { data_type: data_type.clone(), overflow_fails, sums, counts }
    }

    fn make_room(&mut self, groups: usize) {
        self.sums.resize(groups, 0);
        self.counts.resize(groups, 0);
    }

    fn add(&mut self, group: usize, value: i64, count: i64) -> Result<()> {
        if self.counts[group] == OVERFLOWED {
            return Ok(());
        }
        let sum = self.sums[group].checked_add(value).filter(|_| count != OVERFLOWED);
        match sum.filter(|sum| fits(&self.data_type, *sum)) {
            Some(sum) => {
                self.sums[group] = sum;
                self.counts[group] += count;
            }
            None => {
                too_large::<i64>(self.overflow_fails)?;
                self.counts[group] = OVERFLOWED;
            }
        }
        Ok(())
    }
}

/// Whether a sum is one of the type.
fn fits(of: &DataType, sum: i64) -> bool {
    !matches!(of, DataType::Interval(_)) || i32::try_from(sum).is_ok()
}

fn average(sum: i64, count: i64) -> Option<i64> {
    let average = (count > 0).then(|| half_up(sum.into(), count.into()));
    average.and_then(|average| average.try_into().ok())
}

impl GroupsAccumulator for IntervalAverages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.make_room(count);
        if let DataType::Interval(_) = self.data_type {
            let values = values[0].as_primitive::<IntervalYearMonthType>();
            return try_for_each(values, groups, filter, |group, months| {
                self.add(group, months.into(), 1)
            });
        }
        let values = values[0].as_primitive::<DurationMicrosecondType>();
        try_for_each(values, groups, filter, |group, us| self.add(group, us, 1))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.make_room(count);
        let (sums, counts) =
            (states[0].as_primitive::<Int64Type>(), states[1].as_primitive::<Int64Type>());
        for (row, group) in groups.iter().enumerate() {
            if counts.is_valid(row) {
                self.add(*group, sums.value(row), counts.value(row))?;
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let counts = emit_to.take_needed(&mut self.counts);
        let averages = sums.into_iter().zip(counts).map(|(sum, count)| average(sum, count));
        if let DataType::Interval(_) = self.data_type {
            let months =
                averages.map(|months| months.and_then(|months| i32::try_from(months).ok()));
            return Ok(Arc::new(months.collect::<PrimitiveArray<IntervalYearMonthType>>()));
        }
        Ok(Arc::new(averages.collect::<PrimitiveArray<DurationMicrosecondType>>()))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = Int64Array::from(emit_to.take_needed(&mut self.sums));
        let counts = Int64Array::from(emit_to.take_needed(&mut self.counts));
        Ok(vec![Arc::new(sums), Arc::new(counts)])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        states_of_rows(Self::new(&self.data_type, self.overflow_fails), values, filter)
    }

    fn size(&self) -> usize {
        (self.sums.capacity() + self.counts.capacity()) * size_of::<i64>()
    }
}

/// The average of a window frame that moves.
pub(super) fn moving(data_type: &DataType, overflow_fails: bool) -> Box<dyn Accumulator> {
    let data_type = data_type.clone();
    Box::new(MovingSum::new(Box::new(move |sum, count| {
        let sum = sum.and_then(|sum| i64::try_from(sum).ok());
        let average = match sum.filter(|sum| fits(&data_type, *sum)) {
            Some(sum) => average(sum, count),
            None => too_large(overflow_fails)?,
        };
        interval_value(&data_type, average.map(i128::from))
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_month_is_rounded_away_from_zero() {
        let mut averages = IntervalAverages::new(
            &DataType::Interval(arrow::datatypes::IntervalUnit::YearMonth),
            false,
        );
        let months = [Some(1), Some(2), None, Some(-1), Some(-2), Some(i32::MAX), Some(1)];
        let months: PrimitiveArray<IntervalYearMonthType> = months.into_iter().collect();
        let groups = [0, 0, 0, 1, 1, 2, 2];
        let updated = averages.update_batch(&[Arc::new(months)], &groups, None, 4);
        updated.expect("nothing fails");
        let found = averages.evaluate(EmitTo::All).expect("nothing fails");
        let found: Vec<Option<i32>> =
            found.as_primitive::<IntervalYearMonthType>().iter().collect();
        assert_eq!(found, [Some(2), Some(-2), None, None]);
    }
}
