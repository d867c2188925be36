//! Texts that are times without a date, cast to TIMESTAMP: `CAST('12:00' AS TIMESTAMP)` is one of
//! today, by the clocks of the text's zone or else of the session's.
//!
//! A cast knows no clock. So where the time is put into a plan ([`frozen`](fn@super::frozen)), what
//! it casts becomes `__dated(text, time, zone)`, which puts today before such a text and leaves all
//! others as they are. A stream has no such time, and there such a text is none of a TIMESTAMP.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable as _, lit};

use super::define::{Arguments, Function, Param, returns_text};
use super::zoned;
use super::zones::of_last_argument;
use crate::values::calendar::{dated, time_alone};

const DATED: Function =
    Function::new("__dated", &[Param::Text, Param::Long, Param::Text], returns_text, with_dates)
        .keeps_nulls();

pub(super) const FUNCTIONS: &[Function] = &[DATED];

/// `expr`, if it casts a text to TIMESTAMP, as it is at `us`, microseconds since the epoch.
pub(super) fn of_today(expr: Expr, schema: &DFSchema, us: i64) -> Transformed<Expr> {
    let Expr::ScalarFunction(call) = expr else { return Transformed::no(expr) };
    let is_text = |arg: &Expr| arg.get_type(schema).is_ok_and(|of| of.is_string());
    let zone = match call.args.first() {
        Some(text) if is_text(text) && may_be_alone(text) => zone_of(&call),
        _ => None,
    };
    let Some(zone) = zone else { return Transformed::no(Expr::ScalarFunction(call)) };
    let ScalarFunction { func, mut args } = call;
    let text = std::mem::take(&mut args[0]);
    args[0] = DATED.udf().call(vec![text, lit(us), zone]);
    Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
}

/// Whether a text may be a time alone, and has not been looked at for that.
fn may_be_alone(text: &Expr) -> bool {
    match text {
        Expr::ScalarFunction(call) => call.name() != DATED.name,
        Expr::Literal(text, _) => text.try_as_str().flatten().and_then(time_alone).is_some(),
        _ => true,
    }
}

/// The zone in which a call reads its first argument as a TIMESTAMP; `None` if it does not.
fn zone_of(call: &ScalarFunction) -> Option<Expr> {
    let is_moment = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
    if let Some((to, _)) = zoned::as_cast(call) {
        return is_moment(&to).then(|| lit("UTC"));
    }
    match (call.name(), &call.args[..]) {
        ("to_timestamp" | "try_to_timestamp", [_]) => Some(lit("UTC")),
        ("__cast_in_zone" | "__try_cast_in_zone", [_, Expr::Literal(to, _), zone]) => {
            is_moment(&to.data_type()).then(|| zone.clone())
        }
        _ => None,
    }
}

fn with_dates(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    let is_alone = |row: usize| texts.get(row).is_some_and(|text| time_alone(text).is_some());
    // Most columns have no such text.
    if !(0..args.rows).any(is_alone) {
        return args.expanded(0);
    }
    let (now, (zone, _)) = (args.long(1), of_last_argument(args)?);
    args.write(|row, out| {
        let (Some(text), Some(now)) = (texts.get(row), now.get(row)) else { return Ok(false) };
        match dated(text, now, &zone) {
            Some(whole) => out.push_str(&whole),
            None => out.push_str(text),
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::timestamp;

    #[test]
    fn a_cast_of_a_text_is_told_the_time_once() {
        let cast = zoned::cast_in_utc(lit("12:00"), &timestamp());
        let schema = DFSchema::empty();
        let first = of_today(cast, &schema, 7);
        assert!(first.transformed);
        assert!(first.data.to_string().contains("__dated("));
        assert!(!of_today(first.data, &schema, 8).transformed);
        let whole = zoned::cast_in_utc(lit("2026-01-31 12:00:00"), &timestamp());
        assert!(!of_today(whole, &schema, 7).transformed);
        let number = zoned::cast_in_utc(lit(12_i64), &timestamp());
        assert!(!of_today(number, &schema, 7).transformed);
        let date = zoned::cast_in_utc(lit("12:00"), &DataType::Date32);
        assert!(!of_today(date, &schema, 7).transformed);
    }
}
