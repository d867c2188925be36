//! Queries that read themselves (`WITH RECURSIVE`): what Spark refuses in them, and how long they
//! go on.
//!
//! DataFusion runs the second part of such a query until it makes no more rows. Spark ends with an
//! error after a number of times, and of rows; [`LimitedRecursion`] has a plan do that, too. The
//! number of times stands in the query's name ([`levels`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{
    Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion,
};
use datafusion::common::{JoinType, Result, exec_err, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, RecursiveQuery};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt as _;

use super::optimize::analyze;
use crate::query::recursion::levels;
use crate::types::spark_type;

/// How many rows such a query makes at most.
const ROWS_MAX: usize = 1_000_000;

/// Refuses queries that read themselves where the rows that they have so far are not what matters:
/// in a subquery, below an aggregate, or on the side of a join that is filled with NULLs.
pub(super) fn check_places(plan: &LogicalPlan) -> Result<()> {
    each(plan, |query| {
        let (all, allowed) = (reads(&query.recursive_term, &query.name)?, passed_on(query));
        if all == 1 && allowed == 1 {
            return Ok(());
        }
        plan_err!(
            "a recursive query reads itself once, in a FROM clause: not in a subquery of an \
             expression, below DISTINCT, GROUP BY, ORDER BY or LIMIT, nor on the side of an OUTER, \
             SEMI or ANTI JOIN whose rows need not be there"
        )
    })
}

/// Refuses queries whose parts have other types: those of the first part hold.
pub(super) fn check_types(plan: &LogicalPlan, state: &SessionState) -> Result<()> {
    each(plan, |query| {
        let first = analyze(state, query.static_term.as_ref().clone())?;
        let rest = analyze(state, without_casts(&query.recursive_term)?)?;
        let planned = query.static_term.schema().fields().iter();
        let columns = planned.zip(first.schema().fields()).zip(rest.schema().fields());
        for ((planned, first), rest) in columns {
            let (name, of) = (first.name(), first.data_type());
            if planned.data_type() != of {
                let of = spark_type(of);
                return plan_err!(
                    "write the type of column `{name}` in the first part of the recursive query: \
                     CAST(... AS {of})"
                );
            }
            if !widens(rest.data_type(), of) {
                let (rest, of) = (spark_type(rest.data_type()), spark_type(of));
                return plan_err!(
                    "column `{name}` of the recursive query is {of} in its first part, and {rest} \
                     in the other before it is cast: CAST it in the first part, or in a subquery \
                     of the other"
                );
            }
        }
        Ok(())
    })
}

fn each(plan: &LogicalPlan, check: impl Fn(&RecursiveQuery) -> Result<()>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::RecursiveQuery(query) = node {
            check(query)?;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn is_read(plan: &LogicalPlan, name: &str) -> bool {
    matches!(plan, LogicalPlan::TableScan(scan) if scan.table_name.table() == name)
}

/// How often `plan` reads the table `name`.
fn reads(plan: &LogicalPlan, name: &str) -> Result<usize> {
    let mut count = 0;
    plan.apply_with_subqueries(|node| {
        count += usize::from(is_read(node, name));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(count)
}

/// How often the second part of a query reads the query where Spark allows it.
fn passed_on(query: &RecursiveQuery) -> usize {
    let (mut count, mut plans) = (0, vec![query.recursive_term.as_ref()]);
    while let Some(plan) = plans.pop() {
        match plan {
            LogicalPlan::Projection(node) => plans.push(&node.input),
            LogicalPlan::Filter(node) => plans.push(&node.input),
            LogicalPlan::SubqueryAlias(node) => plans.push(&node.input),
            LogicalPlan::Join(node) => match node.join_type {
                JoinType::Inner => plans.extend([node.left.as_ref(), node.right.as_ref()]),
                JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => plans.push(&node.left),
                JoinType::Right | JoinType::RightSemi | JoinType::RightAnti => {
                    plans.push(&node.right);
                }
                _ => {}
            },
            other => count += usize::from(is_read(other, &query.name)),
        }
    }
    count
}

/// The second part of a query without the casts to the types of the first.
fn without_casts(plan: &Arc<LogicalPlan>) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(node) = plan.as_ref() else { return Ok(plan.as_ref().clone()) };
    let exprs = node.expr.iter().enumerate().map(|(at, expr)| {
        let value = match expr {
            Expr::Alias(Alias { expr, .. }) => expr.as_ref(),
            other => other,
        };
        let value = match value {
            Expr::Cast(cast) => cast.expr.as_ref(),
            other => other,
        };
        value.clone().alias(format!("c{at}"))
    });
    let node = Projection::try_new(exprs.collect(), Arc::clone(&node.input))?;
    Ok(LogicalPlan::Projection(node))
}

/// Whether the common type of two columns is `to`.
fn widens(from: &DataType, to: &DataType) -> bool {
    let whole = |of: &DataType| match of {
        DataType::Int8 => Some(1),
        DataType::Int16 => Some(2),
        DataType::Int32 => Some(3),
        DataType::Int64 => Some(4),
        _ => None,
    };
    match (whole(from), whole(to)) {
        (Some(from), Some(to)) => from <= to,
        (Some(_), None) => *to == DataType::Float64,
        _ if matches!((from, to), (DataType::Float32, DataType::Float64)) => true,
        _ => from == to || from.is_null(),
    }
}

/// Has queries that read themselves end after Spark's number of times and rows.
#[derive(Debug)]
pub(crate) struct LimitedRecursion;

impl PhysicalOptimizerRule for LimitedRecursion {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let limited = |plan: Arc<dyn ExecutionPlan>| {
            let Some(query) = plan.downcast_ref::<RecursiveQueryExec>() else {
                return Ok(Transformed::no(plan));
            };
            let levels = levels(query.name()).map_or(0, |levels| levels as usize);
            let made = Arc::new(Made::default());
            let part = |part: &Arc<dyn ExecutionPlan>, levels: Option<usize>| {
                let (plan, made) = (Arc::clone(part), Arc::clone(&made));
                Arc::new(Part { plan, levels, made }) as Arc<dyn ExecutionPlan>
            };
            let parts =
                vec![part(query.static_term(), None), part(query.recursive_term(), Some(levels))];
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Arc::clone(&plan).replace_children(parts, options).map(Transformed::yes)
        };
        plan.transform_up(limited).data()
    }

    fn name(&self) -> &str {
        "limited_recursion"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What a query that reads itself has made so far.
#[derive(Debug, Default)]
struct Made {
    levels: AtomicUsize,
    rows: AtomicUsize,
}

/// One part of a query that reads itself.
#[derive(Debug)]
struct Part {
    plan: Arc<dyn ExecutionPlan>,
    /// How often it may run; `None` for the first part, with which all begins.
    levels: Option<usize>,
    made: Arc<Made>,
}

impl DisplayAs for Part {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.levels {
            None => f.write_str("RecursionBegin"),
            Some(levels) => write!(f, "RecursionLimit: levels={levels}"),
        }
    }
}

impl ExecutionPlan for Part {
    fn name(&self) -> &str {
        "RecursionLimit"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (levels, made) = (self.levels, Arc::clone(&self.made));
        Ok(Arc::new(Self { plan: children.swap_remove(0), levels, made }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        match self.levels {
            None => {
                self.made.levels.store(0, Ordering::Relaxed);
                self.made.rows.store(0, Ordering::Relaxed);
            }
            Some(levels) if self.made.levels.fetch_add(1, Ordering::Relaxed) >= levels => {
                return exec_err!(
                    "a recursive query goes on after {levels} levels: end it by a condition, or \
                     write MAX RECURSION LEVEL n behind its name"
                );
            }
            Some(_) => {}
        }
        let rows = self.plan.execute(partition, context)?;
        let (schema, made) = (rows.schema(), Arc::clone(&self.made));
        let rows = rows.map(move |rows| {
            let rows = rows?;
            let before = made.rows.fetch_add(rows.num_rows(), Ordering::Relaxed);
            if before.saturating_add(rows.num_rows()) > ROWS_MAX {
                return exec_err!("a recursive query makes more than {ROWS_MAX} rows");
            }
            Ok(rows)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
