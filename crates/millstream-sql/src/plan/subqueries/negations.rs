//! NOT, moved to the `IN (SELECT ...)` that it is about.
//!
//! `x IN (SELECT ...)` and `x NOT IN (SELECT ...)` are both false where the answer is unknown, so
//! NOT of the one is not the other. Spark moves NOT inwards before it makes joins of them.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::{BinaryExpr, InSubquery};
use datafusion::logical_expr::{Expr, Operator};

/// `expr`, in which NOT stands before no `IN (SELECT ...)`, nor before AND and OR of such.
pub(super) fn within(expr: Expr) -> Result<Expr> {
    let changed = expr.transform_up(|expr| {
        Ok(match expr {
            Expr::Not(inner) if has_in(&inner)? => Transformed::yes(negated(*inner)?),
            other => Transformed::no(other),
        })
    })?;
    Ok(changed.data)
}

fn has_in(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_))))
}

/// NOT `expr`, in which NOT has been moved already.
fn negated(expr: Expr) -> Result<Expr> {
    Ok(match expr {
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            Expr::InSubquery(InSubquery { expr, subquery, negated: !negated })
        }
        Expr::Not(inner) => *inner,
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or)
                && (has_in(&left)? || has_in(&right)?) =>
        {
            let op = if op == Operator::And { Operator::Or } else { Operator::And };
            let (left, right) = (Box::new(negated(*left)?), Box::new(negated(*right)?));
            Expr::BinaryExpr(BinaryExpr { left, op, right })
        }
        other => Expr::Not(Box::new(other)),
    })
}
