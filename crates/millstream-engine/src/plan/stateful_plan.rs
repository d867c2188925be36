//! A query with stateful operators: its plans and the operators between them, run as one.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use millstream_sql::plan::short_circuit;
use millstream_store::env::Env;
use millstream_store::offset::BatchId;

use super::failing_rows::Rejected;
use super::query_plan::QueryPlan;
use super::stages::{
    Cut, Deduplication, JoinSide, PartialAggregate, Stage, StageKind, StreamedJoin,
};
use super::state_types::{StateError, check_types};
use super::stream_scan::{Slots, StreamScan};
use super::watermark_filters;
use crate::api::dead_letter::Letter;
use crate::api::error::ArrowBug;
use crate::api::progress::OperatorMetrics;
use crate::api::settings::{OnError, OutputMode};
use crate::api::source::{Failure, RecordBatches, Records, Split, Traced};
use crate::failures::from_datafusion;
use crate::plan::places::SqlText;
use crate::state::aggregate::changing::{CompleteAggregate, UpdatingAggregate};
use crate::state::aggregate::closing::ClosingAggregate;
use crate::state::aggregate::sessions::{CompleteSessions, SessionAggregate};
use crate::state::aggregate::spec::{AggregateSpec, TimeKey};
use crate::state::codec;
use crate::state::deduplicate::{Deduplicate, DeduplicateSpec};
use crate::state::join::{Evict, JoinSpec, SideSpec, StreamJoin};
use crate::state::micro_batch::{Applied, MicroBatchFacts};
use crate::state::operator::Operator;
use crate::state::sharded::ResourceLimits;
use crate::state::snapshot_builder::OperatorReplica;

/// By operator, by input: its input rows of a micro-batch.
pub type Changes = Vec<Vec<Vec<RecordBatch>>>;

/// A planned streaming query with state.
pub struct StatefulPlan {
    stages: Vec<PlannedStage>,
    top: StagePlan,
    scans: Vec<Arc<Slots>>,
    /// A description of the operators, a line each: state fits only the operators that made it.
    form: String,
}

struct PlannedStage {
    inputs: Vec<StagePlan>,
    operator: Box<dyn Operator>,
    output: SchemaRef,
    /// The names of its output's columns in the query.
    names: Arc<[String]>,
    /// By how much its input may be behind the query's watermark, microseconds.
    delay_us: i64,
}

/// A plan between operators.
struct StagePlan {
    plan: QueryPlan,
    /// By scan, where its rows come from; `None` for those that it does not read.
    leaves: Vec<Option<Leaf>>,
}

#[derive(Clone, Copy)]
enum Leaf {
    Source(usize),
    Operator(usize),
}

/// The result of a micro-batch.
pub struct Ran {
    /// The result, by partition of the topmost plan.
    pub partitions: Vec<Vec<RecordBatch>>,
    /// The rows of the operators' inputs that the state log keeps.
    pub changes: Changes,
    /// By source, the records that were rejected.
    pub rejected: Vec<Vec<Letter>>,
}

/// Rows on their way into a plan: of the sources until they are read, and of operators.
struct Rows {
    sources: Vec<Option<Vec<Box<dyn Split>>>>,
    operators: Vec<Option<Vec<Vec<RecordBatch>>>>,
    /// By operator, what its columns are called in the query.
    names: Vec<Arc<[String]>>,
    /// By source, records that a plan could not compute.
    rejected: Vec<Vec<Letter>>,
}

impl StatefulPlan {
    /// Plans the pieces. `scans` are the slots of the streams, one per source; `limits` is what all
    /// operators together may use.
    pub async fn new(
        state: &Arc<SessionState>,
        cut: Cut,
        scans: &[Arc<Slots>],
        mode: OutputMode,
        limits: ResourceLimits,
    ) -> Result<Self> {
        let mut leaves: Vec<(Leaf, Arc<Slots>)> =
            (0..).map(Leaf::Source).zip(scans.iter().map(Arc::clone)).collect();
        let mut stages = Vec::with_capacity(cut.stages.len());
        let mut form = String::new();
        let operators = cut.stages.len().max(1) as u64;
        let memory_bytes = limits.memory_bytes.map(|bytes| bytes / operators);
        let limits = ResourceLimits { memory_bytes, ..limits };
        for (index, stage) in cut.stages.into_iter().enumerate() {
            let slots = Arc::clone(&stage.slots);
            form.push_str(&described(&stage, mode));
            let stage = PlannedStage::new(state, stage, &leaves, mode, limits).await?;
            form.push_str(&stage.reading(scans));
            form.push('\n');
            stages.push(stage);
            leaves.push((Leaf::Operator(index), slots));
        }
        let top = StagePlan::new(state, cut.top, &leaves).await?;
        let planned = Self { stages, top, scans: scans.to_vec(), form };
        for piece in planned.pieces() {
            watermark_filters::follow_filters(piece.plan.physical(), scans)?;
        }
        Ok(planned)
    }

    /// A description of the operators, a line each.
    pub fn form(&self) -> &str {
        &self.form
    }

    fn pieces(&self) -> impl Iterator<Item = &StagePlan> {
        self.stages.iter().flat_map(|stage| &stage.inputs).chain([&self.top])
    }

    fn pieces_mut(&mut self) -> impl Iterator<Item = &mut StagePlan> {
        let inputs = self.stages.iter_mut().flat_map(|stage| &mut stage.inputs);
        inputs.chain([&mut self.top])
    }

    /// As [`QueryPlan::set_on_error`].
    pub fn set_on_error(&mut self, on_error: OnError, sql: &Arc<SqlText>) {
        self.pieces_mut().for_each(|piece| piece.plan.set_on_error(on_error, sql));
    }

    /// Plans again, with what the static tables hold now.
    pub async fn replan(&mut self) -> Result<()> {
        for piece in self.pieces_mut() {
            piece.plan.replan().await?;
        }
        Ok(())
    }

    /// The optimised logical plans, from the sources upwards.
    pub fn logical(&self) -> impl Iterator<Item = &LogicalPlan> {
        self.pieces().map(|piece| piece.plan.logical())
    }

    /// By source, where its rows are put.
    pub fn scans(&self) -> &[Arc<Slots>] {
        &self.scans
    }

    /// By source, the columns that the plans read of it.
    pub fn columns_read(&self) -> Vec<Option<Vec<usize>>> {
        let mut read: Vec<Option<Vec<usize>>> = vec![None; self.scans.len()];
        for piece in self.pieces() {
            for (leaf, columns) in piece.leaves.iter().zip(piece.plan.columns_read()) {
                if let (Some(Leaf::Source(source)), Some(columns)) = (leaf, columns) {
                    let known = read[*source].get_or_insert_default();
                    known.extend(columns);
                    known.sort_unstable();
                    known.dedup();
                }
            }
        }
        read
    }

    /// Partitions of its scans: how many cores one micro-batch may use.
    pub fn partitions(&self) -> usize {
        self.top.plan.partitions()
    }

    /// Runs the query over a micro-batch: `inputs` has the splits of each source.
    pub async fn run(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        inputs: Vec<Vec<Box<dyn Split>>>,
    ) -> Result<Ran, Failure> {
        let sources = inputs.into_iter().map(Some).collect();
        let mut rows = Rows {
            sources,
            operators: vec![None; self.stages.len()],
            names: self.stages.iter().map(|stage| Arc::clone(&stage.names)).collect(),
            rejected: vec![Vec::new(); self.scans.len()],
        };
        let mut changes = Vec::with_capacity(self.stages.len());
        for (index, stage) in self.stages.iter_mut().enumerate() {
            let mut given = Vec::with_capacity(stage.inputs.len());
            for piece in &mut stage.inputs {
                let partitions = piece.run(env, &mut rows).await?;
                given.push(partitions.into_iter().flatten().collect::<Vec<_>>());
            }
            let applied = stage.apply(env, facts, given).await?;
            changes.push(applied.changes);
            rows.operators[index] = Some(applied.output);
        }
        let partitions = self.top.run(env, &mut rows).await?;
        Ok(Ran { partitions, changes, rejected: rows.rejected })
    }

    /// Applies the operators' input of a micro-batch of an earlier run, as the state log has it.
    /// The result is computed only where `is_wanted`.
    pub async fn apply(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        changes: Changes,
        is_wanted: bool,
    ) -> Result<Vec<Vec<RecordBatch>>, Failure> {
        let facts = &MicroBatchFacts { is_wanted: is_wanted && facts.is_wanted, ..*facts };
        let (operators, rejected) = (vec![None; self.stages.len()], Vec::new());
        let names = self.stages.iter().map(|stage| Arc::clone(&stage.names)).collect();
        let mut rows = Rows { sources: Vec::new(), operators, names, rejected };
        for (index, (stage, given)) in self.stages.iter_mut().zip(changes).enumerate() {
            rows.operators[index] = Some(stage.apply(env, facts, given).await?.output);
        }
        if is_wanted { self.top.run(env, &mut rows).await } else { Ok(Vec::new()) }
    }

    /// How many inputs the operators have together: the sections of an entry of the state log.
    pub fn sections(&self) -> usize {
        self.stages.iter().map(|stage| stage.inputs.len()).sum()
    }

    /// By section, the schema of its rows.
    pub fn section_schemas(&self) -> Vec<SchemaRef> {
        self.stages.iter().flat_map(|stage| stage.operator.input_schemas()).collect()
    }

    /// The rows of the operators' inputs, decoded from an entry's sections.
    pub fn changes(&self, sections: &[Vec<u8>]) -> Result<Changes, Failure> {
        let mut sections = sections.iter();
        let mut changes = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            let mut given = Vec::with_capacity(stage.inputs.len());
            for schema in stage.operator.input_schemas() {
                let bytes = sections.next().map_or(&[][..], Vec::as_slice);
                let decoded = codec::decode(bytes);
                let rows = decoded.map_err(|error| StateError::Entry { error })?;
                rows.first().map_or(Ok(()), |rows| check_types(&rows.schema(), &schema))?;
                given.push(rows);
            }
            changes.push(given);
        }
        Ok(changes)
    }

    /// Whether a watermark of `evict_us` would give output without input.
    pub fn is_due(&self, evict_us: i64) -> bool {
        let is_stage_due = |stage: &PlannedStage| stage.operator.is_due(evict_us - stage.delay_us);
        self.stages.iter().any(is_stage_due)
    }

    /// The first micro-batch whose rows are still in the state; `None` where there is none.
    pub fn needs_from(&self) -> Option<BatchId> {
        self.stages.iter().filter_map(|stage| stage.operator.needs_from()).min()
    }

    /// Builders of snapshots of the operators' state.
    pub fn snapshot_builder(&self) -> Result<Vec<OperatorReplica>> {
        let part = |PlannedStage { operator, delay_us, .. }: &PlannedStage| {
            let (snapshot_builder, schemas) =
                (operator.snapshot_builder()?, operator.input_schemas());
            Ok(OperatorReplica { snapshot_builder, schemas, delay_us: *delay_us })
        };
        self.stages.iter().map(part).collect()
    }

    /// The sizes of the operators' state and the counts of the last micro-batch, without memory.
    pub fn metrics(&self) -> Vec<OperatorMetrics> {
        self.stages.iter().map(|stage| stage.operator.metrics()).collect()
    }

    /// The memory of each operator's state, in bytes.
    pub fn bytes(&self) -> Vec<u64> {
        self.stages.iter().map(|stage| stage.operator.bytes()).collect()
    }

    /// The plans as text: logical and physical, from the result downwards.
    pub fn explain(&self) -> (String, String) {
        let (mut logical, mut physical) = self.top.plan.explain();
        for (index, stage) in self.stages.iter().enumerate().rev() {
            let metrics = stage.operator.metrics();
            for piece in &stage.inputs {
                let (logical_of_piece, physical_of_piece) = piece.plan.explain();
                let head = format!("operator {index}: {}", metrics.name);
                logical = format!("{}\n{head}\n{logical_of_piece}", logical.trim_end());
                physical = format!("{}\n{head}\n{physical_of_piece}", physical.trim_end());
            }
        }
        (logical, physical)
    }
}

fn described(stage: &Stage, mode: OutputMode) -> String {
    match &stage.kind {
        StageKind::Aggregate { partial, time } => {
            let described = partial.described.join(", ");
            let time = match time {
                Some(TimeKey { column, kind }) => format!(", closed by {column} {kind:?}"),
                None => String::new(),
            };
            format!("aggregate ({}): {described}{time}", mode.name())
        }
        StageKind::Deduplicate(deduplication) => deduplication.described.clone(),
        StageKind::Join(join) => join.described.clone(),
    }
}

impl PlannedStage {
    /// The streams that its inputs read, for the form: if two changed places, each would continue
    /// at the other's offsets with the other's state. Empty where it reads operators only.
    fn reading(&self, scans: &[Arc<Slots>]) -> String {
        let names = |input: &StagePlan| input.streams(scans).join(", ");
        let inputs: Vec<String> = self.inputs.iter().map(names).collect();
        if inputs.iter().all(String::is_empty) {
            String::new()
        } else {
            format!(", reading {}", inputs.join(" and "))
        }
    }

    async fn new(
        state: &Arc<SessionState>,
        stage: Stage,
        leaves: &[(Leaf, Arc<Slots>)],
        mode: OutputMode,
        limits: ResourceLimits,
    ) -> Result<Self> {
        let mut inputs = Vec::with_capacity(stage.inputs.len());
        for input in stage.inputs {
            inputs.push(StagePlan::new(state, input, leaves).await?);
        }
        let output = stage.output;
        let operator = match stage.kind {
            StageKind::Aggregate { partial, time } => {
                let spec = plan_partial(state, &mut inputs[0], partial, time, &output)?;
                aggregate_of(Arc::new(spec), mode, limits)?
            }
            StageKind::Deduplicate(deduplication) => {
                let input = inputs[0].plan.physical().schema();
                let spec = deduplicate_spec(&deduplication, &input, &output);
                Box::new(Deduplicate::new(Arc::new(spec), limits)?)
            }
            StageKind::Join(join) => {
                let spec = join_spec(state, &join, &inputs, &output)?;
                Box::new(StreamJoin::new(Arc::new(spec), limits)?)
            }
        };
        let names = stage.names.into();
        Ok(Self { inputs, operator, output, names, delay_us: stage.delay_us })
    }

    async fn apply(
        &mut self,
        env: &Env,
        facts: &MicroBatchFacts,
        given: Vec<Vec<RecordBatch>>,
    ) -> Result<Applied, Failure> {
        let facts = MicroBatchFacts { watermark: facts.watermark.before(self.delay_us), ..*facts };
        let applied = self.operator.apply(env, &facts, given).await.map_err(from_datafusion)?;
        debug_assert!(
            applied
                .output
                .iter()
                .flatten()
                .all(|rows| { rows.schema().fields().len() == self.output.fields().len() })
        );
        Ok(applied)
    }
}

fn deduplicate_spec(
    deduplication: &Deduplication,
    input: &SchemaRef,
    output: &SchemaRef,
) -> DeduplicateSpec {
    let Deduplication { outputs, keys, has_time, retention, .. } = *deduplication;
    let keys = outputs..outputs + keys;
    let time = has_time.then_some(keys.end);
    DeduplicateSpec::new(input, Arc::clone(output), keys, time, retention)
}

fn join_spec(
    state: &SessionState,
    join: &StreamedJoin,
    inputs: &[StagePlan],
    output: &SchemaRef,
) -> Result<JoinSpec> {
    let side_spec = |side: usize| {
        let JoinSide { columns, has_late, evict_offset_us } = join.sides[side];
        let keys = columns..columns + join.keys;
        let late = has_late.then_some(keys.end);
        let column = keys.end + usize::from(has_late);
        let evict = evict_offset_us.map(|offset_us| Evict { column, offset_us });
        let mark = column + usize::from(evict.is_some());
        let input = inputs[side].plan.physical().schema();
        SideSpec { input, columns, keys, late, evict, mark }
    };
    let residual = join.residual.clone();
    let residual = residual.map(|residual| {
        let residual = short_circuit::condition(residual, &join.both)?;
        state.create_physical_expr(residual, &join.both)
    });
    let both = join.both.as_arrow().fields().iter();
    let both = both.map(|field| field.as_ref().clone().with_nullable(true));
    Ok(JoinSpec {
        sides: [side_spec(0), side_spec(1)],
        kind: join.kind,
        residual: residual.transpose()?,
        both: Arc::new(Schema::new(both.collect::<Vec<_>>())),
        output: Arc::clone(output),
    })
}

fn aggregate_of(
    spec: Arc<AggregateSpec>,
    mode: OutputMode,
    limits: ResourceLimits,
) -> Result<Box<dyn Operator>> {
    let are_sessions = spec.time().is_some_and(|time| time.kind.is_session());
    Ok(match mode {
        OutputMode::Complete if are_sessions => Box::new(CompleteSessions::new(spec, limits)?),
        _ if are_sessions => Box::new(SessionAggregate::new(spec, limits)?),
        OutputMode::Append => Box::new(ClosingAggregate::new(spec, limits)?),
        OutputMode::Update => Box::new(UpdatingAggregate::new(spec, limits)?),
        OutputMode::Complete => Box::new(CompleteAggregate::new(spec, limits)?),
    })
}

/// Makes the plan below an aggregation end in partial aggregates.
fn plan_partial(
    state: &SessionState,
    below: &mut StagePlan,
    partial: PartialAggregate,
    time: Option<TimeKey>,
    output: &SchemaRef,
) -> Result<AggregateSpec> {
    let logical = Arc::new(below.plan.logical().schema().as_ref().clone());
    let (keys, owned) = (partial.keys(), state.clone());
    let functions = move |plan: &Arc<dyn ExecutionPlan>| {
        partial
            .functions(&owned, &logical, &plan.schema())
            .map(|lowered| (lowered, partial.clone()))
    };
    let (lowered, _) = functions(below.plan.physical())?;
    let spec_functions = lowered.iter().map(|lowered| Arc::clone(&lowered.aggregate)).collect();
    below.plan.finish_with(Arc::new(move |plan| {
        let (lowered, partial) = functions(&plan)?;
        partial.over(plan, lowered)
    }))?;
    let input = below.plan.physical().schema();
    AggregateSpec::new(keys, time, spec_functions, input, Arc::clone(output))
}

impl StagePlan {
    /// The names of the streams that it reads, of the sources of `scans`, in the plan's order.
    fn streams(&self, scans: &[Arc<Slots>]) -> Vec<String> {
        let mut names = Vec::new();
        let _ = self.plan.physical().apply(|node| {
            let scan = node.downcast_ref::<StreamScan>();
            let is_source =
                |scan: &&StreamScan| scans.iter().any(|slots| scan.columns_of(slots).is_some());
            names.extend(scan.filter(is_source).map(|scan| scan.stream().to_owned()));
            Ok(TreeNodeRecursion::Continue)
        });
        names
    }

    async fn new(
        state: &Arc<SessionState>,
        logical: LogicalPlan,
        leaves: &[(Leaf, Arc<Slots>)],
    ) -> Result<Self> {
        let slots = leaves.iter().map(|(_, slots)| Arc::clone(slots)).collect();
        let plan = QueryPlan::new(Arc::clone(state), logical, slots).await?;
        let read = leaves.iter().zip(plan.columns_read());
        let leaves = read.map(|((leaf, _), columns)| columns.is_some().then_some(*leaf)).collect();
        Ok(Self { plan, leaves })
    }

    /// Runs it over those rows that it reads.
    async fn run(&mut self, env: &Env, rows: &mut Rows) -> Result<Vec<Vec<RecordBatch>>, Failure> {
        let inputs = self.leaves.iter();
        let inputs = inputs.map(|leaf| leaf.map_or_else(Vec::new, |leaf| rows.take(leaf)));
        let inputs: Vec<Vec<_>> = inputs.collect();
        if inputs.iter().all(Vec::is_empty) {
            return Ok(vec![Vec::new(); self.plan.output_partitions()]);
        }
        let outcome = self.plan.run_rejecting(env, inputs).await?;
        for Rejected { id: (scan, ..), letter } in outcome.rejected {
            match self.leaves[scan] {
                Some(Leaf::Source(source)) => rows.rejected[source].push(letter),
                _ => unreachable!("what an operator gives has no record to be rejected"),
            }
        }
        Ok(outcome.partitions)
    }
}

impl Rows {
    fn take(&mut self, leaf: Leaf) -> Vec<Box<dyn Split>> {
        match leaf {
            Leaf::Source(source) => {
                self.sources.get_mut(source).and_then(Option::take).unwrap_or_default()
            }
            Leaf::Operator(operator) => {
                let output = self.operators[operator].take().unwrap_or_default();
                let output = output.into_iter().filter(|rows| !rows.is_empty());
                let names = &self.names[operator];
                let split = |rows| Box::new(InMemory(rows, Arc::clone(names))) as Box<dyn Split>;
                output.map(split).collect()
            }
        }
    }
}

/// Rows of an operator's output.
pub(super) struct InMemory(pub(super) Vec<RecordBatch>, pub(super) Arc<[String]>);

impl Split for InMemory {
    fn rows(&self) -> u64 {
        self.0.iter().map(|rows| rows.num_rows() as u64).sum()
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let projection = projection.to_vec();
        Box::new(self.0.into_iter().map(move |rows| {
            let picked = rows.project(&projection);
            picked.map_err(|error| ArrowBug(error).into())
        }))
    }

    /// A row that cannot be computed any further is at least shown.
    fn records(&self) -> Vec<Arc<dyn Records>> {
        vec![Arc::new(OfOperator(self.0.clone(), Arc::clone(&self.1)))]
    }
}

/// Rows that follow from several records, and so from none.
struct OfOperator(Vec<RecordBatch>, Arc<[String]>);

impl Records for OfOperator {
    fn read(&self, projection: &[usize], _: bool) -> Result<Vec<Traced>, Failure> {
        let traced = self.0.iter().map(|rows| {
            let projected = rows.project(projection).map_err(ArrowBug)?;
            Ok(Traced::in_order(projected, 0))
        });
        traced.collect()
    }

    fn names(&self) -> Option<&[String]> {
        Some(&self.1)
    }

    fn letter(&self, _: u64) -> Result<Letter, Failure> {
        Ok(Letter::default())
    }
}
