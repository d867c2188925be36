//! Taking `SELECT DISTINCT` and `SELECT DISTINCT ON (...)` out of a plan.
//!
//! The first is over all columns. The second is Spark's `dropDuplicates(keys)`, and with
//! `WITHIN WATERMARK` after the keys its `dropDuplicatesWithinWatermark(keys)`, which the parser
//! marks by a first key that is a certain text.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::{Distinct, DistinctOn, Expr, LogicalPlan, Projection};
use millstream_sql::query::streams::WITHIN_WATERMARK;

use super::in_words::in_words;
use super::lineage::EventTime;
use super::{CutError, Cutter, StageKind};
use crate::state::deduplicate::Retention;

/// Whether an expression is the first key of `DISTINCT ON (...) WITHIN WATERMARK`.
pub fn is_within_watermark(key: &Expr) -> bool {
    match key {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => {
            text == WITHIN_WATERMARK
        }
        Expr::Cast(cast) => is_within_watermark(&cast.expr),
        Expr::Alias(alias) => is_within_watermark(&alias.expr),
        _ => false,
    }
}

/// A deduplication, over the columns of the plan below it.
pub struct Deduplication {
    /// How many columns of the output come first.
    pub outputs: usize,
    /// How many keys follow.
    pub keys: usize,
    /// Whether the event time follows.
    pub has_time: bool,
    /// How long keys are kept.
    pub retention: Retention,
    /// What it is, in words.
    pub described: String,
}

impl Cutter<'_> {
    pub(super) fn deduplicate(&mut self, node: Distinct) -> Result<LogicalPlan, CutError> {
        match node {
            Distinct::All(input) => {
                let columns = input.schema().columns().into_iter().map(Expr::Column);
                let columns: Vec<Expr> = columns.collect();
                let times = self.times_of(&input, &columns);
                let schema = Arc::clone(input.schema());
                let keys = columns.clone();
                self.first_ones(&input, columns, keys, false, &schema, times)
            }
            Distinct::On(DistinctOn { mut on_expr, select_expr, input, schema, .. }) => {
                let before = on_expr.len();
                on_expr.retain(|key| !is_within_watermark(key));
                let within = on_expr.len() < before;
                let times = self.times_of(&input, &select_expr);
                self.first_ones(&input, select_expr, on_expr, within, &schema, times)
            }
        }
    }

    fn times_of(&self, input: &LogicalPlan, columns: &[Expr]) -> Vec<Option<EventTime>> {
        let lineage = self.lineage();
        columns.iter().map(|column| lineage.of(input, column)).collect()
    }

    fn first_ones(
        &mut self,
        input: &Arc<LogicalPlan>,
        outputs: Vec<Expr>,
        keys: Vec<Expr>,
        within: bool,
        schema: &datafusion::common::DFSchema,
        times: Vec<Option<EventTime>>,
    ) -> Result<LogicalPlan, CutError> {
        let key_times = self.times_of(input, &keys);
        let in_keys = keys.iter().zip(key_times).find_map(|(key, time)| Some((key.clone(), time?)));
        // Lateness is judged by an event time among the output's columns; within the watermark by
        // one among all columns of the input, as Spark does.
        let looked_at: Vec<Expr> = if within {
            input.schema().columns().into_iter().map(Expr::Column).collect()
        } else {
            outputs.clone()
        };
        let row_times = self.times_of(input, &looked_at);
        let row_time = || {
            let rows = looked_at.into_iter().zip(row_times);
            rows.into_iter().find_map(|(row, time)| Some((row, time?)))
        };
        let retention = match (&in_keys, within) {
            (_, true) => Retention::After(self.delay_us(input)),
            (Some(_), false) => Retention::UntilItsTime,
            (None, false) => Retention::ForEver,
        };
        let time = in_keys.or_else(row_time).map(|(expr, time)| instant(expr.unalias(), time));
        if within && time.is_none() {
            return Err(CutError::NoWatermark);
        }
        let described: Vec<String> = keys.iter().map(in_words).collect();
        let deduplication = Deduplication {
            outputs: outputs.len(),
            keys: keys.len(),
            has_time: time.is_some(),
            retention,
            described: format!("first of {} ({retention:?})", described.join(", ")),
        };
        let outputs = outputs.into_iter().enumerate();
        let outputs = outputs.map(|(index, expr)| expr.unalias().alias(format!("c{index}")));
        let keys = keys.into_iter().enumerate();
        let keys = keys.map(|(index, expr)| expr.unalias().alias(format!("k{index}")));
        let time = time.map(|time| time.alias("t"));
        let columns = outputs.chain(keys).chain(time).collect();
        let below = Projection::try_new(columns, Arc::clone(input))?;
        let delay_us = self.delay_below(input);
        let kind = StageKind::Deduplicate(deduplication);
        self.leaf(kind, vec![LogicalPlan::Projection(below)], schema, times, delay_us)
    }
}

/// The moment of an event time: of a window its end.
pub(super) fn instant(expr: Expr, time: EventTime) -> Expr {
    match time {
        EventTime::Instant | EventTime::EndlessSession => expr,
        EventTime::Window { .. } | EventTime::Session => get_field(expr.unalias(), "end"),
    }
}
