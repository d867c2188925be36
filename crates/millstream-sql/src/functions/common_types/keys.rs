//! The types that keys are compared in: those of joins by USING and NATURAL, and the values of
//! `IN (SELECT ...)`, which stand in no operator that the rules of `=` would find.
//!
//! Keys stay as they are where DataFusion's common type gives the same answers, so that the plans
//! of streams do.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, JoinConstraint, Result};
use datafusion::logical_expr::binary::comparison_coercion;
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::expr_schema::cast_subquery;
use datafusion::logical_expr::{Expr, ExprSchemable, Join};

use super::pairs::fits;
use super::{cast_to, with_decimals};

/// The type that both sides are cast to, if they would be compared otherwise.
fn key_type(left: &DataType, right: &DataType) -> Option<DataType> {
    let common = with_decimals(&[left.clone(), right.clone()])?;
    let is_same = comparison_coercion(left, right).is_some_and(|own| {
        let fit = |of: &DataType| fits(of, &own) && fits(of, &common);
        own.equals_datatype(&common) || (fit(left) && fit(right))
    });
    (!is_same).then_some(common)
}

/// `join`, whose keys have the types that Spark compares them in. Its columns stay what they are.
pub(in crate::functions) fn with_key_types(mut join: Join) -> Result<Join> {
    let left_schema: &DFSchema = join.left.schema();
    let right_schema: &DFSchema = join.right.schema();
    let mut changes = false;
    for (left, right) in &mut join.on {
        let (Ok(left_type), Ok(right_type)) =
            (left.get_type(left_schema), right.get_type(right_schema))
        else {
            continue;
        };
        let Some(common) = key_type(&left_type, &right_type) else { continue };
        *left = cast_to(std::mem::take(left), &left_type, &common)?;
        *right = cast_to(std::mem::take(right), &right_type, &common)?;
        changes = true;
    }
    if changes {
        // The keys of USING must be columns; which of them are merged has been decided before.
        join.join_constraint = JoinConstraint::On;
    }
    Ok(join)
}

/// `value IN (SELECT ...)`, with both sides in the type that Spark compares them in.
pub(super) fn of_subquery(found: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let common = match (found.expr.get_type(schema), &found.subquery.subquery.schema().fields()[..])
    {
        (Ok(of), [only]) => key_type(&of, only.data_type()).map(|common| (of, common)),
        _ => None,
    };
    let Some((of, common)) = common else { return Ok(Expr::InSubquery(found)) };
    let InSubquery { expr, subquery, negated } = found;
    let subquery = cast_subquery(subquery, &common)?;
    let expr = Box::new(cast_to(*expr, &of, &common)?);
    Ok(Expr::InSubquery(InSubquery { expr, subquery, negated }))
}
