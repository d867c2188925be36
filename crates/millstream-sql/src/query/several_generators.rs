//! Several generators in one SELECT list, which Spark takes one after the other: each multiplies
//! the rows of those before it, as views of a table do.
//!
//! `SELECT explode(a), explode(b) FROM t` becomes `SELECT v.c AS col, w.c AS col FROM t LATERAL
//! VIEW explode(a) v AS c LATERAL VIEW explode(b) w AS c`, with names that no query has. So does
//! one whose columns are used further on in the list, by their names there.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Ident, LateralView, ObjectName, ObjectNamePart, Query, Select,
    SelectItem, TableFactor, TableWithJoins, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, function_name, generator, item_expr, plain_alias, qualified, quoted_ident};
use super::frame::{Column, Frame};
use super::generators;
use super::naming::item_name;
use super::routines::built_in;
use super::rows::query_of;
use super::scope::Scopes;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Begins the names of the views and their columns.
const PREFIX: &str = "__generator";

/// Whether the generators of `select` can be views of its table: nothing is computed of all of its
/// rows, and `*` does not show them.
pub(super) fn can_be_views(select: &Select) -> bool {
    let one_table = match select.from.as_slice() {
        [] => true,
        [TableWithJoins { relation: TableFactor::NestedJoin { .. }, .. }] => false,
        [table] => table.joins.is_empty(),
        _ => false,
    };
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(groups, modifiers) => !groups.is_empty() || !modifiers.is_empty(),
        GroupByExpr::All(_) => true,
    };
    one_table
        && !is_grouped
        && select.having.is_none()
        // WHERE comes before the views in Spark, and behind them here.
        && !select.selection.iter().any(|condition| any(condition, varies))
        && select.projection.iter().all(is_of_one_row)
}

/// The expression of an item that is a generator, and the names that it has.
pub(super) fn generator_of(item: &SelectItem) -> Option<(&Expr, &[Ident])> {
    let (expr, names) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, &[][..]),
        SelectItem::ExprWithAlias { expr, alias } => (expr, std::slice::from_ref(alias)),
        SelectItem::ExprWithAliases { expr, aliases } => (expr, aliases.as_slice()),
        _ => return None,
    };
    generator(expr).is_some().then_some((expr, names))
}

fn varies(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(call) if built_in::varies(&function_name(call)))
}

/// Whether an item needs no groups. A window is over the rows that generators have made.
fn is_of_one_row(item: &SelectItem) -> bool {
    let is_aggregate =
        |call: &Function| call.over.is_none() && built_in::is_aggregate(&function_name(call));
    match generator_of(item) {
        Some((expr, _)) => !has_call(expr, |call| {
            call.over.is_some() || built_in::is_aggregate(&function_name(call))
        }),
        None => item_expr(item).is_some_and(|expr| !has_call(expr, is_aggregate)),
    }
}

fn has_call(expr: &Expr, is: impl Fn(&Function) -> bool) -> bool {
    any(expr, |part| matches!(part, Expr::Function(call) if is(call)))
}

/// A generator that becomes a view.
struct Made {
    /// Which item it is.
    item: usize,
    view: LateralView,
    /// Its columns: their names in the result, and what they are.
    columns: Vec<(String, Expr)>,
    /// Whether the query names them.
    is_named: bool,
    /// Whether it reads columns of other generators.
    reads_others: bool,
}

/// Makes views of the generators of `select`, if it has several, or a window over their rows, or
/// uses the columns of one.
///
/// # Errors
/// A generator whose columns are not known.
pub(super) fn into_views(
    lexed: &Lexed,
    select: &mut Select,
    scopes: &mut Scopes,
) -> Result<(), Diagnostic> {
    let is_any = select.projection.iter().any(|item| generator_of(item).is_some());
    if !is_any || !can_be_views(select) {
        return Ok(());
    }
    let frame = scopes.frame(select);
    let mut made = Vec::new();
    for (at, item) in select.projection.iter().enumerate() {
        let Some((expr, names)) = generator_of(item) else { continue };
        generators::items(lexed, &frame, expr, names)?;
        let columns = generators::columns(&frame, expr, names).unwrap_or_default();
        made.push(Made { is_named: !names.is_empty(), ..view_of(at, expr.clone(), columns) });
    }
    let columns = usable(select, &made, &frame);
    let mut items = select.projection.clone();
    let mut uses = false;
    for (at, item) in items.iter_mut().enumerate() {
        let reads_others = put_in(item, &columns, &frame);
        uses |= reads_others;
        if let (Some(made), Some((expr, _))) =
            (made.iter_mut().find(|made| made.item == at), generator_of(item))
        {
            made.view.lateral_view = expr.clone();
            made.reads_others = reads_others;
        }
    }
    let is_window = |item: &SelectItem| {
        item_expr(item).is_some_and(|expr| has_call(expr, |call| call.over.is_some()))
    };
    if made.len() == 1 && !uses && !items.iter().any(is_window) {
        return Ok(());
    }
    for one in made.iter().rev() {
        let shown = one.columns.iter().map(|(name, expr)| shown(name, expr));
        items.splice(one.item..=one.item, shown);
    }
    // What others read comes before them.
    made.sort_by_key(|one| one.reads_others);
    select.projection = items;
    select.lateral_views.extend(made.into_iter().map(|one| one.view));
    if select.from.is_empty() {
        select.from.push(one_row());
    }
    Ok(())
}

/// The columns of generators that a name alone means further on, as an alias: nothing else in the
/// SELECT list has it, and no column of FROM.
fn usable(select: &Select, made: &[Made], frame: &Frame) -> Vec<(String, Expr)> {
    let aliases = select.projection.iter().filter(|item| generator_of(item).is_none());
    let aliases = aliases.filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.as_str()),
        _ => None,
    });
    if frame.relations.iter().any(|relation| relation.columns.is_none()) {
        return Vec::new();
    }
    let all = || made.iter().flat_map(|one| &one.columns);
    let names: Vec<&str> = aliases.chain(all().map(|(name, _)| name.as_str())).collect();
    let is_meant = |name: &str| {
        let same = names.iter().filter(|other| other.eq_ignore_ascii_case(name));
        same.count() == 1 && frame.resolve(&[Ident::new(name)]).is_none()
    };
    let named = made.iter().filter(|one| one.is_named).flat_map(|one| &one.columns);
    named.filter(|(name, _)| is_meant(name)).cloned().collect()
}

/// Puts such columns in the place of their names, under the name that the item has without that.
fn put_in(item: &mut SelectItem, columns: &[(String, Expr)], frame: &Frame) -> bool {
    let name = item_name(item);
    let (SelectItem::UnnamedExpr(expr)
    | SelectItem::ExprWithAlias { expr, .. }
    | SelectItem::ExprWithAliases { expr, .. }) = item
    else {
        return false;
    };
    let mut using = Using { columns, frame, within: 0, is_used: false };
    let _: ControlFlow<()> = VisitMut::visit(expr, &mut using);
    if !using.is_used {
        return false;
    }
    let renamed = match (&*item, &name) {
        (SelectItem::UnnamedExpr(expr), Some(name)) if generator(expr).is_none() => {
            Some(shown(name, expr))
        }
        _ => None,
    };
    if let Some(renamed) = renamed {
        *item = renamed;
    }
    true
}

struct Using<'a> {
    columns: &'a [(String, Expr)],
    frame: &'a Frame,
    /// In how many queries and functions `x -> ...` the visit is, which have names of their own.
    within: usize,
    is_used: bool,
}

impl Using<'_> {
    /// What a name of one or more parts means.
    fn meant(&self, parts: &[Ident]) -> Option<Expr> {
        let (first, fields) = parts.split_first()?;
        if self.frame.resolve(parts).is_some() || self.frame.relation(&first.value).is_some() {
            return None;
        }
        let mut columns = self.columns.iter();
        let (_, column) = columns.find(|(name, _)| name.eq_ignore_ascii_case(&first.value))?;
        let Expr::CompoundIdentifier(path) = column else { return None };
        Some(Expr::CompoundIdentifier(path.iter().chain(fields).cloned().collect()))
    }
}

impl VisitorMut for Using<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.within += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.within -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.within += usize::from(matches!(expr, Expr::Lambda(_)));
        let meant = match expr {
            Expr::Identifier(name) if self.within == 0 => self.meant(std::slice::from_ref(name)),
            Expr::CompoundIdentifier(parts) if self.within == 0 => self.meant(parts),
            _ => None,
        };
        if let Some(column) = meant {
            *expr = column;
            self.is_used = true;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.within -= usize::from(matches!(expr, Expr::Lambda(_)));
        ControlFlow::Continue(())
    }
}

fn view_of(item: usize, generator: Expr, columns: Vec<Column>) -> Made {
    let ident = |name: &str| quoted_ident(name.to_owned(), Span::empty());
    let name = format!("{PREFIX}_{item}");
    let named = columns.into_iter().enumerate().map(|(at, column)| {
        let own = format!("{name}_{at}");
        (column.name, qualified(&name, &own), ident(&own))
    });
    let (mut columns, mut aliases) = (Vec::new(), Vec::new());
    for (shown, column, alias) in named {
        columns.push((shown, column));
        aliases.push(alias);
    }
    let view = LateralView {
        lateral_view: generator,
        lateral_view_name: ObjectName(vec![ObjectNamePart::Identifier(ident(&name))]),
        lateral_col_alias: aliases,
        outer: false,
    };
    Made { item, view, columns, is_named: false, reads_others: false }
}

/// An item of the result under a name.
fn shown(name: &str, expr: &Expr) -> SelectItem {
    let alias = quoted_ident(name.to_owned(), Span::empty());
    SelectItem::ExprWithAlias { expr: expr.clone(), alias }
}

/// What a SELECT without FROM reads.
fn one_row() -> TableWithJoins {
    let ident = |name: &str| quoted_ident(format!("{PREFIX}_{name}"), Span::empty());
    let one = Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
    let item = SelectItem::ExprWithAlias { expr: one, alias: ident("one") };
    let subquery = Box::new(query_of(vec![item], Vec::new()));
    let alias = Some(plain_alias(ident("row")));
    let relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    TableWithJoins { relation, joins: Vec::new() }
}
