//! `histogram_numeric`: how values are spread, as so many bins of a place and a height.
//!
//! The algorithm is that of Ben-Haim and Tom-Tov, as Spark has it from Hive: each value is a bin of
//! its own, and while there are too many the two nearest become one. Of several pairs that are
//! equally near chance takes one, by Java's generator with a fixed seed, so that the same values in
//! the same order give the same bins. Between partial states the generator begins anew, as in
//! Spark: what is merged depends on the states alone, also after a crash.

use std::cmp::Ordering;
use std::mem::size_of_val;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, ListArray, PrimitiveArray, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, DurationMicrosecondType, Field, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalUnit, IntervalYearMonthType,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, internal_err, plan_err};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::super::cast::cast;
use super::define::{Aggregate, Make, constant, counted, input, number_or_interval, refused};
use crate::types::{list_of, spark_type};

const NAME: &str = "histogram_numeric";

pub(super) const AGGREGATES: &[Aggregate] = &[Aggregate {
    name: NAME,
    aliases: &[],
    coerce: |given| {
        counted(NAME, given, 2, 2)?;
        Ok(vec![value_type(&given[0])?, bins_type(&given[1])?])
    },
    returns: |args| Ok(list_of(bin_type(&args[0]))),
    state: |_| vec![list_of(DataType::Float64), list_of(DataType::Float64)],
    never_null: false,
    make: Make::Single(|args| Ok(Box::new(Histogram::of(args)?))),
    moving: None,
}];

/// The values' type, which places have, too.
fn value_type(given: &DataType) -> Result<DataType> {
    match given {
        DataType::Date32 => Ok(DataType::Date32),
        DataType::Timestamp(_, zone) => {
            Ok(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        given if given.is_numeric() => Ok(given.clone()),
        other => number_or_interval(NAME, other),
    }
}

/// While a query is planned all numbers in it are BIGINTs.
fn bins_type(given: &DataType) -> Result<DataType> {
    match given.is_signed_integer() || given.is_null() {
        true => Ok(DataType::Int32),
        false => refused(NAME, "an INT behind its column", given),
    }
}

fn bin_type(of: &DataType) -> DataType {
    let place = Field::new("x", of.clone(), true);
    DataType::Struct(vec![place, Field::new("y", DataType::Float64, true)].into())
}

/// The bins of a group.
#[derive(Debug)]
struct Histogram {
    bins: Bins,
    /// The type of the values.
    of: DataType,
    returns: DataType,
}

impl Histogram {
    fn of(args: &AccumulatorArgs<'_>) -> Result<Self> {
        let most = match constant(NAME, args, 1)? {
            ScalarValue::Int32(Some(most)) if most >= 2 => most as usize,
            given => return plan_err!("function '{NAME}' needs 2 bins or more, not {given}"),
        };
        let (of, returns) = (input(args, 0), args.return_type().clone());
        Ok(Self { bins: Bins::new(most), of, returns })
    }
}

impl Accumulator for Histogram {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        doubles(&values[0])?.iter().flatten().for_each(|value| self.bins.add(value));
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (places, heights) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for (places, heights) in places.iter().zip(heights.iter()) {
            let (Some(places), Some(heights)) = (places, heights) else { continue };
            let places = places.as_primitive::<Float64Type>().values();
            let heights = heights.as_primitive::<Float64Type>().values();
            let bins = places.iter().zip(heights.iter()).map(|(x, y)| Bin { x: *x, y: *y });
            self.bins.merge(bins.collect());
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let list = |of: fn(&Bin) -> f64| {
            let values = self.bins.bins.iter().map(|bin| ScalarValue::Float64(Some(of(bin))));
            let values: Vec<ScalarValue> = values.collect();
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &DataType::Float64))
        };
        Ok(vec![list(|bin| bin.x), list(|bin| bin.y)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let (bins, DataType::List(item)) = (&self.bins.bins, &self.returns) else {
            return internal_err!("{NAME} gives an array");
        };
        let DataType::Struct(fields) = item.data_type() else {
            return internal_err!("{NAME} gives an array of structs");
        };
        if bins.is_empty() {
            return ScalarValue::try_from(&self.returns);
        }
        let places: Vec<f64> = bins.iter().map(|bin| bin.x).collect();
        let heights = Float64Array::from_iter_values(bins.iter().map(|bin| bin.y));
        let columns = vec![of_doubles(&places, &self.of)?, Arc::new(heights) as ArrayRef];
        let structs = StructArray::new(fields.clone(), columns, None);
        let ends = OffsetBuffer::from_lengths([bins.len()]);
        let list = ListArray::new(Arc::clone(item), ends, Arc::new(structs), None);
        Ok(ScalarValue::List(Arc::new(list)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bins.bins.capacity() * size_of::<Bin>()
    }
}

/// Values as DOUBLEs: of times their days or microseconds, of INTERVALs their units.
fn doubles(values: &ArrayRef) -> Result<Float64Array> {
    let of_int = |value: i32| f64::from(value);
    let of_long = |value: i64| value as f64;
    Ok(match values.data_type() {
        DataType::Date32 => values.as_primitive::<Date32Type>().unary(of_int),
        DataType::Interval(IntervalUnit::YearMonth) => {
            values.as_primitive::<IntervalYearMonthType>().unary(of_int)
        }
        DataType::Timestamp(..) => values.as_primitive::<TimestampMicrosecondType>().unary(of_long),
        DataType::Duration(_) => values.as_primitive::<DurationMicrosecondType>().unary(of_long),
        _ => cast(values, &DataType::Float64, true)?.as_primitive::<Float64Type>().clone(),
    })
}

/// DOUBLEs as values of a type; of whole numbers what is behind the point is cut off.
fn of_doubles(values: &[f64], of: &DataType) -> Result<ArrayRef> {
    Ok(match of {
        DataType::Int8 => made::<Int8Type>(values, of, |value| value as i8),
        DataType::Int16 => made::<Int16Type>(values, of, |value| value as i16),
        DataType::Int32 => made::<Int32Type>(values, of, |value| value as i32),
        DataType::Int64 => made::<Int64Type>(values, of, |value| value as i64),
        DataType::Float32 => made::<Float32Type>(values, of, |value| value as f32),
        DataType::Float64 => made::<Float64Type>(values, of, |value| value),
        DataType::Date32 => made::<Date32Type>(values, of, |value| value as i32),
        DataType::Timestamp(..) => {
            made::<TimestampMicrosecondType>(values, of, |value| value as i64)
        }
        DataType::Duration(_) => made::<DurationMicrosecondType>(values, of, |value| value as i64),
        DataType::Interval(_) => made::<IntervalYearMonthType>(values, of, |value| value as i32),
        DataType::Decimal128(precision, scale) => {
            let numbers = values.iter().map(|value| {
                let number = unscaled(*value, *precision, *scale);
                number.ok_or_else(|| exec_datafusion_err!("{value} is no {}", spark_type(of)))
            });
            let numbers = Decimal128Array::from_iter_values(numbers.collect::<Result<Vec<_>>>()?);
            Arc::new(numbers.with_precision_and_scale(*precision, *scale)?)
        }
        other => return internal_err!("{NAME} of {other}"),
    })
}

fn made<T: ArrowPrimitiveType>(
    values: &[f64],
    of: &DataType,
    value: impl Fn(f64) -> T::Native,
) -> ArrayRef {
    let values = values.iter().map(|double| value(*double));
    Arc::new(PrimitiveArray::<T>::from_iter_values(values).with_data_type(of.clone()))
}

/// A number in units of the last digit of a DECIMAL. As in Spark its digits are rounded twice: to
/// as many as the type has, and to those behind the point; both half up.
fn unscaled(value: f64, precision: u8, scale: i8) -> Option<i128> {
    let shown = format!("{:e}", value.abs());
    let (mantissa, power) = shown.split_once('e')?;
    let mut power: i32 = power.parse().ok()?;
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    power -= digits.len() as i32 - 1;
    let mut number: i128 = digits.parse().ok()?;
    let too_many = digits.len().saturating_sub(usize::from(precision)) as u32;
    number = without_digits(number, too_many);
    power += too_many as i32 + i32::from(scale);
    let number = match u32::try_from(power) {
        Ok(zeros) => number.checked_mul(10_i128.checked_pow(zeros)?)?,
        Err(_) => without_digits(number, power.unsigned_abs()),
    };
    let fits = number < 10_i128.checked_pow(precision.into())?;
    fits.then_some(if value < 0.0 { -number } else { number })
}

/// A number without its last digits, half up.
fn without_digits(number: i128, digits: u32) -> i128 {
    match 10_i128.checked_pow(digits) {
        Some(unit) => (number + unit / 2) / unit,
        None => 0,
    }
}

/// A place, and how many values are there.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bin {
    x: f64,
    y: f64,
}

/// Bins in the order of their places.
#[derive(Debug)]
struct Bins {
    bins: Vec<Bin>,
    /// How many there may be.
    most: usize,
    random: JavaRandom,
}

impl Bins {
    const fn new(most: usize) -> Self {
        Self { bins: Vec::new(), most, random: JavaRandom::new() }
    }

    /// Adds a value, by a search that finds the place of a NaN as it does in Java.
    fn add(&mut self, value: f64) {
        let (mut at, mut low, mut high) = (0, 0, self.bins.len());
        while low < high {
            at = usize::midpoint(low, high);
            if self.bins[at].x > value {
                high = at;
            } else if self.bins[at].x < value {
                at += 1;
                low = at;
            } else {
                break;
            }
        }
        match self.bins.get_mut(at) {
            Some(bin) if bin.x == value => bin.y += 1.0,
            _ => {
                self.bins.insert(at, Bin { x: value, y: 1.0 });
                self.trim();
            }
        }
    }

    /// Adds the bins of a partial state.
    fn merge(&mut self, others: Vec<Bin>) {
        if self.bins.is_empty() {
            self.bins = others;
            return;
        }
        self.random = JavaRandom::new();
        self.bins.extend(others);
        // Both are in order, so that this is a merge.
        self.bins.sort_by(|one, other| in_java(one.x, other.x));
        self.trim();
    }

    /// Makes one bin of the two nearest while there are too many.
    fn trim(&mut self) {
        while self.bins.len() > self.most {
            let (mut nearest, mut at, mut equal) = (f64::NAN, 0, 1.0);
            for (next, pair) in self.bins.windows(2).enumerate() {
                let distance = pair[1].x - pair[0].x;
                if next == 0 {
                    nearest = distance;
                } else if distance < nearest {
                    (nearest, at, equal) = (distance, next, 1.0);
                } else if distance == nearest {
                    equal += 1.0;
                    if self.random.next_double() <= 1.0 / equal {
                        at = next;
                    }
                }
            }
            let right = self.bins.remove(at + 1);
            let left = &mut self.bins[at];
            // Java's order of operations, from which it follows what is rounded.
            let height = left.y + right.y;
            left.x *= left.y / height;
            left.x += right.x / height * right.y;
            left.y = height;
        }
    }
}

/// Java's order of DOUBLEs: -0.0 is less than 0.0, and NaN is the greatest.
fn in_java(one: f64, other: f64) -> Ordering {
    match (one.is_nan(), other.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => one.total_cmp(&other),
    }
}

/// `java.util.Random` with the seed that Hive's histograms have.
#[derive(Debug)]
struct JavaRandom(u64);

impl JavaRandom {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const BITS: u32 = 48;

    const fn new() -> Self {
        Self(31183 ^ Self::MULTIPLIER)
    }

    fn next(&mut self, bits: u32) -> u64 {
        let next = self.0.wrapping_mul(Self::MULTIPLIER).wrapping_add(0xB);
        self.0 = next & ((1 << Self::BITS) - 1);
        self.0 >> (Self::BITS - bits)
    }

    /// From 0 up to 1.
    fn next_double(&mut self) -> f64 {
        let bits = (self.next(26) << 27) + self.next(27);
        bits as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places and heights of the bins of values.
    fn bins(most: usize, values: impl IntoIterator<Item = f64>) -> Bins {
        let mut bins = Bins::new(most);
        values.into_iter().for_each(|value| bins.add(value));
        bins
    }

    fn pairs(bins: &Bins) -> Vec<(f64, f64)> {
        bins.bins.iter().map(|bin| (bin.x, bin.y)).collect()
    }

    #[test]
    fn bins_are_those_of_java() {
        let of = |most: usize, values: &[f64]| pairs(&bins(most, values.iter().copied()));
        assert_eq!(of(3, &[10.0, 12.0, 80.0, 90.0]), [(11.0, 2.0), (80.0, 1.0), (90.0, 1.0)]);
        assert_eq!(of(5, &[2.0, 0.0, 2.0]), [(0.0, 1.0), (2.0, 2.0)]);
        let ten = pairs(&bins(4, (1..=10).map(f64::from)));
        assert_eq!(ten, [(2.0, 3.0), (4.5, 2.0), (6.5, 2.0), (9.0, 3.0)]);
    }

    #[test]
    fn states_are_merged_as_in_java() {
        let mut first = bins(4, (1..=7).map(f64::from));
        first.merge(bins(4, (8..=11).map(f64::from)).bins);
        assert_eq!(pairs(&first), [(1.5, 2.0), (4.0, 3.0), (7.0, 3.0), (10.0, 3.0)]);
        let mut none = Bins::new(4);
        none.merge(first.bins.clone());
        assert_eq!(none.bins, first.bins);
    }

    #[test]
    fn decimals_are_rounded_to_their_digits_first() {
        assert_eq!(unscaled(12.344_999_9, 5, 2), Some(1235));
        assert_eq!(unscaled(-0.125, 5, 2), Some(-13));
        assert_eq!(unscaled(1e20, 38, 2), Some(10_i128.pow(22)));
        assert_eq!(unscaled(1e-30, 38, 10), Some(0));
        assert_eq!([unscaled(0.0, 3, 1), unscaled(99.95, 3, 1)], [Some(0), None]);
    }
}
