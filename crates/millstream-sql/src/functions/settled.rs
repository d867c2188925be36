//! The types of CASE as soon as a query is planned.
//!
//! DataFusion takes the type of the first value for that of all until it coerces types, which is
//! when the whole query has been planned. What is decided before, by the type of a column or of a
//! side of an operator, would be decided wrongly: `'3' + x` for a CASE of a whole number and a
//! decimal, `x - INTERVAL '1' HOUR` for one of a DATE and a TIMESTAMP. So what stands in FROM has
//! its types before the query around it is planned, and the sides of an operator before it is.

use std::cell::RefCell;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::planner::RawBinaryExpr;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::nodes::{literal, rewrite};
use super::{common_types, interval_fields, lambda_variables, without_ansi};

thread_local! {
    /// The options of the session whose query is planned on this thread. DataFusion does not tell
    /// them where it asks for operators.
    static OPTIONS: RefCell<Arc<ConfigOptions>> = RefCell::default();
}

/// Plans a query of a session with these options, which decide what values of several types become.
pub(crate) fn planned<T>(options: &Arc<ConfigOptions>, plan: impl FnOnce() -> T) -> T {
    let before = OPTIONS.replace(Arc::clone(options));
    let planned = plan();
    OPTIONS.set(before);
    planned
}

/// What stands in FROM, with the types that its columns will have. Numbers in the text get theirs
/// as well, which CASE may have beside columns. A recursive query stays as it is: the types of its
/// second part follow from those of the first, which are not known there yet. What stands in a FROM
/// within has its types already, so that nothing is done again for each query around it.
pub(crate) fn relation(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = Found::default();
    plan.apply_with_subqueries(|node| found.look(node))?;
    if !found.is_unsettled || found.recursion {
        return Ok(plan);
    }
    let options = OPTIONS.with_borrow(Arc::clone);
    let kept = |expr, _: &DFSchema| Ok(Transformed::no(expr));
    let typed = |expr, schema: &DFSchema| {
        typed_case(without_ansi::taken(literal(expr)?, schema, &options)?, schema)
    };
    let typed = plan.transform_up_with_subqueries(|node| {
        without_ansi::check_columns(&node, &options)?;
        match node {
            LogicalPlan::Limit(_) => rewrite(node, kept),
            LogicalPlan::Union(union) => {
                let union = common_types::of_union(without_ansi::united(union, &options)?)?;
                rewrite(LogicalPlan::Union(interval_fields::of_union(union)?), kept)
            }
            LogicalPlan::Values(_) => rewrite(node, typed)?.map_data(|node| match node {
                LogicalPlan::Values(values) => common_types::of_values(values),
                node => Ok(node),
            }),
            node => rewrite(node, typed),
        }
    });
    Ok(typed?.data)
}

/// What a plan has in it.
#[derive(Default)]
struct Found {
    /// A CASE that has not the type of its values.
    is_unsettled: bool,
    recursion: bool,
}

impl Found {
    fn look(&mut self, node: &LogicalPlan) -> Result<TreeNodeRecursion> {
        self.recursion |= match node {
            LogicalPlan::RecursiveQuery(_) => true,
            LogicalPlan::TableScan(scan) => source_as_provider(&scan.source)
                .is_ok_and(|table| table.downcast_ref::<CteWorkTable>().is_some()),
            _ => false,
        };
        let mut schema = None;
        node.apply_expressions(|expr| {
            if !self.is_unsettled && has_case(expr) {
                let schema = schema.get_or_insert_with(|| merge_schema(&node.inputs()));
                self.is_unsettled = is_unsettled(expr, schema);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    }
}

/// An operator whose sides have the types that they will have, where these are not all numbers.
/// Numbers are looked at again when types are coerced, and a side stays as it is written, so that
/// it is known as the same expression in GROUP BY.
pub(super) fn sides(expr: RawBinaryExpr, schema: &DFSchema) -> Result<RawBinaryExpr> {
    // Conditions have one type, and may be thousands in a row.
    if matches!(expr.op, BinaryOperator::And | BinaryOperator::Or)
        || !is_unsettled(&expr.left, schema) && !is_unsettled(&expr.right, schema)
    {
        return Ok(expr);
    }
    let is_number = |side: &Expr| side.get_type(schema).is_ok_and(|of| of.is_numeric());
    let options = OPTIONS.with_borrow(Arc::clone);
    let typed = |part, schema: &DFSchema| match part {
        Expr::Case(_) => typed_case(without_ansi::taken(part, schema, &options)?, schema),
        part => Ok(Transformed::no(part)),
    };
    let left = lambda_variables::transform_up(expr.left.clone(), schema, &typed)?.data;
    let right = lambda_variables::transform_up(expr.right.clone(), schema, &typed)?.data;
    let all = [&expr.left, &expr.right, &left, &right];
    let is_settled =
        |side: &Expr, typed: &Expr| match (side.get_type(schema), typed.get_type(schema)) {
            (Ok(side), Ok(typed)) => side == typed,
            _ => true,
        };
    let are_settled = is_settled(&expr.left, &left) && is_settled(&expr.right, &right);
    if are_settled || all.into_iter().all(is_number) {
        return Ok(expr);
    }
    Ok(RawBinaryExpr { left, right, op: expr.op })
}

/// A CASE whose values have their common type.
fn typed_case(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    if !matches!(expr, Expr::Case(_)) {
        return Ok(Transformed::no(expr));
    }
    let typed = common_types::rewritten(expr.clone(), schema)?;
    let typed = interval_fields::kept(typed, schema);
    let changes = typed != expr;
    Ok(Transformed::new_transformed(typed, changes))
}

/// Whether a CASE in an expression may have another type by now than its values will have.
fn is_unsettled(expr: &Expr, schema: &DFSchema) -> bool {
    let differ = |case: &Case| {
        let thens = case.when_then_expr.iter().map(|(_, then)| then);
        let types = thens.chain(&case.else_expr).map(|value| value.get_type(schema));
        // The variables of a lambda are no columns of the schema.
        let Ok(types) = types.collect::<Result<Vec<_>>>() else { return true };
        let mut known = types.iter().filter(|of| !of.is_null());
        let first = known.next();
        // INTERVALs of one type may have other fields each.
        first.is_some_and(|of| matches!(of, DataType::Interval(_) | DataType::Duration(_)))
            || known.any(|other| Some(other) != first)
    };
    let found = expr.exists(|part| Ok(matches!(part, Expr::Case(case) if differ(case))));
    found.unwrap_or(false)
}

fn has_case(expr: &Expr) -> bool {
    expr.exists(|part| Ok(matches!(part, Expr::Case(_)))).unwrap_or(false)
}
