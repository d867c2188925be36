//! A query's physical plan: made once, run for every micro-batch.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use futures::TryStreamExt;
use millstream_sql::plan::optimize;
use millstream_store::env::Env;

use super::linear_plan::StraightLine;
use super::lookup;
use super::renewal::Renewal;
use super::row_error::{Culprit, InSql};
use super::stream_scan::{Slots, StreamScan};
use crate::api::settings::OnError;
use crate::api::source::{Failure, Split};
use crate::failures::from_datafusion;
use crate::plan::places::SqlText;
use crate::state::event_times::NewestTimes;

/// A planned streaming query.
///
/// A clone costs little, for a query that is started again without planning it again. Clones share
/// the slots of their scans: only one of them may be in [`Self::run`] at a time.
#[derive(Clone)]
pub struct QueryPlan {
    state: Arc<SessionState>,
    logical: Arc<LogicalPlan>,
    physical: Arc<dyn ExecutionPlan>,
    straight: Option<Arc<StraightLine>>,
    scans: Vec<Arc<Slots>>,
    context: Arc<TaskContext>,
    /// Applied to what DataFusion plans.
    finish: Option<Finish>,
    renewal: Renewal,
    on_error: OnError,
    /// The text that it was made of.
    sql: Option<Arc<SqlText>>,
}

/// Makes a plan's last steps.
pub type Finish =
    Arc<dyn Fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> + Send + Sync>;

impl QueryPlan {
    /// Plans `logical`. `scans` are the slots of its stream tables, one per source in the order of
    /// the offset log's lines.
    pub async fn new(
        state: impl Into<Arc<SessionState>>,
        logical: LogicalPlan,
        scans: Vec<Arc<Slots>>,
    ) -> Result<Self> {
        let state = state.into();
        let logical = lookup::replace_joins(optimize::optimize(&state, &logical)?)?;
        let physical = lookup::physical(&state, &logical).await?;
        let context = Arc::new(without_functions(&state));
        let straight = StraightLine::of(&physical).map(Arc::new);
        let logical = Arc::new(logical);
        let renewal = Renewal::of(&physical);
        let (finish, on_error, sql) = (None, OnError::default(), None);
        Ok(Self {
            state,
            logical,
            physical,
            straight,
            scans,
            context,
            finish,
            renewal,
            on_error,
            sql,
        })
    }

    /// Sets what happens to rows with which the plan fails, and the text that it was made of.
    pub fn set_on_error(&mut self, on_error: OnError, sql: &Arc<SqlText>) {
        self.on_error = on_error;
        self.sql = Some(Arc::clone(sql));
    }

    pub(super) fn on_error(&self) -> OnError {
        self.on_error
    }

    pub(super) fn context(&self) -> &Arc<TaskContext> {
        &self.context
    }

    /// The place of an expression in the text that the plan was made of.
    pub(super) fn place_of(&self, culprit: &Culprit) -> InSql {
        let found = self.sql.as_ref().and_then(|sql| sql.place_of(culprit));
        found.unwrap_or_else(|| InSql { at: None, text: culprit.text.clone() })
    }

    /// The optimised logical plan.
    pub fn logical(&self) -> &LogicalPlan {
        &self.logical
    }

    /// Plans again, with what the static tables hold now.
    pub async fn replan(&mut self) -> Result<()> {
        self.physical = lookup::physical(&self.state, &self.logical).await?;
        if let Some(finish) = &self.finish {
            self.physical = finish(Arc::clone(&self.physical))?;
        }
        self.ready_to_run();
        Ok(())
    }

    /// Applies `finish` to what DataFusion plans, now and whenever it plans again.
    pub fn finish_with(&mut self, finish: Finish) -> Result<()> {
        self.physical = finish(Arc::clone(&self.physical))?;
        self.finish = Some(finish);
        self.ready_to_run();
        Ok(())
    }

    fn ready_to_run(&mut self) {
        self.straight = StraightLine::of(&self.physical).map(Arc::new);
        self.renewal = Renewal::of(&self.physical);
    }

    /// The physical plan.
    pub fn physical(&self) -> &Arc<dyn ExecutionPlan> {
        &self.physical
    }

    /// Partitions of its result.
    pub fn output_partitions(&self) -> usize {
        self.physical.properties().partitioning.partition_count()
    }

    /// By source, the columns that the plan reads of it; `None` where it reads nothing, as below a
    /// condition that never holds.
    pub fn columns_read(&self) -> Vec<Option<Vec<usize>>> {
        let mut read = vec![None; self.scans.len()];
        let _ = self.physical.apply(|node| {
            if let Some(scan) = node.downcast_ref::<StreamScan>() {
                for (columns, slots) in read.iter_mut().zip(&self.scans) {
                    if let Some(found) = scan.columns_of(slots) {
                        *columns = Some(found.to_vec());
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        });
        read
    }

    /// By source, the slots that its rows are put into.
    pub fn scans(&self) -> &[Arc<Slots>] {
        &self.scans
    }

    /// Partitions of its scans: how many cores one micro-batch may use.
    pub fn partitions(&self) -> usize {
        self.scans.first().map_or(1, |slots| slots.partitions())
    }

    /// Runs the plan over one micro-batch: `inputs` has the splits of each source. The result has
    /// a list of record batches per plan partition, in order, without empty ones.
    ///
    /// Errors: what a split could not read or decode, or an expression could not compute.
    pub async fn run(
        &mut self,
        env: &Env,
        inputs: Vec<Vec<Box<dyn Split>>>,
    ) -> Result<Vec<Vec<RecordBatch>>, Failure> {
        assert_eq!(inputs.len(), self.scans.len(), "a source per scan");
        let mut parallel = false;
        for (slots, splits) in self.scans.iter().zip(inputs) {
            parallel |= slots.fill(splits);
        }
        self.run_filled(env, parallel).await
    }

    /// Runs the plan over a few rows, in this task. Gives the rows of all partitions, one partition
    /// after the other.
    pub(super) async fn run_here(
        &mut self,
        env: &Env,
        inputs: Vec<Vec<Box<dyn Split>>>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        self.refill(inputs);
        Ok(self.run_filled(env, false).await?.into_iter().flatten().collect())
    }

    /// Puts a few rows into the scans' slots, in place of what a failed run may have left there.
    pub(super) fn refill(&self, inputs: Vec<Vec<Box<dyn Split>>>) {
        for (slots, splits) in self.scans.iter().zip(inputs) {
            slots.refill(splits);
        }
    }

    /// The newest event times of the sources that it reads, since the last call.
    pub(super) fn take_event_times(&self) -> Vec<Option<NewestTimes>> {
        let read = self.columns_read();
        let of = |(slots, columns): (&Arc<Slots>, Option<Vec<usize>>)| {
            columns.and_then(|_| Some(slots.event_times()?.take()))
        };
        self.scans.iter().zip(read).map(of).collect()
    }

    pub(super) fn forget_event_times(&self) {
        drop(self.take_event_times());
    }

    /// Puts back what [`Self::take_event_times`] gave.
    pub(super) fn put_back_event_times(&self, seen: Vec<Option<NewestTimes>>) {
        for (slots, seen) in self.scans.iter().zip(seen) {
            if let (Some(times), Some(seen)) = (slots.event_times(), seen) {
                times.put_back(seen);
            }
        }
    }

    async fn run_filled(
        &mut self,
        env: &Env,
        parallel: bool,
    ) -> Result<Vec<Vec<RecordBatch>>, Failure> {
        let partitions = self.output_partitions();
        if let (false, Some(straight)) = (parallel, &self.straight) {
            let mut results = vec![Vec::new(); partitions];
            results[0] = straight.run().map_err(from_datafusion)?;
            return Ok(results);
        }
        let renewed = self.renewal.before_run(env, &mut self.physical, &self.context);
        renewed.map_err(from_datafusion)?;
        if parallel {
            self.run_in_tasks(env, partitions).await
        } else {
            self.run_partitions(partitions).await
        }
    }

    async fn run_partitions(&self, partitions: usize) -> Result<Vec<Vec<RecordBatch>>, Failure> {
        let mut results = Vec::with_capacity(partitions);
        for partition in 0..partitions {
            let plan = Arc::clone(&self.physical);
            results.push(run_partition(plan, partition, Arc::clone(&self.context)).await?);
        }
        Ok(results)
    }

    async fn run_in_tasks(
        &self,
        env: &Env,
        partitions: usize,
    ) -> Result<Vec<Vec<RecordBatch>>, Failure> {
        let start = |partition| {
            let (plan, context) = (Arc::clone(&self.physical), Arc::clone(&self.context));
            env.spawn_on_cores("plan-partition", run_partition(plan, partition, context))
        };
        let others: Vec<_> = (1..partitions).map(start).collect();
        // The first partition runs in this task: a micro-batch of one partition wakes no other
        // thread.
        let here = run_partition(Arc::clone(&self.physical), 0, Arc::clone(&self.context)).await;
        let mut results = vec![here];
        for task in others {
            results.push(task.join().await);
        }
        results.into_iter().collect()
    }

    /// The plan as text, for `validate`: logical and physical.
    pub fn explain(&self) -> (String, String) {
        let physical = displayable(self.physical.as_ref()).indent(false).to_string();
        (self.logical.display_indent().to_string(), physical)
    }
}

/// What a plan of `state` runs with. Functions are found by their names only where a plan is read
/// from bytes, which does not happen here, and copying them took a tenth of the time of planning.
fn without_functions(state: &SessionState) -> TaskContext {
    let (session, config) = (state.session_id().to_owned(), state.config().clone());
    let runtime = Arc::clone(state.runtime_env());
    TaskContext::new(
        None,
        session,
        config,
        HashMap::default(),
        HashMap::default(),
        HashMap::default(),
        HashMap::default(),
        runtime,
    )
}

async fn run_partition(
    plan: Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> Result<Vec<RecordBatch>, Failure> {
    let stream = plan.execute(partition, context).map_err(from_datafusion)?;
    let filled = stream.try_filter(|rows| futures::future::ready(rows.num_rows() > 0));
    filled.try_collect().await.map_err(from_datafusion)
}
