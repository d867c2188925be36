//! `WITH RECURSIVE t AS (first UNION ALL rest)`, whose second part reads `t`: the rows that the
//! part before has made, until there are none.
//!
//! In the plan such a query has a name that says how often its second part may run, so that the
//! plan can be held to that when it runs ([`crate::recursion`]).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Query, SelectItem, SetExpr, SetOperator, SetQuantifier, TableFactor, Visit, VisitMut, Visitor,
    VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{one_part, plain_alias, quoted_ident};
use super::casts::as_int;
use super::rows::{query_around, query_of};

/// Whether the last part of a UNION reads something called `name`.
pub(super) fn names(query: &Query, name: &str) -> bool {
    let mut search = Search(name);
    match query.body.as_ref() {
        SetExpr::SetOperation { op: SetOperator::Union, right, .. } => {
            right.visit(&mut search).is_break()
        }
        _ => false,
    }
}

struct Search<'a>(&'a str);

impl Visitor for Search<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: None, .. }
                if one_part(name).is_some_and(|read| read.eq_ignore_ascii_case(self.0)) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The two parts of a query that may read itself, and whether all rows are kept.
pub(super) fn parts(query: &mut Query) -> Option<(&mut SetExpr, &mut SetExpr, bool)> {
    // DataFusion would pass over these.
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    match query.body.as_mut() {
        SetExpr::SetOperation { op: SetOperator::Union, left, right, set_quantifier }
            if is_plain =>
        {
            let all = *set_quantifier == SetQuantifier::All;
            Some((left.as_mut(), right.as_mut(), all))
        }
        _ => None,
    }
}

/// Makes a UNION that reads nothing of its own a query that is no UNION, which DataFusion reads as
/// it does without RECURSIVE.
pub(super) fn enclose(query: &mut Query) {
    if !matches!(query.body.as_ref(), SetExpr::SetOperation { op: SetOperator::Union, .. }) {
        return;
    }
    let inner = std::mem::replace(query, query_of(Vec::new(), Vec::new()));
    let alias = plain_alias(quoted_ident("__union".to_owned(), Span::empty()));
    let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
    *query = query_around(vec![all], inner, alias);
}

/// Gives the whole numbers of inline tables their type, as those in a SELECT list have it: what
/// reads the tables is planned with it.
pub(super) fn with_types(tables: &mut impl VisitMut) {
    let _: ControlFlow<()> = tables.visit(&mut Typing);
}

struct Typing;

impl VisitorMut for Typing {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Values(values) = query.body.as_mut() {
            values.rows.iter_mut().flat_map(|row| &mut row.content).for_each(as_int);
        }
        ControlFlow::Continue(())
    }
}

/// Moves the WITH clause of a query that may read itself into its first part, where the other part
/// reads nothing of it.
pub(super) fn move_with(query: &mut Query) {
    let Some(with) = &query.with else { return };
    let SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } = query.body.as_mut()
    else {
        return;
    };
    let is_read = |name: &str| Visit::visit(&**right, &mut Search(name)).is_break();
    if with.cte_tables.iter().any(|cte| is_read(&cte.alias.name.value)) {
        return;
    }
    let mut first = query_of(Vec::new(), Vec::new());
    std::mem::swap(&mut first.body, left);
    first.with = query.with.take();
    **left = SetExpr::Query(Box::new(first));
}
