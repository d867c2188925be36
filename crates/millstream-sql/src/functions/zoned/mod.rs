//! Functions of a session whose time zone is not UTC. Each has the zone's name as its last
//! argument, and no text names them: [`crate::plan`] puts them where a query has those of UTC.
//!
//! A TIMESTAMP is a moment, whatever the zone. What the clocks of the zone show then is kept as the
//! TIMESTAMP at which those of UTC show the same ([`clocks`]), so that a function that computes on
//! clocks of UTC computes on those of the zone. Where the result is a moment again, or a text is
//! read, that does not do: a time that comes twice keeps its offset ([`sums`]), and a text may have
//! a zone of its own ([`texts`], [`casts`]).

mod arguments;
mod casts;
mod clocks;
mod rows;
mod sums;
mod texts;

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF, lit};

use super::cast::{SparkCast, cast_expr};
use super::define::Arguments;
use super::{clock, json, zones};
use crate::values::zone::Zone;

pub(crate) use super::datetime::DEFAULT_PATTERN;
pub(crate) use super::json::TO_JSON_IN_ZONE;
pub(crate) use arguments::OF_DAYS;
pub(in crate::functions) use arguments::local;
pub(crate) use casts::source_of;
pub use clocks::holds_moment;
pub(crate) use clocks::{CLOCK, has_moments_as_keys};
pub use rows::{recorded_in, recorded_schema, shown_in};
pub(crate) use sums::{
    DATE_TRUNC, MINUS, MONTHS_BETWEEN, PLUS, TIME_ADD_UNITS, TRY_MINUS, TRY_PLUS,
};
pub(crate) use texts::{
    DATE_FORMAT, FROM_UNIXTIME, TO_DATE, TO_TIMESTAMP, TRY_TO_DATE, TRY_TO_TIMESTAMP,
    UNIX_TIMESTAMP,
};

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let tables = [clocks::FUNCTIONS, json::IN_ZONE, sums::FUNCTIONS, texts::FUNCTIONS];
    let mut functions: Vec<_> =
        tables.into_iter().flatten().map(|function| function.udf()).collect();
    functions.extend(casts::functions());
    functions.push(json::FromJson::in_zone());
    functions
}

/// A call of one of these functions, in a session of the zone called `zone`.
pub(crate) fn call(name: &str, mut args: Vec<Expr>, zone: &str) -> Expr {
    let tables = [clocks::FUNCTIONS, json::IN_ZONE, sums::FUNCTIONS, texts::FUNCTIONS];
    let mut functions = tables.into_iter().flatten();
    let function = functions.find(|function| function.name == name);
    args.push(lit(zone));
    let function = function.expect("the name is one of this module's constants");
    Expr::ScalarFunction(ScalarFunction::new_udf(function.udf(), args))
}

/// `expr` cast to a type in a session of the zone called `zone`; NULL where that fails unless
/// `strict`.
pub(crate) fn cast(expr: Expr, to: &DataType, strict: bool, zone: &str) -> Result<Expr> {
    let wanted = Expr::Literal(ScalarValue::try_from(to)?, None);
    let args = vec![expr, wanted, lit(zone)];
    Ok(Expr::ScalarFunction(ScalarFunction::new_udf(casts::function(strict), args)))
}

/// `expr` cast to a type as in a session of UTC.
pub(crate) fn cast_in_utc(expr: Expr, to: &DataType) -> Expr {
    let field = arrow::datatypes::Field::new("", to.clone(), true);
    cast_expr(expr, Arc::new(field), true)
}

/// `from_json` of these arguments, in a session of the zone called `zone`.
pub(crate) fn from_json(mut args: Vec<Expr>, zone: &str) -> Expr {
    args.push(lit(zone));
    Expr::ScalarFunction(ScalarFunction::new_udf(json::FromJson::in_zone(), args))
}

/// The type that a call casts to, and whether it fails where there is no such value; `None` if it
/// is no cast.
pub(crate) fn as_cast(call: &ScalarFunction) -> Option<(DataType, bool)> {
    let cast = call.func.inner().downcast_ref::<SparkCast>()?;
    Some((cast.to().clone(), call.name() == "spark_cast"))
}

/// The moment of a call that reads the clock as a date or a local time.
pub(crate) fn moment_read(call: &ScalarFunction) -> Option<Expr> {
    let moment = clock::moment_read(&call.func)?;
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(moment, Vec::new())))
}

/// The name of a zone as functions that take one read it.
pub(crate) fn long_name(zone: &str) -> &str {
    zones::long_name(zone)
}

/// The zone of a call.
fn zone_of(args: &Arguments) -> Result<Zone> {
    zones::of_last_argument(args).map(|(zone, _)| zone)
}

/// What is said of a moment whose clocks are not known.
fn beyond() -> DataFusionError {
    exec_datafusion_err!(
        "a time is beyond those that a TIMESTAMP holds, or of which the offset of the session's \
         time zone is known"
    )
}
