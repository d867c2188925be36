//! `window_funnel`: how far the rows of a group come along a chain of conditions.
//!
//! A chain is rows of which the first meets the first condition, the next the second, and so on,
//! each row at most once, all within a length of time from the first row on. The result is the
//! length of the longest chain.
//!
//! The rows are gone through once. For each length of a chain it is enough to know the latest time
//! at which such a chain has begun: what can follow one that began earlier can follow that one too.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::GroupsAccumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::super::define::{Aggregate, Make, input};
use super::kept::{Kept, Question, state};
use super::{Event, check_conditions, length, length_type, literal, time_type};
use crate::nearest::suggest;

const NAME: &str = "window_funnel";

pub(super) const AGGREGATES: &[Aggregate] = &[Aggregate {
    name: NAME,
    aliases: &[],
    coerce: coerced,
    returns: |_| Ok(DataType::Int32),
    state,
    never_null: true,
    make: Make::Groups(made),
    moving: None,
}];

const MODES: &[&str] = &["strict_order", "strict_deduplication", "strict_increase"];

/// The argument that is the time: the second, or the third after modes.
fn time_at(given: &[DataType]) -> usize {
    if given.get(1).is_some_and(DataType::is_string) { 2 } else { 1 }
}

fn coerced(given: &[DataType]) -> Result<Vec<DataType>> {
    let time_at = time_at(given);
    let Some(conditions) = given.get(time_at + 1..) else {
        return plan_err!(
            "function '{NAME}' takes a length of time, modes if wanted, a time and conditions"
        );
    };
    check_conditions(NAME, conditions)?;
    let mut types = vec![length_type(NAME, &given[0])?];
    types.extend((time_at == 2).then_some(DataType::Utf8));
    types.push(time_type(NAME, &given[time_at])?);
    types.extend(conditions.iter().map(|_| DataType::Boolean));
    Ok(types)
}

fn made(args: &AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
    let types: Vec<DataType> = (0..args.exprs.len()).map(|at| input(args, at)).collect();
    let time_at = time_at(&types);
    let mut funnel = Funnel {
        length: length(NAME, args, 0, &types[time_at])?.cast_unsigned(),
        conditions: types.len() - time_at - 1,
        order: false,
        deduplication: false,
        increase: false,
    };
    if time_at == 2 {
        funnel.set_modes(&literal(NAME, args, 1)?)?;
    }
    Ok(Box::new(Kept::new(funnel, time_at, funnel.order)))
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Funnel {
    /// The longest time from the first row of a chain to its last.
    pub length: u64,
    pub conditions: usize,
    /// A row that meets no condition that the chain has met ends it.
    pub order: bool,
    /// A row that meets a condition that the chain has met ends it.
    pub deduplication: bool,
    /// The rows of a chain have different times.
    pub increase: bool,
}

impl Funnel {
    fn set_modes(&mut self, given: &ScalarValue) -> Result<()> {
        let ScalarValue::Utf8(Some(text)) = given else {
            return plan_err!("function '{NAME}' needs a literal as its modes");
        };
        for mode in text.split(',').map(str::trim).filter(|mode| !mode.is_empty()) {
            match mode {
                "strict_order" => self.order = true,
                "strict_deduplication" => self.deduplication = true,
                "strict_increase" => self.increase = true,
                other => {
                    let help = suggest(other, "modes", MODES.iter().copied());
                    return plan_err!("function '{NAME}' has no mode '{other}'; {help}");
                }
            }
        }
        Ok(())
    }

    /// The length of the longest chain among `events`, which are in order. `chains` is room for
    /// the work.
    pub fn longest(&self, events: &[Event], chains: &mut Chains) -> usize {
        chains.now.clear();
        chains.now.resize(self.conditions + 1, None);
        chains.before.clone_from(&chains.now);
        let (mut longest, mut time) = (0, None);
        for event in events {
            if time.replace(event.time) != Some(event.time) {
                chains.before.clone_from(&chains.now);
            }
            longest = longest.max(self.step(*event, chains));
            if longest == self.conditions {
                break;
            }
        }
        longest
    }

    /// Takes one row in; the length of the longest chain that it is the last row of.
    fn step(&self, event: Event, chains: &mut Chains) -> usize {
        let Chains { before, now, next } = chains;
        next.clone_from(now);
        self.interrupt(event, next);
        let mut reached = 0;
        // From the last condition on, so that a row counts once in a chain.
        for condition in (1..=self.conditions).rev() {
            if event.met & (1 << (condition - 1)) == 0 {
                continue;
            }
            let source = if self.increase { &mut *before } else { &mut *now };
            let start = if condition == 1 { Some(event.time) } else { source[condition - 1] };
            // Events come in order, so the difference is not below zero, and fits 64 bits.
            let in_time =
                |start: &i64| event.time.wrapping_sub(*start).cast_unsigned() <= self.length;
            let Some(start) = start.filter(in_time) else { continue };
            next[condition] = next[condition].max(Some(start));
            reached = reached.max(condition);
            if self.deduplication && condition > 1 {
                // The chain has met the condition now, and may not wait for the next such row.
                source[condition - 1] = None;
                next[condition - 1] = None;
            }
        }
        std::mem::swap(now, next);
        self.interrupt(event, before);
        reached
    }

    /// Forgets the chains that a row ends.
    fn interrupt(&self, event: Event, chains: &mut [Option<i64>]) {
        if !self.order && !self.deduplication {
            return;
        }
        // Where times are to differ, the next condition may be met too early to be taken.
        let ahead = usize::from(self.increase);
        for (met, chain) in chains.iter_mut().enumerate().skip(1) {
            let among = |first: usize| u64::from(event.met) & ((1_u64 << first) - 1) != 0;
            if (self.order && !among(met + ahead)) || (self.deduplication && among(met)) {
                *chain = None;
            }
        }
    }
}

/// By how many conditions a chain has met, when the latest such chain has begun.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// Before the rows of the present time.
    before: Vec<Option<i64>>,
    now: Vec<Option<i64>>,
    next: Vec<Option<i64>>,
}

impl Question for Funnel {
    fn answers(&self, groups: &[Vec<Event>]) -> Result<ArrayRef> {
        let mut chains = Chains::default();
        let longest = groups.iter().map(|events| self.longest(events, &mut chains) as i32);
        Ok(Arc::new(Int32Array::from_iter_values(longest)))
    }
}
