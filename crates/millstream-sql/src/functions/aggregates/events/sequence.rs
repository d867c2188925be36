//! `sequence_match` and `sequence_count`: chains of rows that fit a pattern.
//!
//! A pattern is made of `(?N)`, a row that meets condition N; `.`, any one row; `.*`, any number of
//! rows; and `(?t>=N)`, a condition on the time between the two rows around it, which lets any rows
//! be between them. Rows that meet no condition are not there for it.
//!
//! The rows are gone through once. For each part of the pattern the times at which it was met are
//! known, in ascending order, so the next part is found by a binary search: the time taken is in
//! proportion to rows and parts, whatever the pattern is.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::AccumulatorArgs;

use super::super::define::{Aggregate, Make, input, refused};
use super::kept::{Kept, Question, state};
use super::{Event, check_conditions, literal, time_type};

const MATCH: &str = "sequence_match";
const COUNT: &str = "sequence_count";

pub(super) const AGGREGATES: &[Aggregate] = &[
    Aggregate {
        name: MATCH,
        aliases: &[],
        coerce: |given| coerced(MATCH, given),
        returns: |_| Ok(DataType::Boolean),
        state,
        never_null: true,
        make: Make::Groups(|args| {
            Ok(Box::new(Kept::new(Matches(pattern(MATCH, args)?), 1, false)))
        }),
        moving: None,
    },
    Aggregate {
        name: COUNT,
        aliases: &[],
        coerce: |given| coerced(COUNT, given),
        returns: |_| Ok(DataType::Int64),
        state,
        never_null: true,
        make: Make::Groups(|args| Ok(Box::new(Kept::new(Counts(pattern(COUNT, args)?), 1, false)))),
        moving: None,
    },
];

fn coerced(name: &str, given: &[DataType]) -> Result<Vec<DataType>> {
    let [pattern, time, conditions @ ..] = given else {
        return plan_err!("function '{name}' takes a pattern, a time and conditions");
    };
    if !pattern.is_string() {
        return refused(name, "a text as its pattern", pattern);
    }
    check_conditions(name, conditions)?;
    let mut types = vec![DataType::Utf8, time_type(name, time)?];
    types.extend(conditions.iter().map(|_| DataType::Boolean));
    Ok(types)
}

fn pattern(name: &str, args: &AccumulatorArgs<'_>) -> Result<Arc<Pattern>> {
    let ScalarValue::Utf8(Some(text)) = literal(name, args, 0)? else {
        return plan_err!("function '{name}' needs a pattern, such as '(?1).*(?2)'");
    };
    let unit = if input(args, 1) == DataType::Int64 { 1 } else { 1_000_000 };
    match Pattern::parse(&text, args.exprs.len() - 2, unit) {
        Ok(pattern) => Ok(Arc::new(pattern)),
        Err((at, problem)) => {
            let character = text[..at].chars().count() + 1;
            plan_err!("function '{name}': {problem}, at character {character} of '{text}'")
        }
    }
}

/// Parts that follow each other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    steps: Vec<Step>,
}

/// One row of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// The conditions of which the row meets one.
    any_of: u32,
    /// Any rows may be between the row before and this one.
    after_others: bool,
    /// The least and the greatest time between the row before and this one.
    apart: (u64, u64),
}

impl Step {
    const NEXT: Self = Self { any_of: u32::MAX, after_others: false, apart: (0, u64::MAX) };
}

impl Pattern {
    /// Reads a pattern over `conditions` conditions; a time of 1 in it is `unit` of the events'.
    ///
    /// # Errors
    /// The place of what is wrong, in bytes, and what it is.
    pub fn parse(text: &str, conditions: usize, unit: u64) -> Result<Self, (usize, String)> {
        let (mut steps, mut step) = (Vec::new(), Step::NEXT);
        let (mut rest, mut timed) = (text, 0);
        while let Some(first) = rest.chars().next() {
            let at = text.len() - rest.len();
            let wrong = |problem: &str| (at, problem.to_owned());
            if let Some(after) = rest.strip_prefix(".*") {
                step.after_others = true;
                rest = after;
            } else if let Some(after) = rest.strip_prefix('.') {
                steps.push(std::mem::replace(&mut step, Step::NEXT));
                rest = after;
            } else if let Some(after) = rest.strip_prefix("(?t") {
                let (inner, after) = after.split_once(')').ok_or(wrong("there is no ')'"))?;
                if steps.is_empty() {
                    return Err(wrong("no row is before a condition on the time"));
                }
                timed = steps.len();
                step.after_others = true;
                step.apart = within(step.apart, inner, unit).ok_or(wrong(
                    "a condition on the time is >=, >, <=, < or == with a number, as in (?t<=60)",
                ))?;
                rest = after;
            } else if let Some(after) = rest.strip_prefix("(?") {
                let (number, after) = after.split_once(')').ok_or(wrong("there is no ')'"))?;
                let number = number.parse::<usize>().ok();
                let number = number.filter(|number| (1..=conditions).contains(number));
                let number = number.ok_or((at, format!("conditions are 1 to {conditions}")))?;
                step.any_of = 1 << (number - 1);
                steps.push(std::mem::replace(&mut step, Step::NEXT));
                rest = after;
            } else if first.is_whitespace() {
                rest = &rest[first.len_utf8()..];
            } else {
                return Err(wrong("a pattern is made of (?1), (?t<=60), . and .*"));
            }
        }
        // A condition on the time needs a row before it, so none is known by 0.
        if timed != 0 && timed == steps.len() {
            return Err((text.len(), "no row is after a condition on the time".to_owned()));
        }
        if steps.is_empty() {
            return Err((0, "the pattern has no rows".to_owned()));
        }
        Ok(Self { steps })
    }

    /// How many chains there are among `events`, which are in order: one begins behind the end of
    /// the one before. `met` is room for the work.
    pub fn count(&self, mut events: &[Event], met: &mut Vec<Vec<(usize, i64)>>) -> i64 {
        let mut count = 0;
        while let Some(end) = self.first_end(events, met) {
            count += 1;
            events = &events[end..];
        }
        count
    }

    /// The index behind the chain that ends first among `events`, if there is one. `met` is room
    /// for the work.
    fn first_end(&self, events: &[Event], met: &mut Vec<Vec<(usize, i64)>>) -> Option<usize> {
        met.resize_with(self.steps.len(), Vec::new);
        met.iter_mut().for_each(Vec::clear);
        for (index, event) in events.iter().enumerate() {
            // From the last part on, so that no row stands for two parts.
            for (at, step) in self.steps.iter().enumerate().rev() {
                if event.met & step.any_of != 0
                    && (at == 0 || step.follows(index, event, &met[at - 1]))
                {
                    if at + 1 == self.steps.len() {
                        return Some(index + 1);
                    }
                    met[at].push((index, event.time));
                }
            }
        }
        None
    }
}

impl Step {
    /// Whether a row can follow one of those before it, which are in order.
    fn follows(&self, index: usize, event: &Event, before: &[(usize, i64)]) -> bool {
        if !self.after_others {
            return before.last().is_some_and(|(last, _)| last + 1 == index);
        }
        let (least, most) = self.apart;
        let apart = |time: i64| event.time.wrapping_sub(time).cast_unsigned();
        // The latest row that is far enough away is the one that can be near enough.
        let far = before.partition_point(|(_, time)| apart(*time) >= least);
        far > 0 && apart(before[far - 1].1) <= most
    }
}

/// Narrows a range of times by a condition such as `>=10`.
fn within((least, most): (u64, u64), condition: &str, unit: u64) -> Option<(u64, u64)> {
    let condition = condition.trim();
    let digits = condition.trim_start_matches(['<', '>', '=']);
    let operator = &condition[..condition.len() - digits.len()];
    let bound = digits.trim().parse::<u64>().ok()?.checked_mul(unit)?;
    match operator {
        ">=" => Some((least.max(bound), most)),
        ">" => Some((least.max(bound.checked_add(1)?), most)),
        "<=" => Some((least, most.min(bound))),
        // Nothing is less than zero apart: no range has its least above its most.
        "<" => match bound.checked_sub(1) {
            Some(bound) => Some((least, most.min(bound))),
            None => Some((u64::MAX, 0)),
        },
        "==" => Some((least.max(bound), most.min(bound))),
        _ => None,
    }
}

/// Whether there is a chain.
#[derive(Clone, Debug)]
struct Matches(Arc<Pattern>);

impl Question for Matches {
    fn answers(&self, groups: &[Vec<Event>]) -> Result<ArrayRef> {
        let mut met = Vec::new();
        let found = groups.iter().map(|events| self.0.first_end(events, &mut met).is_some());
        Ok(Arc::new(BooleanArray::from(found.collect::<Vec<_>>())))
    }
}

/// How many chains there are, one after the other.
#[derive(Clone, Debug)]
struct Counts(Arc<Pattern>);

impl Question for Counts {
    fn answers(&self, groups: &[Vec<Event>]) -> Result<ArrayRef> {
        let mut met = Vec::new();
        let counts = groups.iter().map(|events| self.0.count(events, &mut met));
        Ok(Arc::new(Int64Array::from_iter_values(counts)))
    }
}
