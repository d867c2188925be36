//! A query in a session whose time zone is not UTC.
//!
//! Functions compute on clocks of UTC. So when types are checked, and before anything is computed,
//! each expression that has to do with TIMESTAMPs is one of three:
//!
//! - it does not depend on the zone: it compares, moves or counts moments ([`classes`]);
//! - it does, and becomes a form that computes in the zone ([`calls`], [`casts`]);
//! - nothing is known of it, and the query is refused. So is one with a function that nobody has
//!   thought of here.
//!
//! Functions that read the zone without any TIMESTAMP, such as `current_date`, are all in
//! [`calls`]. Where a value is cast without an expression that says so, as in the keys of a join,
//! [`checks`] refuses other types than those that are compared as they are.
//!
//! Streams have UTC: what is in a checkpoint was computed in a zone, which nothing there names.

mod calls;
mod casts;
mod checks;
mod classes;
#[cfg(test)]
mod tests;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result, plan_datafusion_err, plan_err};
use datafusion::logical_expr::expr::{BinaryExpr, Cast, InSubquery, SetComparison, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};

use crate::functions::SessionZone;
use crate::functions::operators::is_comparison;
use crate::functions::rules::rewrite;
use crate::functions::zoned::{self, holds_moment};
use casts::Change;

/// `plan`, whose types have been checked, in a session of `zone`.
pub(super) fn in_session(
    plan: LogicalPlan,
    zone: Option<&SessionZone>,
    is_stream: fn(&LogicalPlan) -> bool,
) -> Result<LogicalPlan> {
    let Some(zone) = zone.filter(|zone| !zone.is_utc()) else { return Ok(plan) };
    if is_stream(&plan) {
        return plan_err!(
            "a stream has the time zone UTC; write SET TIME ZONE 'UTC', and \
             from_utc_timestamp(ts, '{}') for what clocks of the zone show",
            zone.name()
        );
    }
    let changed = plan.transform_up_with_subqueries(|node| {
        checks::node(&node, zone.name())?;
        rewrite(node, |expr, schema| InZone { zone: zone.name(), schema }.meant(expr))
    })?;
    Ok(changed.data)
}

/// What has no form in another zone.
fn refused(what: &str, zone: &str) -> DataFusionError {
    plan_datafusion_err!(
        "{what} is not supported where the session's time zone is {zone}; write SET TIME ZONE \
         'UTC', and from_utc_timestamp(ts, '{zone}') for what clocks of the zone show"
    )
}

/// The types with times that a value has in it: values of types that differ here are not compared
/// without a cast.
fn times_in(of: &DataType) -> u8 {
    match of {
        DataType::Timestamp(_, Some(_)) => 1,
        DataType::Timestamp(_, None) => 2,
        DataType::Date32 | DataType::Date64 => 4,
        of if of.is_string() => 8,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => times_in(item.data_type()),
        DataType::Struct(fields) => {
            fields.iter().fold(0, |found, field| found | times_in(field.data_type()))
        }
        _ => 0,
    }
}

/// Whether values of both types are compared without a cast that depends on the zone.
fn compares(one: &DataType, other: &DataType) -> bool {
    let has_moments = holds_moment(one) || holds_moment(other);
    !has_moments || one.is_null() || other.is_null() || times_in(one) == times_in(other)
}

/// An expression over columns of a schema, in a session of a zone.
struct InZone<'a> {
    zone: &'a str,
    schema: &'a DFSchema,
}

impl InZone<'_> {
    /// `expr`, whose parts are what they mean in the zone already.
    fn meant(&self, expr: Expr) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Cast(Cast { expr, field }) => self.cast(*expr, field.data_type(), true, |expr| {
                Expr::Cast(Cast { expr: Box::new(expr), field: field.clone() })
            }),
            Expr::TryCast(TryCast { expr, field }) => {
                self.cast(*expr, field.data_type(), false, |expr| {
                    Expr::TryCast(TryCast { expr: Box::new(expr), field: field.clone() })
                })
            }
            Expr::ScalarFunction(call) => self.call(call),
            Expr::BinaryExpr(binary) => self.binary(binary),
            other => {
                self.check(&other)?;
                Ok(Transformed::no(other))
            }
        }
    }

    fn type_of(&self, expr: &Expr) -> Result<DataType> {
        expr.get_type(self.schema)
    }

    fn refused(&self, what: &str) -> DataFusionError {
        refused(what, self.zone)
    }

    /// What the clocks of the zone show, where there is a TIMESTAMP.
    fn clock(&self, expr: Expr) -> Result<Expr> {
        if !holds_moment(&self.type_of(&expr)?) {
            return Ok(expr);
        }
        Ok(zoned::call(zoned::CLOCK, vec![expr], self.zone))
    }

    /// A cast to a type; `original` makes the one that does not depend on the zone.
    fn cast(
        &self,
        expr: Expr,
        to: &DataType,
        strict: bool,
        original: impl FnOnce(Expr) -> Expr,
    ) -> Result<Transformed<Expr>> {
        let from = self.type_of(&expr)?;
        match casts::change(&from, to) {
            Change::None => Ok(Transformed::no(original(expr))),
            Change::Zone => Ok(Transformed::yes(zoned::cast(expr, to, strict, self.zone)?)),
            Change::Unknown(what) => Err(self.refused(what)),
        }
    }

    fn binary(&self, binary: BinaryExpr) -> Result<Transformed<Expr>> {
        use Operator as Op;
        let BinaryExpr { left, op, right } = binary;
        let (of_left, of_right) = (self.type_of(&left)?, self.type_of(&right)?);
        let is_moment = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
        let is_span = |of: &DataType| matches!(of, DataType::Duration(_) | DataType::Interval(_));
        let same = |left: Box<Expr>, right: Box<Expr>| {
            Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right }))
        };
        let moved = |name: &str, time: Box<Expr>, span: Box<Expr>| {
            Transformed::yes(zoned::call(name, vec![*time, *span], self.zone))
        };
        match op {
            _ if !holds_moment(&of_left) && !holds_moment(&of_right) => Ok(same(left, right)),
            op if is_comparison(op) && compares(&of_left, &of_right) => Ok(same(left, right)),
            // Spark counts the time between what clocks show.
            Op::Minus if is_moment(&of_left) && is_moment(&of_right) => {
                let (left, right) = (self.clock(*left)?, self.clock(*right)?);
                let (left, right) = (Box::new(left), Box::new(right));
                Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
            }
            Op::Plus if is_moment(&of_left) && is_span(&of_right) => {
                Ok(moved(zoned::PLUS, left, right))
            }
            Op::Plus if is_span(&of_left) && is_moment(&of_right) => {
                Ok(moved(zoned::PLUS, right, left))
            }
            Op::Minus if is_moment(&of_left) && is_span(&of_right) => {
                Ok(moved(zoned::MINUS, left, right))
            }
            _ => Err(self.refused(&format!("the operator `{op}` of a TIMESTAMP"))),
        }
    }

    /// Refuses an expression of which it is not known that it is the same in any zone.
    fn check(&self, expr: &Expr) -> Result<()> {
        match expr {
            Expr::AggregateFunction(call) => self.aggregate(call.func.name(), &call.params.args),
            Expr::WindowFunction(call) => {
                self.aggregate(call.fun.name(), &call.params.args)?;
                self.frame(&call.params)
            }
            Expr::HigherOrderFunction(call) => self.lambdas(call.name(), &call.args),
            Expr::InSubquery(InSubquery { expr, subquery, .. })
            | Expr::SetComparison(SetComparison { expr, subquery, .. }) => {
                let one = self.type_of(expr)?;
                let mut fields = subquery.subquery.schema().fields().iter();
                match fields.all(|field| compares(&one, field.data_type())) {
                    true => Ok(()),
                    false => Err(self.refused("a TIMESTAMP beside another type in a subquery")),
                }
            }
            // Values are compared with each other, and casts stand where their types differ.
            Expr::Between(_) | Expr::InList(_) | Expr::Case(_) => self.compared(expr),
            Expr::Alias(_)
            | Expr::Column(_)
            | Expr::ScalarVariable(..)
            | Expr::Literal(..)
            | Expr::Not(_)
            | Expr::IsNotNull(_)
            | Expr::IsNull(_)
            | Expr::IsTrue(_)
            | Expr::IsFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNotFalse(_)
            | Expr::IsNotUnknown(_)
            | Expr::Exists(_)
            | Expr::ScalarSubquery(_)
            | Expr::GroupingSet(_)
            | Expr::OuterReferenceColumn(..)
            | Expr::Unnest(_)
            | Expr::Lambda(_)
            | Expr::LambdaVariable(_) => Ok(()),
            other => self.without_moments(other),
        }
    }
}
