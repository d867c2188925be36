//! The sketches of Apache DataSketches, as Spark's functions make and read them: theta, tuple, HLL
//! and KLL. A sketch is a BINARY, in the form that the libraries in Java, C++ and Rust share.
//!
//! Here are their forms as bytes, what is computed with them, and the scalar functions; the
//! aggregates are in [`aggregates`](super::aggregates). A BINARY may come from anywhere: what it
//! says of its own length is held against how many bytes there are before anything is allocated,
//! and what does not fit together is an error.

pub(super) mod hashing;
pub(super) mod hll;
pub(super) mod kll;
pub(super) mod kll_items;
mod kll_ranks;
mod kll_text;
pub(super) mod retained;
pub(super) mod summaries;
pub(super) mod theta;
mod tuple;
pub(super) mod tuple_bytes;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::builder::BinaryBuilder;
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::define::{Arguments, Function, within_column};

/// The values of `lgNomEntries` that Spark takes.
pub(super) const LG_NOMINAL: RangeInclusive<i32> = 4..=26;

/// `lgNomEntries` where a call does not say it.
pub(super) const LG_NOMINAL_DEFAULT: u8 = 12;

/// The scalar functions, for registration.
pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    let tables: [&[Function]; 9] = [
        hll::FUNCTIONS,
        kll::OF_BIGINTS,
        kll::OF_FLOATS,
        kll::OF_DOUBLES,
        theta::FUNCTIONS,
        tuple::OF_DOUBLES,
        tuple::OF_DOUBLES_TOO,
        tuple::OF_INTEGERS,
        tuple::OF_INTEGERS_TOO,
    ];
    let functions = tables.into_iter().flatten().map(|function| function.udf());
    functions.chain(kll_ranks::functions())
}

/// Checks what a call says of `lgNomEntries`.
pub(super) fn lg_nominal(function: &str, given: Option<i32>) -> Result<u8> {
    let within = given.filter(|given| LG_NOMINAL.contains(given));
    match within.and_then(|given| u8::try_from(given).ok()) {
        Some(lg_nominal) => Ok(lg_nominal),
        None => {
            let given = given.map_or_else(|| "NULL".to_owned(), |given| given.to_string());
            let (least, most) = (*LG_NOMINAL.start(), *LG_NOMINAL.end());
            exec_err!(
                "function '{function}' takes an lgNomEntries from {least} to {most}, not {given}"
            )
        }
    }
}

/// The error of a BINARY that is no sketch of the kind that `maker` makes.
pub(super) fn no_sketch<T>(function: &str, kind: &str, maker: &str, why: &str) -> Result<T> {
    exec_err!(
        "function '{function}' was given a BINARY that is no {kind} sketch: {why}; give it what \
         {maker} makes"
    )
}

fn returns_sketch(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Binary)
}

/// A BINARY column, of which `value` makes each value.
fn binaries(
    args: &Arguments,
    mut value: impl FnMut(usize) -> Result<Option<Vec<u8>>>,
) -> Result<ArrayRef> {
    let (mut out, mut total) = (BinaryBuilder::new(), 0);
    for row in 0..args.rows {
        let value = value(row)?;
        within_column(&mut total, value.as_ref().map_or(0, Vec::len))?;
        out.append_option(value);
    }
    Ok(Arc::new(out.finish()))
}
