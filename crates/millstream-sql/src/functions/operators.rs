//! Operators whose meaning differs between Spark and DataFusion.
//!
//! With ANSI mode on, arithmetic on whole numbers that overflows is an error; DataFusion's wraps
//! around.

use std::sync::Arc;

use arrow::array::{Datum, Scalar};
use arrow::compute::kernels::numeric;
use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, exec_datafusion_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr,
};
use datafusion::logical_expr::type_coercion::{is_interval, is_signed_numeric, is_timestamp};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, GetFieldAccess, Operator, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, cast,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::collections::literal_map;
use super::common_types::planned as planned_decimal;
use super::decimals::Operation;
use super::define::call;
use super::{division, interval_arithmetic, settled, spans, times_of_day};
use crate::types::spark_type;

/// What `-a` is written as, with NULL on its other side: only operators of two values are planned
/// here, and DataFusion's own `-` takes no INTERVALs of days and less.
pub(crate) const NEGATED: &str = "__negated";

/// Plans `/` as a division of doubles, whole numbers included, and `DIV` as a function of its own;
/// and `map(key, value, ...)` as Spark's.
#[derive(Debug)]
pub(super) struct SparkOperators {
    pub map: Arc<ScalarUDF>,
    pub whole_division: Arc<ScalarUDF>,
    pub concat: Arc<ScalarUDF>,
    pub substring: Arc<ScalarUDF>,
    pub overlay: Arc<ScalarUDF>,
    pub instr: Arc<ScalarUDF>,
    pub at_index: Arc<ScalarUDF>,
    pub element_at: Arc<ScalarUDF>,
    pub date_part: Arc<ScalarUDF>,
    pub date_difference: Arc<ScalarUDF>,
    pub date_moved: Arc<ScalarUDF>,
    pub interval_multiply: Arc<ScalarUDF>,
    pub interval_divide: Arc<ScalarUDF>,
    pub negative: Arc<ScalarUDF>,
}

/// Whether `key` is computed of columns, and of the type of the keys of `of`, a map.
fn is_computed_key(of: &Result<DataType>, key: &Expr, schema: &DFSchema) -> bool {
    let (Ok(DataType::Map(entries, _)), Ok(given)) = (of, key.get_type(schema)) else {
        return false;
    };
    let DataType::Struct(parts) = entries.data_type() else { return false };
    let own = parts[0].data_type();
    let fits = given == *own || (given.is_integer() && own.is_integer());
    fits && (key.contains_outer() || !key.column_refs().is_empty())
}

fn planned(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args))
}

impl ExprPlanner for SparkOperators {
    fn plan_make_map(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        if let Some(literal) = literal_map(&args) {
            return Ok(PlannerResult::Planned(literal));
        }
        Ok(PlannerResult::Planned(planned(&self.map, args)))
    }

    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(planned(&self.substring, args)))
    }

    /// `array[index]`, which counts from 0, and `map[key]` where the key is not the same in all
    /// rows, as DataFusion wants it.
    fn plan_field_access(
        &self,
        expr: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let of = expr.expr.get_type(schema);
        match expr.field_access {
            GetFieldAccess::ListIndex { key } if matches!(of, Ok(DataType::List(_))) => {
                Ok(PlannerResult::Planned(planned(&self.at_index, vec![expr.expr, *key])))
            }
            GetFieldAccess::ListIndex { key } if is_computed_key(&of, &key, schema) => {
                Ok(PlannerResult::Planned(planned(&self.element_at, vec![expr.expr, *key])))
            }
            _ => Ok(PlannerResult::Original(expr)),
        }
    }

    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(planned(&self.date_part, args)))
    }

    fn plan_position(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(planned(&self.instr, args)))
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(planned(&self.overlay, args)))
    }

    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let expr = settled::sides(expr, schema)?;
        if matches!(&expr.op, BinaryOperator::Custom(op) if op.as_str() == NEGATED) {
            return Ok(PlannerResult::Planned(negated(expr.left, &self.negative, schema)?));
        }
        times_of_day::check_operator(&expr, schema)?;
        let expr = match spans::planned(expr, schema, [&self.date_difference, &self.date_moved]) {
            spans::Planned::Done(expr) => return Ok(PlannerResult::Planned(expr)),
            spans::Planned::Original(expr) => expr,
        };
        let scaled = [&self.interval_multiply, &self.interval_divide];
        if let Some(scaled) = interval_arithmetic::planned(&expr, schema, scaled) {
            return Ok(PlannerResult::Planned(scaled));
        }
        let of = |side: &Expr| side.get_type(schema);
        let is_text = |side: &Expr| of(side).is_ok_and(|found| found.is_string());
        let is_number = |side: &Expr| {
            of(side).is_ok_and(|found| found.is_numeric() || found.is_string() || found.is_null())
        };
        let numbers = is_number(&expr.left) && is_number(&expr.right);
        if let Some(operation) = arithmetic(&expr.op).filter(|_| numbers) {
            if let Some(decimal) = planned_decimal(&expr.left, operation, &expr.right, schema) {
                return Ok(PlannerResult::Planned(decimal));
            }
            if is_text(&expr.left) && is_text(&expr.right) {
                return plan_err!(
                    "`{}` takes numbers and got STRING and STRING (DATATYPE_MISMATCH); cast one \
                     of them",
                    expr.op
                );
            }
            if operation == Operation::Divide {
                let [left, right] = [expr.left, expr.right].map(|side| match is_text(&side) {
                    true => cast(side, DataType::Float64),
                    false => side,
                });
                return Ok(PlannerResult::Planned(division::of(left, right)));
            }
            if is_text(&expr.left) || is_text(&expr.right) {
                return Ok(PlannerResult::Original(with_numbers_of_text(expr, schema)));
            }
        }
        match expr.op {
            _ if compares(&expr.op) => {
                Ok(PlannerResult::Original(with_booleans_of_text(expr, schema)))
            }
            BinaryOperator::StringConcat => {
                Ok(PlannerResult::Planned(planned(&self.concat, vec![expr.left, expr.right])))
            }
            BinaryOperator::MyIntegerDivide | BinaryOperator::DuckIntegerDivide => {
                if is_text(&expr.left) && is_text(&expr.right) {
                    return plan_err!(
                        "`div` takes numbers and got STRING and STRING (DATATYPE_MISMATCH); cast \
                         one of them"
                    );
                }
                let sides = vec![expr.left, expr.right];
                Ok(PlannerResult::Planned(planned(&self.whole_division, sides)))
            }
            _ => {
                check_bits(&expr, schema)?;
                Ok(PlannerResult::Original(expr))
            }
        }
    }
}

/// `-value`, where a text is a DOUBLE.
fn negated(value: Expr, negative: &Arc<ScalarUDF>, schema: &DFSchema) -> Result<Expr> {
    let (_, field) = value.to_field(schema)?;
    match field.data_type() {
        DataType::Duration(_) => Ok(planned(negative, vec![value])),
        of if of.is_string() => Ok(Expr::Negative(Box::new(cast(value, DataType::Float64)))),
        // A TIMESTAMP is refused with all others that DataFusion takes, when their types are known.
        of if of.is_null() || is_signed_numeric(of) || is_interval(of) || is_timestamp(of) => {
            Ok(Expr::Negative(Box::new(value)))
        }
        of => plan_err!("`-` takes a number or an INTERVAL, not a {}", spark_type(of)),
    }
}

/// Refuses `&`, `|` and `^` of numbers that are not whole ones.
fn check_bits(expr: &RawBinaryExpr, schema: &DFSchema) -> Result<()> {
    let is_of_bits = matches!(
        expr.op,
        BinaryOperator::BitwiseAnd
            | BinaryOperator::BitwiseOr
            | BinaryOperator::BitwiseXor
            | BinaryOperator::PGBitwiseXor
    );
    let is_wrong = |of: &DataType| of.is_floating() || matches!(of, DataType::Decimal128(..));
    let mut types = [&expr.left, &expr.right]
        .into_iter()
        .filter_map(|side| side.get_type(schema).ok().filter(is_wrong));
    match types.next().filter(|_| is_of_bits) {
        None => Ok(()),
        Some(wrong) => plan_err!(
            "`{}` takes whole numbers and got {} (DATATYPE_MISMATCH); cast it to BIGINT",
            expr.op,
            spark_type(&wrong)
        ),
    }
}

fn arithmetic(operator: &BinaryOperator) -> Option<Operation> {
    Some(match operator {
        BinaryOperator::Plus => Operation::Add,
        BinaryOperator::Minus => Operation::Subtract,
        BinaryOperator::Multiply => Operation::Multiply,
        BinaryOperator::Divide => Operation::Divide,
        BinaryOperator::Modulo => Operation::Remainder,
        _ => return None,
    })
}

/// Whether an operator of a plan compares its two sides.
pub(crate) fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn compares(operator: &BinaryOperator) -> bool {
    matches!(
        operator,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
            | BinaryOperator::Spaceship
    )
}

/// Text that is compared with a boolean is one.
fn with_booleans_of_text(expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let of = |side: &Expr| side.get_type(schema).unwrap_or(DataType::Null);
    let (left, right) = match (of(&expr.left), of(&expr.right)) {
        (DataType::Boolean, text) if text.is_string() => {
            (expr.left, cast(expr.right, DataType::Boolean))
        }
        (text, DataType::Boolean) if text.is_string() => {
            (cast(expr.left, DataType::Boolean), expr.right)
        }
        _ => (expr.left, expr.right),
    };
    RawBinaryExpr { op: expr.op, left, right }
}

/// Text beside a whole number is one, a BIGINT; beside anything else it is a DOUBLE.
fn with_numbers_of_text(expr: RawBinaryExpr, schema: &DFSchema) -> RawBinaryExpr {
    let is_whole = |side: &Expr| side.get_type(schema).is_ok_and(|found| found.is_signed_integer());
    let whole = is_whole(&expr.left) || is_whole(&expr.right);
    let number = if whole { DataType::Int64 } else { DataType::Float64 };
    let [left, right] = [expr.left, expr.right].map(|side| cast(side, number.clone()));
    RawBinaryExpr { op: expr.op, left, right }
}

/// `+`, `-` or `*` of whole numbers, in the type of the wider one. Expressions that the planner
/// builds itself, like the days of a date times the seconds of a day, may have two types.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Checked {
    operator: Operator,
    signature: Signature,
}

pub(super) fn wider(types: &[DataType]) -> &DataType {
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
