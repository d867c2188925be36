//! Where a flow's dead letters go when it runs, and what its rows are held against.

use millstream_store::checkpoint::Checkpoint;

use super::{Body, Failure, FlowContext, PlannedFlow, StreamRead};
use crate::constraints::{Checks, Remedy};
use crate::driver::dead_letter_sinks::{Aside, DeadLetterSink, DeadLetterSinks, Route};
use crate::pipeline::dead_letters::DeadLetterTable;

impl PlannedFlow {
    /// Where dead letters go; `None` for a flow that has none and checks nothing. A table that is
    /// read twice is two sources, the first of which tells of its malformed records.
    ///
    /// Only tables that can get a letter are opened: opening one takes it for this query.
    pub(super) fn letter_sinks(
        &self,
        context: &FlowContext,
        checkpoint: Option<&Checkpoint>,
        checks: Option<Checks>,
    ) -> Result<Option<DeadLetterSinks>, Failure> {
        let tables = &self.flow.dead_letters;
        let of_checks: Vec<usize> = checks.iter().flat_map(Checks::tables).collect();
        let is_used = |at: &usize| {
            let DeadLetterTable { sources, aside, .. } = &tables[*at];
            !sources.is_empty() || !aside.is_empty() || of_checks.contains(at)
        };
        let used: Vec<usize> = (0..tables.len()).filter(is_used).collect();
        if used.is_empty() && checks.is_none() {
            return Ok(None);
        }
        let place = |table| used.binary_search(&table).expect("it gets letters of somebody");
        let mut told: Vec<&str> = Vec::new();
        let routes = self.streams.iter().map(|read| {
            let name = read.declared.table.name.as_str();
            let named = |letters: &DeadLetterTable| letters.sources.iter().any(|of| of == name);
            let letter_sink = tables.iter().position(named).map(place)?;
            let letter_sink = (!told.contains(&name)).then_some(letter_sink);
            told.push(name);
            let columns = read.schema.fields().len();
            Some(Route { source_table: name.into(), columns, letter_sink })
        });
        let routes = routes.collect();
        let letter_sinks =
            used.iter().map(|table| letter_sink(&tables[*table], context, checkpoint));
        let letter_sinks = letter_sinks.collect::<Result<_, _>>()?;
        let checks = checks.map(|checks| checks.with_tables(place));
        let letter_sinks =
            DeadLetterSinks::new(&self.flow.name, routes, letter_sinks).with_checks(checks);
        Ok(Some(letter_sinks.with_aside(self.aside(place))))
    }

    /// Where records go that the flow's queries cannot compute. `place` is that of a table among
    /// the sinks.
    fn aside(&self, place: impl Fn(usize) -> usize) -> Option<Aside> {
        let tables = &self.flow.dead_letters;
        let route = |read: &StreamRead| {
            let name = read.declared.table.name.as_str();
            let takes = |letters: &DeadLetterTable| letters.aside.iter().any(|of| of == name);
            Some((name.into(), place(tables.iter().position(takes)?)))
        };
        let routes: Option<Vec<_>> = self.streams.iter().map(route).collect();
        Some(Aside { routes: routes?, reads_clock: self.reads_clock })
    }

    /// What the flow's rows are held against.
    pub(super) fn checks(&self) -> Option<Checks> {
        let has_state = self.has_state();
        let remedy = if has_state { Remedy::OfState } else { Remedy::OfInput };
        Some(self.flow.branches[0].checks()?.with_remedy(remedy))
    }

    /// Whether a micro-batch's result depends on those before.
    pub(super) fn has_state(&self) -> bool {
        let mut bodies = self.branches.iter().map(|branch| &branch.body);
        bodies.any(|body| matches!(body, Body::Stream(plan) if plan.stateful().is_some()))
    }
}

fn letter_sink(
    letters: &DeadLetterTable,
    context: &FlowContext,
    checkpoint: Option<&Checkpoint>,
) -> Result<DeadLetterSink, Failure> {
    let mut context = context.clone();
    context.sink_log = checkpoint.map(|checkpoint| checkpoint.sink_log(&letters.id()));
    if !context.query_id.is_empty() {
        context.query_id = format!("{}-{}", context.query_id, letters.id());
    }
    let (sink, layout) = (letters.sink.fresh()?, letters.layout.clone());
    let sink = letters.connector.sink(&sink, layout.schema(), &context)?;
    Ok(DeadLetterSink { name: letters.id(), sink, layout })
}
