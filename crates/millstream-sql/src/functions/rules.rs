//! Rewrites of a whole plan, for rules that no single function can express.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::{BinaryExpr, Case, Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, lit};
use datafusion::optimizer::AnalyzerRule;

use super::cast::{cast_expr, is_spark_cast};
use super::failing::can_fail;
use super::nodes::literal;
pub(crate) use super::nodes::rewrite;
use super::operators::checked;
use super::text::short_name;
use super::{
    argument_rules, cast_rules, common_types, decimals, grouping_keys, interval_casts,
    interval_fields, interval_literals, outer_types, set_operations, times_of_day, without_ansi,
    zoned,
};
use crate::types::{INTERVAL_FIELDS, spark_type};

/// Makes whole numbers in the text INTs, as in Spark, where they fit; to DataFusion they are all
/// BIGINTs. Then casts decimals and the values beside them to common types. Runs before types are
/// coerced, so that `column + 1` keeps the column's type.
#[derive(Debug)]
pub(super) struct SparkLiterals;

impl AnalyzerRule for SparkLiterals {
    fn name(&self) -> &str {
        "spark_literals"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let narrowed = plan.transform_up_with_subqueries(|plan| {
            without_ansi::check_columns(&plan, options)?;
            match plan {
                // DataFusion requires a BIGINT as the count of a LIMIT.
                LogicalPlan::Limit(_) => rewrite(plan, |expr, _| Ok(Transformed::no(expr))),
                LogicalPlan::Union(union) => {
                    let union = without_ansi::united(union, options)?;
                    let union = interval_fields::of_union(common_types::of_union(union)?)?;
                    let union = LogicalPlan::Union(union);
                    rewrite(union, |expr, _| Ok(Transformed::no(expr)))
                }
                plan => with_literals(plan, options),
            }
        });
        outer_types::refreshed(narrowed?.data)
    }
}

/// A node whose numbers in the text have Spark's types, and with them what is beside them.
fn with_literals(plan: LogicalPlan, options: &ConfigOptions) -> Result<Transformed<LogicalPlan>> {
    let plan = rewrite(plan, |expr, schema| {
        let literal = interval_literals::literal(literal(expr)?)?;
        let local = zoned::local(literal, schema, options)?;
        let beside = without_ansi::taken(local, schema, options)?;
        let taken = argument_rules::taken(beside, schema)?;
        let exact = common_types::rewritten(taken, schema)?;
        let wanted = decimals::as_wanted(exact, options);
        Ok(Transformed::yes(interval_fields::kept(wanted, schema)))
    })?;
    plan.map_data(|plan| match plan {
        LogicalPlan::Values(values) => common_types::of_values(values),
        LogicalPlan::Aggregate(node) => grouping_keys::as_keys(node),
        LogicalPlan::Join(join) => set_operations::with_meaning(join),
        LogicalPlan::RecursiveQuery(query) => common_types::of_recursive(query),
        plan => Ok(plan),
    })
}

/// Puts Spark's casts and checked arithmetic where the plan has Arrow's, and the clock for
/// `unix_timestamp()` and `current_time()`. Runs after types are coerced, so that implicit casts
/// are covered too.
#[derive(Debug)]
pub(super) struct SparkMeaning {
    pub current_seconds: Arc<ScalarUDF>,
    pub local_now: Arc<ScalarUDF>,
    pub time_shown: Arc<ScalarUDF>,
}

impl AnalyzerRule for SparkMeaning {
    fn name(&self) -> &str {
        "spark_meaning"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            rewrite(plan, |expr, schema| self.expression(expr, schema))
        });
        rewritten.map(|plan| plan.data)
    }
}

impl SparkMeaning {
    fn expression(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        if let Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) = &expr
            && let Ok(from) = expr.get_type(schema)
            && let Some(problem) = cast_rules::problem(&from, field.data_type())
        {
            return plan_err!("{problem}");
        }
        if let Expr::TryCast(TryCast { expr, field }) = &expr
            && let Ok(from) = expr.get_type(schema)
            && cast_rules::loses_keys(&from, field.data_type())
        {
            let (from, to) = (spark_type(&from), spark_type(field.data_type()));
            return plan_err!(
                "{from} cannot be cast to {to} by try_cast (DATATYPE_MISMATCH): a key that is none \
                 of the type would be NULL; write CAST, or transform_keys with what such a key is"
            );
        }
        Ok(match type_of_column(&expr, schema) {
            Some(name) => Transformed::yes(name),
            None => self.meant(expr, schema),
        })
    }

    fn meant(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        let is_cast = |expr: &Expr, to: &DataType| {
            expr.get_type(schema).is_ok_and(|from| is_spark_cast(&from, to))
        };
        let is_whole =
            |side: &Expr| matches!(side.get_type(schema), Ok(found) if found.is_signed_integer());
        match expr {
            // DataFusion's own casts of INTERVALs name no fields.
            Expr::Cast(Cast { expr, field }) if field.metadata().contains_key(INTERVAL_FIELDS) => {
                Transformed::yes(interval_casts::to_interval(*expr, &field, true))
            }
            Expr::TryCast(TryCast { expr, field })
                if field.metadata().contains_key(INTERVAL_FIELDS) =>
            {
                Transformed::yes(interval_casts::to_interval(*expr, &field, false))
            }
            Expr::Cast(Cast { expr, field }) if is_cast(&expr, field.data_type()) => {
                Transformed::yes(cast_expr(*expr, field, true))
            }
            Expr::TryCast(TryCast { expr, field }) if is_cast(&expr, field.data_type()) => {
                Transformed::yes(cast_expr(*expr, field, false))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
                    && is_whole(&left)
                    && is_whole(&right) =>
            {
                Transformed::yes(checked(*left, op, *right))
            }
            Expr::ScalarFunction(function)
                if function.args.is_empty() && function.name() == "unix_timestamp" =>
            {
                let clock = Arc::clone(&self.current_seconds);
                Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(clock, vec![])))
            }
            Expr::ScalarFunction(call) => {
                match times_of_day::current(&call, &self.local_now, &self.time_shown) {
                    Some(time) => Transformed::yes(time),
                    None => Transformed::no(Expr::ScalarFunction(call)),
                }
            }
            Expr::Case(case) if is_reordered(&case, schema) => Transformed::yes(one_by_one(case)),
            other => Transformed::no(other),
        }
    }
}

/// What `typeof` says of a column, such as that of a sum, which need not be computed for that.
fn type_of_column(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    match call.args.as_slice() {
        [column @ Expr::Column(_)] if call.name() == "typeof" => {
            Some(lit(short_name(&column.get_type(schema).ok()?)))
        }
        _ => None,
    }
}

/// The most conditions of a CASE that are put into each other.
const ONE_BY_ONE_MAX: usize = 32;

/// Whether DataFusion would make ANDs and ORs of a CASE, in which a condition that can fail comes
/// before the one that guards it. It does so where the results are conditions, and they are either
/// two or constants.
fn is_reordered(case: &Case, schema: &DFSchema) -> bool {
    let [(_, then), late @ ..] = &case.when_then_expr[..] else { return false };
    let is_constant = |(_, then): &(_, Box<Expr>)| matches!(**then, Expr::Literal(..));
    let is_rewritten = late.len() == 1 || case.when_then_expr.iter().all(is_constant);
    case.expr.is_none()
        && is_rewritten
        && late.len() < ONE_BY_ONE_MAX
        && matches!(then.get_type(schema), Ok(DataType::Boolean))
        && late.iter().any(|(when, _)| can_fail(when, schema))
}

/// Each condition in the ELSE of the one before.
fn one_by_one(case: Case) -> Expr {
    let rest = case.when_then_expr.into_iter().rev();
    let nested = rest.fold(case.else_expr, |otherwise, one| {
        Some(Box::new(Expr::Case(Case {
            expr: None,
            when_then_expr: vec![one],
            else_expr: otherwise,
        })))
    });
    *nested.expect("a CASE has a condition")
}
