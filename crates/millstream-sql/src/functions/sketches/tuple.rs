//! The scalar functions over tuple sketches: of DOUBLEs and of INTs, and with theta sketches.

use arrow::array::ArrayRef;
use arrow::datatypes::{Float64Type, Int64Type};
use datafusion::common::{Result, exec_err};

use super::super::define::{Arguments, Function, Param, returns_double, returns_long};
use super::retained::Gathering;
use super::summaries::{Mode, Number, Summary};
use super::tuple_bytes::{Tuple, read, written};
use super::{LG_NOMINAL_DEFAULT, binaries, lg_nominal, returns_sketch, theta};

use Param::{OnlyBinary, OnlyInt, OnlyText};

pub(super) const OF_DOUBLES: &[Function] = &[Function::new(
    "tuple_sketch_summary_double",
    &[OnlyBinary, OnlyText],
    returns_double,
    |args| {
        let name = "tuple_sketch_summary_double";
        let (sketches, mode) = (args.binary(0), mode_of(name, args, 1)?);
        args.primitives::<Float64Type>(|row| match sketches.get(row) {
            Some(sketch) => Ok(Some(summary_of_doubles(&read(name, sketch)?, mode))),
            None => Ok(None),
        })
    },
)
.required(1)];

pub(super) const OF_INTEGERS: &[Function] = &[Function::new(
    "tuple_sketch_summary_integer",
    &[OnlyBinary, OnlyText],
    returns_long,
    |args| {
        let name = "tuple_sketch_summary_integer";
        let (sketches, mode) = (args.binary(0), mode_of(name, args, 1)?);
        args.primitives::<Int64Type>(|row| match sketches.get(row) {
            Some(sketch) => Ok(Some(summary_of_integers(&read(name, sketch)?, mode))),
            None => Ok(None),
        })
    },
)
.required(1)];

/// The functions that do the same for numbers of both types, whose names end with the type's.
macro_rules! of_numbers {
    ($number:ty, $type:literal) => {
        &[
            Function::new(
                concat!("tuple_sketch_estimate_", $type),
                &[OnlyBinary],
                returns_double,
                |args| {
                    let name = concat!("tuple_sketch_estimate_", $type);
                    of_one::<$number>(name, args, estimate)
                },
            ),
            Function::new(
                concat!("tuple_sketch_theta_", $type),
                &[OnlyBinary],
                returns_double,
                |args| {
                    let name = concat!("tuple_sketch_theta_", $type);
                    of_one::<$number>(name, args, Tuple::share)
                },
            ),
            Function::new(
                concat!("tuple_union_", $type),
                &[OnlyBinary, OnlyBinary, OnlyInt, OnlyText],
                returns_sketch,
                |args| union::<$number>(concat!("tuple_union_", $type), args, of_tuple),
            )
            .required(2),
            Function::new(
                concat!("tuple_union_theta_", $type),
                &[OnlyBinary, OnlyBinary, OnlyInt, OnlyText],
                returns_sketch,
                |args| union::<$number>(concat!("tuple_union_theta_", $type), args, of_theta),
            )
            .required(2),
            Function::new(
                concat!("tuple_intersection_", $type),
                &[OnlyBinary, OnlyBinary, OnlyText],
                returns_sketch,
                |args| {
                    let name = concat!("tuple_intersection_", $type);
                    intersection::<$number>(name, args, of_tuple)
                },
            )
            .required(2),
            Function::new(
                concat!("tuple_intersection_theta_", $type),
                &[OnlyBinary, OnlyBinary, OnlyText],
                returns_sketch,
                |args| {
                    let name = concat!("tuple_intersection_theta_", $type);
                    intersection::<$number>(name, args, of_theta)
                },
            )
            .required(2),
            Function::new(
                concat!("tuple_difference_", $type),
                &[OnlyBinary, OnlyBinary],
                returns_sketch,
                |args| difference::<$number>(concat!("tuple_difference_", $type), args, of_tuple),
            ),
            Function::new(
                concat!("tuple_difference_theta_", $type),
                &[OnlyBinary, OnlyBinary],
                returns_sketch,
                |args| {
                    let name = concat!("tuple_difference_theta_", $type);
                    difference::<$number>(name, args, of_theta)
                },
            ),
        ]
    };
}

pub(super) const OF_DOUBLES_TOO: &[Function] = of_numbers!(f64, "double");
pub(super) const OF_INTEGERS_TOO: &[Function] = of_numbers!(i32, "integer");

/// The second sketch of a call.
type ReadOther<N> = fn(&str, &[u8], Mode) -> Result<Tuple<N>>;

fn of_tuple<N: Number>(function: &str, bytes: &[u8], _: Mode) -> Result<Tuple<N>> {
    read(function, bytes)
}

/// A theta sketch, with the numbers that change no others.
fn of_theta<N: Number>(function: &str, bytes: &[u8], mode: Mode) -> Result<Tuple<N>> {
    Ok(theta::read(function, bytes)?.with(Summary::new(mode)))
}

/// What a call says of its mode at a place, which is a constant.
fn mode_of(function: &str, args: &Arguments, at: usize) -> Result<Mode> {
    if args.len() <= at {
        return Ok(Mode::Sum);
    }
    let (_, is_constant) = args.array(at);
    if !is_constant {
        return exec_err!("function '{function}' needs a literal as its mode");
    }
    Mode::named(function, args.text(at).get(0).unwrap_or("NULL"))
}

fn of_one<N: Number>(
    function: &str,
    args: &Arguments,
    number: impl Fn(&Tuple<N>) -> f64,
) -> Result<ArrayRef> {
    let sketches = args.binary(0);
    args.primitives::<Float64Type>(|row| match sketches.get(row) {
        Some(sketch) => Ok(Some(number(&read(function, sketch)?))),
        None => Ok(None),
    })
}

/// How many values there are, as Java computes it.
fn estimate<N: Number>(sketch: &Tuple<N>) -> f64 {
    let count = sketch.entries.len() as f64;
    if sketch.is_estimate() { count / sketch.share() } else { count }
}

fn union<N: Number>(function: &str, args: &Arguments, other: ReadOther<N>) -> Result<ArrayRef> {
    let (ones, others, mode) = (args.binary(0), args.binary(1), mode_of(function, args, 3)?);
    let sizes = (args.len() > 2).then(|| args.int(2));
    let default = Some(i32::from(LG_NOMINAL_DEFAULT));
    binaries(args, |row| {
        let size = sizes.as_ref().map_or(default, |sizes| sizes.get(row));
        let (Some(one), Some(two), Some(size)) = (ones.get(row), others.get(row), size) else {
            return Ok(None);
        };
        let mut union = Gathering::new(lg_nominal(function, Some(size))?);
        let joined = |one, other| Summary::joined(mode, one, other);
        union.union(&read::<N>(function, one)?, joined);
        union.union(&other(function, two, mode)?, joined);
        Ok(Some(written(&union.trimmed())))
    })
}

fn intersection<N: Number>(
    function: &str,
    args: &Arguments,
    other: ReadOther<N>,
) -> Result<ArrayRef> {
    let (ones, others, mode) = (args.binary(0), args.binary(1), mode_of(function, args, 2)?);
    binaries(args, |row| {
        let (Some(one), Some(two)) = (ones.get(row), others.get(row)) else { return Ok(None) };
        let (one, two) = (read::<N>(function, one)?, other(function, two, mode)?);
        let both = one.intersection(&two, |one, other| Summary::joined(mode, one, other));
        Ok(Some(written(&both)))
    })
}

fn difference<N: Number>(
    function: &str,
    args: &Arguments,
    other: ReadOther<N>,
) -> Result<ArrayRef> {
    let (ones, others) = (args.binary(0), args.binary(1));
    binaries(args, |row| {
        let (Some(one), Some(two)) = (ones.get(row), others.get(row)) else { return Ok(None) };
        let (one, two) = (read::<N>(function, one)?, other(function, two, Mode::Sum)?);
        Ok(Some(written(&one.difference(&two))))
    })
}

/// The numbers of all values as one. Of no values it is 0, and a NaN makes it one.
fn summary_of_doubles(sketch: &Tuple<f64>, mode: Mode) -> f64 {
    let numbers = sketch.entries.iter().map(|(_, summary)| summary.number);
    let least = |one: f64, other: f64| if one.is_nan() || one < other { one } else { other };
    let greatest = |one: f64, other: f64| if one.is_nan() || one > other { one } else { other };
    match mode {
        Mode::Sum => numbers.fold(0.0, |sum, number| sum + number),
        Mode::Min => numbers.reduce(least).unwrap_or(0.0),
        Mode::Max => numbers.reduce(greatest).unwrap_or(0.0),
        Mode::AlwaysOne => sketch.entries.len() as f64,
    }
}

/// The same of whole numbers, as a BIGINT.
fn summary_of_integers(sketch: &Tuple<i32>, mode: Mode) -> i64 {
    let numbers = sketch.entries.iter().map(|(_, summary)| i64::from(summary.number));
    match mode {
        Mode::Sum => numbers.fold(0, i64::wrapping_add),
        Mode::Min => numbers.min().unwrap_or(0),
        Mode::Max => numbers.max().unwrap_or(0),
        Mode::AlwaysOne => sketch.entries.len() as i64,
    }
}
