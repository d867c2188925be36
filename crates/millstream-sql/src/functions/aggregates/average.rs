//! `avg`, `mean` and `try_avg`. Of decimals the average has four digits more after the point,
//! rounded half up; of INTERVALs it is one ([`super::interval_average`]); of anything else it is a
//! DOUBLE.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DecimalType, Int64Type, TimeUnit,
};
use datafusion::common::{Result, ScalarValue};
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::define::{Aggregate, Make, input};
use super::grouped::{states_of_rows, try_for_each};
use super::interval_average::{self, IntervalAverages, OVERFLOWED, too_large};
use super::moving::{MovingDoubles, MovingSum};
use super::sum::{is_interval, sum_type, summand};

pub(super) const AGGREGATES: &[Aggregate] = &[
    Aggregate {
        name: "avg",
        aliases: &["mean"],
        coerce: |given| coerced("avg", given),
        make: Make::Groups(|args| groups(args, true)),
        moving: Some(|args| Ok(moving(args, true))),
        ..AVERAGE
    },
    Aggregate {
        name: "try_avg",
        coerce: |given| coerced("try_avg", given),
        make: Make::Groups(|args| groups(args, false)),
        moving: Some(|args| Ok(moving(args, false))),
        ..AVERAGE
    },
];

/// The definition that both share.
const AVERAGE: Aggregate = Aggregate {
    name: "",
    aliases: &[],
    coerce: |given| coerced("avg", given),
    returns: |args| Ok(average_type(&args[0])),
    state: |args| match &args[0] {
        DataType::Decimal128(..) => vec![sum_type(&args[0]), DataType::Int64],
        of if is_interval(of) => vec![DataType::Int64, DataType::Int64],
        _ => vec![DataType::UInt64, DataType::Float64],
    },
    never_null: false,
    make: Make::Groups(|args| groups(args, true)),
    moving: None,
};

fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    // Spark takes a TIMESTAMP as its seconds.
    if let [DataType::Timestamp(_, Some(_))] = given {
        return Ok(vec![DataType::Float64]);
    }
    let summand = summand(name, given)?;
    Ok(match &summand[0] {
        DataType::Int64 => vec![DataType::Float64],
        // The average of days has parts of a day.
        DataType::Duration(_) => vec![DataType::Duration(TimeUnit::Microsecond)],
        _ => summand,
    })
}

fn average_type(of: &DataType) -> DataType {
    match of {
        DataType::Decimal128(precision, scale) => {
            let most = DECIMAL128_MAX_PRECISION;
            let scale = (scale + 4).min(most as i8);
            DataType::Decimal128((precision + 4).min(most), scale)
        }
        of if is_interval(of) => of.clone(),
        _ => DataType::Float64,
    }
}

fn groups(args: &AccumulatorArgs<'_>, overflow_fails: bool) -> Result<Box<dyn GroupsAccumulator>> {
    if let Some(averages) = Averages::of(args, overflow_fails) {
        return Ok(Box::new(averages));
    }
    if is_interval(args.return_type()) {
        return Ok(Box::new(IntervalAverages::new(args.return_type(), overflow_fails)));
    }
    let args = AccumulatorArgs { is_distinct: false, ..args.clone() };
    avg_udaf().create_groups_accumulator(args)
}

fn moving(args: &AccumulatorArgs<'_>, overflow_fails: bool) -> Box<dyn Accumulator> {
    if is_interval(args.return_type()) {
        return interval_average::moving(args.return_type(), overflow_fails);
    }
    let Some(averages) = Averages::of(args, overflow_fails) else {
        return Box::new(MovingDoubles::average());
    };
    Box::new(MovingSum::new(Box::new(move |sum, count| {
        let average = match sum {
            Some(sum) => averages.average(sum, count)?,
            None => averages.fail_or_null()?,
        };
        Ok(ScalarValue::Decimal128(average, averages.precision, averages.scale))
    })))
}

/// For each group the sum of decimals and how many they are; a count below 0 says that the sum
/// did not fit.
struct Averages {
    sum: DataType,
    /// Of the average.
    precision: u8,
    /// Of the average.
    scale: i8,
    /// The factor from the scale of the sum to that of the average.
    factor: i128,
    overflow_fails: bool,
    sums: Vec<i128>,
    counts: Vec<i64>,
}

impl Averages {
    /// Without groups; `None` where the average is not a decimal.
    fn of(args: &AccumulatorArgs<'_>, overflow_fails: bool) -> Option<Self> {
        let of = input(args, 0);
        let (DataType::Decimal128(_, from), DataType::Decimal128(precision, scale)) =
            (&of, args.return_type())
        else {
            return None;
        };
        Some(Self {
            sum: sum_type(&of),
            precision: *precision,
            scale: *scale,
            factor: 10_i128.pow(u32::try_from(scale - from).unwrap_or(0)),
            overflow_fails,
            sums: Vec::new(),
            counts: Vec::new(),
        })
    }

    fn add(&mut self, group: usize, value: i128, count: i64) -> Result<()> {
        if self.counts[group] == OVERFLOWED {
            return Ok(());
        }
        let sum = self.sums[group].checked_add(value).filter(|_| count != OVERFLOWED);
        match sum {
            Some(sum) => {
                self.sums[group] = sum;
                self.counts[group] += count;
            }
            None => {
                self.fail_or_null()?;
                self.counts[group] = OVERFLOWED;
            }
        }
        Ok(())
    }

    /// The result for an average that does not fit: an error, or NULL for `try_avg`.
    fn fail_or_null(&self) -> Result<Option<i128>> {
        too_large(self.overflow_fails)
    }

    fn average(&self, sum: i128, count: i64) -> Result<Option<i128>> {
        if count <= 0 {
            return Ok(None);
        }
        let count = i128::from(count);
        // Divided before it is scaled: the scaled sum might not fit where the average does.
        let whole = (sum / count).checked_mul(self.factor);
        // The remainder is less than the count, so this stays small. Half goes away from zero.
        let rest = sum % count * self.factor;
        let rounded = (2 * rest.abs() + count) / (2 * count) * rest.signum();
        let average = whole.and_then(|whole| whole.checked_add(rounded));
        let fits =
            |average: &i128| Decimal128Type::is_valid_decimal_precision(*average, self.precision);
        match average.filter(fits) {
            Some(average) => Ok(Some(average)),
            None => self.fail_or_null(),
        }
    }
}

impl GroupsAccumulator for Averages {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.sums.resize(count, 0);
        self.counts.resize(count, 0);
        let values = values[0].as_primitive::<Decimal128Type>();
        try_for_each(values, groups, filter, |group, value| self.add(group, value, 1))
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.sums.resize(count, 0);
        self.counts.resize(count, 0);
        let sums = states[0].as_primitive::<Decimal128Type>();
        let counts = states[1].as_primitive::<Int64Type>();
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
        let averages = sums.into_iter().zip(counts);
        let averages = averages.map(|(sum, count)| self.average(sum, count));
        let averages = averages.collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(averages.with_precision_and_scale(self.precision, self.scale)?))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let sums = Decimal128Array::from(emit_to.take_needed(&mut self.sums));
        let counts = Int64Array::from(emit_to.take_needed(&mut self.counts));
        Ok(vec![Arc::new(sums.with_data_type(self.sum.clone())), Arc::new(counts)])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let (sums, counts) = (Vec::new(), Vec::new());
        let empty = Self { sum: self.sum.clone(), sums, counts, ..*self };
        states_of_rows(empty, values, filter)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.counts.capacity() * size_of::<i64>()
    }
}
