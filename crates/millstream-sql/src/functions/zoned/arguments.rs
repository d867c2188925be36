//! Arguments that Spark casts to a DATE or to a local time, where it is a TIMESTAMP's type here.
//!
//! A text that has a zone would be another day, and outside UTC a day without a midnight, too. So
//! they become local times before types are coerced: a text as the DATE that Spark reads in it.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, cast};

use super::super::session_zone::SessionZone;

/// Functions of days.
pub(crate) const OF_DAYS: &[&str] =
    &["day", "dayofweek", "dayofyear", "month", "quarter", "weekday", "weekofyear", "year"];

/// It takes a local time, and not only its day.
const CONVERT: &str = "convert_timezone";

/// `expr`, whose first or only time is local where Spark has a DATE or a local time.
pub(in crate::functions) fn local(
    expr: Expr,
    schema: &DFSchema,
    options: &ConfigOptions,
) -> Result<Expr> {
    let is_utc = options.extensions.get::<SessionZone>().is_none_or(SessionZone::is_utc);
    let Expr::ScalarFunction(mut call) = expr else { return Ok(expr) };
    if let Some(at) = place(&call)
        && let Ok(of) = call.args[at].get_type(schema)
        && (of.is_string() || (of == DataType::Date32 && !is_utc))
    {
        let time = std::mem::take(&mut call.args[at]);
        let is_of_days = call.name() != CONVERT;
        let time = if of.is_string() && is_of_days { cast(time, DataType::Date32) } else { time };
        call.args[at] = cast(time, DataType::Timestamp(TimeUnit::Microsecond, None));
    }
    Ok(Expr::ScalarFunction(call))
}

/// Which argument of a call is such a time.
fn place(call: &ScalarFunction) -> Option<usize> {
    match (call.name(), call.args.as_slice()) {
        (name, [_]) if OF_DAYS.contains(&name) => Some(0),
        ("date_part", [part, _]) => (!is_of_clock(part)).then_some(1),
        (CONVERT, [_, _, _]) => Some(2),
        _ => None,
    }
}

/// Whether a part of a time is one that a day does not have. What is no literal may be.
fn is_of_clock(part: &Expr) -> bool {
    const PARTS: [&str; 3] = ["H", "MI", "S"];
    let Expr::Literal(value, _) = part else { return true };
    match value.try_as_str().flatten() {
        Some("m" | "M") | None => true,
        Some(part) => {
            let part = part.to_ascii_uppercase();
            PARTS.iter().any(|start| part.starts_with(start))
        }
    }
}
