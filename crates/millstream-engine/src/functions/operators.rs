//! Operators that mean something else in Spark than in DataFusion.
//!
//! With ANSI mode on, arithmetic on whole numbers that overflows is an error; DataFusion's would
//! give the remainder modulo a power of two.

use std::sync::Arc;

use arrow::array::{Datum, Scalar};
use arrow::compute::kernels::numeric;
use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, exec_datafusion_err};
use datafusion::logical_expr::expr::{BinaryExpr, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::define::call;

/// Plans `/` as a division of doubles, whole numbers included, and `DIV` as one of whole numbers;
/// and `map(key, value, ...)` as Spark's.
#[derive(Debug)]
pub(super) struct SparkOperators {
    pub divide: Arc<ScalarUDF>,
    pub map: Arc<ScalarUDF>,
}

impl ExprPlanner for SparkOperators {
    fn plan_make_map(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let call = ScalarFunction::new_udf(Arc::clone(&self.map), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }

    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_decimal = |side: &Expr| {
            matches!(side.get_type(schema), Ok(DataType::Decimal128(..) | DataType::Decimal256(..)))
        };
        let is_double = |side: &Expr| {
            side.get_type(schema).is_ok_and(|found| found.is_floating() || found.is_string())
        };
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

/// `+`, `-` or `*` of whole numbers, in the type of the wider one: what the planner itself puts
/// together, as the days of a date times the seconds of a day, may be of two.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operator: Operator,
    signature: Signature,
}

fn wider(types: &[DataType]) -> &DataType {
    let width = |data_type: &DataType| data_type.primitive_width();
    if width(&types[0]) < width(&types[1]) { &types[1] } else { &types[0] }
}

/// `left operator right`, checked, where the operator is `+`, `-` or `*`.
pub(super) fn checked(left: Expr, operator: Operator, right: Expr) -> Expr {
    let signature = Signature::any(2, Volatility::Immutable);
    let udf = Arc::new(ScalarUDF::from(Checked { operator, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(udf, vec![left, right]))
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operator {
            Operator::Plus => "checked_add",
            Operator::Minus => "checked_subtract",
            _ => "checked_multiply",
        }
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(format!("{} {} {}", args[0], self.operator, args[1]))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        Ok(format!("{} {} {}", args[0].schema_name(), self.operator, args[1].schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        Ok(wider(args).clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| {
            let sides = [arguments.array(0), arguments.array(1)];
            let types = sides.each_ref().map(|(array, _)| array.data_type().clone());
            let wider = wider(&types);
            let side = |at: usize| -> Result<Box<dyn Datum>> {
                let (array, constant) = sides[at];
                let array = arrow::compute::cast(&array, wider)?;
                Ok(if constant { Box::new(Scalar::new(array)) } else { Box::new(array) })
            };
            let (left, right) = (side(0)?, side(1)?);
            let result = match self.operator {
                Operator::Plus => numeric::add(left.as_ref(), right.as_ref()),
                Operator::Minus => numeric::sub(left.as_ref(), right.as_ref()),
                _ => numeric::mul(left.as_ref(), right.as_ref()),
            };
            result.map_err(|error| {
                exec_datafusion_err!("{error}; cast to a wider type to avoid the overflow")
            })
        })
    }
}
