//! AND and OR that compute only the rows that decide, where computing the others could fail.
//!
//! Spark does not look at the right side of `x <> 0 AND 100 / x > 30` where the left one is false.
//! DataFusion computes both sides for all rows of a record batch, and its optimizer even makes AND
//! and OR of a CASE whose results are conditions. So in a plan that is otherwise optimised, an AND
//! or OR with a part that can fail becomes a CASE, which DataFusion computes for no other rows than
//! those that come to it. Parts that cannot fail come first and stay as they are, so that tables
//! still leave out files by them, and a condition of only such parts is left alone.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Alias, BinaryExpr, Case};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, lit};

use crate::functions::failing::can_fail;

/// The largest operand that is said twice, in expressions. Where NULL and false differ each part
/// but the last is, and so is what is in it, once more for each AND within an OR within an AND.
const SAID_TWICE_MAX: usize = 512;

/// What a NULL means to whoever asks for the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Null {
    /// The same as false, as in WHERE.
    False,
    /// Itself.
    Null,
}

/// `plan`, which is optimised, with what is to be computed for some rows only.
///
/// # Errors
/// Types that cannot be found, in a plan that is not valid.
pub fn plan(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        // A table leaves out files by its conditions, and its rows are filtered above.
        if matches!(node, LogicalPlan::TableScan(_)) {
            return Ok(Transformed::no(node));
        }
        let changed = of_node(node)?;
        let is_changed = changed.transformed;
        changed.map_data(|node| if is_changed { node.recompute_schema() } else { Ok(node) })
    })?;
    Ok(plan.data)
}

/// `condition` over rows of `schema`, of which NULL means false, changed as those of a plan are:
/// for one that is in no plan.
///
/// # Errors
/// As [`plan`].
pub fn condition(condition: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(wanted(condition, schema)?.data)
}

/// A condition that wants what is true.
fn wanted(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    // DataFusion may have put any part first.
    let has_others = parts_of(&expr, Operator::And).len() > 1;
    changed(expr, schema, has_others, |expr| filter(expr, schema))
}

fn of_node(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    match node {
        LogicalPlan::Filter(mut of) => {
            let predicate = wanted(of.predicate, &schema)?;
            of.predicate = predicate.data;
            Ok(Transformed::new_transformed(LogicalPlan::Filter(of), predicate.transformed))
        }
        LogicalPlan::Join(mut join) => {
            let on = join.filter.take().map(|on| wanted(on, &schema)).transpose()?;
            let is_changed = on.as_ref().is_some_and(|on| on.transformed);
            join.filter = on.map(|on| on.data);
            Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_changed))
        }
        node => {
            let names = NamePreserver::new(&node);
            let named = |expr: Expr| {
                let name = names.save(&expr);
                let expr = changed(expr, &schema, false, |expr| value(expr, &schema, Null::Null))?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            };
            node.map_expressions(|expr| match expr {
                // A grouping set is no column itself; its members are.
                Expr::GroupingSet(_) => expr.map_children(named),
                expr => named(expr),
            })
        }
    }
}

/// What `change` makes of an expression that it is for: one in which something can fail and need
/// not be computed for all rows.
fn changed(
    expr: Expr,
    schema: &DFSchema,
    has_others: bool,
    change: impl FnOnce(Expr) -> Result<Expr>,
) -> Result<Transformed<Expr>> {
    // Chance would decide anew for each part that is said twice, and a subquery would run twice.
    let is_for = can_fail(&expr, schema) && !expr.is_volatile() && !has_subquery(&expr);
    if is_for && (has_others || has_late_failure(&expr, schema)) {
        change(expr).map(Transformed::yes)
    } else {
        Ok(Transformed::no(expr))
    }
}

fn has_subquery(expr: &Expr) -> bool {
    let is_one = |expr: &Expr| {
        matches!(
            expr,
            Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::ScalarSubquery(_)
                | Expr::OuterReferenceColumn(..)
        )
    };
    expr.exists(|expr| Ok(is_one(expr))).unwrap_or(true)
}

/// Whether a part after the first of an AND or OR can fail.
fn has_late_failure(expr: &Expr, schema: &DFSchema) -> bool {
    let is_late = |expr: &Expr| match expr {
        // Each part after the first is on the right of one of them.
        Expr::BinaryExpr(BinaryExpr { right, .. }) if operator_of(expr).is_some() => {
            can_fail(right, schema)
        }
        _ => false,
    };
    expr.exists(|expr| Ok(is_late(expr))).unwrap_or(false)
}

fn operator_of(expr: &Expr) -> Option<Operator> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => Some(*op),
        _ => None,
    }
}

/// What `operator` joins, in order.
fn parts_of(expr: &Expr, operator: Operator) -> Vec<&Expr> {
    let (mut parts, mut rest) = (Vec::new(), vec![expr]);
    while let Some(next) = rest.pop() {
        match next {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == operator => {
                rest.extend([right.as_ref(), left.as_ref()]);
            }
            part => parts.push(part),
        }
    }
    parts
}

/// The parts joined again, no deeper than need be; `None` if there are none.
fn joined(operator: Operator, parts: &[Expr]) -> Option<Expr> {
    let (left, right) = parts.split_at(parts.len() / 2);
    Some(match (joined_if_any(operator, left), joined_if_any(operator, right)) {
        (Some(left), Some(right)) => {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right)))
        }
        (left, right) => left.or(right)?,
    })
}

fn joined_if_any(operator: Operator, parts: &[Expr]) -> Option<Expr> {
    match parts {
        [] => None,
        [part] => Some(part.clone()),
        parts => joined(operator, parts),
    }
}

/// A condition that rows are filtered by: the parts that cannot fail, and one that guards the
/// others.
fn filter(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let parts = parts_of(&expr, Operator::And).into_iter().cloned();
    let parts = parts.map(|part| value(part, schema, Null::False)).collect::<Result<Vec<_>>>()?;
    let (mut plain, mut late): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| !can_fail(part, schema));
    if plain.is_empty() {
        plain.extend(late.drain(..1));
    }
    if !late.is_empty() {
        let guarded = decided(Operator::And, &plain, &late, Null::False);
        plain.push(guarded);
    }
    Ok(joined(Operator::And, &plain).unwrap_or(expr))
}

/// The parts that can be computed for every row, and those that come later and can fail.
fn sorted(parts: Vec<Expr>, schema: &DFSchema) -> (Vec<Expr>, Vec<Expr>) {
    let (mut plain, mut late) = (Vec::new(), Vec::new());
    for part in parts {
        let is_late = !plain.is_empty() && can_fail(&part, schema);
        if is_late { &mut late } else { &mut plain }.push(part);
    }
    (plain, late)
}

/// An expression of any type.
fn value(expr: Expr, schema: &DFSchema, null: Null) -> Result<Expr> {
    match expr {
        Expr::Alias(Alias { expr, relation, name, metadata }) => {
            let expr = Box::new(value(*expr, schema, null)?);
            Ok(Expr::Alias(Alias { expr, relation, name, metadata }))
        }
        Expr::IsTrue(inner) => Ok(Expr::IsTrue(Box::new(value(*inner, schema, Null::False)?))),
        Expr::Case(case) if case.expr.is_none() => of_case(case, schema, null),
        expr => match operator_of(&expr) {
            Some(operator) => of_operator(&expr, operator, schema, null),
            None => {
                let within = |expr| value(expr, schema, Null::Null).map(Transformed::yes);
                Ok(expr.map_children(within)?.data)
            }
        },
    }
}

fn of_case(case: Case, schema: &DFSchema, null: Null) -> Result<Expr> {
    let mut when_then_expr = Vec::with_capacity(case.when_then_expr.len());
    for (when, then) in case.when_then_expr {
        let when = value(*when, schema, Null::False)?;
        when_then_expr.push((Box::new(when), Box::new(value(*then, schema, null)?)));
    }
    let otherwise = case.else_expr.map(|other| value(*other, schema, null).map(Box::new));
    Ok(Expr::Case(Case { expr: None, when_then_expr, else_expr: otherwise.transpose()? }))
}

fn of_operator(expr: &Expr, operator: Operator, schema: &DFSchema, null: Null) -> Result<Expr> {
    let parts = parts_of(expr, operator).into_iter().cloned();
    let parts = parts.map(|part| value(part, schema, null)).collect::<Result<Vec<_>>>()?;
    let is_said_twice = null == Null::Null;
    let all = joined(operator, &parts).unwrap_or_else(|| expr.clone());
    if is_said_twice && size(&all) > SAID_TWICE_MAX {
        return Ok(all);
    }
    let (plain, late) = sorted(parts, schema);
    Ok(if late.is_empty() { all } else { decided(operator, &plain, &late, null) })
}

fn size(expr: &Expr) -> usize {
    let mut size = 0;
    let _ = expr.apply(|_| {
        size += 1;
        Ok(TreeNodeRecursion::Continue)
    });
    size
}

/// `plain` and then one of `late` after the other, each only for the rows that no part before has
/// decided.
fn decided(operator: Operator, plain: &[Expr], late: &[Expr], null: Null) -> Expr {
    let is_and = operator == Operator::And;
    let decides = |part: Expr| match (is_and, null) {
        (true, Null::False) => part.is_not_true(),
        (true, Null::Null) => part.is_false(),
        // A CASE takes a NULL for a condition that does not hold.
        (false, _) => part,
    };
    let first = joined(operator, plain);
    let mut parts: Vec<Expr> = first.into_iter().chain(late.iter().cloned()).collect();
    let last = match null {
        Null::False => parts.pop(),
        // Where no part before decides, the last one and NULLs do.
        Null::Null => {
            let all = joined(operator, &parts);
            parts.pop();
            all
        }
    };
    let decision = || Box::new(lit(!is_and));
    let when_then_expr = parts.into_iter().map(|part| (Box::new(decides(part)), decision()));
    let when_then_expr = when_then_expr.collect();
    Expr::Case(Case { expr: None, when_then_expr, else_expr: last.map(Box::new) })
}
