//! Dates and timestamps. Moments are milliseconds since 1970, and everything is in UTC.

use std::borrow::Cow;

use crate::clock::Clock;
use crate::error::Problem;
use crate::functions::Action;
use crate::java::calendar::{DAY_MS, add_months};
use crate::java::date_parse::{Parsed, parse};
use crate::java::date_pattern::Pattern;
use crate::java::{parse_i32, push_integer};
use crate::state::State;

/// How dates are written without a pattern.
const DEFAULT_OUTPUT: &str = "EEE, d MMM yyyy HH:mm:ss z";
/// How dates are read without a pattern, where a function has two of them or adds to one.
const DEFAULT_INPUT: &str = "dd-MM-yyyy HH:mm:ss";

/// More than fifty million years are that many: beyond, milliseconds overflow, in Java as well.
const MONTHS_MOST: i64 = 600_000_000;

/// A moment that messages decide, and how it is written.
#[derive(Debug)]
pub(crate) struct Moment {
    when: When,
    written: Written,
}

#[derive(Debug)]
enum When {
    Now,
    Between { begin: i64, end: i64 },
}

#[derive(Debug)]
enum Written {
    Pattern(Pattern),
    /// As a number, in units of so many milliseconds.
    Number {
        unit_ms: i64,
    },
}

impl Moment {
    pub(crate) fn write(&self, state: &mut State, out: &mut Vec<u8>) {
        let ms = match self.when {
            When::Now => state.now_ms,
            When::Between { begin, end } => {
                let span = end.wrapping_sub(begin) as f64;
                (begin as f64 + state.random.unit() * span) as i64
            }
        };
        match &self.written {
            Written::Pattern(pattern) => pattern.write(ms, out),
            Written::Number { unit_ms } => push_integer(ms / unit_ms, out),
        }
    }
}

/// `date()`, `date(out)`, `date(begin, end)`, `date(begin, end, out)`, `date(begin, end, in, out)`.
pub(crate) fn date<'a>(arguments: &[&'a str], clock: &Clock) -> Result<Action<'a>, Problem> {
    let (range, input, output) = match arguments {
        [] => (None, DEFAULT_INPUT, DEFAULT_OUTPUT),
        [output] => (None, DEFAULT_INPUT, *output),
        [begin, end] => (Some((*begin, *end)), DEFAULT_INPUT, DEFAULT_OUTPUT),
        [begin, end, output] => (Some((*begin, *end)), DEFAULT_INPUT, *output),
        [begin, end, input, output, ..] => (Some((*begin, *end)), *input, *output),
    };
    let when = match range {
        Some((begin, end)) => between(begin, end, input, clock)?,
        None => When::Now,
    };
    let written = Written::Pattern(Pattern::parse(output)?);
    Ok(Action::Date(Moment { when, written }))
}

/// `timestamp()` and `timestamp(begin, end)`, in units of `unit_ms` milliseconds.
pub(crate) fn timestamp<'a>(
    arguments: &[&'a str],
    clock: &Clock,
    unit_ms: i64,
) -> Result<Action<'a>, Problem> {
    let when = match arguments {
        [begin, end, ..] => between(begin, end, DEFAULT_INPUT, clock)?,
        _ => When::Now,
    };
    Ok(Action::Date(Moment { when, written: Written::Number { unit_ms } }))
}

fn between(begin: &str, end: &str, input: &str, clock: &Clock) -> Result<When, Problem> {
    let input = Pattern::parse(input)?;
    let (begin, end) = (parse(begin, &input, clock)?.ms, parse(end, &input, clock)?.ms);
    Ok(When::Between { begin, end })
}

/// `dateFormat(date, in, out)`.
pub(crate) fn date_format<'a>(arguments: &[&'a str], clock: &Clock) -> Result<Action<'a>, Problem> {
    let (input, output) = (Pattern::parse(arguments[1])?, Pattern::parse(arguments[2])?);
    let parsed = parse(arguments[0], &input, clock)?;
    Ok(text(|out| output.write(parsed.ms, out)))
}

/// `toTimestamp(date)` and `toTimestamp(date, in)`, in units of `unit_ms` milliseconds.
pub(crate) fn to_timestamp<'a>(
    arguments: &[&'a str],
    clock: &Clock,
    unit_ms: i64,
) -> Result<Action<'a>, Problem> {
    let input = Pattern::parse(arguments.get(1).copied().unwrap_or(DEFAULT_OUTPUT))?;
    let parsed = parse(arguments[0], &input, clock)?;
    Ok(text(|out| push_integer(parsed.ms / unit_ms, out)))
}

/// What `add...` adds one of.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Months(i64),
    Days(i64),
    Milliseconds(i64),
}

/// `addDays(date, n)` and `addDays(pattern, date, n)`. The original writes the sum in the zone that
/// the date names; zones with summer time are refused, because their rules are not known here.
pub(crate) fn add<'a>(
    arguments: &[&'a str],
    clock: &Clock,
    unit: Unit,
) -> Result<Action<'a>, Problem> {
    let (pattern, date, amount) = match arguments {
        [date, amount] => (DEFAULT_INPUT, *date, *amount),
        [pattern, date, amount, ..] => (*pattern, *date, *amount),
        _ => unreachable!("the table of functions says two or three"),
    };
    let pattern = Pattern::parse(pattern)?;
    let Parsed { ms, zone } = parse(date, &pattern, clock)?;
    if let Some(zone) = zone.filter(|zone| !matches!(*zone, "UTC" | "GMT")) {
        let what = format!("summer time of the zone {zone} is not known");
        return Err(Problem::new(what, "give an offset as +0100, or UTC"));
    }
    let amount = i64::from(parse_i32(amount)?);
    let sum = match unit {
        Unit::Months(months) => add_months(ms, (amount * months).clamp(-MONTHS_MOST, MONTHS_MOST)),
        Unit::Days(days) => ms + amount * days * DAY_MS,
        Unit::Milliseconds(each) => ms + amount * each,
    };
    Ok(text(|out| pattern.write(sum, out)))
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> Action<'static> {
    let mut out = Vec::new();
    write(&mut out);
    Action::Text(Cow::Owned(String::from_utf8_lossy(&out).into_owned()))
}
