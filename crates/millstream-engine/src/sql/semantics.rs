//! Where Spark's operators and type names mean something else than DataFusion's.
//!
//! These are decided while DataFusion plans, when the types of the operands are known:
//!
//! - `/` of whole numbers gives a DOUBLE, `DIV` a BIGINT;
//! - `array[0]` is the first element;
//! - type names in casts are Spark's ([`super::types`]).

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr, TypePlanner,
};
use datafusion::logical_expr::{Expr, ExprSchemable, GetFieldAccess, Operator, cast, lit};
use datafusion::sql::sqlparser::ast::{self, BinaryOperator};

use super::types::parse_type_ddl;

/// Reads type names as Spark does.
#[derive(Debug)]
pub(super) struct SparkTypes;

impl TypePlanner for SparkTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        if matches!(sql_type, ast::DataType::Interval { .. }) {
            return Ok(None);
        }
        // sqlparser's spelling of a type it has read is again a type's name.
        let text = sql_type.to_string();
        match parse_type_ddl(&text) {
            Ok(data_type) => {
                Ok(Some(FieldRef::new(arrow::datatypes::Field::new("", data_type, true))))
            }
            Err(found) => {
                let help = found.0[0].help.clone().unwrap_or_default();
                plan_err!("there is no type `{text}` ({help})")
            }
        }
    }
}

/// Gives operators Spark's meaning.
#[derive(Debug)]
pub(super) struct SparkOperators;

impl ExprPlanner for SparkOperators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let whole = |side: &Expr| side.get_type(schema).is_ok_and(|found| found.is_integer());
        let to = match expr.op {
            BinaryOperator::Divide if whole(&expr.left) && whole(&expr.right) => DataType::Float64,
            BinaryOperator::MyIntegerDivide | BinaryOperator::DuckIntegerDivide => DataType::Int64,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let (left, right) = (cast(expr.left, to.clone()), cast(expr.right, to));
        let quotient = BinaryExpr::new(Box::new(left), Operator::Divide, Box::new(right));
        Ok(PlannerResult::Planned(Expr::BinaryExpr(quotient)))
    }

    fn plan_field_access(
        &self,
        mut expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let is_list = matches!(
            expr.expr.get_type(schema),
            Ok(DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
        );
        // The planner behind this one takes the index over; its first element is number 1.
        if is_list && let GetFieldAccess::ListIndex { key } = &mut expr.field_access {
            let index = std::mem::replace(key.as_mut(), lit(0_i64));
            **key = index + lit(1_i64);
        }
        Ok(PlannerResult::Original(expr))
    }
}
