//! Aggregates of a query in the subqueries of its HAVING: `SELECT k FROM t GROUP BY k HAVING EXISTS
//! (SELECT 1 FROM s WHERE s.b < min(t.a))`.
//!
//! An aggregate in WHERE of a subquery, of columns that are not the subquery's, is one of the query
//! around it. DataFusion knows none, so what HAVING asks becomes a condition on grouped rows:
//! `SELECT k FROM (SELECT k, min(t.a) AS m FROM t GROUP BY k) WHERE EXISTS (SELECT 1 FROM s WHERE
//! s.b < m)`, with names that no query has. A query for which that could say something else stays
//! as it is, and is refused.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, function_name, generator, item_expr, plain_alias, qualified, quoted_ident};
use super::frame::Frame;
use super::naming::item_name;
use super::places::parts_of;
use super::routines::built_in;
use super::rows::{query_around, query_of};
use super::scope::Scopes;

/// Makes such a condition of HAVING.
pub(super) fn into_conditions(query: &mut Query, scopes: &mut Scopes) {
    if query.order_by.is_some() {
        return;
    }
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let has_query = |having: &Expr| {
        any(having, |part| {
            matches!(part, Expr::Exists { .. } | Expr::InSubquery { .. } | Expr::Subquery(_))
        })
    };
    if !select.having.as_ref().is_some_and(has_query) || !is_plain(select) {
        return;
    }
    if let Some(made) = around_groups(select, scopes) {
        **select = made;
    }
}

/// Whether HAVING can come after all else in `select`.
fn is_plain(select: &Select) -> bool {
    let is_window = |part: &Expr| matches!(part, Expr::Function(call) if call.over.is_some());
    let is_value = |item: &SelectItem| {
        item_expr(item).is_some_and(|expr| generator(expr).is_none() && !any(expr, is_window))
    };
    select.distinct.is_none()
        && select.qualify.is_none()
        && select.lateral_views.is_empty()
        && !matches!(select.group_by, GroupByExpr::All(_))
        && select.projection.iter().all(is_value)
}

fn around_groups(select: &Select, scopes: &mut Scopes) -> Option<Select> {
    let names = select.projection.iter().map(item_name).collect::<Option<Vec<_>>>()?;
    let is_repeated =
        |(at, name): (usize, &String)| names[..at].iter().any(|it| it.eq_ignore_ascii_case(name));
    if names.iter().enumerate().any(is_repeated) {
        return None;
    }
    let mut having = select.having.clone()?;
    let own = scopes.frame(select);
    let table = format!("__grouped_{}", scopes.next_number());
    let mut moving = Moving {
        own,
        table: &table,
        select,
        scopes,
        within: Vec::new(),
        moved: Vec::new(),
        has_outer: false,
        is_unclear: false,
    };
    let _: ControlFlow<()> = VisitMut::visit(&mut having, &mut moving);
    let Moving { moved, has_outer: true, is_unclear: false, .. } = moving else { return None };
    let mut grouped = select.clone();
    grouped.having = None;
    let shown = grouped.projection.iter().zip(&names).filter_map(|(item, name)| {
        let expr = item_expr(item)?.clone();
        Some(SelectItem::ExprWithAlias { expr, alias: ident(name) })
    });
    let added = moved.into_iter().enumerate().map(|(at, expr)| {
        let alias = ident(&added_name(&table, at));
        SelectItem::ExprWithAlias { expr, alias }
    });
    let items: Vec<SelectItem> = shown.chain(added).collect();
    grouped.projection = items;
    let body = Box::new(SetExpr::Select(Box::new(grouped)));
    let inner = Query { body, ..query_of(Vec::new(), Vec::new()) };
    let shown = names.iter().map(|name| SelectItem::UnnamedExpr(Expr::Identifier(ident(name))));
    let outer = query_around(shown.collect(), inner, plain_alias(ident(&table)));
    let SetExpr::Select(mut outer) = *outer.body else { return None };
    outer.selection = Some(having);
    Some(*outer)
}

fn ident(name: &str) -> Ident {
    quoted_ident(name.to_owned(), Span::empty())
}

/// The name of a column that is added to the grouped rows.
fn added_name(table: &str, at: usize) -> String {
    format!("{table}_{at}")
}

/// Moves what HAVING says of the rows of each group into columns of the groups.
struct Moving<'a> {
    /// What the query sees.
    own: Frame,
    /// The name of the grouped rows.
    table: &'a str,
    select: &'a Select,
    scopes: &'a mut Scopes,
    /// What the subqueries see that are being visited, innermost last.
    within: Vec<Frame>,
    moved: Vec<Expr>,
    /// A subquery has an aggregate of the query.
    has_outer: bool,
    /// A name could mean something else.
    is_unclear: bool,
}

fn is_aggregate(expr: &Expr) -> bool {
    match expr {
        Expr::Function(call) => call.over.is_none() && built_in::is_aggregate(&function_name(call)),
        _ => false,
    }
}

impl Moving<'_> {
    /// Whether a name within a subquery means a column of the query.
    fn is_own(&self, parts: &[Ident]) -> bool {
        let is_inner = self.within.iter().any(|frame| frame.resolve(parts).is_some());
        !is_inner && self.own.resolve(parts).is_some()
    }

    /// Whether an aggregate within a subquery is of columns of the query alone.
    fn is_outer(&self, aggregate: &Expr) -> bool {
        let is_other = |part: &Expr| parts_of(part).is_some_and(|parts| !self.is_own(parts));
        any(aggregate, |part| parts_of(part).is_some()) && !any(aggregate, is_other)
    }

    fn move_out(&mut self, expr: &mut Expr) {
        let known = self.moved.iter().position(|known| *known == *expr);
        let at = known.unwrap_or_else(|| {
            self.moved.push(expr.clone());
            self.moved.len() - 1
        });
        *expr = qualified(self.table, &added_name(self.table, at));
    }

    /// A name in HAVING itself. One that an item of the SELECT list has stays, as that of a column
    /// of the groups, unless it is a column of FROM as well.
    fn name(&mut self, expr: &mut Expr) {
        let Some(parts) = parts_of(expr) else { return };
        if self.own.resolve(parts).is_none() {
            return;
        }
        let is_named = |item: &SelectItem| match (item, parts) {
            (SelectItem::ExprWithAlias { alias, .. }, [name]) => {
                alias.value.eq_ignore_ascii_case(&name.value)
            }
            _ => false,
        };
        self.is_unclear |= self.select.projection.iter().any(is_named);
        self.move_out(expr);
    }
}

impl VisitorMut for Moving<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let frame = self.scopes.frame(select);
        self.is_unclear |= frame.relations.iter().any(|relation| relation.columns.is_none());
        self.within.push(frame);
        // Elsewhere than in WHERE an aggregate may be the subquery's.
        let exprs = select.projection.iter().filter_map(item_expr).chain(&select.having);
        let is_outer = |part: &Expr| is_aggregate(part) && self.is_outer(part);
        let is_elsewhere = exprs.into_iter().any(|expr| any(expr, is_outer));
        self.is_unclear |= is_elsewhere;
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<()> {
        self.within.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let is_within = !self.within.is_empty();
        // Its parameters hide columns.
        self.is_unclear |= matches!(expr, Expr::Lambda(_));
        if is_aggregate(expr) {
            if !is_within {
                self.move_out(expr);
            } else if self.is_outer(expr) {
                self.has_outer = true;
                self.move_out(expr);
            }
        } else if !is_within {
            self.name(expr);
        } else if parts_of(expr).is_some_and(|parts| self.is_own(parts)) {
            self.move_out(expr);
        }
        ControlFlow::Continue(())
    }
}
