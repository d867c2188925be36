//! Watermarks on what a subquery computes: `FROM (SELECT ...) WATERMARK ts DELAY OF ...`.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::common::{Result, ToDFSchema};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use millstream_sql::diagnostic::Diagnostic;
use millstream_sql::query::streams::{SubqueryWatermark, Watermark};

use super::{FlowError, PlannedFlow};
use crate::failures::from_datafusion;
use crate::pipeline::Branch;
use crate::plan::stages;
use crate::state::event_times::Time;
use crate::state::watermark::Watermarks;

/// An event time that a subquery computes of a stream.
pub(super) struct Computed {
    /// The subquery's name in the plan.
    alias: String,
    pub(super) watermark: Watermark,
    pub(super) time: Time,
}

impl Computed {
    /// What the plan is told of it.
    pub(super) fn watermarked(&self) -> (String, stages::Watermarked) {
        (self.alias.clone(), watermarked(&self.watermark))
    }
}

/// What the plan is told of a watermark.
pub(super) fn watermarked(watermark: &Watermark) -> stages::Watermarked {
    let delay_us = i64::try_from(watermark.delay.as_micros()).unwrap_or(i64::MAX);
    stages::Watermarked { column: watermark.column.text.clone(), delay_us }
}

/// An expression over a stream's columns as what is watched; `None` where it is no timestamp.
fn computed_of(time: Expr, schema: &SchemaRef, state: &SessionState) -> Result<Option<Time>> {
    let columns = time.column_refs();
    let columns = columns.iter().filter_map(|column| schema.index_of(&column.name).ok());
    let columns = columns.collect();
    let of_stream = Arc::clone(schema).to_dfschema()?;
    let is_time =
        matches!(time.get_type(&of_stream)?, DataType::Timestamp(TimeUnit::Microsecond, _));
    let time = state.create_physical_expr(time, &of_stream)?;
    Ok(is_time.then_some(Time::Computed { time, columns }))
}

impl PlannedFlow {
    /// The sources' watermarks.
    pub(super) fn watermarks(&self) -> Watermarks {
        let computed = |index: usize| {
            self.branches.iter().find_map(|branch| branch.delays.get(index).copied().flatten())
        };
        let delays = self.streams.iter().enumerate();
        let delays = delays.map(|(index, read)| {
            read.watermark.as_ref().map(|watermark| watermark.delay).or_else(|| computed(index))
        });
        let delays: Vec<_> = delays.collect();
        let writer = &self.flow.writer;
        Watermarks::new(&delays, writer.watermark_policy, writer.idling)
    }

    /// By stream, the event time that a subquery computes of it and gives a watermark.
    ///
    /// Errors: a column that is none, or is not of one stream, or no timestamp; a stream that has a
    /// watermark already.
    pub(super) fn computed_times(
        &self,
        branch: &Branch,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<Vec<Option<Computed>>, FlowError> {
        let mut times: Vec<Option<Computed>> = self.streams.iter().map(|_| None).collect();
        for SubqueryWatermark { alias, watermark } in &branch.query.subquery_watermarks {
            let refused = |message: String, help: &str| {
                FlowError::Sql(Diagnostic::at(watermark.span, message).help(help).into())
            };
            let column = &watermark.column.text;
            let found = stages::computed_time(plan, alias, column).and_then(|found| {
                let streams = &mut self.streams.iter();
                let index = streams.position(|read| read.registered_as == found.stream)?;
                Some((index, found.time))
            });
            let Some((index, time)) = found else {
                let message =
                    format!("`{column}` is no column that the subquery computes of one stream");
                return Err(refused(message, "a watermark needs a TIMESTAMP of one FROM STREAM"));
            };
            let read = &self.streams[index];
            if read.watermark.is_some() || times[index].is_some() {
                let message =
                    format!("the stream `{}` has a watermark already", read.declared.table.name);
                return Err(refused(message, "a stream has one watermark"));
            }
            let time = computed_of(time, &read.schema, state)
                .map_err(|error| FlowError::Failure(from_datafusion(error)))?;
            let Some(time) = time else {
                let message = format!("the watermark's column `{column}` is no TIMESTAMP");
                return Err(refused(message, "cast it, as with timestamp_millis(number)"));
            };
            let (alias, watermark) = (alias.clone(), watermark.clone());
            times[index] = Some(Computed { alias, watermark, time });
        }
        Ok(times)
    }
}
