//! Taking a join of two streams out of a plan.
//!
//! The equalities between the sides are the join's keys, and there has to be one. When a row can
//! have no more partners follows from an event time among the keys, or from bounds of the condition
//! on the sides' event times: with `r.ts >= l.ts AND r.ts <= l.ts + INTERVAL 10 SECONDS` a row `l`
//! has no partner later than ten seconds after it, and a row `r` none before it. By Spark's rule
//! (`StreamingJoinHelper`), a bound that includes the equal time evicts rows a millisecond later.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, JoinType, NullEquality, ScalarValue};
use datafusion::logical_expr::utils::{
    conjunction, find_valid_equijoin_key_pair, split_conjunction_owned,
};
use datafusion::logical_expr::{
    Between, BinaryExpr, Expr, Filter, Join, LogicalPlan, Operator, Projection, lit,
};

use super::deduplicate::instant;
use super::in_words::in_words;
use super::lineage::EventTime;
use super::{CutError, Cutter, StageKind, reads_stream};
use crate::api::settings::OutputMode;
use crate::state::join::JoinKind;

const MS: i64 = 1_000;

/// A join, over the columns of the plans below it.
pub struct StreamedJoin {
    /// Left and right.
    pub sides: [JoinSide; 2],
    /// How many keys there are.
    pub keys: usize,
    /// Which rows it gives.
    pub kind: JoinKind,
    /// The rest of the condition, over the columns of `both`.
    pub residual: Option<Expr>,
    /// The columns of both sides.
    pub both: DFSchema,
    /// What it is, in words.
    pub described: String,
}

/// The columns of the plan below a side: its own, the keys, the time by which rows are late, the
/// time by which they are evicted, and a mark.
pub struct JoinSide {
    /// How many columns the side has.
    pub columns: usize,
    /// Whether there is a time by which rows are late.
    pub has_late: bool,
    /// Where rows are evicted by a time: what is added to the watermark, microseconds.
    pub evict_offset_us: Option<i64>,
}

/// Moves the WHERE condition over an inner join of streams into the join's own condition, where
/// keys and bounds are searched for.
pub fn conditions_into_joins(
    plan: LogicalPlan,
    stream_prefix: &str,
) -> datafusion::common::Result<LogicalPlan> {
    let lowered = plan.transform_down(|node| {
        let LogicalPlan::Filter(Filter { predicate, input, .. }) = &node else {
            return Ok(Transformed::no(node));
        };
        let LogicalPlan::Join(join) = input.as_ref() else { return Ok(Transformed::no(node)) };
        if join.join_type != JoinType::Inner || !joins_streams(join, stream_prefix) {
            return Ok(Transformed::no(node));
        }
        let filter = join.filter.clone().into_iter().chain([predicate.clone()]);
        let join = Join { filter: conjunction(filter), ..join.clone() };
        Ok(Transformed::yes(LogicalPlan::Join(join)))
    });
    Ok(lowered?.data)
}

/// Whether both sides of a join read streams.
pub fn joins_streams(join: &Join, stream_prefix: &str) -> bool {
    reads_stream(&join.left, stream_prefix) && reads_stream(&join.right, stream_prefix)
}

/// The condition of a join in its parts.
struct Condition {
    keys: Vec<(Expr, Expr)>,
    rest: Vec<Expr>,
}

impl Condition {
    fn of(join: &Join) -> Result<Self, CutError> {
        let mut condition = Self { keys: join.on.clone(), rest: Vec::new() };
        if join.null_equality == NullEquality::NullEqualsNull {
            return Err(unsupported("a join of two streams by keys that may both be null"));
        }
        for part in join.filter.clone().into_iter().flat_map(split_conjunction_owned) {
            let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = &part else {
                condition.rest.push(part);
                continue;
            };
            let (on_left, on_right) = (join.left.schema(), join.right.schema());
            match find_valid_equijoin_key_pair(left, right, on_left, on_right)? {
                Some(pair) => condition.keys.push(pair),
                None => condition.rest.push(part),
            }
        }
        if condition.keys.is_empty() { Err(CutError::NoJoinKey) } else { Ok(condition) }
    }
}

fn unsupported(what: &str) -> CutError {
    let help = "read one of them without STREAM: it is read as a batch".to_owned();
    CutError::Unsupported { what: what.to_owned(), help }
}

fn kind_of(join: &Join) -> Result<JoinKind, CutError> {
    Ok(match join.join_type {
        JoinType::Inner => JoinKind::Inner,
        JoinType::Left => JoinKind::Left,
        JoinType::Right => JoinKind::Right,
        JoinType::Full => JoinKind::Full,
        JoinType::LeftSemi => JoinKind::LeftSemi,
        JoinType::LeftAnti => return Err(unsupported("a left anti join of two streams")),
        other => return Err(unsupported(&format!("a join of two streams of the kind {other}"))),
    })
}

/// Rows without a null key: null equals nothing, so other rows have no partner.
fn with_keys(plan: &Arc<LogicalPlan>, keys: &[Expr]) -> Result<Arc<LogicalPlan>, CutError> {
    match conjunction(keys.iter().map(|key| key.clone().is_not_null())) {
        Some(are_there) => {
            let filter = Filter::try_new(are_there, Arc::clone(plan))?;
            Ok(Arc::new(LogicalPlan::Filter(filter)))
        }
        None => Ok(Arc::clone(plan)),
    }
}

/// A side on its way to being an input.
struct SideInput<'a> {
    plan: &'a Arc<LogicalPlan>,
    keys: Vec<Expr>,
    late: Option<Expr>,
    evict: Option<(Expr, i64)>,
}

impl SideInput<'_> {
    fn into_plan(self) -> Result<(LogicalPlan, JoinSide), CutError> {
        let own: Vec<Expr> = self.plan.schema().columns().into_iter().map(Expr::Column).collect();
        let side = JoinSide {
            columns: own.len(),
            has_late: self.late.is_some(),
            evict_offset_us: self.evict.as_ref().map(|(_, offset_us)| *offset_us),
        };
        let own = own.into_iter().enumerate();
        let own = own.map(|(index, column)| column.alias(format!("c{index}")));
        let keys = self.keys.into_iter().enumerate();
        let keys = keys.map(|(index, key)| key.alias(format!("k{index}")));
        let late = self.late.map(|late| late.alias("late"));
        let evict = self.evict.map(|(evict, _)| evict.alias("evict"));
        let mark = lit(false).alias("met");
        let columns = own.chain(keys).chain(late).chain(evict).chain([mark]).collect();
        let plan = Projection::try_new(columns, Arc::clone(self.plan))?;
        Ok((LogicalPlan::Projection(plan), side))
    }
}

impl Cutter<'_> {
    pub(super) fn join(&mut self, join: Join) -> Result<LogicalPlan, CutError> {
        if self.context.mode != OutputMode::Append {
            let what =
                format!("outputMode '{}' with a join of two streams", self.context.mode.name());
            let help = "leave outputMode out: rows are appended".to_owned();
            return Err(CutError::Unsupported { what, help });
        }
        let kind = kind_of(&join)?;
        let condition = Condition::of(&join)?;
        let plans = [&join.left, &join.right];
        let evicts = self.evicts(plans, &condition);
        for (side, evict) in evicts.iter().enumerate() {
            if kind.keeps(side) && evict.is_none() {
                return Err(CutError::NeverAlone { side: ["left", "right"][side] });
            }
        }
        let (times, waits_us) = self.times_and_wait(plans, &evicts, kind);
        let described = format!("{} join on {}", join.join_type, condition_in_words(&condition));
        let (left_keys, right_keys): (Vec<Expr>, Vec<Expr>) =
            condition.keys.iter().cloned().unzip();
        let both = join.left.schema().join(join.right.schema())?;
        let delay_us = self.delay_below(&join.left).max(self.delay_below(&join.right));
        let mut inputs = Vec::with_capacity(2);
        let mut sides = Vec::with_capacity(2);
        for ((plan, keys), evict) in plans.into_iter().zip([left_keys, right_keys]).zip(evicts) {
            let late = self.time_column(plan);
            let with_keys = with_keys(plan, &keys)?;
            let plan = if kind.keeps(inputs.len()) { plan } else { &with_keys };
            let input = SideInput { plan, keys, late, evict };
            let (plan, side) = input.into_plan()?;
            inputs.push(plan);
            sides.push(side);
        }
        let Ok(sides) = <[JoinSide; 2]>::try_from(sides) else { unreachable!("two were pushed") };
        let residual = conjunction(condition.rest);
        let keys = condition.keys.len();
        let joined = StreamedJoin { sides, keys, kind, residual, both, described };
        let schema = Arc::clone(&join.schema);
        let leaf = self.leaf(StageKind::Join(joined), inputs, &schema, times, delay_us)?;
        self.wait_longer(waits_us);
        Ok(leaf)
    }

    /// The first event time among a plan's columns, as a moment.
    fn time_column(&self, plan: &LogicalPlan) -> Option<Expr> {
        let lineage = self.lineage();
        plan.schema().columns().into_iter().map(Expr::Column).find_map(|column| {
            let time = lineage.of(plan, &column)?;
            Some(instant(column, time))
        })
    }

    /// By side, the time by which its rows are evicted, and what is added to the watermark.
    fn evicts(
        &self,
        plans: [&Arc<LogicalPlan>; 2],
        condition: &Condition,
    ) -> [Option<(Expr, i64)>; 2] {
        let lineage = self.lineage();
        for (left, right) in &condition.keys {
            let time = lineage.of(plans[0], left).or_else(|| lineage.of(plans[1], right));
            if let Some(time) = time {
                return [left, right].map(|key| Some((instant(key.clone(), time), 0)));
            }
        }
        let mut evicts = [None, None];
        let parts = condition.rest.iter().flat_map(comparisons);
        for (earlier, later, is_equal_too) in parts {
            let (Some(earlier), Some(later)) =
                (self.moment(plans, &earlier), self.moment(plans, &later))
            else {
                continue;
            };
            if earlier.side == later.side {
                continue;
            }
            // later + b >= earlier + a: the later side's rows have no partner from a - b after
            // their own time on.
            let offset_us = earlier.offset_us - later.offset_us - if is_equal_too { MS } else { 0 };
            // Of several bounds the one that evicts first is enough: a row needs all of them to
            // have a partner.
            let known = &mut evicts[later.side];
            *known = match known.take() {
                Some((column, known_us)) if known_us <= offset_us => Some((column, known_us)),
                _ => Some((later.column, offset_us)),
            };
        }
        evicts
    }

    /// A column of one side that is an event time, and what is added to it.
    fn moment(&self, plans: [&Arc<LogicalPlan>; 2], expr: &Expr) -> Option<Moment> {
        match expr {
            Expr::Column(column) => {
                let side = plans.iter().position(|plan| plan.schema().has_column(column))?;
                let is_instant = self.lineage().of(plans[side], expr)? == EventTime::Instant;
                let column = expr.clone();
                is_instant.then_some(Moment { side, column, offset_us: 0 })
            }
            Expr::Alias(alias) => self.moment(plans, &alias.expr),
            Expr::Cast(cast) => self.moment(plans, &cast.expr),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Plus, right }) => {
                let (of, us) = match interval_us(right) {
                    Some(us) => (left, us),
                    None => (right, interval_us(left)?),
                };
                self.moment(plans, of).map(|moment| moment.after(us))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Minus, right }) => {
                let us = interval_us(right)?;
                self.moment(plans, left).map(|moment| moment.after(-us))
            }
            _ => None,
        }
    }

    /// The event times among the output's columns, and by how much they may be behind the
    /// watermark. Where rows are kept for ever, an old one may be published at any time, so no
    /// column is an event time then.
    fn times_and_wait(
        &self,
        plans: [&Arc<LogicalPlan>; 2],
        evicts: &[Option<(Expr, i64)>; 2],
        kind: JoinKind,
    ) -> (Vec<Option<EventTime>>, i64) {
        let lineage = self.lineage();
        let sides = if kind == JoinKind::LeftSemi { &plans[..1] } else { &plans[..] };
        let bounded = evicts.iter().all(Option::is_some);
        let side_times = |plan: &&Arc<LogicalPlan>| -> Vec<Option<EventTime>> {
            let columns = plan.schema().columns().into_iter().map(Expr::Column);
            columns.map(|column| lineage.of(plan, &column).filter(|_| bounded)).collect()
        };
        let waits_us = evicts.iter().flatten().map(|(_, offset_us)| -offset_us).max();
        (sides.iter().flat_map(side_times).collect(), waits_us.unwrap_or(0).max(0))
    }
}

/// An event time of one side, and what is added to it.
struct Moment {
    side: usize,
    column: Expr,
    offset_us: i64,
}

impl Moment {
    fn after(self, us: i64) -> Self {
        Self { offset_us: self.offset_us.saturating_add(us), ..self }
    }
}

/// What a part of a condition says of two values: the earlier, the later, whether they may be
/// equal.
fn comparisons(part: &Expr) -> Vec<(Expr, Expr, bool)> {
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (left, right) = (left.as_ref().clone(), right.as_ref().clone());
            match op {
                Operator::Lt => vec![(left, right, false)],
                Operator::LtEq => vec![(left, right, true)],
                Operator::Gt => vec![(right, left, false)],
                Operator::GtEq => vec![(right, left, true)],
                _ => Vec::new(),
            }
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let of = |expr: &Expr| expr.clone();
            vec![(of(low), of(expr), true), (of(expr), of(high), true)]
        }
        _ => Vec::new(),
    }
}

/// A constant interval of days and less, in microseconds.
fn interval_us(expr: &Expr) -> Option<i64> {
    const DAY_US: i64 = 86_400_000_000;
    let value = match expr {
        Expr::Literal(value, _) => value,
        Expr::Cast(cast) => return interval_us(&cast.expr),
        Expr::Alias(alias) => return interval_us(&alias.expr),
        _ => return None,
    };
    match value {
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            Some(i64::from(interval.days) * DAY_US + interval.nanoseconds / 1_000)
        }
        ScalarValue::IntervalDayTime(Some(interval)) => {
            Some(i64::from(interval.days) * DAY_US + i64::from(interval.milliseconds) * MS)
        }
        ScalarValue::DurationMicrosecond(us) => *us,
        ScalarValue::DurationMillisecond(ms) => ms.map(|ms| ms * MS),
        ScalarValue::DurationSecond(seconds) => seconds.map(|seconds| seconds * 1_000 * MS),
        ScalarValue::DurationNanosecond(ns) => ns.map(|ns| ns / 1_000),
        _ => None,
    }
}

fn condition_in_words(condition: &Condition) -> String {
    let keys = condition
        .keys
        .iter()
        .map(|(left, right)| format!("{} = {}", in_words(left), in_words(right)));
    let rest = condition.rest.iter().map(in_words);
    keys.chain(rest).collect::<Vec<_>>().join(" AND ")
}
