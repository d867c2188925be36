//! Sums and products that are keys of GROUP BY with their sides changed: after `GROUP BY a + 1`
//! Spark takes `1 + a` for the key as well, and DataFusion does not.
//!
//! Such an expression of the SELECT list, HAVING or ORDER BY is written as the key is. The value is
//! the same either way, so nothing depends on what its names mean there.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, OrderByKind, Query, SelectItem, SetExpr, Spanned, VisitMut,
    VisitorMut,
};

use super::ast::{counting_queries, quoted_ident};
use super::naming::expr_name;

/// Longer expressions are left as they are.
const LENGTH_MAX: usize = 1_000;

/// Writes such expressions of a query as the keys are.
pub(super) fn as_keys(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let GroupByExpr::Expressions(groups, _) = &select.group_by else { return };
    let sums = groups.iter().filter(|group| is_commutative(group));
    let keys = sums.filter_map(|group| Some((ordered(group)?, group.clone())));
    let mut keys = Keys { keys: keys.collect(), queries: 0 };
    if keys.keys.is_empty() {
        return;
    }
    for item in &mut select.projection {
        keys.item(item);
    }
    select.having.iter_mut().for_each(|having| keys.put_in(having));
    if let Some(order) = &mut query.order_by
        && let OrderByKind::Expressions(exprs) = &mut order.kind
    {
        exprs.iter_mut().for_each(|order| keys.put_in(&mut order.expr));
    }
}

/// The keys by their texts with sides in order.
struct Keys {
    keys: HashMap<String, Expr>,
    /// How many queries the visit is in.
    queries: usize,
}

impl Keys {
    fn put_in(&mut self, expr: &mut Expr) {
        let _: ControlFlow<()> = VisitMut::visit(expr, self);
    }

    /// An item keeps its name.
    fn item(&mut self, item: &mut SelectItem) {
        match item {
            SelectItem::UnnamedExpr(expr) => {
                let (name, span) = (expr_name(expr), expr.span());
                let before = expr.clone();
                self.put_in(expr);
                if *expr != before {
                    let alias = quoted_ident(name, span);
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
            SelectItem::ExprWithAlias { expr, .. } => self.put_in(expr),
            _ => {}
        }
    }
}

impl VisitorMut for Keys {
    type Break = ();

    counting_queries!();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.queries == 0
            && is_commutative(expr)
            && let Some(key) = ordered(expr).and_then(|text| self.keys.get(&text))
            && key.to_string() != expr.to_string()
        {
            *expr = key.clone();
        }
        ControlFlow::Continue(())
    }
}

fn is_commutative(expr: &Expr) -> bool {
    use BinaryOperator::{Multiply, Plus};
    matches!(expr, Expr::BinaryOp { op: Plus | Multiply, .. })
}

/// The text of an expression in which the sides of sums and products are in order.
fn ordered(expr: &Expr) -> Option<String> {
    let text = match expr {
        Expr::Nested(inner) => ordered(inner)?,
        Expr::BinaryOp { left, op, right } => {
            let mut sides = [ordered(left)?, ordered(right)?];
            if is_commutative(expr) {
                sides.sort_unstable();
            }
            let [left, right] = sides;
            format!("({left} {op} {right})")
        }
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => expr.to_string().to_lowercase(),
        other => other.to_string(),
    };
    (text.len() <= LENGTH_MAX).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::parse::parse;
    use crate::syntax::lexer::Lexed;

    fn rewritten(text: &str) -> String {
        let lexed = Lexed::new(text).expect("the text has tokens");
        let all = 0..lexed.lexemes.len();
        let parsed = parse(&lexed, std::slice::from_ref(&all));
        let (mut query, ..) = parsed.unwrap_or_else(|_| panic!("{text} is a query"));
        as_keys(&mut query);
        query.to_string()
    }

    #[test]
    fn sides_are_those_of_the_key() {
        let query =
            "SELECT 1 + A, sum(b) FROM t GROUP BY a + 1 HAVING (1 + a) * 2 > 0 ORDER BY 1 + a";
        let wanted = "SELECT a + 1 AS `(1 + A)`, sum(b) FROM t GROUP BY a + 1 \
                      HAVING (a + 1) * 2 > 0 ORDER BY a + 1";
        assert_eq!(rewritten(query), wanted);
    }

    #[test]
    fn what_is_no_key_stays() {
        for query in [
            "SELECT 1 - a FROM t GROUP BY a - 1",
            "SELECT 'X' + a FROM t GROUP BY a + 'x'",
            "SELECT (SELECT 1 + a) FROM t GROUP BY a + 1",
        ] {
            assert_eq!(rewritten(query), query);
        }
    }
}
