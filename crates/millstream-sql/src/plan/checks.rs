//! What Spark refuses in a plan and DataFusion would compute in a way of its own.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable as _, Limit, LogicalPlan, WindowFrame, WindowFrameBound,
    WindowFrameUnits,
};

/// Window functions whose result is a matter of the order.
const ORDERED: &[&str] =
    &["cume_dist", "dense_rank", "lag", "lead", "ntile", "percent_rank", "rank", "row_number"];
/// Aggregates that are over all rows of a partition, never over some around each row.
const OF_WHOLE_PARTITIONS: &[&str] = &["median", "percentile_cont", "percentile_disc"];

/// Refuses what has no answer in Spark.
pub(super) fn check(plan: &LogicalPlan, is_stream: fn(&LogicalPlan) -> bool) -> Result<()> {
    plan.apply_with_subqueries(|node| {
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
            LogicalPlan::Aggregate(aggregate) if !is_stream(&aggregate.input) => {
                group_keys(aggregate)?;
            }
            LogicalPlan::Limit(limit) => not_null(limit)?,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Maps are equal in Spark whatever the order of their entries is; here they would be groups of
/// their own.
fn group_keys(aggregate: &Aggregate) -> Result<()> {
    for key in grouping_set_to_exprlist(&aggregate.group_expr)? {
        if holds_map(&key.get_type(aggregate.input.schema())?) {
            return plan_err!(
                "GROUP BY of a MAP is not supported: group by array_sort(map_entries(m)), in which \
                 entries have an order"
            );
        }
    }
    Ok(())
}

fn holds_map(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(..) => true,
        DataType::List(element) => holds_map(element.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_map(field.data_type())),
        _ => false,
    }
}

fn window_function(function: &WindowFunction) -> Result<()> {
    let (name, params) = (function.fun.name(), &function.params);
    if ORDERED.contains(&name) && params.order_by.is_empty() {
        return plan_err!(
            "the window function {name}() requires its window to be ordered: add ORDER BY to it"
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
    let frame = &params.window_frame;
    for bound in [&frame.start_bound, &frame.end_bound] {
        let (WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by)) = bound else {
            continue;
        };
        if frame.units == WindowFrameUnits::Rows && is_beyond_int(by) {
            return plan_err!("the bounds of ROWS are INTs, and {by} is none");
        }
    }
    Ok(())
}

fn is_whole(frame: &WindowFrame) -> bool {
    let unbounded = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => by.is_null(),
        WindowFrameBound::CurrentRow => frame.units == WindowFrameUnits::Range,
    };
    unbounded(&frame.start_bound) && unbounded(&frame.end_bound)
}

fn is_below_one(value: &ScalarValue) -> bool {
    value.to_string().parse::<i64>().is_ok_and(|value| value < 1)
}

fn is_beyond_int(value: &ScalarValue) -> bool {
    value.to_string().parse::<i64>().is_ok_and(|value| i32::try_from(value).is_err())
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
