//! What a subquery refers to outside of it, with the types that it has there by now.
//!
//! A reference keeps the type that its column had when the query was planned. A column whose type
//! follows from numbers in the text (`VALUES (5)`) has become an INT since then, and the comparison
//! within the subquery would be made for another type than that of its rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, ExprSchema as _, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery, Union};

/// `plan`, whose subqueries know the types of the columns around them. What is nearer counts where
/// two queries around one have a column of the same name, as it is changed last.
pub(super) fn refreshed(plan: LogicalPlan) -> Result<LogicalPlan> {
    let refreshed = plan.transform_down_with_subqueries(|plan| {
        let schema = merge_schema(&plan.inputs());
        plan.map_expressions(|expr| expr.transform_up(|expr| of_subquery(expr, &schema)))
    });
    Ok(refreshed?.data)
}

fn of_subquery(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let subquery = match &mut expr {
        Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. })
        | Expr::ScalarSubquery(subquery) => subquery,
        _ => return Ok(Transformed::no(expr)),
    };
    let is_old = subquery.outer_ref_columns.iter().any(|column| typed(column, schema).is_some());
    if !is_old {
        return Ok(Transformed::no(expr));
    }
    let plan = Arc::unwrap_or_clone(Arc::clone(&subquery.subquery));
    let plan = plan.transform_up_with_subqueries(|plan| {
        let plan = plan.map_expressions(|expr| {
            expr.transform_up(|expr| {
                Ok(typed(&expr, schema).map_or_else(|| Transformed::no(expr), Transformed::yes))
            })
        })?;
        // Types follow from those of the expressions and inputs.
        plan.map_data(|plan| match plan {
            LogicalPlan::Union(union) => {
                Ok(LogicalPlan::Union(Union::try_new_with_loose_types(union.inputs)?))
            }
            plan => plan.recompute_schema(),
        })
    })?;
    let outer_ref_columns = plan.data.all_out_ref_exprs();
    let spans = subquery.spans.clone();
    *subquery = Subquery { subquery: Arc::new(plan.data), outer_ref_columns, spans };
    Ok(Transformed::yes(expr))
}

/// A reference to a column of `schema` that has another type there.
fn typed(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::OuterReferenceColumn(field, column) = expr else { return None };
    let own = schema.field_from_column(column).ok()?;
    (own.data_type() != field.data_type())
        .then(|| Expr::OuterReferenceColumn(Arc::clone(own), column.clone()))
}
