//! From a flow of a pipeline file to a running query.
//!
//! A flow has a branch for each of its sinks, one mostly; they share the sources and the tables at
//! rest, and each has a plan of its own. [`plan`] makes everything that touches nothing: logical
//! and physical plans over tables that are still empty, so that `validate` and `run` find the same
//! mistakes. [`PlannedFlow::run`] then opens the checkpoint, makes sources and sinks, reads the
//! static tables and hands all of it to the driver. [`PlannedFlow::replay`] does the same over dead
//! letters.

mod at_rest;
mod check_groups;
mod computed_watermark;
mod dry_run;
mod letters;
pub mod replay;
mod settings;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use millstream_sql::diagnostic::{Diagnostic, Diagnostics};
use millstream_sql::functions::BatchClock;
use millstream_sql::plan::logical::blamed;
use millstream_sql::plan::optimize;
use millstream_sql::query::prepared::{STREAM_PREFIX, TableRead};
use millstream_sql::query::streams::Watermark;
use millstream_sql::session;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::log_writer::Settings;
use thiserror::Error;

use self::at_rest::{AtRest, Rows, load_tables, open_tables};
use self::check_groups::{check_groups, check_orders};
use self::computed_watermark::{Computed, watermarked};
pub use self::settings::RunSettings;
use crate::api::connector::{FlowContext, Memory, ReadMode, Registry};
use crate::api::contact::Contacts;
use crate::api::filter::Filter;
use crate::api::progress::QueryStarted;
use crate::api::settings::{OnError, OutputMode};
use crate::api::sink::Sink;
use crate::api::source::{Failure, Source};
use crate::constraints::Checks;
use crate::driver::branches::Branches;
use crate::driver::checked_once::CheckedOnce;
use crate::driver::sink_with_letters::SinkWithLetters;
use crate::driver::start::Start;
use crate::driver::stop::Stop;
use crate::driver::{self, Finished, Query, batch_query};
use crate::failures::from_datafusion;
use crate::pipeline::{Branch, DeclaredTable, Flow, Pipeline};
use crate::plan::lookup::LookupRefused;
use crate::plan::places::SqlText;
use crate::plan::scanned_table::scans_in;
use crate::plan::session::{batch_config, register, streaming_config};
use crate::plan::stream_scan::{Slots, StreamTable};
use crate::plan::{QueryPlan, StatefulPlan, StreamPlan, failing_rows_at_rest, stages};
use crate::state::event_times::Time;
use crate::state::sharded::ResourceLimits;

/// What every flow of a process shares.
pub struct Setup {
    /// The connectors of this binary.
    pub registry: Registry,
    /// Clock, chance and tasks.
    pub env: Env,
    /// Relative paths in options are relative to this directory.
    pub base_dir: PathBuf,
    /// Partitions of a scan: how many cores one micro-batch may use.
    pub partitions: usize,
}

/// Why a flow cannot be planned.
#[derive(Debug, Error)]
pub enum FlowError {
    /// The pipeline file is wrong.
    #[error("{0}")]
    Sql(Diagnostics),
    /// Something outside the file is.
    #[error("{0}")]
    Failure(Failure),
}

impl From<Diagnostics> for FlowError {
    fn from(diagnostics: Diagnostics) -> Self {
        Self::Sql(diagnostics)
    }
}

/// A table that a flow reads, for display.
#[derive(Clone, Debug)]
pub struct SourceFacts {
    /// The table's name.
    pub table: String,
    /// The connector's name.
    pub connector: &'static str,
    /// Read as a stream or at rest.
    pub mode: ReadMode,
    /// The columns the query sees.
    pub schema: SchemaRef,
}

/// A flow with its plans, ready to run.
pub struct PlannedFlow {
    flow: Flow,
    env: Env,
    base_dir: PathBuf,
    /// The streams, in the order of the plans' scans.
    streams: Vec<StreamRead>,
    at_rest: Vec<AtRest>,
    batch_clock: BatchClock,
    /// In the order of the flow's own.
    branches: Vec<PlannedBranch>,
    /// Whether one of them computes something of the clock, or of chance.
    reads_clock: bool,
}

/// One sink of a flow with its plan.
struct PlannedBranch {
    output_schema: SchemaRef,
    /// By stream, the delay of a watermark on what a subquery computes of it.
    delays: Vec<Option<Duration>>,
    reads_clock: bool,
    body: Body,
}

/// One sink of a flow, for display.
#[derive(Clone, Debug)]
pub struct BranchFacts {
    /// The table's name.
    pub table: String,
    /// The connector's name.
    pub connector: &'static str,
    /// The columns that the sink gets.
    pub schema: SchemaRef,
    /// The logical plan as text.
    pub logical: String,
    /// The physical plan as text.
    pub physical: String,
}

/// A table that is read as a stream.
struct StreamRead {
    declared: Arc<DeclaredTable>,
    schema: SchemaRef,
    /// Its name in plans.
    registered_as: String,
    watermark: Option<Watermark>,
}

impl StreamRead {
    /// The place of the column with the watermark.
    fn event_time(&self) -> Option<usize> {
        let column = &self.watermark.as_ref()?.column.text;
        let mut fields = self.schema.fields().iter();
        fields.position(|field| field.name().eq_ignore_ascii_case(column))
    }
}

enum Body {
    Stream(Box<StreamPlan>),
    Once { state: Box<SessionState>, logical: Box<LogicalPlan> },
}

impl Body {
    /// The logical and the physical plan as text.
    fn explain(&self) -> (String, String) {
        match self {
            Self::Stream(plan) => plan.explain(),
            Self::Once { logical, .. } => (
                logical.display_indent().to_string(),
                "made when the query runs, over what the tables hold then".to_owned(),
            ),
        }
    }

    fn optimised(&self) -> datafusion::common::Result<Vec<Cow<'_, LogicalPlan>>> {
        match self {
            Self::Stream(plan) => Ok(plan.logical()),
            Self::Once { state, logical } => {
                Ok(vec![Cow::Owned(optimize::optimize(state, logical)?)])
            }
        }
    }
}

/// Plans one flow of `pipeline`; touches nothing durable.
///
/// Errors: what is wrong with its SQL or its tables, with spans into the pipeline file.
pub async fn plan(
    pipeline: &Pipeline,
    flow: &Flow,
    setup: &Setup,
) -> Result<PlannedFlow, FlowError> {
    let mut planned = PlannedFlow {
        flow: flow.clone(),
        env: setup.env.clone(),
        base_dir: setup.base_dir.clone(),
        streams: Vec::new(),
        at_rest: Vec::new(),
        batch_clock: BatchClock::default(),
        branches: Vec::with_capacity(flow.branches.len()),
        reads_clock: false,
    };
    let mut found = Diagnostics::default();
    for read in flow.reads() {
        if let Err(wrong) = planned.add_read(pipeline, read) {
            found.0.push(wrong);
        }
    }
    if !found.0.is_empty() {
        return Err(found.into());
    }
    for branch in &flow.branches {
        match planned.plan_branch(branch, setup).await {
            Ok(branch) => {
                planned.reads_clock |= branch.reads_clock;
                planned.branches.push(branch);
            }
            Err(FlowError::Sql(wrong)) => found.0.extend(wrong.0),
            Err(failure) => return Err(failure),
        }
    }
    found.forget_repeats();
    found.into_result()?;
    Ok(planned)
}

impl PlannedFlow {
    fn add_read(&mut self, pipeline: &Pipeline, read: &TableRead) -> Result<(), Diagnostic> {
        let declared = pipeline.table(&read.table).expect("the query was resolved against it");
        let (declared, schema) = (Arc::clone(declared), Arc::clone(&read.schema));
        let registered_as = read.registered_as.clone();
        match read.mode {
            ReadMode::Stream => {
                let watermark = read.watermark.clone();
                self.streams.push(StreamRead { declared, schema, registered_as, watermark });
            }
            ReadMode::Batch => {
                let rows = Rows::of(&declared, read, self.flow.is_stream)?;
                self.at_rest.push(AtRest { declared, schema, rows, registered_as });
            }
        }
        Ok(())
    }

    async fn plan_branch(
        &self,
        branch: &Branch,
        setup: &Setup,
    ) -> Result<PlannedBranch, FlowError> {
        let failed = |error| FlowError::Failure(from_datafusion(error));
        let config =
            if self.flow.is_stream { streaming_config() } else { batch_config(setup.partitions) };
        let state = session::state(config, Arc::default(), &self.batch_clock);
        let mut scans = Vec::with_capacity(self.streams.len());
        for StreamRead { declared, schema, registered_as, .. } in &self.streams {
            // Slots of its own: what one branch's plan does not read is not left for another's.
            let slots = Slots::new(setup.partitions);
            scans.push(Arc::clone(&slots));
            let table = StreamTable::new(declared.table.name.clone(), Arc::clone(schema), slots);
            register(&state, registered_as, Arc::new(table)).map_err(failed)?;
        }
        for table in &self.at_rest {
            register(&state, &table.registered_as, table.provider()).map_err(failed)?;
        }
        let logical = branch.plan(&state)?;
        let checks = branch.checks().map_or(0, |checks| checks.columns());
        let schema = logical.schema().as_arrow();
        let of_sink: Vec<usize> = (0..schema.fields().len() - checks).collect();
        let output_schema = Arc::new(schema.project(&of_sink).expect("they are columns of it"));
        let mut delays = Vec::new();
        let reads_clock = logical.exists(|node| {
            Ok(node.expressions().iter().any(datafusion::logical_expr::Expr::is_volatile))
        });
        let reads_clock = reads_clock.unwrap_or(true);
        let body = if self.flow.is_stream {
            let computed = self.computed_times(branch, &logical, &state)?;
            delays = computed.iter().map(|of| of.as_ref().map(|of| of.watermark.delay)).collect();
            let plan = self.stream_plan(branch, Arc::new(state), logical, scans, computed).await?;
            Body::Stream(Box::new(plan))
        } else {
            // Planned again when it runs, over what the tables hold then.
            let planned = match optimize::optimize(&state, &logical) {
                Ok(plan) => state.query_planner().create_physical_plan(&plan, &state).await,
                Err(error) => Err(error),
            };
            planned.map_err(|error| not_planned(branch, &state, error))?;
            Body::Once { state: Box::new(state), logical: Box::new(logical) }
        };
        Ok(PlannedBranch { output_schema, delays, reads_clock, body })
    }

    /// The plan of a branch over streams: in pieces, where it has stateful operators.
    async fn stream_plan(
        &self,
        branch: &Branch,
        state: Arc<SessionState>,
        logical: LogicalPlan,
        scans: Vec<Arc<Slots>>,
        computed: Vec<Option<Computed>>,
    ) -> Result<StreamPlan, FlowError> {
        let mode = self.flow.writer.output_mode;
        if !branch.connector.output_modes(&branch.sink).contains(&mode) {
            let (connector, mode) = (branch.connector.name(), mode.name());
            let message = format!("a {connector} table cannot be written in outputMode '{mode}'");
            let help = branch.connector.output_mode_help();
            return Err(FlowError::Sql(branch.query.refused(message, help)));
        }
        check_groups(branch, mode, &logical)?;
        if !stages::has_state(&logical, STREAM_PREFIX) {
            if mode == OutputMode::Complete {
                let error = stages::CutError::NothingToComplete;
                return Err(FlowError::Sql(branch.query.refused(error.to_string(), error.help())));
            }
            let plan = QueryPlan::new(Arc::clone(&state), logical, scans).await;
            let mut plan = plan.map_err(|error| not_planned(branch, &state, error))?;
            plan.set_on_error(self.flow.on_error(), &Arc::new(SqlText::of(branch)));
            return Ok(plan.into());
        }
        if self.flow.branches.len() > 1 && self.flow.on_error() == OnError::DeadLetter {
            let message = "'onError' = 'dead letter' is not for a flow with state that writes to \
                           several tables";
            let help = "write a flow for each of them, or take such values in the SQL (try_cast)";
            return Err(FlowError::Sql(branch.query.refused(message, help)));
        }
        for (read, slots) in self.streams.iter().zip(&scans) {
            if let Some(column) = read.event_time() {
                slots.watch_event_time(Time::Column(column));
            }
        }
        let of_subqueries: Vec<_> = computed.iter().flatten().map(Computed::watermarked).collect();
        for (computed, slots) in computed.into_iter().zip(&scans) {
            if let Some(computed) = computed {
                slots.watch_event_time(computed.time);
            }
        }
        let with_watermark = self.streams.iter().filter_map(|read| {
            let watermark = read.watermark.as_ref()?;
            Some((read.registered_as.clone(), watermarked(watermark)))
        });
        let partitions = scans[0].partitions();
        let watermarks = with_watermark.chain(of_subqueries).collect();
        let stream_prefix = STREAM_PREFIX;
        let context = stages::Context { stream_prefix, watermarks: &watermarks, mode, partitions };
        let cut = stages::cut(logical, &context).map_err(|error| match error {
            stages::CutError::Plan(error) => not_planned(branch, &state, error),
            error => FlowError::Sql(branch.query.refused(error.to_string(), error.help())),
        })?;
        check_orders(branch, &cut)?;
        let branches = self.flow.branches.len().max(1) as u64;
        let memory_bytes = self.memory().map(|memory| memory.state() / branches);
        let limits = ResourceLimits { cores: partitions, memory_bytes };
        let plan = StatefulPlan::new(&state, cut, &scans, mode, limits).await;
        let mut plan = plan.map_err(|error| not_planned(branch, &state, error))?;
        plan.set_on_error(self.flow.on_error(), &Arc::new(SqlText::of(branch)));
        Ok(StreamPlan::Stateful(Box::new(plan)))
    }

    /// The flow's name.
    pub fn name(&self) -> &str {
        &self.flow.name
    }

    /// True where the flow reads a stream; else it runs once over what is there.
    pub fn is_stream(&self) -> bool {
        self.flow.is_stream
    }

    /// The tables the flow reads.
    pub fn sources(&self) -> Vec<SourceFacts> {
        let of = |declared: &DeclaredTable, mode, schema: &SchemaRef| SourceFacts {
            table: declared.table.name.clone(),
            connector: declared.connector.name(),
            mode,
            schema: Arc::clone(schema),
        };
        let streams = self.streams.iter();
        let streams = streams.map(|read| of(&read.declared, ReadMode::Stream, &read.schema));
        let rest = self.at_rest.iter();
        streams
            .chain(rest.map(|table| of(&table.declared, ReadMode::Batch, &table.schema)))
            .collect()
    }

    /// The sinks of the flow and the plans of what they get.
    pub fn branches(&self) -> Vec<BranchFacts> {
        let of = |(branch, planned): (&Branch, &PlannedBranch)| {
            let (logical, physical) = planned.body.explain();
            BranchFacts {
                table: branch.sink.name.clone(),
                connector: branch.connector.name(),
                schema: Arc::clone(&planned.output_schema),
                logical,
                physical,
            }
        };
        self.flow.branches.iter().zip(&self.branches).map(of).collect()
    }

    /// Runs the flow until its trigger is done or it is asked to stop.
    pub async fn run(self, settings: RunSettings) -> Result<Finished, Failure> {
        match self.flow.is_stream {
            true => self.run_stream(settings).await,
            false => self.run_once(settings.stop).await,
        }
    }

    async fn run_stream(self, settings: RunSettings) -> Result<Finished, Failure> {
        let checkpoint = settings.open_checkpoint(&settings.checkpoint, &self.env).await?;
        let mut context = self.context(checkpoint.query_id());
        context.contacts = Contacts::new(Arc::clone(&settings.listener), self.env.clone());
        settings.listener.started(&QueryStarted {
            query_id: checkpoint.query_id().to_owned(),
            run_id: self.env.random_uuid().to_string(),
        });
        let make = |read: &StreamRead| {
            let declared = &read.declared;
            declared.connector.source(&*declared.table.fresh()?, ReadMode::Stream, &context)
        };
        let sources: Vec<_> = self.streams.iter().map(make).collect::<Result<_, _>>()?;
        let checks = self.checks();
        self.drive(checkpoint, &context, sources, checks, settings).await
    }

    /// Runs the flow over `sources`, which stand for its streams, and holds its rows against
    /// `checks`.
    async fn drive(
        mut self,
        checkpoint: Checkpoint,
        context: &FlowContext,
        sources: Vec<Box<dyn Source>>,
        checks: Option<Checks>,
        settings: RunSettings,
    ) -> Result<Finished, Failure> {
        self.narrow_tables()?;
        load_tables(&self.at_rest, context).await?;
        let watermarks = self.watermarks();
        let sinks = self.sinks(context, Some(&checkpoint))?;
        let mut branches = Vec::with_capacity(sinks.len());
        for (planned, sink) in std::mem::take(&mut self.branches).into_iter().zip(sinks) {
            let Body::Stream(mut plan) = planned.body else { unreachable!("run looked") };
            if !self.at_rest.is_empty() {
                plan.replan().await.map_err(from_datafusion)?;
            }
            branches.push(driver::branch::Branch { plan: *plan, sink });
        }
        let branches = Branches::new(branches).beginning(Start {
            siblings: settings.siblings,
            adopts: settings.adopt.is_some(),
            is_beside_others: self.flow.writer.beside_others,
        });
        let query = Query {
            watermarks,
            snapshots: self.flow.writer.snapshots,
            branches: match self.dead_letter_sinks(context, Some(&checkpoint), checks)? {
                Some(sinks) => branches.with_dead_letters(sinks),
                None => branches,
            },
            sources,
            statics: self.at_rest.iter().filter_map(AtRest::loaded).map(Arc::clone).collect(),
            log_settings: Settings {
                retain_entries_min: settings.logging.retain_entries_min,
                purge: settings.logging.purge,
                shares_threads: settings.logging.shares_threads,
                ..Settings::of(&checkpoint)
            },
            checkpoint,
            trigger: settings.trigger,
            tracking: settings.logging.tracking,
            batch_clock: self.batch_clock,
            listener: settings.listener,
            stop: settings.stop,
            env: self.env,
        };
        query.run().await
    }

    async fn run_once(self, mut stop: Stop) -> Result<Finished, Failure> {
        let context = self.context("");
        self.batch_clock.set(self.env.now_us());
        let scans: Vec<usize> = self.scans()?.iter().map(Vec::len).collect();
        open_tables(&self.at_rest, &scans, &context).await?;
        let sinks = self.sinks(&context, None)?;
        let mut letter_sinks = self.dead_letter_sinks(&context, None, self.checks())?;
        let batch_time_ms = self.env.now_ms();
        let tables = self.at_rest.iter().filter_map(AtRest::scanned);
        let tables: Vec<_> = tables.map(Arc::clone).collect();
        let mut rows_out = 0;
        let branches = self.flow.branches.iter().zip(self.branches);
        for ((branch, planned), mut sink) in branches.zip(sinks) {
            let Body::Once { state, logical } = planned.body else { unreachable!("run looked") };
            let letter_sinks = letter_sinks.as_mut();
            let checked = letter_sinks.map(|sinks| CheckedOnce::new(sinks, batch_time_ms));
            let query = (&*state, &*logical);
            match batch_query::run(&self.env, query, sink.as_mut(), checked, &mut stop).await {
                Ok(rows) => rows_out += rows,
                Err(failure) => {
                    let sql = SqlText::of(branch);
                    return Err(failing_rows_at_rest::explain(failure, query, &tables, &sql).await);
                }
            }
        }
        let rows_in = tables.iter().map(|table| table.rows_read()).sum();
        Ok(Finished { micro_batches: 1, rows_in, rows_out })
    }

    /// Makes the sinks. Each keeps its record of progress under an id of its own, so that two of
    /// one kind do not share it: the first under the query's, the others with their table's name.
    fn sinks(
        &self,
        context: &FlowContext,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Vec<Box<dyn Sink>>, Failure> {
        let branches = self.flow.branches.iter().zip(&self.branches).enumerate();
        let make = |(index, (branch, planned)): (usize, (&Branch, &PlannedBranch))| {
            let mut context = context.clone();
            context.sink_log = checkpoint.map(|checkpoint| checkpoint.sink_log(&branch.id()));
            if index > 0 && !context.query_id.is_empty() {
                context.query_id = format!("{}-{}", context.query_id, branch.id());
            }
            let letters = self.letters_of_sink(branch, &context, checkpoint)?;
            context.refusals = letters.as_ref().map(|(refusals, _)| refusals.clone());
            let (table, schema) = (branch.sink.fresh()?, &planned.output_schema);
            let sink = branch.connector.sink(&table, schema, &context)?;
            let Some((refusals, letters)) = letters else { return Ok(sink) };
            let flow = &self.flow.name;
            let sink = SinkWithLetters::new(sink, refusals, flow, letters, &self.env);
            Ok(Box::new(sink) as Box<dyn Sink>)
        };
        branches.map(make).collect()
    }

    fn context(&self, query_id: &str) -> FlowContext {
        let memory = self.memory();
        FlowContext {
            memory,
            ..FlowContext::new(&self.flow.name, query_id, &self.env, &self.base_dir)
        }
    }

    fn memory(&self) -> Option<Memory> {
        let limit = self.flow.writer.memory_limit;
        limit.map(|bytes| Memory::new(bytes, self.streams.len()))
    }

    /// Tells the tables that are held in memory what the plans ask of their rows.
    fn narrow_tables(&self) -> Result<(), Failure> {
        for (table, scans) in self.at_rest.iter().zip(self.scans()?) {
            // Read twice, it would have to be narrowed to what either asks for.
            if let (Some(loaded), [filters]) = (table.loaded(), &scans[..]) {
                loaded.want(filters.clone());
            }
        }
        Ok(())
    }

    /// By table at rest, the filters of each scan of it.
    fn scans(&self) -> Result<Vec<Vec<Vec<Filter>>>, Failure> {
        let optimised = self.branches.iter().map(|branch| branch.body.optimised());
        let optimised = optimised.collect::<Result<Vec<_>, _>>().map_err(from_datafusion)?;
        let optimised: Vec<_> = optimised.into_iter().flatten().collect();
        let scans_of = |table: &AtRest| {
            let mut scans = Vec::new();
            for plan in &optimised {
                scans.extend(scans_in(plan, &table.registered_as).map_err(from_datafusion)?);
            }
            Ok(scans)
        };
        self.at_rest.iter().map(scans_of).collect()
    }
}

/// What of a query cannot be made ready to run, at its place.
fn not_planned(branch: &Branch, state: &SessionState, error: DataFusionError) -> FlowError {
    if let Some(refused) = LookupRefused::of(&error) {
        return FlowError::Sql(at_rest::refused(branch, refused));
    }
    match error.find_root() {
        // A failure of the outside, carried through.
        DataFusionError::External(_) => FlowError::Failure(from_datafusion(error)),
        _ => FlowError::Sql(blamed(state, &branch.query, &error)),
    }
}
