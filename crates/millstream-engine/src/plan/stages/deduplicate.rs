//! Taking `SELECT DISTINCT` and `SELECT DISTINCT ON (...)` out of a plan.
//!
//! The first is over all columns. The second is Spark's `dropDuplicates(keys)`, and with
//! `WITHIN WATERMARK` behind the keys its `dropDuplicatesWithinWatermark(keys)`; of that the
//! parser makes a first key that is a certain text.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::functions::core::expr_fn::get_field;
use datafusion::logical_expr::{Distinct, DistinctOn, Expr, LogicalPlan, Projection};
use millstream_sql::query::streams::WITHIN_WATERMARK;

use super::lineage::EventTime;
use super::{CutError, Cutter, StageKind};
use crate::state::deduplicate::Stays;

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
    /// How long keys stay.
    pub stays: Stays,
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
        let of_keys = self.times_of(input, &keys);
        let in_keys = keys.iter().zip(of_keys).find_map(|(key, time)| Some((key.clone(), time?)));
        // Late is what has an event time among its columns; within the watermark, any of them.
        let looked_at: Vec<Expr> = if within {
            input.schema().columns().into_iter().map(Expr::Column).collect()
        } else {
            outputs.clone()
        };
        let of_rows = self.times_of(input, &looked_at);
        let of_rows = || {
            let rows = looked_at.into_iter().zip(of_rows);
            rows.into_iter().find_map(|(row, time)| Some((row, time?)))
        };
        let stays = match (&in_keys, within) {
            (_, true) => Stays::After(self.delay_us(input)),
            (Some(_), false) => Stays::UntilItsTime,
            (None, false) => Stays::ForEver,
        };
        let time = in_keys.or_else(of_rows).map(|(expr, time)| instant(expr.unalias(), time));
        if within && time.is_none() {
            return Err(CutError::NoWatermark);
        }
        let described: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let deduplication = Deduplication {
            outputs: outputs.len(),
            keys: keys.len(),
            has_time: time.is_some(),
            stays,
            described: format!("first of {} ({stays:?})", described.join(", ")),
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
