//! Queries that read themselves (`WITH RECURSIVE`): what Spark refuses in them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, Result, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, RecursiveQuery};

use super::optimize::analyze;
use crate::types::spark_type;

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

/// Refuses queries whose rows so far are read twice once subqueries are joins: DataFusion hands
/// them out once.
pub(super) fn check_reads(plan: &LogicalPlan) -> Result<()> {
    each(plan, |query| {
        if reads(&query.recursive_term, &query.name)? <= 1 {
            return Ok(());
        }
        plan_err!(
            "a subquery of a recursive query cannot refer to the rows so far like this, which are \
             read once only; write it as a JOIN"
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
        _ if from.is_string() => {
            to.is_string() || matches!(to, DataType::Date32 | DataType::Timestamp(..))
        }
        _ if matches!((from, to), (DataType::Float32, DataType::Float64)) => true,
        // Whether elements may be NULL is no part of a type in SQL.
        _ => from.is_null() || spark_type(from) == spark_type(to),
    }
}
