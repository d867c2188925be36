//! `tuple_sketch_agg_*`, `tuple_union_agg_*` and `tuple_intersection_agg_*`, of DOUBLEs and INTs.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::function::AccumulatorArgs;

use super::super::define::{Aggregate, constant, counted, refused};
use super::{Sketching, accumulator, binary, exactly, for_each_sketch, lg_nominal_of, of_sketches};
use crate::functions::sketches::hashing::{for_each_key, key_type};
use crate::functions::sketches::retained::Gathering;
use crate::functions::sketches::summaries::{Mode, Number, Summary};
use crate::functions::sketches::tuple_bytes::{Tuple, read, written};

macro_rules! of_numbers {
    ($number:ty, $of_values:literal, $union:literal, $intersection:literal) => {
        &[
            of_sketches(
                $of_values,
                |given| types_of_values::<$number>($of_values, given),
                |args| {
                    not_distinct($of_values, args)?;
                    let mode = mode_of($of_values, args, 3)?;
                    let lg_nominal = lg_nominal_of($of_values, args, 2)?;
                    accumulator(Gathered::<$number>::of_values($of_values, mode, lg_nominal))
                },
            ),
            of_sketches(
                $union,
                |given| {
                    counted($union, given, 1, 3)?;
                    let mut types = vec![binary($union, &given[0])?];
                    push_settings($union, &mut types, given.get(1), given.get(2))?;
                    Ok(types)
                },
                |args| {
                    let mode = mode_of($union, args, 2)?;
                    let lg_nominal = lg_nominal_of($union, args, 1)?;
                    accumulator(Gathered::<$number>::of_sketches($union, mode, lg_nominal))
                },
            ),
            of_sketches(
                $intersection,
                |given| {
                    counted($intersection, given, 1, 2)?;
                    let mut types = vec![binary($intersection, &given[0])?];
                    push_settings($intersection, &mut types, None, given.get(1))?;
                    Ok(types)
                },
                |args| {
                    let mode = mode_of($intersection, args, 1)?;
                    accumulator(Intersected::<$number> { name: $intersection, mode, common: None })
                },
            ),
        ]
    };
}

pub(super) const OF_DOUBLES: &[Aggregate] = of_numbers!(
    f64,
    "tuple_sketch_agg_double",
    "tuple_union_agg_double",
    "tuple_intersection_agg_double"
);

pub(super) const OF_INTEGERS: &[Aggregate] = of_numbers!(
    i32,
    "tuple_sketch_agg_integer",
    "tuple_union_agg_integer",
    "tuple_intersection_agg_integer"
);

/// A key, its number, and how a sketch is made of them. Numbers are cast; keys are not, but that
/// those of which DataSketches knows nothing become DOUBLEs, small whole ones too.
fn types_of_values<N: Number>(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    counted(name, given, 2, 4)?;
    let key = match &given[0] {
        DataType::Int8 | DataType::Int16 | DataType::Decimal128(..) => DataType::Float64,
        other => key_type(name, other)?,
    };
    let mut types =
        vec![key, cast_from(name, &given[1], <N::Column as ArrowPrimitiveType>::DATA_TYPE)?];
    push_settings(name, &mut types, given.get(2), given.get(3))?;
    Ok(types)
}

/// The type to cast a number or a text to; what would be cut off is not cast.
fn cast_from(name: &str, given: &DataType, to: DataType) -> Result<DataType> {
    let is_text = given.is_string() || given.is_null();
    match to.is_integer() {
        _ if is_text => Ok(to),
        true if given.is_signed_integer() => Ok(to),
        false if given.is_numeric() => Ok(to),
        true => refused(name, "a whole number", given),
        false => refused(name, "a number", given),
    }
}

/// The types of `lgNomEntries` and of the mode, where a call has them.
fn push_settings(
    name: &str,
    types: &mut Vec<DataType>,
    size: Option<&DataType>,
    mode: Option<&DataType>,
) -> Result<()> {
    if let Some(size) = size {
        types.push(cast_from(name, size, DataType::Int32)?);
    }
    if let Some(mode) = mode {
        types.push(exactly(name, "a mode, which is a STRING", &DataType::Utf8, mode)?);
    }
    Ok(())
}

/// Refuses DISTINCT, which is of one column.
fn not_distinct(name: &str, args: &AccumulatorArgs<'_>) -> Result<()> {
    match args.is_distinct {
        true => plan_err!("function '{name}' has keys and numbers, and so takes no DISTINCT"),
        false => Ok(()),
    }
}

/// What a call says of its mode at a place.
fn mode_of(name: &str, args: &AccumulatorArgs<'_>, at: usize) -> Result<Mode> {
    if args.exprs.len() <= at {
        return Ok(Mode::Sum);
    }
    match constant(name, args, at)?.try_as_str() {
        Some(Some(mode)) => Mode::named(name, mode),
        _ => Mode::named(name, "NULL"),
    }
}

/// The keys of a column with their numbers, or all sketches of a column.
#[derive(Debug)]
pub(super) struct Gathered<N> {
    name: &'static str,
    mode: Mode,
    of_sketches: bool,
    gathering: Gathering<Summary<N>>,
}

impl<N: Number> Gathered<N> {
    /// For a call over keys and numbers.
    pub(super) fn of_values(name: &'static str, mode: Mode, lg_nominal: u8) -> Self {
        Self { name, mode, of_sketches: false, gathering: Gathering::new(lg_nominal) }
    }

    fn of_sketches(name: &'static str, mode: Mode, lg_nominal: u8) -> Self {
        Self { of_sketches: true, ..Self::of_values(name, mode, lg_nominal) }
    }
}

impl<N: Number> Sketching for Gathered<N> {
    fn add(&mut self, values: &[ArrayRef]) -> Result<()> {
        if self.of_sketches {
            return for_each_sketch(&values[0], |sketch| self.join(sketch));
        }
        let numbers = values[1].as_primitive::<N::Column>();
        for_each_key(&values[0], |row, hash| {
            if numbers.is_valid(row) {
                let new = |known: Option<Summary<N>>| {
                    known.unwrap_or_else(|| Summary::new(self.mode)).with(numbers.value(row))
                };
                self.gathering.add(hash, new);
            }
            Ok(())
        })
    }

    fn join(&mut self, state: &[u8]) -> Result<()> {
        let (sketch, mode) = (read(self.name, state)?, self.mode);
        self.gathering.union(&sketch, |one, other| Summary::joined(mode, one, other));
        Ok(())
    }

    fn state(&self) -> Result<Option<Vec<u8>>> {
        Ok(Some(written(&self.gathering.retained())))
    }

    fn sketch(&self) -> Result<Vec<u8>> {
        Ok(written(&self.gathering.trimmed()))
    }

    fn size(&self) -> usize {
        self.gathering.size()
    }
}

/// What all sketches have in common; `None` before the first one, of which all values are.
#[derive(Debug)]
struct Intersected<N> {
    name: &'static str,
    mode: Mode,
    common: Option<Tuple<N>>,
}

impl<N: Number> Sketching for Intersected<N> {
    fn add(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_sketch(&values[0], |sketch| self.join(sketch))
    }

    fn join(&mut self, state: &[u8]) -> Result<()> {
        let (other, mode) = (read(self.name, state)?, self.mode);
        self.common = Some(match &self.common {
            Some(common) => {
                common.intersection(&other, |one, other| Summary::joined(mode, one, other))
            }
            None => other,
        });
        Ok(())
    }

    fn state(&self) -> Result<Option<Vec<u8>>> {
        Ok(self.common.as_ref().map(written))
    }

    fn sketch(&self) -> Result<Vec<u8>> {
        match &self.common {
            Some(common) => Ok(written(common)),
            None => exec_err!(
                "function '{}' has no result without a sketch: what no sketches have in common is \
                 everything; leave NULLs out with WHERE, and write GROUP BY",
                self.name
            ),
        }
    }

    fn size(&self) -> usize {
        let entry = size_of::<(u64, Summary<N>)>();
        self.common.as_ref().map_or(0, |common| common.entries.capacity() * entry)
    }
}
