//! Calls of functions in a zone.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, lit};

use super::casts::holds_time;
use super::{InZone, classes, times_in};
use crate::functions::known_as;
use crate::functions::zoned::{self, has_moments_as_keys, holds_moment};
use crate::types::{holds_variant, timestamp};
use crate::values::calendar::DAY_US;
use crate::values::time_units::{TIME_ADD, TimeUnit, unit_of};

impl InZone<'_> {
    /// A call whose arguments are what they mean in the zone already.
    pub(super) fn call(&self, mut call: ScalarFunction) -> Result<Transformed<Expr>> {
        if let Some((to, strict)) = zoned::as_cast(&call) {
            let value = call.args.remove(0);
            let function = call.func;
            return self.cast(value, &to, strict, |value| {
                Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![value]))
            });
        }
        let types = call.args.iter().map(|arg| self.type_of(arg)).collect::<Result<Vec<_>>>()?;
        if let Some(meant) = self.reading(&call)? {
            return Ok(Transformed::yes(meant));
        }
        if let Some(meant) = self.text(&call, &types)? {
            return Ok(Transformed::yes(meant));
        }
        if let Some(meant) = self.time(&call, &types)? {
            return Ok(Transformed::yes(meant));
        }
        let call = Expr::ScalarFunction(call);
        let returns = self.type_of(&call)?;
        let Expr::ScalarFunction(call) = call else { return Ok(Transformed::no(call)) };
        self.in_class(call, &types, &returns)
    }

    /// A call that reads the zone, or a clock as one shows it.
    fn reading(&self, call: &ScalarFunction) -> Result<Option<Expr>> {
        if call.name() == "current_timezone" {
            return Ok(Some(lit(self.zone)));
        }
        let Some(moment) = zoned::moment_read(call) else { return Ok(None) };
        let to = self.type_of(&Expr::ScalarFunction(call.clone()))?;
        zoned::cast(moment, &to, true, self.zone).map(Some)
    }

    /// A call that reads texts, or writes them.
    fn text(&self, call: &ScalarFunction, types: &[DataType]) -> Result<Option<Expr>> {
        let pattern = || {
            let given = call.args.get(1).cloned();
            given.unwrap_or_else(|| lit(zoned::DEFAULT_PATTERN))
        };
        let (Some(first), Some(of)) = (call.args.first(), types.first()) else { return Ok(None) };
        let by_pattern =
            |name: &str| Ok(Some(zoned::call(name, vec![first.clone(), pattern()], self.zone)));
        let cast_to = |to: &DataType, strict: bool| {
            zoned::cast(first.clone(), to, strict, self.zone).map(Some)
        };
        let has_pattern = call.args.len() > 1;
        let null = || Expr::Literal(ScalarValue::Null, None);
        let is_moment = matches!(of, DataType::Timestamp(_, Some(_)));
        let is_local = matches!(of, DataType::Timestamp(_, None) | DataType::Date32);
        match call.name() {
            "to_json" if holds_moment(of) => {
                let options = call.args.get(1).cloned().unwrap_or_else(null);
                let args = vec![first.clone(), options];
                Ok(Some(zoned::call(zoned::TO_JSON_IN_ZONE, args, self.zone)))
            }
            "from_json" => match self.type_of(&called(call.clone()))? {
                made if holds_moment(&made) && !has_moments_as_keys(&made) => {
                    Ok(Some(zoned::from_json(call.args.clone(), self.zone)))
                }
                _ => Ok(None),
            },
            "concat" if self.type_of(&called(call.clone()))?.is_string() => {
                self.joined(call, types)
            }
            "date_format" => by_pattern(zoned::DATE_FORMAT),
            "from_unixtime" => by_pattern(zoned::FROM_UNIXTIME),
            "to_char" if is_moment => by_pattern(zoned::DATE_FORMAT),
            "to_char" if is_local => {
                let moment = zoned::cast(first.clone(), &timestamp(), true, self.zone)?;
                Ok(Some(zoned::call(zoned::DATE_FORMAT, vec![moment, pattern()], self.zone)))
            }
            "to_timestamp" if is_local => cast_to(&timestamp(), true),
            "to_timestamp" if of.is_string() && has_pattern => by_pattern(zoned::TO_TIMESTAMP),
            "to_timestamp" if of.is_string() => cast_to(&timestamp(), true),
            "try_to_timestamp" if is_local => cast_to(&timestamp(), true),
            "try_to_timestamp" if of.is_string() && has_pattern => {
                by_pattern(zoned::TRY_TO_TIMESTAMP)
            }
            "try_to_timestamp" if of.is_string() => cast_to(&timestamp(), false),
            // Numbers are seconds, whatever the zone.
            "to_timestamp" | "try_to_timestamp" => Ok(Some(called(call.clone()))),
            "to_timestamp_ntz" if is_moment => {
                let local = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
                cast_to(&local, true)
            }
            "to_date" | "try_to_date" if is_moment => cast_to(&DataType::Date32, true),
            "to_date" if of.is_string() && has_pattern => by_pattern(zoned::TO_DATE),
            "try_to_date" if of.is_string() && has_pattern => by_pattern(zoned::TRY_TO_DATE),
            "unix_timestamp" | "to_unix_timestamp" if of.is_string() => {
                by_pattern(zoned::UNIX_TIMESTAMP)
            }
            "unix_timestamp" | "to_unix_timestamp" => {
                let mut call = call.clone();
                // A local time is one of UTC, as Spark has it.
                if *of == DataType::Date32 {
                    call.args[0] = zoned::cast(first.clone(), &timestamp(), true, self.zone)?;
                }
                Ok(Some(called(call)))
            }
            _ => Ok(None),
        }
    }

    /// A call that joins texts, which TIMESTAMPs become.
    fn joined(&self, call: &ScalarFunction, types: &[DataType]) -> Result<Option<Expr>> {
        if !types.iter().any(|of| matches!(of, DataType::Timestamp(_, Some(_)))) {
            return Ok(None);
        }
        let mut call = call.clone();
        let args = call.args.into_iter().zip(types).map(|(arg, of)| match of {
            DataType::Timestamp(_, Some(_)) => zoned::cast(arg, &DataType::Utf8, true, self.zone),
            _ => Ok(arg),
        });
        call.args = args.collect::<Result<_>>()?;
        Ok(Some(called(call)))
    }

    /// A call that computes times of times, or makes them.
    fn time(&self, call: &ScalarFunction, types: &[DataType]) -> Result<Option<Expr>> {
        let args = call.args.as_slice();
        let is_moment = |at: usize| matches!(types.get(at), Some(DataType::Timestamp(_, Some(_))));
        let is_span = |at: usize| {
            matches!(types.get(at), Some(DataType::Duration(_) | DataType::Interval(_)))
        };
        let in_zone = |name: &str, args: &[&Expr]| {
            let args = args.iter().map(|arg| (*arg).clone());
            Ok(Some(zoned::call(name, args.collect(), self.zone)))
        };
        match (call.name(), args) {
            ("try_add", [time, span]) if is_moment(0) && is_span(1) => {
                in_zone(zoned::TRY_PLUS, &[time, span])
            }
            ("try_add", [span, time]) if is_span(0) && is_moment(1) => {
                in_zone(zoned::TRY_PLUS, &[time, span])
            }
            ("try_subtract", [time, span]) if is_moment(0) && is_span(1) => {
                in_zone(zoned::TRY_MINUS, &[time, span])
            }
            // As of the operator, it is the time between what clocks show.
            ("try_subtract", [_, _]) if is_moment(0) && is_moment(1) => {
                let mut call = call.clone();
                let args = call.args.into_iter().map(|arg| self.clock(arg));
                call.args = args.collect::<Result<_>>()?;
                Ok(Some(called(call)))
            }
            (TIME_ADD, [unit, count, time]) if is_moment(2) => match unit_of_literal(unit) {
                // Hours and less are as long in any zone.
                Some(TimeUnit::Microseconds(length)) if length < DAY_US => {
                    Ok(Some(called(call.clone())))
                }
                _ => in_zone(zoned::TIME_ADD_UNITS, &[unit, count, time]),
            },
            ("date_trunc", [unit, time]) if is_moment(1) => {
                in_zone(zoned::DATE_TRUNC, &[unit, time])
            }
            ("months_between", [one, other]) => {
                in_zone(zoned::MONTHS_BETWEEN, &[one, other, &lit(true)])
            }
            ("months_between", [one, other, round]) => {
                in_zone(zoned::MONTHS_BETWEEN, &[one, other, round])
            }
            ("make_timestamp" | "try_make_timestamp", _) => Ok(Some(self.made(call.clone()))),
            // Its time is a local one in Spark.
            ("convert_timezone", [_, _, time]) => {
                let mut call = call.clone();
                call.args[2] = match self.local_of(time) {
                    Some(local) => zoned::cast_in_utc(local.clone(), &timestamp()),
                    None => self.clock(time.clone())?,
                };
                Ok(Some(called(call)))
            }
            (name, _) if is_of_clocks(name) => {
                let mut call = call.clone();
                let args = call.args.into_iter().map(|arg| self.clock(arg));
                call.args = args.collect::<Result<_>>()?;
                Ok(Some(called(call)))
            }
            _ => Ok(None),
        }
    }

    /// The local time that a cast makes a TIMESTAMP of.
    fn local_of<'a>(&self, expr: &'a Expr) -> Option<&'a Expr> {
        let Expr::ScalarFunction(call) = expr else { return None };
        let source = zoned::source_of(call)?;
        matches!(self.type_of(source), Ok(DataType::Timestamp(_, None))).then_some(source)
    }

    /// `make_timestamp` with a zone: that of the session, if it names none.
    fn made(&self, mut call: ScalarFunction) -> Expr {
        // A date alone is its midnight.
        if call.args.len() == 1 {
            call.args.push(Expr::Literal(ScalarValue::Time64Microsecond(Some(0)), None));
        }
        if matches!(call.args.len(), 2 | 6) {
            call.args.push(lit(zoned::long_name(self.zone)));
        }
        called(call)
    }

    /// A call that is the same in any zone, or that is refused.
    fn in_class(
        &self,
        call: ScalarFunction,
        types: &[DataType],
        returns: &DataType,
    ) -> Result<Transformed<Expr>> {
        let name = call.name().to_owned();
        let is_variable = name.starts_with("__variable_");
        if name == "to_variant_object" && types.iter().any(holds_time) {
            return Err(self.refused("function `to_variant_object` of dates and times"));
        }
        if name == "sequence"
            && let ([_, _, step], [DataType::Date32, _, of]) = (call.args.as_slice(), types)
            && !is_of_days(step, of)
        {
            return Err(self.refused("function `sequence` of DATEs by parts of days"));
        }
        if is_variable && holds_variant(returns) {
            return Err(self.refused("a variable that is a VARIANT"));
        }
        if !holds_moment(returns) && !types.iter().any(holds_moment) {
            return Ok(Transformed::no(called(call)));
        }
        let is_known = is_variable
            || classes::STILL.contains(&name.as_str())
            || (classes::OF_ONE_TYPE.contains(&name.as_str()) && are_of_one_type(types))
            || (name == "map" && are_entries_of_one_type(types))
            || (name == "nvl2" && are_of_one_type(types.get(1..).unwrap_or_default()));
        match is_known {
            true => Ok(Transformed::no(called(call))),
            false => {
                let what = format!("function `{}` of these TIMESTAMPs", known_as(&name));
                Err(self.refused(&what))
            }
        }
    }
}

fn called(call: ScalarFunction) -> Expr {
    Expr::ScalarFunction(call)
}

fn is_of_clocks(name: &str) -> bool {
    classes::OF_CLOCKS.contains(&name) || zoned::OF_DAYS.contains(&name)
}

fn unit_of_literal(unit: &Expr) -> Option<TimeUnit> {
    unit_of(literal_text(unit)?)
}

fn literal_text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        Expr::Alias(alias) => literal_text(&alias.expr),
        _ => None,
    }
}

/// Whether values are compared as they are; numbers among them are places.
fn are_of_one_type(types: &[DataType]) -> bool {
    let mut times = types.iter().map(times_in).filter(|times| *times != 0);
    match times.next() {
        Some(first) => times.all(|other| other == first),
        None => true,
    }
}

/// Whether all keys are of one type, and all values.
fn are_entries_of_one_type(types: &[DataType]) -> bool {
    let of = |first: usize| types.iter().skip(first).step_by(2).cloned().collect::<Vec<_>>();
    are_of_one_type(&of(0)) && are_of_one_type(&of(1))
}

/// Whether dates are the same in any zone by such a step: by months or days, without parts of days.
fn is_of_days(step: &Expr, of: &DataType) -> bool {
    match step {
        Expr::Literal(ScalarValue::DurationMicrosecond(Some(us)), _) => us % DAY_US == 0,
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(span)), _) => span.nanoseconds == 0,
        _ => matches!(
            of,
            DataType::Interval(IntervalUnit::YearMonth)
                | DataType::Duration(arrow::datatypes::TimeUnit::Second)
        ),
    }
}
