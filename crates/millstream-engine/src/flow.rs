//! From a flow of a pipeline file to a running query.
//!
//! [`plan`] makes everything that touches nothing: logical and physical plan over tables that are
//! still empty, so that `validate` and `run` find the same mistakes. [`PlannedFlow::run`] then
//! opens the checkpoint, makes sources and sink, reads the static tables and hands all of it to
//! the driver.

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::log_writer::Settings;
use thiserror::Error;

use crate::connector::{FlowContext, ReadMode, Registry};
use crate::driver::stop::Stop;
use crate::driver::tracking::Logging;
use crate::driver::{Finished, Query, batch_query};
use crate::filter::Filter;
use crate::functions::{self, BatchClock};
use crate::plan::QueryPlan;
use crate::plan::session::{batch_config, streaming_config};
use crate::plan::static_table::LoadedTable;
use crate::plan::stream_scan::{Slots, StreamTable, from_datafusion};
use crate::progress::{Listener, QueryStarted};
use crate::source::{Failure, Source, StaticTable};
use crate::sql::diagnostic::Diagnostics;
use crate::sql::pipeline::{DeclaredTable, Flow, Pipeline};
use crate::sql::trigger::Trigger;

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

/// What one run of a flow is given.
pub struct RunSettings {
    /// The checkpoint's location. A batch query has none and does not look at it.
    pub checkpoint: String,
    /// When micro-batches start.
    pub trigger: Trigger,
    /// Which micro-batches get entries in the logs, and for how long.
    pub logging: Logging,
    /// Hears of every micro-batch.
    pub listener: Arc<dyn Listener>,
    /// Ends the query when asked.
    pub stop: Stop,
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

/// A flow with its plan, ready to run.
pub struct PlannedFlow {
    flow: Flow,
    env: Env,
    base_dir: PathBuf,
    output_schema: SchemaRef,
    /// The streams, in the order of the plan's scans.
    streams: Vec<Arc<DeclaredTable>>,
    at_rest: Vec<AtRest>,
    batch_clock: BatchClock,
    body: Body,
}

enum Body {
    Stream(Box<QueryPlan>),
    Once { state: Box<SessionState>, logical: Box<LogicalPlan> },
}

/// A table that is read whole, empty until the flow runs.
struct AtRest {
    declared: Arc<DeclaredTable>,
    schema: SchemaRef,
    loaded: Arc<LoadedTable>,
    /// Its name in plans.
    registered_as: String,
}

/// Plans one flow of `pipeline`; touches nothing durable.
///
/// Errors: what is wrong with its SQL or its tables, with spans into the pipeline file.
pub async fn plan(
    pipeline: &Pipeline,
    flow: &Flow,
    setup: &Setup,
) -> Result<PlannedFlow, FlowError> {
    let config = match flow.is_stream {
        true => streaming_config(),
        false => batch_config(setup.partitions),
    };
    let batch_clock = BatchClock::default();
    let context = functions::session(config, &batch_clock);
    let mut scans = Vec::new();
    let mut streams = Vec::new();
    let mut at_rest = Vec::new();
    for read in &flow.query.reads {
        let declared = pipeline.table(&read.table).expect("the query was resolved against it");
        let (declared, schema) = (Arc::clone(declared), Arc::clone(&read.schema));
        let table: Arc<dyn TableProvider> = match read.mode {
            ReadMode::Stream => {
                let slots = Slots::new(setup.partitions);
                scans.push(Arc::clone(&slots));
                streams.push(declared);
                Arc::new(StreamTable::new(read.table.clone(), schema, slots))
            }
            ReadMode::Batch => {
                let loaded = LoadedTable::empty(Arc::clone(&schema));
                let registered_as = read.registered_as.clone();
                let rows = Arc::clone(&loaded);
                at_rest.push(AtRest { declared, schema, loaded: rows, registered_as });
                loaded
            }
        };
        let registered = context.register_table(read.registered_as.as_str(), table);
        registered.map_err(|error| FlowError::Failure(from_datafusion(error)))?;
    }
    let state = context.state();
    let logical = flow.plan(&state)?;
    let output_schema = Arc::new(logical.schema().as_arrow().clone());
    let body = match flow.is_stream {
        true => {
            let planned = QueryPlan::new(state, logical, scans).await;
            Body::Stream(Box::new(planned.map_err(|e| FlowError::Failure(from_datafusion(e)))?))
        }
        false => Body::Once { state: Box::new(state), logical: Box::new(logical) },
    };
    Ok(PlannedFlow {
        flow: flow.clone(),
        env: setup.env.clone(),
        base_dir: setup.base_dir.clone(),
        output_schema,
        streams,
        at_rest,
        batch_clock,
        body,
    })
}

impl PlannedFlow {
    /// The flow's name.
    pub fn name(&self) -> &str {
        &self.flow.name
    }

    /// The columns that the sink gets.
    pub fn output_schema(&self) -> SchemaRef {
        Arc::clone(&self.output_schema)
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
        let reads = self.flow.query.reads.iter().filter(|read| read.mode == ReadMode::Stream);
        let streams = self.streams.iter().zip(reads);
        let streams = streams.map(|(table, read)| of(table, ReadMode::Stream, &read.schema));
        let rest = self.at_rest.iter();
        streams
            .chain(rest.map(|table| of(&table.declared, ReadMode::Batch, &table.schema)))
            .collect()
    }

    /// The logical and the physical plan as text.
    pub fn explain(&self) -> (String, String) {
        match &self.body {
            Body::Stream(plan) => plan.explain(),
            Body::Once { logical, .. } => (
                logical.display_indent().to_string(),
                "made when the query runs, over what the tables hold then".to_owned(),
            ),
        }
    }

    /// Runs the flow until its trigger is done or it is asked to stop.
    pub async fn run(self, settings: RunSettings) -> Result<Finished, Failure> {
        match self.body {
            Body::Stream(_) => self.run_stream(settings).await,
            Body::Once { .. } => self.run_once().await,
        }
    }

    async fn run_stream(self, settings: RunSettings) -> Result<Finished, Failure> {
        let checkpoint = Checkpoint::open(&settings.checkpoint, &self.env).await?;
        let context = self.context(checkpoint.query_id());
        settings.listener.started(&QueryStarted {
            query_id: checkpoint.query_id().to_owned(),
            run_id: self.env.random_uuid().to_string(),
        });
        if let Body::Stream(plan) = &self.body {
            self.narrow_tables(plan.logical());
        }
        self.load_tables(&context).await?;
        let sink = self.flow.connector.sink(&self.flow.sink, &self.output_schema, &context)?;
        let make = |declared: &Arc<DeclaredTable>| {
            declared.connector.source(&declared.table, ReadMode::Stream, &context)
        };
        let sources: Vec<_> = self.streams.iter().map(make).collect::<Result<_, _>>()?;
        let Body::Stream(mut plan) = self.body else { unreachable!("run looked") };
        if !self.at_rest.is_empty() {
            plan.replan().await.map_err(from_datafusion)?;
        }
        let query = Query {
            plan: *plan,
            sources,
            statics: self.at_rest.into_iter().map(|table| table.loaded).collect(),
            sink,
            log_settings: Settings {
                retain_entries_min: settings.logging.retain_entries_min,
                purge: settings.logging.purge,
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

    async fn run_once(self) -> Result<Finished, Failure> {
        let context = self.context("");
        self.batch_clock.set(self.env.now_us());
        if let Body::Once { state, logical } = &self.body {
            self.narrow_tables(&state.optimize(logical).map_err(from_datafusion)?);
        }
        let rows_in = self.load_tables(&context).await?;
        let mut sink = self.flow.connector.sink(&self.flow.sink, &self.output_schema, &context)?;
        let Body::Once { state, logical } = self.body else { unreachable!("run looked") };
        let finished = batch_query::run(&state, &logical, sink.as_mut()).await?;
        Ok(Finished { rows_in, ..finished })
    }

    fn context(&self, query_id: &str) -> FlowContext {
        FlowContext {
            flow: self.flow.name.clone(),
            query_id: query_id.to_owned(),
            env: self.env.clone(),
            base_dir: self.base_dir.clone(),
        }
    }

    /// Tells the tables that are read whole what the plan asks of their rows.
    fn narrow_tables(&self, optimised: &LogicalPlan) {
        for table in &self.at_rest {
            let mut scans = Vec::new();
            let visited = optimised.apply_with_subqueries(|node| {
                if let LogicalPlan::TableScan(scan) = node
                    && scan.table_name.table() == table.registered_as
                {
                    scans.push(scan.filters.iter().filter_map(Filter::of).collect::<Vec<_>>());
                }
                Ok(TreeNodeRecursion::Continue)
            });
            // Read twice, it would have to be narrowed to what either asks for.
            if let (Ok(_), [filters]) = (visited, &scans[..]) {
                table.loaded.want(filters.clone());
            }
        }
    }

    /// Fills the tables that are read whole; gives their rows.
    async fn load_tables(&self, context: &FlowContext) -> Result<u64, Failure> {
        let mut rows = 0;
        for table in &self.at_rest {
            let connector = &table.declared.connector;
            let content = match connector.static_table(&table.declared.table, context)? {
                Some(content) => content,
                None => Arc::new(StreamAtRest {
                    declared: Arc::clone(&table.declared),
                    schema: Arc::clone(&table.schema),
                    context: context.clone(),
                }),
            };
            rows += table.loaded.load(content).await?;
        }
        Ok(rows)
    }
}

/// A table whose connector can only stream, read once from its beginning to what is there.
struct StreamAtRest {
    declared: Arc<DeclaredTable>,
    schema: SchemaRef,
    context: FlowContext,
}

#[async_trait]
impl StaticTable for StreamAtRest {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        // Read once per run: a topic that grows would otherwise be read whole every second.
        Ok("at the start of the run".to_owned())
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        let connector = &self.declared.connector;
        let mut source: Box<dyn Source> =
            connector.source(&self.declared.table, ReadMode::Batch, &self.context)?;
        batch_query::read_to_end(source.as_mut()).await
    }
}
