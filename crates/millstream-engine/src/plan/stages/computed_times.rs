//! Event times that a subquery computes: `FROM (SELECT ...) WATERMARK ts DELAY OF ...`.
//!
//! The parser gives such a subquery a name of its own. Event times are noted where rows are read,
//! so the subquery's expression is rewritten over the source's columns: through projections, whose
//! expressions replace their names, and past filters.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, SubqueryAlias, col};
use datafusion::prelude::Column;

/// An event time over the columns of a stream.
#[derive(Debug)]
pub struct ComputedTime {
    /// The stream's name in the plan.
    pub stream: String,
    /// The time, over columns without a relation.
    pub time: Expr,
}

/// The expression of the column `column` of the subquery `alias`; `None` where there is none, or it
/// does not come from one stream's rows alone.
pub fn computed_time(plan: &LogicalPlan, alias: &str, column: &str) -> Option<ComputedTime> {
    let mut found = None;
    let visited = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::SubqueryAlias(subquery) = node
            && subquery.alias.table() == alias
        {
            found = time_in_subquery(subquery, column);
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visited.ok().and(found)
}

fn time_in_subquery(subquery: &SubqueryAlias, column: &str) -> Option<ComputedTime> {
    let mut fields = subquery.input.schema().fields().iter();
    let index = fields.position(|field| field.name().eq_ignore_ascii_case(column))?;
    let mut stream = None;
    let time = over_source(&subquery.input, index, &mut stream)?;
    // An expression without columns, as `current_timestamp()`, belongs to the stream that the
    // subquery reads.
    let stream = stream.or_else(|| stream_below(&subquery.input))?;
    Some(ComputedTime { stream, time })
}

/// The stream that a plan of projections and filters reads.
fn stream_below(plan: &LogicalPlan) -> Option<String> {
    match plan {
        LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) | LogicalPlan::Projection(_) => {
            plan.inputs().into_iter().find_map(stream_below)
        }
        LogicalPlan::TableScan(scan) => Some(scan.table_name.table().to_owned()),
        _ => None,
    }
}

/// A column of a plan as an expression over the columns of the one stream below.
fn over_source(plan: &LogicalPlan, index: usize, stream: &mut Option<String>) -> Option<Expr> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => over_source(&alias.input, index, stream),
        LogicalPlan::Filter(filter) => over_source(&filter.input, index, stream),
        LogicalPlan::Projection(projection) => {
            let expr = projection.expr.get(index)?.clone().unalias();
            let below = expr.transform(|part| match &part {
                Expr::Column(column) => {
                    let input: &Arc<LogicalPlan> = &projection.input;
                    let below = input.schema().maybe_index_of_column(column);
                    let below = below.and_then(|index| over_source(input, index, stream));
                    let below = below.ok_or_else(|| DataFusionError::Plan(String::new()))?;
                    Ok(Transformed::new(below, true, TreeNodeRecursion::Jump))
                }
                _ => Ok(Transformed::no(part)),
            });
            Some(below.ok()?.data)
        }
        LogicalPlan::TableScan(scan) => {
            let name = scan.table_name.table();
            let known = stream.get_or_insert_with(|| name.to_owned());
            let (_, field) = scan.projected_schema.qualified_field(index);
            (known == name).then(|| col(Column::new_unqualified(field.name())))
        }
        _ => None,
    }
}
