//! Dropping the counters that a plan's nodes gather while it runs.
//!
//! Every run of a DataFusion plan adds counters to each of its nodes (some dozens of allocations a
//! run), which nobody reads here and which stay until the node is dropped. A plan that runs a
//! hundred times a second gathers tens of megabytes a minute, and dropping a minute's counters at
//! once holds a micro-batch up by a fifth of a second. So the nodes are made anew. How often
//! depends on what else they keep ([`Kept`]):
//!
//! - Most plans keep nothing from one run to the next but the counters. They are renewed after a
//!   few runs, by the thread that runs them: some microseconds each time.
//! - A plan that joins static rows keeps what it made of them, a hash table for instance, which
//!   may be large. Its successor is made aside after many runs, hash tables included, and takes
//!   over between two micro-batches; the old plan is dropped aside too. The values of subqueries
//!   are computed in the successor's first run.
//! - Where a join collects rows of a stream, they belong to one micro-batch and must be dropped
//!   before the next: such a plan is made anew for every run.

use std::sync::{Arc, OnceLock};

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec,
};
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use futures::TryStreamExt;
use millstream_store::env::Env;

use super::stream_scan::StreamScan;

/// Runs after which a plan that keeps nothing but counters is made anew.
const RUNS: u32 = 32;
/// Runs after which a plan with static rows is made anew: by then its counters take some ten
/// megabytes.
const RUNS_WITH_STATIC_ROWS: u32 = 4_000;

/// What a plan's first run leaves for those that follow, beside counters. Where there are several
/// kinds, the one that is last here decides.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Nothing,
    StaticRows,
    /// Values of subqueries over static rows. They are kept beside the plan in a place that its
    /// successor shares, so the successor can only be made while the plan does not run.
    Values,
    RowsOfStreams,
}

/// When a plan is made anew, and its successor while that is being made.
#[derive(Clone)]
pub(super) struct Renewal {
    kept: Kept,
    runs: u32,
    /// Filled in once it is ready.
    successor: Option<Successor>,
}

type Successor = Arc<OnceLock<Result<Arc<dyn ExecutionPlan>>>>;

impl Renewal {
    /// For a plan that has not run yet.
    pub(super) fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        Self { kept: kept_by(plan), runs: 0, successor: None }
    }

    /// To be called before each run: where `plan`'s successor is due, and ready, puts it in its
    /// place. One with static rows has read them by then.
    pub(super) fn before_run(
        &mut self,
        env: &Env,
        plan: &mut Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<()> {
        let runs = match self.kept {
            Kept::Nothing => RUNS,
            Kept::StaticRows | Kept::Values => RUNS_WITH_STATIC_ROWS,
            Kept::RowsOfStreams => 1,
        };
        self.runs += 1;
        if self.runs <= runs {
            return Ok(());
        }
        match self.kept {
            Kept::Nothing | Kept::RowsOfStreams => *plan = reset_plan_states(Arc::clone(plan))?,
            Kept::Values => replace(env, plan, reset_plan_states(Arc::clone(plan))?),
            Kept::StaticRows => {
                let successor = self.successor.get_or_insert_with(|| prepare(env, plan, context));
                match successor.get() {
                    None => return Ok(()),
                    Some(Ok(ready)) => replace(env, plan, Arc::clone(ready)),
                    // The present plan still works; its counters are dropped at the next attempt.
                    Some(Err(error)) => tracing::warn!(%error, "a plan could not be made anew"),
                }
            }
        }
        (self.runs, self.successor) = (1, None);
        Ok(())
    }
}

/// Puts `successor` in the place of `plan`, whose counters take long to drop.
fn replace(env: &Env, plan: &mut Arc<dyn ExecutionPlan>, successor: Arc<dyn ExecutionPlan>) {
    let old = std::mem::replace(plan, successor);
    env.spawn_blocking("plan-drop", move || drop(old));
}

fn kept_by(plan: &Arc<dyn ExecutionPlan>) -> Kept {
    let mut kept = Kept::Nothing;
    let _ = plan.apply(|node| {
        let (node_keeps, collected) = collected_by(node);
        for collected in collected {
            let streams = collected.exists(|leaf| Ok(leaf.downcast_ref::<StreamScan>().is_some()));
            kept = kept.max(if streams? { Kept::RowsOfStreams } else { node_keeps });
        }
        Ok(TreeNodeRecursion::Continue)
    });
    kept
}

/// The children whose rows `node` collects once, in its first run, and what it keeps of static
/// ones.
fn collected_by(node: &Arc<dyn ExecutionPlan>) -> (Kept, Vec<&Arc<dyn ExecutionPlan>>) {
    let mut children = node.children();
    if node.downcast_ref::<ScalarSubqueryExec>().is_some() {
        return (Kept::Values, children.split_off(1));
    }
    // What has been found to be too large for the first rows of an order is that of one run.
    let is_top = node.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_some());
    let joins = node.downcast_ref::<HashJoinExec>().is_some()
        || node.downcast_ref::<CrossJoinExec>().is_some()
        || node.downcast_ref::<NestedLoopJoinExec>().is_some()
        || node.downcast_ref::<PiecewiseMergeJoinExec>().is_some();
    children.truncate(usize::from(joins || is_top));
    (Kept::StaticRows, children)
}

fn prepare(env: &Env, plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Successor {
    let ready = Successor::default();
    let (filled, plan, context) = (Arc::clone(&ready), Arc::clone(plan), Arc::clone(context));
    env.spawn_on_own_thread("plan-renewal", async move {
        let successor = async {
            let successor = reset_plan_states(plan)?;
            build_hash_tables(&successor, &context).await?;
            Ok(successor)
        };
        let _ = filled.set(successor.await);
    });
    ready
}

/// Has every hash join of `plan` build its table, without reading anything of its other side.
///
/// A join with the same build side shares the hash table whatever its probe side is, so each join
/// is run with an empty probe side.
async fn build_hash_tables(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<()> {
    let mut probes = Vec::new();
    plan.apply(|node| {
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            let partitions = join.right().properties().partitioning.partition_count();
            let none = EmptyExec::new(join.right().schema()).with_partitions(partitions);
            let children = vec![Arc::clone(join.left()), Arc::new(none) as _];
            probes.push(join.builder().with_new_children(children)?.build_exec()?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    for probe in probes {
        for partition in 0..probe.properties().partitioning.partition_count() {
            let rows = probe.execute(partition, Arc::clone(context))?;
            rows.try_for_each(|_| futures::future::ready(Ok(()))).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::datasource::MemTable;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::api::source::Split;
    use crate::plan::QueryPlan;
    use crate::plan::session::streaming_config;
    use crate::plan::stateful_plan::InMemory;
    use crate::plan::stream_scan::{Slots, StreamTable};

    fn numbers(values: impl IntoIterator<Item = Option<i64>>) -> RecordBatch {
        let v: ArrayRef = Arc::new(values.into_iter().collect::<Int64Array>());
        let schema = Schema::new(vec![Field::new("v", DataType::Int64, true)]);
        RecordBatch::try_new(Arc::new(schema), vec![v]).unwrap()
    }

    const STATIC_ROWS: usize = 100;

    /// A query over the stream `t` and the table `o`, which holds 0 to 99.
    async fn plan(query: &str) -> QueryPlan {
        let state = SessionStateBuilder::new()
            .with_config(streaming_config())
            .with_default_features()
            .build();
        let context = SessionContext::new_with_state(state);
        let (slots, schema) = (Slots::new(2), numbers([]).schema());
        let table = StreamTable::new("t".to_owned(), Arc::clone(&schema), Arc::clone(&slots));
        context.register_table("t", Arc::new(table)).unwrap();
        let rows = numbers((0..STATIC_ROWS as i64).map(Some));
        let table = MemTable::try_new(schema, vec![vec![rows]]).unwrap();
        context.register_table("o", Arc::new(table)).unwrap();
        let logical = context.sql(query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
        let (state, logical) = logical.into_parts();
        QueryPlan::new(state, logical, vec![slots]).await.unwrap()
    }

    /// The first column of what the plan makes of one micro-batch, sorted.
    async fn run(plan: &mut QueryPlan, env: &Env, values: &[Option<i64>]) -> Vec<Option<i64>> {
        let split: Box<dyn Split> =
            Box::new(InMemory(vec![numbers(values.iter().copied())], Arc::default()));
        let partitions = plan.run(env, vec![vec![split]]).await.unwrap();
        let mut found = Vec::new();
        for rows in partitions.iter().flatten() {
            let column = rows.column(0).as_any().downcast_ref::<Int64Array>().unwrap();
            found.extend(column.iter());
        }
        found.sort();
        found
    }

    fn counters(plan: &QueryPlan) -> usize {
        let mut counters = 0;
        let count = |node: &Arc<dyn ExecutionPlan>| {
            counters += node.metrics().map_or(0, |metrics| metrics.iter().count());
            Ok(TreeNodeRecursion::Continue)
        };
        plan.physical().apply(count).unwrap();
        counters
    }

    /// Rows that hash joins of the plan have put into their tables since their nodes were made.
    fn rows_hashed(plan: &Arc<dyn ExecutionPlan>) -> usize {
        let mut hashed = 0;
        let add = |node: &Arc<dyn ExecutionPlan>| {
            if let (Some(_), Some(metrics)) = (node.downcast_ref::<HashJoinExec>(), node.metrics())
            {
                let rows = metrics.sum_by_name("build_input_rows");
                hashed += rows.map_or(0, |rows| rows.as_usize());
            }
            Ok(TreeNodeRecursion::Continue)
        };
        plan.apply(add).unwrap();
        hashed
    }

    #[tokio::test]
    async fn counters_of_a_few_runs_are_all_there_is() {
        let env = Env::real();
        for query in [
            "SELECT max(v) FROM t",
            "SELECT v FROM t UNION ALL SELECT v + 1 FROM t",
            "SELECT count(*) AS n FROM t WHERE v > 1 GROUP BY v % 2",
            "SELECT v FROM t WHERE v NOT IN (SELECT v FROM o)",
        ] {
            let mut plan = plan(query).await;
            let first = run(&mut plan, &env, &[Some(1), Some(700)]).await;
            let of_one_run = counters(&plan);
            assert!(of_one_run > 0, "{query} runs without counters: not a case for this test");
            for _ in 0..3 * RUNS {
                assert_eq!(run(&mut plan, &env, &[Some(1), Some(700)]).await, first, "{query}");
                let now = counters(&plan);
                assert!(now <= of_one_run * RUNS as usize, "{query}: {now} counters");
            }
        }
    }

    #[tokio::test]
    async fn a_plan_with_static_rows_is_followed_by_one_that_has_read_them() {
        let env = Env::real();
        let mut plan = plan("SELECT t.v FROM t JOIN o ON t.v = o.v").await;
        for _ in 0..RUNS_WITH_STATIC_ROWS {
            assert_eq!(run(&mut plan, &env, &[Some(7), Some(700)]).await, [Some(7)]);
        }
        assert_eq!(rows_hashed(plan.physical()), STATIC_ROWS, "hashed in the first run only");
        run_until_renewed(&mut plan, &env).await;
        assert_eq!(rows_hashed(plan.physical()), STATIC_ROWS);
    }

    /// Runs a plan that lets 7 through and 700 not, until its nodes are new.
    async fn run_until_renewed(plan: &mut QueryPlan, env: &Env) {
        let before = counters(plan);
        for _ in 0..1_000 {
            assert_eq!(run(plan, env, &[Some(7), Some(700)]).await, [Some(7)]);
            if counters(plan) < before / 10 {
                return;
            }
            env.sleep(Duration::from_millis(10)).await;
        }
        panic!("the plan was not renewed; it has {} counters", counters(plan));
    }

    #[tokio::test]
    async fn values_of_subqueries_are_there_before_and_after_a_renewal() {
        let env = Env::real();
        for query in [
            "SELECT v FROM t WHERE v < (SELECT max(v) FROM o)",
            "SELECT t.v FROM t JOIN o ON t.v = o.v WHERE t.v < (SELECT max(v) FROM o)",
        ] {
            let mut plan = plan(query).await;
            for _ in 0..RUNS_WITH_STATIC_ROWS {
                assert_eq!(run(&mut plan, &env, &[Some(7), Some(700)]).await, [Some(7)], "{query}");
            }
            run_until_renewed(&mut plan, &env).await;
            assert_eq!(run(&mut plan, &env, &[Some(7), Some(700)]).await, [Some(7)], "{query}");
        }
    }

    #[tokio::test]
    async fn a_hash_table_is_built_without_reading_the_other_side() {
        let plan = plan("SELECT t.v FROM t LEFT JOIN o ON t.v = o.v").await;
        let context = SessionContext::new().task_ctx();
        let fresh = reset_plan_states(Arc::clone(plan.physical())).unwrap();
        assert_eq!(rows_hashed(&fresh), 0);
        build_hash_tables(&fresh, &context).await.unwrap();
        assert_eq!(rows_hashed(&fresh), STATIC_ROWS);
        plan.scans()[0]
            .fill(vec![Box::new(InMemory(vec![numbers([Some(5), None])], Arc::default()))]);
        let rows = collect(Arc::clone(&fresh), context).await.unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
        assert_eq!(rows_hashed(&fresh), STATIC_ROWS, "the table was there already");
    }

    #[tokio::test]
    async fn rows_of_one_micro_batch_are_not_in_the_next() {
        let env = Env::real();
        let mut plan = plan("SELECT v FROM t WHERE v NOT IN (SELECT v FROM o)").await;
        let mut found = Vec::new();
        for first in [700, 800, 900] {
            found.push(run(&mut plan, &env, &[Some(first), Some(3), None]).await);
        }
        assert_eq!(found, [[Some(700)], [Some(800)], [Some(900)]]);
    }
}
