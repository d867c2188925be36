//! LATERAL subqueries: which those are, and what they see.
//!
//! `streams` puts LATERAL before every subquery in FROM, so that sqlparser need not find them by
//! trial; a query's own is remembered by where its subquery begins ([`beginning`]).

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, Select, SelectItem, SetExpr, TableAlias, TableFactor,
    TableWithJoins, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{one_part, plain_alias, qualified, quoted_ident};
use super::frame::Frame;
use super::wildcards::excepts;

/// Where the first word of a query stands; the brackets before it are no part of the tree.
pub(crate) fn beginning(query: &Query) -> Option<Span> {
    match &query.with {
        Some(with) => Some(with.with_token.0.span),
        None => beginning_of_body(&query.body),
    }
}

fn beginning_of_body(body: &SetExpr) -> Option<Span> {
    match body {
        SetExpr::Select(select) => Some(select.select_token.0.span),
        SetExpr::Query(query) => beginning(query),
        SetExpr::SetOperation { left, .. } => beginning_of_body(left),
        _ => None,
    }
}

/// The columns of a relation of a query around the innermost one: `t.*` of a relation before the
/// subquery.
pub(crate) fn columns_of(
    frames: &[Frame],
    name: &ObjectName,
    options: &WildcardAdditionalOptions,
) -> Option<Vec<SelectItem>> {
    let (own, outer) = frames.split_last()?;
    let wanted = one_part(name)?;
    if own.relation(&wanted).is_some() {
        return None;
    }
    let relation = outer.iter().rev().find_map(|frame| frame.relation(&wanted))?;
    let table = relation.name.clone()?;
    let columns = relation.columns.as_ref()?.iter();
    let columns = columns.filter(|column| !excepts(options, &column.name)).map(|column| {
        let expr = qualified(&table, &column.name);
        let alias = quoted_ident(column.name.clone(), Span::empty());
        SelectItem::ExprWithAlias { expr, alias }
    });
    Some(columns.collect())
}

/// The column before a LATERAL subquery that a name in it means, where queries further out have one
/// of the name as well: DataFusion does not tell these apart. `frames` are those in sight, the
/// innermost first.
pub(super) fn nearest<'a>(
    mut frames: impl Iterator<Item = &'a Frame>,
    name: &Ident,
) -> Option<Expr> {
    let one = std::slice::from_ref(name);
    let frame = loop {
        let frame = frames.next()?;
        if frame.result_first && frame.alias(&name.value).is_some() {
            return None;
        }
        if frame.resolve(one).is_some() {
            break frame;
        }
    };
    let is_hidden = frame.is_before_lateral && frames.any(|around| around.resolve(one).is_some());
    is_hidden.then(|| frame.below(&name.value)).flatten()
}

/// Whether a FROM clause has such a subquery.
pub(crate) fn has_lateral(from: &[TableWithJoins]) -> bool {
    let is_lateral =
        |factor: &TableFactor| matches!(factor, TableFactor::Derived { lateral: true, .. });
    from.iter().any(|tables| {
        is_lateral(&tables.relation) || tables.joins.iter().any(|join| is_lateral(&join.relation))
    })
}

/// Gives the subqueries of a FROM clause names, where it has several relations: DataFusion takes
/// columns of the same name apart by the names of their relations.
pub(crate) fn name_subqueries(select: &mut Select) {
    let joins = select.from.iter().map(|tables| 1 + tables.joins.len()).sum::<usize>();
    if joins < 2 {
        return;
    }
    let mut number = 0;
    for tables in &mut select.from {
        let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut tables.relation).chain(joined) {
            if let TableFactor::Derived { alias: alias @ None, .. } = factor {
                number += 1;
                *alias = Some(unnamed(number));
            }
        }
    }
}

fn unnamed(number: usize) -> TableAlias {
    plain_alias(quoted_ident(format!("__relation_{number}"), Span::empty()))
}
