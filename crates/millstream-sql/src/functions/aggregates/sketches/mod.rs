//! Aggregates that make sketches of values, and join sketches.
//!
//! The partial state is the sketch itself as bytes, so that partial states are joined as sketches
//! are. NULLs do not count, and without rows there is a sketch of nothing.

mod hll;
mod kll;
mod theta;
mod tuple;

#[cfg(test)]
mod tests;

use std::fmt;
use std::mem::size_of_val;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::define::{Aggregate, Make, MakeOne, constant, refused};
use crate::functions::sketches::{LG_NOMINAL_DEFAULT, lg_nominal};

/// All of them.
pub(super) fn aggregates() -> impl Iterator<Item = &'static Aggregate> {
    let tables: [&'static [Aggregate]; 7] = [
        hll::AGGREGATES,
        kll::OF_BIGINTS,
        kll::OF_FLOATS,
        kll::OF_DOUBLES,
        theta::AGGREGATES,
        tuple::OF_DOUBLES,
        tuple::OF_INTEGERS,
    ];
    tables.into_iter().flatten()
}

/// An aggregate whose result, and whose partial state, is a sketch.
const fn of_sketches(
    name: &'static str,
    coerce: fn(&[DataType]) -> Result<Vec<DataType>>,
    make: MakeOne,
) -> Aggregate {
    Aggregate {
        name,
        aliases: &[],
        coerce,
        returns: |_| Ok(DataType::Binary),
        state: |_| vec![DataType::Binary],
        never_null: false,
        make: Make::Single(make),
        moving: None,
    }
}

/// What gathers a sketch.
trait Sketching: fmt::Debug + Send + Sync {
    /// Adds the rows of a call's arguments.
    fn add(&mut self, values: &[ArrayRef]) -> Result<()>;
    /// Adds a partial state.
    fn join(&mut self, state: &[u8]) -> Result<()>;
    /// The partial state; `None` if nothing was added and that is not a sketch of nothing.
    fn state(&self) -> Result<Option<Vec<u8>>>;
    /// The result.
    fn sketch(&self) -> Result<Vec<u8>>;
    /// Bytes of memory behind it.
    fn size(&self) -> usize;
}

/// For a call, as an accumulator.
fn accumulator(sketching: impl Sketching + 'static) -> Result<Box<dyn Accumulator>> {
    Ok(Box::new(Sketched(sketching)))
}

#[derive(Debug)]
struct Sketched<S>(S);

impl<S: Sketching + 'static> Accumulator for Sketched<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.add(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        states[0].as_binary::<i32>().iter().flatten().try_for_each(|state| self.0.join(state))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(self.0.state()?)])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Binary(Some(self.0.sketch()?)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.0.size()
    }
}

/// Calls `work` with each sketch of a column of them.
fn for_each_sketch(values: &ArrayRef, work: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    values.as_binary::<i32>().iter().flatten().try_for_each(work)
}

/// Checks that an argument is a BINARY or NULL.
fn binary(name: &str, given: &DataType) -> Result<DataType> {
    exactly(name, "a sketch, which is a BINARY", &DataType::Binary, given)
}

/// Checks that an argument is a whole number or NULL; its value is looked at later. While a query
/// is planned all numbers in it are BIGINTs.
fn int(name: &str, given: &DataType) -> Result<DataType> {
    match given.is_signed_integer() {
        true => Ok(DataType::Int32),
        false => exactly(name, "an INT behind its column", &DataType::Int32, given),
    }
}

/// Checks the type of an argument that is not cast.
fn exactly(name: &str, wanted: &str, of: &DataType, given: &DataType) -> Result<DataType> {
    let found = match given {
        DataType::BinaryView | DataType::LargeBinary => &DataType::Binary,
        DataType::Utf8View | DataType::LargeUtf8 => &DataType::Utf8,
        other => other,
    };
    match found {
        DataType::Null => Ok(of.clone()),
        found if found == of => Ok(of.clone()),
        _ => refused(name, wanted, given),
    }
}

/// What a call says of `lgNomEntries` at a place, or what Spark takes for it.
fn lg_nominal_of(name: &str, args: &AccumulatorArgs<'_>, at: usize) -> Result<u8> {
    if args.exprs.len() <= at {
        return Ok(LG_NOMINAL_DEFAULT);
    }
    match constant(name, args, at)? {
        ScalarValue::Int32(given) => lg_nominal(name, given),
        _ => lg_nominal(name, None),
    }
}
