//! A query in a session without ANSI mode.
//!
//! Before types are coerced, values that would become something else there are refused
//! ([`sides`](crate::functions::without_ansi)); subqueries of IN are looked at by
//! [`check_subqueries`], while they are there. When types have been checked, each expression is one
//! of three:
//!
//! - it is the same in both modes, or an error in ANSI mode and so here ([`classes`],
//!   [`scalars`]);
//! - it wraps around or is NULL where ANSI mode has an error, and becomes a form that does so
//!   ([`calls`], [`casts`]);
//! - nothing is known of it, and the query is refused. So is one with a function that nobody has
//!   thought of here.
//!
//! Streams have ANSI mode: a checkpoint does not say in which mode its values were computed.

mod calls;
mod casts;
mod classes;
mod scalars;
#[cfg(test)]
mod tests;

use std::iter::once;
use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    DFSchema, DataFusionError, Result, ScalarValue, plan_datafusion_err, plan_err,
};
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{
    AggregateFunction, BinaryExpr, Cast, InSubquery, SetComparison, WindowFunction,
};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Operator, WindowFunctionDefinition,
};
use datafusion::sql::sqlparser::ast::{self, TypedString, Value, visit_expressions};

use crate::functions::WithoutAnsi;
use crate::functions::rules::rewrite;
use crate::functions::without_ansi::{self, NONZERO, SUBTRACT};
use crate::query::prepared::PreparedQuery;
use crate::types::planner::spark_type_of;
use crate::values::calendar::{dated, parse_date, parse_timestamp, parse_timestamp_ntz};
use crate::values::zone::Zone;

/// Refuses `DATE'x'`: to the planner it is a cast, of which there is an error in both modes where
/// it is a literal.
pub(super) fn check_literals(prepared: &PreparedQuery, state: &SessionState) -> Result<()> {
    if !WithoutAnsi::is_in(state.config_options()) {
        return Ok(());
    }
    let found = visit_expressions(&prepared.statement, |expr: &ast::Expr| match expr {
        ast::Expr::TypedString(literal) if !is_readable(literal) => {
            ControlFlow::Break(literal.to_string())
        }
        _ => ControlFlow::Continue(()),
    });
    match found {
        ControlFlow::Break(literal) => plan_err!("{literal} has no value (INVALID_TYPED_LITERAL)"),
        ControlFlow::Continue(()) => Ok(()),
    }
}

fn is_readable(literal: &TypedString) -> bool {
    let (Value::SingleQuotedString(text) | Value::DoubleQuotedString(text)) = &literal.value.value
    else {
        return true;
    };
    match spark_type_of(&literal.data_type) {
        Ok(DataType::Date32) => parse_date(text).is_some(),
        Ok(DataType::Timestamp(_, Some(_))) => parse_timestamp(text)
            .or_else(|| parse_timestamp(&dated(text, 0, &Zone::UTC)?))
            .is_some(),
        Ok(DataType::Timestamp(_, None)) => parse_timestamp_ntz(text).is_some(),
        _ => true,
    }
}

/// Refuses `x IN (SELECT ...)` of values that are not of one kind.
pub(super) fn check_subqueries(plan: &LogicalPlan, state: &SessionState) -> Result<()> {
    if !WithoutAnsi::is_in(state.config_options()) {
        return Ok(());
    }
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                if let Expr::InSubquery(InSubquery { expr, subquery, .. })
                | Expr::SetComparison(SetComparison { expr, subquery, .. }) = part
                {
                    let one = expr.get_type(&schema)?;
                    let fields = subquery.subquery.schema().fields().iter();
                    let types = fields.map(|field| field.data_type());
                    without_ansi::check_kind(once(&one).chain(types))?;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// `plan`, whose types have been checked, in a session with the options of `state`.
pub(super) fn in_session(
    plan: LogicalPlan,
    state: &SessionState,
    is_stream: fn(&LogicalPlan) -> bool,
) -> Result<LogicalPlan> {
    if !WithoutAnsi::is_in(state.config_options()) {
        return Ok(plan);
    }
    if is_stream(&plan) {
        return plan_err!("a stream has ANSI mode; write SET spark.sql.ansi.enabled = true");
    }
    let changed = plan.transform_up_with_subqueries(|node| {
        rewrite(node, |expr, schema| Query { state, schema }.meant(expr))
    })?;
    Ok(changed.data)
}

/// What is not known.
fn refused(what: &str) -> DataFusionError {
    plan_datafusion_err!(
        "{what} is not supported where spark.sql.ansi.enabled is false; write SET \
         spark.sql.ansi.enabled = true, and try_cast, try_divide and their like for NULL instead \
         of an error"
    )
}

/// An expression over columns of a schema, in a session without ANSI mode.
struct Query<'a> {
    state: &'a SessionState,
    schema: &'a DFSchema,
}

impl Query<'_> {
    /// `expr`, whose parts are what they mean already.
    fn meant(&self, expr: Expr) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Cast(Cast { expr, field }) => {
                let to = field.data_type().clone();
                self.cast(*expr, &to, |expr| {
                    Expr::Cast(Cast { expr: Box::new(expr), field: field.clone() })
                })
            }
            Expr::ScalarFunction(call) => self.call(call),
            Expr::Negative(value) => self.negative(*value),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Modulo, right }) => {
                let right = Box::new(self.nonzero(*right)?);
                let op = Operator::Modulo;
                Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
            }
            Expr::AggregateFunction(call) => self.aggregate(call),
            Expr::WindowFunction(call) => self.window(*call),
            other => {
                check(&other)?;
                Ok(Transformed::no(other))
            }
        }
    }

    fn type_of(&self, expr: &Expr) -> Result<DataType> {
        expr.get_type(self.schema)
    }

    /// A divisor that is NULL where it is zero.
    fn nonzero(&self, divisor: Expr) -> Result<Expr> {
        let of = self.type_of(&divisor)?;
        let is_decimal = matches!(of, DataType::Decimal128(..));
        match of.is_signed_integer() || of.is_floating() || is_decimal {
            true => Ok(without_ansi::call(NONZERO, vec![divisor])),
            false => Ok(divisor),
        }
    }

    /// `-value`, where the least whole number stays as it is.
    fn negative(&self, value: Expr) -> Result<Transformed<Expr>> {
        let of = self.type_of(&value)?;
        let is_plain = matches!(&value, Expr::Literal(number, _) if !is_least(number));
        if !of.is_signed_integer() || is_plain {
            return Ok(Transformed::no(Expr::Negative(Box::new(value))));
        }
        let zero = Expr::Literal(ScalarValue::new_zero(&of)?, None);
        Ok(Transformed::yes(without_ansi::call(SUBTRACT, vec![zero, value])))
    }

    /// An aggregate that wraps around, or is NULL where ANSI mode has an error.
    fn aggregate(&self, mut call: AggregateFunction) -> Result<Transformed<Expr>> {
        check_rows(call.func.name())?;
        let found = match call.params.args.first() {
            Some(of) => classes::without_error(call.func.name(), &self.type_of(of)?),
            None => None,
        };
        let Some(name) = found else { return Ok(Transformed::no(Expr::AggregateFunction(call))) };
        if let Some(function) = self.state.aggregate_functions().get(name) {
            call.func = function.clone();
        }
        Ok(Transformed::yes(Expr::AggregateFunction(call)))
    }

    /// The same over the rows of a window.
    fn window(&self, mut call: WindowFunction) -> Result<Transformed<Expr>> {
        check_rows(call.fun.name())?;
        let found = match (&call.fun, call.params.args.first()) {
            (WindowFunctionDefinition::AggregateUDF(function), Some(of)) => {
                classes::without_error(function.name(), &self.type_of(of)?)
            }
            _ => None,
        };
        let function = found.and_then(|name| self.state.aggregate_functions().get(name));
        let Some(function) = function else {
            return Ok(Transformed::no(Expr::WindowFunction(Box::new(call))));
        };
        call.fun = WindowFunctionDefinition::AggregateUDF(function.clone());
        Ok(Transformed::yes(Expr::WindowFunction(Box::new(call))))
    }
}

/// Whether a literal is the least whole number of its type.
fn is_least(number: &ScalarValue) -> bool {
    match number {
        ScalarValue::Int8(value) => *value == Some(i8::MIN),
        ScalarValue::Int16(value) => *value == Some(i16::MIN),
        ScalarValue::Int32(value) => *value == Some(i32::MIN),
        ScalarValue::Int64(value) => *value == Some(i64::MIN),
        _ => false,
    }
}

/// Refuses a function of several rows that is not known.
fn check_rows(name: &str) -> Result<()> {
    match classes::is_of_rows(name) {
        true => Ok(()),
        false => Err(refused(&format!("function `{name}`"))),
    }
}

/// Refuses an expression of which it is not known that it is the same in both modes.
fn check(expr: &Expr) -> Result<()> {
    match expr {
        Expr::HigherOrderFunction(call) if !classes::LAMBDAS.contains(&call.name()) => {
            Err(refused(&format!("function `{}`", call.name())))
        }
        Expr::Alias(_)
        | Expr::BinaryExpr(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::Column(_)
        | Expr::Exists(_)
        | Expr::GroupingSet(_)
        | Expr::HigherOrderFunction(_)
        | Expr::InList(_)
        | Expr::InSubquery(_)
        | Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotNull(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotUnknown(_)
        | Expr::IsNull(_)
        | Expr::IsTrue(_)
        | Expr::IsUnknown(_)
        | Expr::Lambda(_)
        | Expr::LambdaVariable(_)
        | Expr::Like(_)
        | Expr::Literal(..)
        | Expr::Not(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::ScalarSubquery(_)
        | Expr::ScalarVariable(..)
        | Expr::SetComparison(_)
        | Expr::SimilarTo(_)
        | Expr::TryCast(_)
        | Expr::Unnest(_) => Ok(()),
        _ => Err(refused("this operator")),
    }
}
