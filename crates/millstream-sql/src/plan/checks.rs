//! What Spark refuses in a plan and DataFusion would compute in a way of its own.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr, Join, Limit, LogicalPlan, Projection, Sort, WindowFrame, WindowFrameBound,
    WindowFrameUnits,
};

use super::map_keys;
use super::subqueries::{is_correlated, outer_columns, subquery_of};
use crate::functions::random::is_random;

/// Window functions whose result is a matter of the order.
const ORDERED: &[&str] =
    &["cume_dist", "dense_rank", "lag", "lead", "ntile", "percent_rank", "rank", "row_number"];
/// Aggregates that are over all rows of a partition, never over some around each row.
const OF_WHOLE_PARTITIONS: &[&str] = &["median", "percentile_cont", "percentile_disc"];

/// Refuses what has no answer in Spark.
pub(super) fn check(plan: &LogicalPlan, is_stream: fn(&LogicalPlan) -> bool) -> Result<()> {
    let is_at_rest = !is_stream(plan);
    plan.apply_with_subqueries(|node| {
        if is_at_rest {
            map_keys::check(node)?;
        }
        match node {
            LogicalPlan::Window(window) => {
                for expr in &window.window_expr {
                    expr.apply(|expr| {
                        if let Expr::WindowFunction(function) = expr {
                            window_function(function)?;
                        }
                        Ok(TreeNodeRecursion::Continue)
                    })?;
                }
            }
            LogicalPlan::Projection(projection) => of_groups(projection)?,
            LogicalPlan::Limit(limit) => not_null(limit)?,
            LogicalPlan::Sort(sort) => sort_keys(sort)?,
            LogicalPlan::Join(join) => join_condition(join)?,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn window_function(function: &WindowFunction) -> Result<()> {
    let (name, params) = (function.fun.name(), &function.params);
    if ORDERED.contains(&name) && params.order_by.is_empty() {
        return plan_err!(
            "the window function {name}() requires its window to be ordered: add ORDER BY to it"
        );
    }
    if ORDERED.contains(&name) && !is_up_to_current(&params.window_frame) {
        return plan_err!(
            "the window function {name}() takes no frame: leave ROWS or RANGE out, or write \
             another function"
        );
    }
    if params.distinct {
        return plan_err!(
            "DISTINCT is not possible in a window function: {name}(DISTINCT ...) OVER"
        );
    }
    if OF_WHOLE_PARTITIONS.contains(&name)
        && (!params.order_by.is_empty() || !is_whole(&params.window_frame))
    {
        return plan_err!("{name} OVER a window takes PARTITION BY only, no ORDER BY and no frame");
    }
    if name == "nth_value"
        && matches!(params.args.get(1), Some(Expr::Literal(at, _)) if is_below_one(at))
    {
        return plan_err!("the second argument of nth_value must be 1 or more");
    }
    Ok(())
}

/// Whether a frame is the one that a window with an order has if none is said.
fn is_up_to_current(frame: &WindowFrame) -> bool {
    frame.start_bound.is_unbounded() && frame.end_bound == WindowFrameBound::CurrentRow
}

fn is_whole(frame: &WindowFrame) -> bool {
    let unbounded = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => by.is_null(),
        WindowFrameBound::CurrentRow => frame.units == WindowFrameUnits::Range,
    };
    unbounded(&frame.start_bound) && unbounded(&frame.end_bound)
}

/// A SELECT with groups has for each of them its keys and its aggregates, and no row around it or
/// in it that a subquery could be about.
fn of_groups(projection: &Projection) -> Result<()> {
    let is_grouped = match projection.input.as_ref() {
        LogicalPlan::Aggregate(_) => true,
        LogicalPlan::Filter(having) => matches!(*having.input, LogicalPlan::Aggregate(_)),
        _ => false,
    };
    if !is_grouped {
        return Ok(());
    }
    for expr in &projection.expr {
        expr.apply(|part| match part {
            Expr::ScalarSubquery(subquery) if is_correlated(&subquery.subquery)? => plan_err!(
                "beside GROUP BY or an aggregate a subquery that refers to the rows has to be \
                     one of the keys, or within an aggregate \
                     (SCALAR_SUBQUERY_IS_IN_GROUP_BY_OR_AGGREGATE_FUNCTION): add it to GROUP BY, \
                     or write it in a query around this one"
            ),
            Expr::OuterReferenceColumn(_, column) => plan_err!(
                "`{}` is a column outside of a subquery that has aggregates, which only its \
                     WHERE can refer to (CORRELATED_REFERENCE): compute with it outside of the \
                     subquery",
                column.name
            ),
            _ => Ok(TreeNodeRecursion::Continue),
        })?;
    }
    Ok(())
}

fn is_below_one(value: &ScalarValue) -> bool {
    value.to_string().parse::<i64>().is_ok_and(|value| value < 1)
}

/// Spark sorts by values that it has for each row already.
fn sort_keys(sort: &Sort) -> Result<()> {
    for key in &sort.expr {
        key.expr.apply(|expr| {
            let is_refused = match expr {
                Expr::Exists(_) | Expr::InSubquery(_) => true,
                Expr::ScalarSubquery(subquery) => is_correlated(&subquery.subquery)?,
                _ => false,
            };
            if is_refused {
                return plan_err!(
                    "ORDER BY takes no IN (SELECT ...), no EXISTS, and no subquery that refers to \
                     the rows: give it a name in the SELECT list, and order by that"
                );
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    Ok(())
}

/// A condition is about pairs of rows, which Spark makes in no certain order and number.
fn join_condition(join: &Join) -> Result<()> {
    let Some(condition) = &join.filter else { return Ok(()) };
    if is_random(condition)? {
        return plan_err!(
            "the condition of a JOIN cannot have a value that is another one each time: compute it \
             in a subquery in FROM"
        );
    }
    let (left, right) = (join.left.schema(), join.right.schema());
    condition.apply(|expr| {
        let Some(subquery) = subquery_of(expr) else { return Ok(TreeNodeRecursion::Continue) };
        let outer = outer_columns(&subquery.subquery)?;
        let is_of_left = outer.iter().any(|column| left.has_column(column));
        let is_of_right = outer.iter().any(|column| right.has_column(column));
        if matches!(expr, Expr::ScalarSubquery(_)) && (is_of_left || is_of_right) {
            return plan_err!(
                "a subquery that is a value cannot refer to the rows in the condition of a JOIN: \
                 write it in WHERE"
            );
        }
        if is_of_left && is_of_right {
            return plan_err!(
                "a subquery in the condition of a JOIN can refer to columns of one side only: \
                 write it in WHERE"
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn not_null(limit: &Limit) -> Result<()> {
    for count in [&limit.fetch, &limit.skip].into_iter().flatten() {
        let is_null =
            count.exists(|part| Ok(matches!(part, Expr::Literal(value, _) if value.is_null())))?;
        if is_null {
            return plan_err!("the number of rows of LIMIT or OFFSET must not be NULL");
        }
    }
    Ok(())
}
