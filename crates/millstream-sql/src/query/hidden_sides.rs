//! LEFT SEMI and LEFT ANTI joins, above which only the columns of their left side are seen.
//!
//! DataFusion finds a name in the right side, too, so that it takes a name that both have for
//! neither's. Here such a name becomes the column of the side that is seen.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::{Expr, Ident, JoinConstraint, JoinOperator, Select};

use super::ast::any;
use super::frame::{Frame, Relation, Visible};
use super::twins::{ambiguous, shown_relations};
use super::using::{hides_right, merges, of_relation};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// What names stand for in `select`, where a join hides one of its sides.
pub(super) fn visible(select: &Select, relations: &[Relation]) -> Option<Vec<Visible>> {
    let shown = shown_relations(select, relations)?;
    let is_known = relations.iter().all(|relation| relation.columns.is_some());
    let is_plain = is_known && select.lateral_views.is_empty() && !merges(&select.from);
    if !is_plain || shown.len() == relations.len() {
        return None;
    }
    let all = counts(relations.iter());
    let seen = counts(shown.iter().copied());
    let mut visible = Vec::new();
    for relation in shown {
        visible.extend(of_relation(relation)?);
    }
    for one in &mut visible {
        let name = one.column.name.to_lowercase();
        one.is_merged = seen.get(&name) == Some(&1) && all.get(&name) != Some(&1);
    }
    Some(visible)
}

/// How many columns of each name there are, by the name in lower case.
fn counts<'a>(relations: impl Iterator<Item = &'a Relation>) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for column in relations.flat_map(|relation| relation.columns.iter().flatten()) {
        *counts.entry(column.name.to_lowercase()).or_default() += 1;
    }
    counts
}

/// The condition of such a join sees both sides, so that a name that both have could be either's.
pub(super) fn check(lexed: &Lexed, select: &Select, frame: &Frame) -> Option<Diagnostic> {
    frame.visible.as_ref()?;
    let joins = select.from.iter().flat_map(|tables| &tables.joins);
    let mut conditions = joins.filter(|join| hides_right(&join.join_operator)).filter_map(|join| {
        match join_constraint!(&join.join_operator) {
            Some(JoinConstraint::On(condition)) => Some(condition),
            _ => None,
        }
    });
    let counts = counts(frame.relations.iter());
    let mut found: Option<Ident> = None;
    let mut is_several = |part: &Expr| match part {
        Expr::Identifier(name) if counts.get(&name.value.to_lowercase()) > Some(&1) => {
            found = Some(name.clone());
            true
        }
        _ => false,
    };
    if !conditions.any(|condition| any(condition, &mut is_several)) {
        return None;
    }
    found.map(|name| ambiguous(lexed, std::slice::from_ref(&name)))
}
