//! What a plan calls where STRINGs have a collation: keys to compare by, and functions that find
//! parts of a text. `plan::collations` puts the calls in.
//!
//! The last argument of each is the collation's name, a constant; so a machine of a cluster finds
//! the function by its name alone. What users write, [`COLLATE`] and [`COLLATION`], is gone before
//! a plan is run.

mod arrays;
mod keys;
mod shown;
mod texts;

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::ScalarUDF;

use super::define::{Arguments, Function, Param, returns_text};
use crate::types::collation::Collation;
use crate::values::collated_text::Keys;

pub(crate) use keys::{KEY, KEYS};
pub(crate) use shown::SHOWN;

/// `collate(text, 'name')`, which is also `text COLLATE name`.
pub(crate) const COLLATE: &str = "collate";
/// `collation(text)`.
pub(crate) const COLLATION: &str = "collation";
/// What stands before the name of a function that it takes the place of.
pub(crate) const PREFIX: &str = "__collated_";

const MARKS: &[Function] = &[
    Function::new(COLLATE, &[Param::Text, Param::Text], returns_text, no_place),
    Function::new(COLLATION, &[Param::Any], returns_text, no_place),
];

/// All of them, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let tables = [MARKS, keys::FUNCTIONS, texts::FUNCTIONS, arrays::FUNCTIONS];
    let functions = tables.into_iter().flatten().map(|function| function.udf());
    functions.chain([shown::shown()]).collect()
}

fn no_place(_: &Arguments) -> Result<ArrayRef> {
    exec_err!("a collation has no place here; write it in a query")
}

/// What texts are compared by to the collation that the last argument names.
fn keys_of(args: &Arguments) -> Result<Keys> {
    let collation = collation_of(args)?;
    match Keys::new(collation) {
        Some(keys) => Ok(keys),
        None => exec_err!("the collation {collation} has no tables"),
    }
}

/// The collation that the last argument names.
fn collation_of(args: &Arguments) -> Result<Collation> {
    let name = args.text(args.len() - 1).get(0).unwrap_or_default();
    match Collation::parse(name) {
        Some(collation) => Ok(collation),
        None => exec_err!("there is no collation `{name}`"),
    }
}
