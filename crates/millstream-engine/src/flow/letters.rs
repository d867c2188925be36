//! The side outputs of a flow: where its dead letters go, and what its rows are validated against.

use millstream_store::checkpoint::Checkpoint;

use super::{Body, Failure, FlowContext, PlannedFlow, StreamRead};
use crate::api::refusals::Refusals;
use crate::constraints::{Checks, Remedy};
use crate::driver::dead_letter_sinks::{DeadLetterSink, DeadLetterSinks};
use crate::driver::side_outputs::{DecodingRoute, ExpressionRoutes, Rejections};
use crate::pipeline::Branch;
use crate::pipeline::dead_letters::DeadLetterTable;

impl PlannedFlow {
    /// Where dead letters go; `None` for a flow that has none and checks nothing.
    ///
    /// Only tables that can get a letter are opened: opening one takes it for this query.
    pub(super) fn dead_letter_sinks(
        &self,
        context: &FlowContext,
        checkpoint: Option<&Checkpoint>,
        checks: Option<Checks>,
    ) -> Result<Option<DeadLetterSinks>, Failure> {
        let tables = &self.flow.dead_letters;
        let checked: Vec<usize> = checks.iter().flat_map(Checks::tables).collect();
        let is_used = |at: &usize| {
            let DeadLetterTable { sources, expressions, .. } = &tables[*at];
            !sources.is_empty() || !expressions.is_empty() || checked.contains(at)
        };
        let used: Vec<usize> = (0..tables.len()).filter(is_used).collect();
        if used.is_empty() && checks.is_none() {
            return Ok(None);
        }
        let place = |table| used.binary_search(&table).expect("it gets letters of somebody");
        let rejections = Rejections {
            decoding: self.decoding_routes(place),
            expressions: self.expression_routes(place),
            checks: checks.map(|checks| checks.with_tables(place)),
        };
        let sinks = used.iter().map(|table| {
            let table = &tables[*table];
            dead_letter_sink(table, &table.id(), context, checkpoint)
        });
        let sinks = sinks.collect::<Result<_, _>>()?;
        Ok(Some(DeadLetterSinks::new(&self.flow.name, rejections, sinks)))
    }

    /// Where rows go that the receiver of `branch` refuses, as the sink of `context` learns; `None`
    /// where they fail the query.
    pub(super) fn letters_of_sink(
        &self,
        branch: &Branch,
        context: &FlowContext,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Option<(Refusals, DeadLetterSink)>, Failure> {
        let gets = |table: &&DeadLetterTable| table.refusals.contains(&branch.sink.name);
        let Some(letters) = self.flow.dead_letters.iter().find(gets) else { return Ok(None) };
        // The table knows this writer from the one of the flow's other letters.
        let id = format!("{}-of-{}", letters.id(), branch.id());
        let letters = dead_letter_sink(letters, &id, context, checkpoint)?;
        Ok(Some((Refusals::default(), letters)))
    }

    /// By stream, where its malformed records go; a table that is read twice is two sources, the
    /// first of which keeps its malformed records. `place` is that of a table among the side
    /// outputs.
    fn decoding_routes(&self, place: impl Fn(usize) -> usize) -> Vec<Option<DecodingRoute>> {
        let tables = &self.flow.dead_letters;
        let mut kept: Vec<&str> = Vec::new();
        let routes = self.streams.iter().map(|read| {
            let name = read.declared.table.name.as_str();
            let takes = |table: &DeadLetterTable| table.sources.iter().any(|source| source == name);
            let side_output = tables.iter().position(takes).map(&place)?;
            let side_output = (!kept.contains(&name)).then_some(side_output);
            kept.push(name);
            let columns = read.schema.fields().len();
            Some(DecodingRoute { source_table: name.into(), columns, side_output })
        });
        routes.collect()
    }

    /// Where records go that the flow's queries cannot compute.
    fn expression_routes(&self, place: impl Fn(usize) -> usize) -> Option<ExpressionRoutes> {
        let tables = &self.flow.dead_letters;
        let route = |read: &StreamRead| {
            let name = read.declared.table.name.as_str();
            let takes =
                |table: &DeadLetterTable| table.expressions.iter().any(|source| source == name);
            Some((name.into(), place(tables.iter().position(takes)?)))
        };
        let sources: Option<Vec<_>> = self.streams.iter().map(route).collect();
        Some(ExpressionRoutes { sources: sources?, reads_clock: self.reads_clock })
    }

    /// What the flow's rows are validated against.
    pub(super) fn checks(&self) -> Option<Checks> {
        let remedy = match self.flow.is_stream {
            true if self.has_state() => Remedy::OfState,
            true => Remedy::OfInput,
            false => Remedy::OfTablesAtRest,
        };
        Some(self.flow.branches[0].checks()?.with_remedy(remedy))
    }

    /// Whether a micro-batch's result depends on those before.
    pub(super) fn has_state(&self) -> bool {
        let mut bodies = self.branches.iter().map(|branch| &branch.body);
        bodies.any(|body| matches!(body, Body::Stream(plan) if plan.stateful().is_some()))
    }
}

/// The sink of a table of dead letters, which knows this writer as `id`.
fn dead_letter_sink(
    letters: &DeadLetterTable,
    id: &str,
    context: &FlowContext,
    checkpoint: Option<&Checkpoint>,
) -> Result<DeadLetterSink, Failure> {
    let mut context = context.clone();
    context.sink_log = checkpoint.map(|checkpoint| checkpoint.sink_log(id));
    if !context.query_id.is_empty() {
        context.query_id = format!("{}-{id}", context.query_id);
    }
    let (sink, layout) = (letters.sink.fresh()?, letters.layout.clone());
    let sink = letters.connector.sink(&sink, layout.schema(), &context)?;
    Ok(DeadLetterSink { name: letters.id(), sink, layout })
}
