//! KLL sketches, which rank values: their form as bytes, and the scalar functions over them.
//!
//! The crate of DataSketches reads and writes them, and checks all that a BINARY says. A sketch
//! that has taken more values than it keeps has chosen at random which; of fewer all is exact.

use std::sync::Arc;

use arrow::array::builder::{ListBuilder, PrimitiveBuilder};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float64Type, Int64Type};
use datafusion::common::{Result, exec_err};
use datasketches::common::SearchCriteria;
use datasketches::kll::{KllFloat, KllSketch};

use super::super::define::{Arguments, Function, Param, returns_long, returns_text};
use super::kll_items::Item;
use super::{binaries, kll_text, no_sketch, returns_sketch};

use Param::OnlyBinary;

/// The functions of one type of value, whose names end with it.
macro_rules! of_items {
    ($item:ty, $type:literal) => {
        &[
            Function::new(
                concat!("kll_sketch_get_n_", $type),
                &[OnlyBinary],
                returns_long,
                |args| get_n::<$item>(concat!("kll_sketch_get_n_", $type), args),
            ),
            Function::new(
                concat!("kll_sketch_to_string_", $type),
                &[OnlyBinary],
                returns_text,
                |args| to_string::<$item>(concat!("kll_sketch_to_string_", $type), args),
            ),
            Function::new(
                concat!("kll_sketch_merge_", $type),
                &[OnlyBinary, OnlyBinary],
                returns_sketch,
                |args| merge::<$item>(concat!("kll_sketch_merge_", $type), args),
            ),
        ]
    };
}

pub(super) const OF_BIGINTS: &[Function] = of_items!(i64, "bigint");
pub(super) const OF_FLOATS: &[Function] = of_items!(KllFloat<f32>, "float");
pub(super) const OF_DOUBLES: &[Function] = of_items!(KllFloat<f64>, "double");

/// How many values a sketch may say that it has seen. No stream has as many, and twice as many are
/// still within what is counted with.
const SEEN_MAX: u64 = 1 << 48;

/// Reads a KLL sketch for `function`.
pub(in crate::functions) fn read<T: Item>(function: &str, bytes: &[u8]) -> Result<KllSketch<T>> {
    match KllSketch::deserialize(bytes) {
        Ok(sketch) if sketch.n() <= SEEN_MAX => Ok(sketch),
        Ok(_) => no_sketch(function, "KLL", T::MAKER, "it says that it has seen too many values"),
        Err(error) => no_sketch(function, "KLL", T::MAKER, error.message()),
    }
}

/// Adds all values of `other`.
pub(in crate::functions) fn join<T: Item>(
    function: &str,
    sketch: &mut KllSketch<T>,
    other: &KllSketch<T>,
) -> Result<()> {
    if sketch.n().saturating_add(other.n()) > SEEN_MAX {
        return exec_err!("function '{function}' has seen too many values");
    }
    match sketch.merge(other) {
        Ok(()) => Ok(()),
        Err(error) => exec_err!("function '{function}': {}", error.message()),
    }
}

fn get_n<T: Item>(function: &str, args: &Arguments) -> Result<ArrayRef> {
    let sketches = args.binary(0);
    args.primitives::<Int64Type>(|row| {
        let sketch = sketches.get(row).map(|bytes| read::<T>(function, bytes)).transpose()?;
        Ok(sketch.map(|sketch| sketch.n() as i64))
    })
}

fn to_string<T: Item>(function: &str, args: &Arguments) -> Result<ArrayRef> {
    let sketches = args.binary(0);
    args.write(|row, out| {
        let Some(bytes) = sketches.get(row) else { return Ok(false) };
        kll_text::write(&read::<T>(function, bytes)?, bytes, out);
        Ok(true)
    })
}

fn merge<T: Item>(function: &str, args: &Arguments) -> Result<ArrayRef> {
    let (ones, others) = (args.binary(0), args.binary(1));
    binaries(args, |row| {
        let (Some(one), Some(other)) = (ones.get(row), others.get(row)) else { return Ok(None) };
        let mut sketch = read::<T>(function, one)?;
        join(function, &mut sketch, &read(function, other)?)?;
        Ok(Some(sketch.serialize()))
    })
}

/// The values at shares of the rows, one or an array of them.
pub(super) fn quantiles<T: Item>(function: &str, args: &Arguments) -> Result<ArrayRef> {
    answers::<T, Float64Type, T::Column>(function, args, |sketch, share| {
        if !(0.0..=1.0).contains(&share) {
            return exec_err!(
                "function '{function}' needs shares of rows between 0 and 1, not {share}"
            );
        }
        match at_share(sketch, share) {
            Some(value) => Ok(value.native()),
            None => empty(function),
        }
    })
}

/// The shares of the rows up to values, one or an array of them.
pub(super) fn ranks<T: Item>(function: &str, args: &Arguments) -> Result<ArrayRef> {
    answers::<T, T::Column, Float64Type>(function, args, |sketch, value| {
        let Some(value) = T::of(value) else {
            return exec_err!("function '{function}': NaN has no rank");
        };
        match sketch.rank(&value, SearchCriteria::Inclusive) {
            Some(rank) => Ok(rank),
            None => empty(function),
        }
    })
}

fn empty<T>(function: &str) -> Result<T> {
    exec_err!("function '{function}' needs a sketch of values, and this one is empty")
}

/// Above as many values Java does not round their shares.
const ROUNDED_MAX: f64 = 1e7;

/// The value with at least that share of the rows up to it. What rounding adds to the share is
/// taken away as in Java, so that the tenth part of 30 rows is 3 of them.
fn at_share<T: Item>(sketch: &KllSketch<T>, share: f64) -> Option<T> {
    let rows = sketch.n() as f64;
    let mut row = share * rows;
    if rows <= ROUNDED_MAX {
        row = (row * ROUNDED_MAX).round() / ROUNDED_MAX;
    }
    let row = row.ceil();
    if row < 1.0 {
        return sketch.min_item().copied();
    }
    if row >= rows {
        return sketch.max_item().copied();
    }
    // Between the row and the one before it, where no rounding can make it another one.
    sketch.quantile((row - 0.5) / rows, SearchCriteria::Inclusive).ok().flatten()
}

/// What each sketch answers to the constant behind it.
fn answers<T: Item, Q: ArrowPrimitiveType, A: ArrowPrimitiveType>(
    function: &str,
    args: &Arguments,
    answer: impl Fn(&KllSketch<T>, Q::Native) -> Result<A::Native>,
) -> Result<ArrayRef> {
    let sketches = args.binary(0);
    let (asked, is_constant) = args.array(1);
    if !is_constant {
        return exec_err!("function '{function}' needs a literal as its second argument");
    }
    let sketch = |row: usize| sketches.get(row).map(|bytes| read::<T>(function, bytes)).transpose();
    if !matches!(asked.data_type(), DataType::List(_)) {
        let asked = asked.as_primitive::<Q>();
        return args.primitives::<A>(|row| match sketch(row)? {
            Some(sketch) if asked.is_valid(0) => answer(&sketch, asked.value(0)).map(Some),
            _ => Ok(None),
        });
    }
    let list = asked.as_list::<i32>();
    let questions = list.is_valid(0).then(|| list.value(0));
    let questions = questions.as_ref().map(|values| values.as_primitive::<Q>());
    if questions.is_some_and(|questions: &PrimitiveArray<Q>| questions.null_count() > 0) {
        return exec_err!("function '{function}' takes an ARRAY without NULLs");
    }
    let field = Arc::new(Field::new_list_field(A::DATA_TYPE, true));
    let mut out = ListBuilder::new(PrimitiveBuilder::<A>::new()).with_field(field);
    for row in 0..args.rows {
        match (sketch(row)?, questions) {
            (Some(sketch), Some(questions)) => {
                for question in questions.values() {
                    out.values().append_value(answer(&sketch, *question)?);
                }
                out.append(true);
            }
            _ => out.append(false),
        }
    }
    Ok(Arc::new(out.finish()))
}
