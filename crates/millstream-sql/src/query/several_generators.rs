//! Several generators in one SELECT list, which Spark takes one after the other: each multiplies the
//! rows of those before it, as views of a table do.
//!
//! `SELECT explode(a), explode(b) FROM t` becomes `SELECT v.c AS col, w.c AS col FROM t LATERAL VIEW
//! explode(a) v AS c LATERAL VIEW explode(b) w AS c`, with names that no query has.

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, LateralView, ObjectName, ObjectNamePart, Select, SelectItem,
    TableFactor, TableWithJoins, Value,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, function_name, generator, item_expr, plain_alias, qualified, quoted_ident};
use super::frame::Column;
use super::generators;
use super::routines::built_in;
use super::rows::query_of;
use super::scope::Scopes;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Begins the names of the views and their columns.
const PREFIX: &str = "__generator";

/// Whether `select` has several generators that can be views of its table: nothing is computed of
/// all of its rows, and `*` does not show them.
pub(super) fn can_be_views(select: &Select) -> bool {
    let generators = select.projection.iter().filter(|item| generator_of(item).is_some());
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
    generators.count() > 1
        && one_table
        && !is_grouped
        && select.having.is_none()
        // WHERE comes before the views in Spark, and behind them here.
        && !select.selection.iter().any(|condition| any(condition, varies))
        && select.projection.iter().all(is_of_one_row)
}

/// The expression of an item that is a generator, and the names that it has.
fn generator_of(item: &SelectItem) -> Option<(&Expr, &[Ident])> {
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

fn is_of_one_row(item: &SelectItem) -> bool {
    let is_of_several = |expr: &Expr| match expr {
        Expr::Function(call) => call.over.is_some() || built_in::is_aggregate(&function_name(call)),
        _ => false,
    };
    let expr = generator_of(item).map(|(expr, _)| expr).or_else(|| item_expr(item));
    expr.is_some_and(|expr| !any(expr, is_of_several))
}

/// Makes views of the generators of `select`.
///
/// # Errors
/// A generator whose columns are not known.
pub(super) fn into_views(
    lexed: &Lexed,
    select: &mut Select,
    scopes: &mut Scopes,
) -> Result<(), Diagnostic> {
    if !can_be_views(select) {
        return Ok(());
    }
    let frame = scopes.frame(select);
    let (mut items, mut views) = (Vec::new(), Vec::new());
    for (number, item) in select.projection.iter().enumerate() {
        let Some((expr, names)) = generator_of(item) else {
            items.push(item.clone());
            continue;
        };
        generators::items(lexed, &frame, expr, names)?;
        let columns = generators::columns(&frame, expr, names).unwrap_or_default();
        let view = format!("{PREFIX}_{number}");
        views.push(view_of(&view, expr.clone(), columns.len()));
        items.extend(columns.into_iter().enumerate().map(|(at, column)| shown(&view, at, column)));
    }
    select.projection = items;
    select.lateral_views.extend(views);
    if select.from.is_empty() {
        select.from.push(one_row());
    }
    Ok(())
}

fn column_name(view: &str, at: usize) -> String {
    format!("{view}_{at}")
}

fn view_of(name: &str, generator: Expr, columns: usize) -> LateralView {
    let ident = |name: String| quoted_ident(name, Span::empty());
    LateralView {
        lateral_view: generator,
        lateral_view_name: ObjectName(vec![ObjectNamePart::Identifier(ident(name.to_owned()))]),
        lateral_col_alias: (0..columns).map(|at| ident(column_name(name, at))).collect(),
        outer: false,
    }
}

/// A column of a view, under the name that it has in the result.
fn shown(view: &str, at: usize, column: Column) -> SelectItem {
    let expr = qualified(view, &column_name(view, at));
    SelectItem::ExprWithAlias { expr, alias: quoted_ident(column.name, Span::empty()) }
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
