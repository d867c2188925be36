//! Columns that ORDER BY calls by their tables, where the result has another column of the name:
//! `SELECT upper(name) AS name FROM t ORDER BY t.name`.
//!
//! DataFusion sorts with such a column beside those of the result, and then finds two of one name.
//! So the one of the result gets a name of its own, which whoever shows the result takes off again
//! ([`super::twins::shown`]). That goes for the result of a query only, as a query around it would
//! ask for the name.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{Expr, OrderBy, OrderByKind, Query, SelectItem, SetExpr};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, generator, item_expr, quoted_ident};
use super::frame::Frame;
use super::naming::item_name;
use super::places::parts_of;
use super::scope::Scopes;
use crate::syntax::limits::RESERVED;

/// Gives the columns of the result that hide such columns names of their own.
pub(super) fn name_apart(query: &mut Query, scopes: &mut Scopes) {
    let Query { body, order_by, .. } = query;
    let SetExpr::Select(select) = body.as_mut() else { return };
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = order_by else { return };
    // There a name can mean the column of the result.
    if select.having.is_some() || select.qualify.is_some() {
        return;
    }
    let keys: Vec<&Expr> = keys.iter().map(|key| &key.expr).collect();
    if !keys.iter().any(|key| any(key, |part| matches!(part, Expr::CompoundIdentifier(_)))) {
        return;
    }
    let frame = scopes.frame(select);
    let (of_tables, alone) = names(&keys, &frame);
    for item in &mut select.projection {
        let Some(name) = item_name(item) else { continue };
        let lower = name.to_lowercase();
        let expr =
            item_expr(item).filter(|expr| generator(expr).is_none() && !is_column(expr, &name));
        let Some(expr) = expr.filter(|_| of_tables.contains(&lower) && !alone.contains(&lower))
        else {
            continue;
        };
        let alias = quoted_ident(format!("{name}{RESERVED}1"), Span::empty());
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}

/// The names of the columns that keys call by their tables, and those that stand alone; in lower
/// case.
fn names(keys: &[&Expr], frame: &Frame) -> (HashSet<String>, HashSet<String>) {
    let (mut of_tables, mut alone) = (HashSet::new(), HashSet::new());
    let mut note = |part: &Expr| {
        match part {
            Expr::CompoundIdentifier(parts) if frame.relation(&parts[0].value).is_some() => {
                of_tables.extend(parts.get(1).map(|column| column.value.to_lowercase()));
            }
            Expr::CompoundIdentifier(parts) => {
                alone.insert(parts[0].value.to_lowercase());
            }
            Expr::Identifier(name) => {
                alone.insert(name.value.to_lowercase());
            }
            _ => {}
        }
        false
    };
    for key in keys {
        any(key, &mut note);
    }
    (of_tables, alone)
}

/// Whether an item is a column called `name`.
fn is_column(expr: &Expr, name: &str) -> bool {
    let last = parts_of(expr).and_then(<[_]>::last);
    last.is_some_and(|last| last.value.eq_ignore_ascii_case(name))
}
