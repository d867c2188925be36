//! Operators that mean something else in Spark than in DataFusion.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DFSchema, Result, plan_datafusion_err};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, TypePlanner};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, ScalarUDF, cast};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator};

use super::types::schema_of;

/// Plans `/` as a division of doubles, whole numbers included, and `DIV` as one of whole numbers.
#[derive(Debug)]
pub(super) struct SparkArithmetic {
    pub divide: Arc<ScalarUDF>,
}

impl ExprPlanner for SparkArithmetic {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_decimal = |side: &Expr| {
            matches!(side.get_type(schema), Ok(DataType::Decimal128(..) | DataType::Decimal256(..)))
        };
        let is_double = |side: &Expr| matches!(side.get_type(schema), Ok(found) if found.is_floating() || found.is_string());
        let is_number = |side: &Expr| {
            side.get_type(schema).is_ok_and(|found| {
                found.is_numeric() || found.is_string() || found == DataType::Null
            })
        };
        match expr.op {
            BinaryOperator::Divide if is_number(&expr.left) && is_number(&expr.right) => {
                let decimals = is_decimal(&expr.left) || is_decimal(&expr.right);
                if decimals && !is_double(&expr.left) && !is_double(&expr.right) {
                    return Ok(PlannerResult::Original(expr));
                }
                let sides = [expr.left, expr.right].map(|side| cast(side, DataType::Float64));
                let call = ScalarFunction::new_udf(Arc::clone(&self.divide), sides.to_vec());
                Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
            }
            BinaryOperator::MyIntegerDivide | BinaryOperator::DuckIntegerDivide => {
                let side = |side| Box::new(cast(side, DataType::Int64));
                let quotient = BinaryExpr::new(side(expr.left), Operator::Divide, side(expr.right));
                Ok(PlannerResult::Planned(Expr::BinaryExpr(quotient)))
            }
            _ => Ok(PlannerResult::Original(expr)),
        }
    }
}

/// Reads the type names in casts as Spark does.
#[derive(Debug)]
pub(super) struct SparkTypes;

impl TypePlanner for SparkTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        if matches!(sql_type, ast::DataType::Interval { .. }) {
            return Ok(None);
        }
        let data_type = schema_of(&sql_type.to_string())
            .map_err(|error| plan_datafusion_err!("there is no type {sql_type}: {error}"))?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}
