//! Sessions without ANSI mode (`spark.sql.ansi.enabled = false`).
//!
//! Two things are different there. What values of several types become is ([`kinds`]): so [`sides`]
//! looks at them before types are coerced, as [`columns`] does where several make a column, and
//! those of which it is not known what they become are refused. And what is an error with ANSI mode
//! is NULL, or wraps around: so the functions here stand in the place of those that fail
//! ([`numbers`], [`casts`]). No text names them; [`crate::plan`] puts them into a plan.

mod casts;
mod columns;
mod kinds;
mod numbers;
mod sides;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF};

use super::cast::cast_expr;
use super::decimals::DecimalOperation;
use super::define::without_options;
pub(crate) use super::nested_casts::is_another_order;

pub(crate) use casts::is_short_text;
pub(super) use columns::{check_columns, united};
pub(crate) use kinds::check_kind;
pub(crate) use numbers::{
    ABS, ADD, CONV, DIV, ELT, MAKE_DATE, MULTIPLY, NEXT_DAY, NONZERO, SUBTRACT,
};
pub(super) use sides::taken;

/// Among the options of a session, says that it has no ANSI mode.
#[derive(Clone, Debug)]
pub struct WithoutAnsi;

impl ConfigExtension for WithoutAnsi {
    const PREFIX: &'static str = "millstream_without_ansi";
}

without_options!(WithoutAnsi);

impl WithoutAnsi {
    /// Whether a session with these options has no ANSI mode.
    pub(crate) fn is_in(options: &ConfigOptions) -> bool {
        options.extensions.get::<Self>().is_some()
    }
}

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let mut functions: Vec<_> = numbers::FUNCTIONS.iter().map(|function| function.udf()).collect();
    functions.push(casts::function());
    functions
}

/// A call of one of the functions of numbers.
pub(crate) fn call(name: &str, args: Vec<Expr>) -> Expr {
    let mut functions = numbers::FUNCTIONS.iter();
    let function = functions.find(|function| function.name == name);
    let function = function.expect("the name is one of this module's constants");
    Expr::ScalarFunction(ScalarFunction::new_udf(function.udf(), args))
}

/// `expr` cast to a type: numbers wrap around, and what is none is NULL.
pub(crate) fn cast(expr: Expr, to: &DataType) -> Result<Expr> {
    let wanted = Expr::Literal(ScalarValue::try_from(to)?, None);
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(casts::function(), vec![expr, wanted])))
}

/// `expr` cast to a type; NULL where there is no such value.
pub(crate) fn try_cast(expr: Expr, to: &DataType) -> Expr {
    let field = arrow::datatypes::Field::new("", to.clone(), true);
    cast_expr(expr, Arc::new(field), false)
}

/// An operation on decimals that fails, as one that gives NULL; `None` for any other call.
pub(crate) fn decimals_or_null(call: &ScalarFunction) -> Option<Expr> {
    call.func.inner().downcast_ref::<DecimalOperation>()?.or_null(call.args.clone())
}
