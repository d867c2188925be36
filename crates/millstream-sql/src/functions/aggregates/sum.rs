//! `sum` and `try_sum`. Whole numbers make a BIGINT, decimals one of ten digits more, INTERVALs one
//! of the same fields, anything else a DOUBLE. What does not fit ends the query, or makes the sum
//! of `try_sum` NULL. Without ANSI mode a BIGINT wraps around ([`WRAPPING`]).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowNativeTypeOp, AsArray, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type,
    DurationMicrosecondType, DurationSecondType, Int64Type, IntervalUnit, IntervalYearMonthType,
    TimeUnit,
};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::define::{Aggregate, Make, counted, refused};
use super::grouped::{states_of_rows, try_for_each};
use super::moving::{MovingDoubles, MovingSum};
use crate::values::calendar::SECOND_US;

/// `sum` of whole numbers without ANSI mode.
pub(crate) const WRAPPING: &str = "__wrapping_sum";

pub(super) const AGGREGATES: &[Aggregate] = &[
    Aggregate {
        name: "sum",
        aliases: &[],
        coerce: |given| summand("sum", given),
        returns: |args| Ok(sum_type(&args[0])),
        state: |args| vec![sum_type(&args[0])],
        never_null: false,
        make: Make::Groups(|args| groups(args, Overflow::Fails)),
        moving: Some(|args| Ok(moving(args, Overflow::Fails))),
    },
    Aggregate {
        name: "try_sum",
        aliases: &[],
        coerce: |given| summand("try_sum", given),
        returns: |args| Ok(sum_type(&args[0])),
        state: |args| match sum_type(&args[0]) {
            DataType::Float64 => vec![DataType::Float64],
            sum => vec![sum, DataType::Boolean],
        },
        never_null: false,
        make: Make::Groups(|args| groups(args, Overflow::IsNull)),
        moving: Some(|args| Ok(moving(args, Overflow::IsNull))),
    },
    Aggregate {
        name: WRAPPING,
        aliases: &[],
        coerce: |given| summand("sum", given),
        returns: |args| Ok(sum_type(&args[0])),
        state: |args| vec![sum_type(&args[0])],
        never_null: false,
        make: Make::Groups(|args| groups(args, Overflow::Wraps)),
        moving: Some(|args| Ok(moving(args, Overflow::Wraps))),
    },
];

/// The type that values are added in.
pub(super) fn summand(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 1, 1)?;
    let summand = match &given[0] {
        found if found.is_integer() => DataType::Int64,
        DataType::Decimal128(..) => given[0].clone(),
        found if is_interval(found) => given[0].clone(),
        found if found.is_floating() || found.is_string() || found.is_null() => DataType::Float64,
        other => return refused(name, "a number", other),
    };
    Ok(vec![summand])
}

/// The type of the sum of values of a type.
pub(super) fn sum_type(summand: &DataType) -> DataType {
    match summand {
        DataType::Decimal128(precision, scale) => {
            // Spark's rule: ten digits more are room for ten billion of the largest values.
            DataType::Decimal128((precision + 10).min(DECIMAL128_MAX_PRECISION), *scale)
        }
        other => other.clone(),
    }
}

/// What an INTERVAL of days holds in seconds: to Spark these are microseconds.
const SECONDS_MAX: i64 = i64::MAX / SECOND_US;

/// Whether values of a type are INTERVALs of months, or of days and less.
pub(super) fn is_interval(of: &DataType) -> bool {
    let units = [TimeUnit::Second, TimeUnit::Microsecond].map(DataType::Duration);
    *of == DataType::Interval(IntervalUnit::YearMonth) || units.contains(of)
}

/// An INTERVAL of the type `of`; NULL where its count does not fit.
pub(super) fn interval_value(of: &DataType, count: Option<i128>) -> Result<ScalarValue> {
    let long = count.and_then(|count| i64::try_from(count).ok());
    Ok(match of {
        DataType::Interval(_) => {
            ScalarValue::IntervalYearMonth(long.and_then(|months| i32::try_from(months).ok()))
        }
        DataType::Duration(TimeUnit::Second) => ScalarValue::DurationSecond(long),
        DataType::Duration(TimeUnit::Microsecond) => ScalarValue::DurationMicrosecond(long),
        other => return internal_err!("{other} is no INTERVAL"),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Fails,
    IsNull,
    /// It keeps the low bits, as only whole numbers do.
    Wraps,
}

fn groups(args: &AccumulatorArgs<'_>, overflow: Overflow) -> Result<Box<dyn GroupsAccumulator>> {
    let sum = args.return_type().clone();
    match sum {
        DataType::Int64 => Ok(Box::new(Sums::<Int64Type>::new(sum, None, overflow))),
        DataType::Decimal128(..) => {
            let bound = greatest(&sum);
            Ok(Box::new(Sums::<Decimal128Type>::new(sum, bound, overflow)))
        }
        DataType::Interval(_) => {
            Ok(Box::new(Sums::<IntervalYearMonthType>::new(sum, None, overflow)))
        }
        DataType::Duration(TimeUnit::Second) => {
            let bound = Some(SECONDS_MAX);
            Ok(Box::new(Sums::<DurationSecondType>::new(sum, bound, overflow)))
        }
        DataType::Duration(_) => {
            Ok(Box::new(Sums::<DurationMicrosecondType>::new(sum, None, overflow)))
        }
        _ => {
            let args = AccumulatorArgs { is_distinct: false, ..args.clone() };
            // Doubles do not overflow, so DataFusion's sum does what Spark's does. DISTINCT is
            // taken off, because equal values were left out before they come here.
            sum_udaf().create_groups_accumulator(args)
        }
    }
}

fn moving(args: &AccumulatorArgs<'_>, overflow: Overflow) -> Box<dyn Accumulator> {
    let sum_type = args.return_type().clone();
    let most = match &sum_type {
        DataType::Int64 => i128::from(i64::MAX),
        DataType::Decimal128(..) => greatest(&sum_type).unwrap_or(i128::MAX),
        DataType::Interval(_) => i128::from(i32::MAX),
        DataType::Duration(TimeUnit::Second) => i128::from(SECONDS_MAX),
        DataType::Duration(_) => i128::from(i64::MAX),
        _ => return Box::new(MovingDoubles::sum()),
    };
    Box::new(MovingSum::new(Box::new(move |sum, count| {
        let fits = |sum: &i128| (-most..=most).contains(sum);
        let sum = match (sum.filter(fits), overflow) {
            (None, Overflow::Fails) => return too_large(),
            (None, Overflow::Wraps) => sum.map(|sum| i128::from(sum as i64)),
            (sum, _) => sum,
        };
        let sum = sum.filter(|_| count > 0);
        match &sum_type {
            DataType::Decimal128(precision, scale) => {
                Ok(ScalarValue::Decimal128(sum, *precision, *scale))
            }
            of if is_interval(of) => interval_value(of, sum),
            _ => Ok(ScalarValue::Int64(sum.and_then(|sum| i64::try_from(sum).ok()))),
        }
    })))
}

fn too_large<T>() -> Result<T> {
    exec_err!("a sum is too large for its type; try_sum makes it NULL instead")
}

/// Adds where the sum fits its type.
fn added<T: ArrowPrimitiveType>(
    sum: T::Native,
    value: T::Native,
    bound: Option<T::Native>,
) -> Option<T::Native> {
    let sum = sum.add_checked(value).ok()?;
    let fits = bound.is_none_or(|bound| sum <= bound && sum >= bound.neg_wrapping());
    fits.then_some(sum)
}

/// The greatest decimal of a type.
fn greatest(data_type: &DataType) -> Option<i128> {
    match data_type {
        DataType::Decimal128(precision, _) => Some(10_i128.pow(u32::from(*precision)) - 1),
        _ => None,
    }
}

/// For each group the sum so far, whether there is one, and whether it did not fit.
struct Sums<T: ArrowPrimitiveType> {
    data_type: DataType,
    /// The greatest sum that fits, where that is not the greatest number there is.
    bound: Option<T::Native>,
    overflow: Overflow,
    sums: Vec<T::Native>,
    seen: Vec<bool>,
    /// Empty where overflow fails.
    overflowed: Vec<bool>,
}

impl<T: ArrowPrimitiveType> Sums<T> {
    fn new(data_type: DataType, bound: Option<T::Native>, overflow: Overflow) -> Self {
        Self {
            data_type,
            bound,
            overflow,
            sums: Vec::new(),
            seen: Vec::new(),
            overflowed: Vec::new(),
        }
    }

    fn make_room(&mut self, groups: usize) {
        self.sums.resize(groups, T::default_value());
        self.seen.resize(groups, false);
        if self.overflow == Overflow::IsNull {
            self.overflowed.resize(groups, false);
        }
    }

    #[inline]
    fn add(&mut self, group: usize, value: T::Native) -> Result<()> {
        self.seen[group] = true;
        match (added::<T>(self.sums[group], value, self.bound), self.overflow) {
            (Some(sum), _) => self.sums[group] = sum,
            // The sum stays as it was. It may still grow, but the result is NULL.
            (None, Overflow::IsNull) => self.overflowed[group] = true,
            (None, Overflow::Wraps) => self.sums[group] = self.sums[group].add_wrapping(value),
            (None, Overflow::Fails) => return too_large(),
        }
        Ok(())
    }

    fn add_all(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.make_room(count);
        let values = values.as_primitive::<T>();
        let is_one_run = count == 1 && filter.is_none() && values.null_count() == 0;
        if is_one_run && self.add_run(values.values()) {
            return Ok(());
        }
        try_for_each(values, groups, filter, |group, value| self.add(group, value))
    }

    /// Adds values of the only group at once, unless a sum on the way might not fit its type: then
    /// it does nothing and returns false. Sums over a whole table are several times as fast this
    /// way as value by value.
    fn add_run(&mut self, values: &[T::Native]) -> bool {
        let zero = T::default_value();
        let (mut least, mut greatest, mut run) = (zero, zero, zero);
        for value in values {
            least = if value.is_lt(least) { *value } else { least };
            greatest = if value.is_gt(greatest) { *value } else { greatest };
            run = run.add_wrapping(*value);
        }
        let Some(count) = T::Native::from_usize(values.len()) else { return false };
        let fits = |extreme: T::Native| {
            let all = extreme.mul_checked(count).ok()?;
            added::<T>(self.sums[0], all, self.bound)
        };
        if values.is_empty() || fits(least).is_none() || fits(greatest).is_none() {
            return values.is_empty();
        }
        self.sums[0] = self.sums[0].add_wrapping(run);
        self.seen[0] = true;
        true
    }

    fn take(&mut self, emit_to: EmitTo) -> (ArrayRef, Vec<bool>) {
        let sums = emit_to.take_needed(&mut self.sums);
        let seen = emit_to.take_needed(&mut self.seen);
        let overflowed = match self.overflow {
            Overflow::Fails | Overflow::Wraps => vec![false; sums.len()],
            Overflow::IsNull => emit_to.take_needed(&mut self.overflowed),
        };
        let sums = PrimitiveArray::<T>::new(sums.into(), Some(NullBuffer::from(seen)));
        (Arc::new(sums.with_data_type(self.data_type.clone())), overflowed)
    }
}

impl<T: ArrowPrimitiveType> GroupsAccumulator for Sums<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.add_all(&values[0], groups, filter, count)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.add_all(&states[0], groups, None, count)?;
        if self.overflow == Overflow::IsNull {
            let overflowed = states[1].as_boolean();
            for (row, group) in groups.iter().enumerate() {
                // A part that overflowed came with a sum all the same, and the other parts may be
                // small enough to hide it.
                self.overflowed[*group] |= overflowed.is_valid(row) && overflowed.value(row);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, overflowed) = self.take(emit_to);
        let fits: NullBuffer = overflowed.iter().map(|overflowed| !overflowed).collect();
        let sums = sums.as_primitive::<T>();
        let nulls = NullBuffer::union(sums.nulls(), Some(&fits));
        let sums = PrimitiveArray::<T>::new(sums.values().clone(), nulls);
        Ok(Arc::new(sums.with_data_type(self.data_type.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let (sums, overflowed) = self.take(emit_to);
        Ok(match self.overflow {
            Overflow::Fails | Overflow::Wraps => vec![sums],
            Overflow::IsNull => vec![sums, Arc::new(BooleanArray::from(overflowed))],
        })
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let empty = Self::new(self.data_type.clone(), self.bound, self.overflow);
        states_of_rows(empty, values, filter)
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<T::Native>()
            + self.seen.capacity()
            + self.overflowed.capacity()
    }
}
