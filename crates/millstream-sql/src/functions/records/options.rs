//! The options of the functions: a literal map of texts.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, plan_datafusion_err, plan_err};
use std::sync::Arc;

pub(super) use super::super::option_texts::boolean;
use super::super::option_texts::entries;
use super::prepared::Literals;

/// What becomes of a record that is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The query fails.
    FailFast,
    /// The result is null, or a STRUCT of nulls.
    Permissive,
}

impl Mode {
    /// By its name in the option `mode`.
    pub fn named(function: &str, name: &str) -> Result<Self> {
        match name.to_uppercase().as_str() {
            "FAILFAST" => Ok(Self::FailFast),
            "PERMISSIVE" => Ok(Self::Permissive),
            _ => plan_err!("{function}: the mode is FAILFAST or PERMISSIVE, not {name}"),
        }
    }
}

/// The options of a call, with their names in lower case; the argument may be left out.
pub(super) fn options(
    function: &str,
    literals: &Literals<'_>,
    at: usize,
) -> Result<Vec<(String, String)>> {
    let wrong = || {
        plan_datafusion_err!(
            "{function}: the options are a map of string literals, for example \
             map('mode', 'PERMISSIVE')"
        )
    };
    match literals.get(at).map_err(|_| wrong())? {
        None => Ok(Vec::new()),
        Some(ScalarValue::Map(map)) => {
            let is_text = |at: usize| map.entries().column(at).data_type() == &DataType::Utf8;
            if !is_text(0) || !is_text(1) {
                return Err(wrong());
            }
            let map: ArrayRef = Arc::clone(map) as _;
            entries(&map)
        }
        Some(_) => Err(wrong()),
    }
}

/// The error of an option that the function does not have.
pub(super) fn unknown<T>(function: &str, name: &str, known: &str) -> Result<T> {
    plan_err!("{function}: there is no option {name}; there are {known}")
}
