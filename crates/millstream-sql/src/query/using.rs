//! Joins that make one column of two: `JOIN ... USING (k)` and `NATURAL JOIN`.
//!
//! What `k` is depends on the join: the left side's column, the right side's where all rows of that
//! side are kept, and the first that is not NULL of a FULL JOIN. DataFusion takes the left one
//! always, and compares names with regard to case. So where that matters the joins get conditions,
//! and `k` and `*` become what they stand for.

use std::collections::{HashMap, HashSet};

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, ObjectNamePart, Select, SelectItem,
    TableFactor, TableWithJoins, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, binary, call, one_part, qualified, quoted_ident};
use super::frame::{Frame, Relation, Visible};
use super::laterals;
use super::wildcards::excepts;

/// The columns of `*`, and the conditions that joins have.
pub(crate) struct Joined {
    /// The columns.
    pub(crate) columns: Vec<Visible>,
    /// For each join, the condition that USING or NATURAL stands for.
    conditions: Vec<Option<Expr>>,
    /// Whether DataFusion cannot read them: a NATURAL JOIN has found several columns of a name on
    /// its left side, or so many joins make one column of several.
    is_beyond: bool,
}

/// How many joins DataFusion can have make one column.
const MERGES_MAX: usize = 2;

/// Whether DataFusion reads some of the joins otherwise.
fn is_read_otherwise(tables: &TableWithJoins, relations: &[Relation]) -> bool {
    let columns = || relations.iter().flat_map(|relation| relation.columns.iter().flatten());
    let differ = |name: &str| {
        columns().any(|other| other.name != name && other.name.eq_ignore_ascii_case(name))
    };
    tables.joins.iter().any(|join| {
        let Some(constraint) = join_constraint!(&join.join_operator) else { return false };
        let keeps_right = keeps_right(&join.join_operator);
        match constraint {
            JoinConstraint::Using(names) => {
                keeps_right || names.iter().filter_map(one_part).any(|name| differ(&name))
            }
            JoinConstraint::Natural => keeps_right || columns().any(|one| differ(&one.name)),
            _ => false,
        }
    })
}

/// Whether a join makes one column of two.
pub(crate) fn merges(from: &[TableWithJoins]) -> bool {
    let joins = from.iter().flat_map(|tables| &tables.joins);
    joins.filter_map(|join| join_constraint!(&join.join_operator)).any(is_merging)
}

/// What the columns of FROM are, where it is one chain of joins of known tables, some of which make
/// one column of two; or several such chains, the last of which is a LATERAL subquery.
pub(crate) fn joined(from: &[TableWithJoins], relations: &[Relation]) -> Option<Joined> {
    if !merges(from) || (from.len() > 1 && !laterals::has_lateral(from)) {
        return None;
    }
    let mut all = Joined { columns: Vec::new(), conditions: Vec::new(), is_beyond: false };
    let mut rest = relations;
    for tables in from {
        let (own, others) = rest.split_at_checked(tables.joins.len() + 1)?;
        rest = others;
        let chain = chain(tables, own)?;
        all.columns.extend(chain.columns);
        all.conditions.extend(chain.conditions);
        all.is_beyond |= chain.is_beyond;
    }
    rest.is_empty().then_some(all)
}

/// The columns of a chain of joins.
fn chain(tables: &TableWithJoins, relations: &[Relation]) -> Option<Joined> {
    let is_plain = |factor: &TableFactor| !matches!(factor, TableFactor::NestedJoin { .. });
    let mut joins = tables.joins.iter();
    if !is_plain(&tables.relation) || !joins.all(|join| is_plain(&join.relation)) {
        return None;
    }
    if let [only] = relations {
        let (columns, conditions) = (of_one(only)?, Vec::new());
        return Some(Joined { columns, conditions, is_beyond: false });
    }
    let (first, rest) = relations.split_first()?;
    let (mut left, mut conditions, mut is_beyond) = (of_relation(first)?, Vec::new(), false);
    let mut merges: HashMap<String, usize> = HashMap::new();
    for (join, relation) in tables.joins.iter().zip(rest) {
        let right = of_relation(relation)?;
        let names = match join_constraint!(&join.join_operator) {
            Some(JoinConstraint::Using(names)) => {
                names.iter().map(one_part).collect::<Option<Vec<_>>>()?
            }
            Some(JoinConstraint::Natural) => common_names(&left, &right),
            _ => Vec::new(),
        };
        let is_using =
            matches!(join_constraint!(&join.join_operator), Some(JoinConstraint::Using(_)));
        let mut merged = Vec::new();
        let mut condition: Option<Expr> = None;
        for name in &names {
            let only = find(&left, name);
            let count = merges.entry(name.to_lowercase()).or_default();
            *count += 1;
            is_beyond |= only.is_none() || *count > MERGES_MAX;
            // Spark's NATURAL takes the first of several.
            let first = only.or_else(|| first_of(&left, name).filter(|_| !is_using));
            let (one, other) = (first?, find(&right, name)?);
            let equal = binary(one.value.clone(), BinaryOperator::Eq, other.value.clone());
            condition = Some(match condition {
                Some(before) => binary(before, BinaryOperator::And, equal),
                None => equal,
            });
            merged.push(merge(&join.join_operator, one, other));
        }
        let is_key =
            |one: &Visible| names.iter().any(|name| name.eq_ignore_ascii_case(&one.column.name));
        let mut taken = HashSet::new();
        let others = left.into_iter().filter(|one| {
            let is_taken = is_key(one) && taken.insert(one.column.name.to_lowercase());
            !is_taken
        });
        let others: Vec<Visible> = others.collect();
        let right =
            right.into_iter().filter(|one| !is_key(one) && !hides_right(&join.join_operator));
        left = merged.into_iter().chain(others).chain(right).collect();
        conditions.push(condition);
    }
    Some(Joined { columns: left, conditions, is_beyond })
}

/// The names of columns that both sides of a NATURAL JOIN have, each once.
fn common_names(left: &[Visible], right: &[Visible]) -> Vec<String> {
    let mut seen = HashSet::new();
    let common = left.iter().filter(|one| {
        find(right, &one.column.name).is_some() && seen.insert(one.column.name.to_lowercase())
    });
    common.map(|one| one.column.name.clone()).collect()
}

/// Whether a join has the columns of its left side alone.
pub(super) fn hides_right(operator: &JoinOperator) -> bool {
    matches!(
        operator,
        JoinOperator::Semi(_)
            | JoinOperator::LeftSemi(_)
            | JoinOperator::Anti(_)
            | JoinOperator::LeftAnti(_)
    )
}

/// The columns of a relation that may have no name.
fn of_one(relation: &Relation) -> Option<Vec<Visible>> {
    if relation.name.is_some() {
        return of_relation(relation);
    }
    let columns = relation.columns.as_ref()?.iter().map(|column| {
        let value = Expr::Identifier(quoted_ident(column.name.clone(), Span::empty()));
        Visible { column: column.clone(), value, is_merged: false }
    });
    Some(columns.collect())
}

pub(super) fn of_relation(relation: &Relation) -> Option<Vec<Visible>> {
    let name = relation.name.as_ref()?;
    let columns = relation.columns.as_ref()?.iter().map(|column| {
        let value = qualified(name, &column.name);
        Visible { column: column.clone(), value, is_merged: false }
    });
    Some(columns.collect())
}

/// The only column called `name`, whatever its case.
fn find<'a>(columns: &'a [Visible], name: &str) -> Option<&'a Visible> {
    let mut found = columns.iter().filter(|one| one.column.name.eq_ignore_ascii_case(name));
    found.next().filter(|_| found.next().is_none())
}

/// The first column called `name`, whatever its case.
fn first_of<'a>(columns: &'a [Visible], name: &str) -> Option<&'a Visible> {
    columns.iter().find(|one| one.column.name.eq_ignore_ascii_case(name))
}

fn merge(operator: &JoinOperator, left: &Visible, right: &Visible) -> Visible {
    let value = match operator {
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => right.value.clone(),
        JoinOperator::FullOuter(_) => {
            call("coalesce", vec![left.value.clone(), right.value.clone()], Span::empty())
        }
        _ => left.value.clone(),
    };
    Visible { column: left.column.clone(), value, is_merged: true }
}

/// What the columns of `select` are, where DataFusion would read its joins otherwise.
pub(crate) fn read_otherwise(select: &Select, relations: &[Relation]) -> Option<Vec<Visible>> {
    let [only] = select.from.as_slice() else { return None };
    if !select.lateral_views.is_empty() {
        return None;
    }
    let joined = joined(&select.from, relations)?;
    (joined.is_beyond || is_read_otherwise(only, relations)).then_some(joined.columns)
}

/// What the columns of `select` are, where its joins make columns of two, as in
/// [`read_otherwise`].
pub(crate) fn merged(select: &Select, relations: &[Relation]) -> Option<Vec<Visible>> {
    let is_plain = select.lateral_views.is_empty();
    let joined = is_plain.then(|| joined(&select.from, relations)).flatten();
    joined.map(|joined| joined.columns)
}

/// Lets `frame` know what columns are that joins make of two, where DataFusion needs that:
/// `is_within` a subquery it would take such a column for one outside of it, and in WHERE, in a
/// LATERAL subquery and behind EXCEPT it finds two columns.
pub(crate) fn merge_columns(select: &Select, frame: &mut Frame, is_within: bool) {
    if frame.visible.is_some() {
        return;
    }
    let columns = merged(select, &frame.relations);
    let is_merged = |part: &Expr| match part {
        Expr::Identifier(name) => columns
            .iter()
            .flatten()
            .any(|one| one.is_merged && one.column.name.eq_ignore_ascii_case(&name.value)),
        _ => false,
    };
    let is_left_out = |item: &SelectItem| match item {
        SelectItem::Wildcard(options) => {
            columns.iter().flatten().any(|one| one.is_merged && excepts(options, &one.column.name))
        }
        _ => false,
    };
    let is_read = is_within
        || laterals::has_lateral(&select.from)
        || select.projection.iter().any(is_left_out)
        || select.selection.as_ref().is_some_and(|filter| any(filter, is_merged));
    if is_read {
        frame.visible = columns;
    }
}

/// Gives the columns of `JOIN ... USING (...)` their declared spelling.
pub(crate) fn spell_columns(select: &mut Select, frame: &Frame) {
    let joins = select.from.iter_mut().flat_map(|tables| &mut tables.joins);
    for join in joins {
        let Some(JoinConstraint::Using(names)) = join_constraint!(&mut join.join_operator) else {
            continue;
        };
        for part in names.iter_mut().flat_map(|name| &mut name.0) {
            if let ObjectNamePart::Identifier(ident) = part
                && let Some(found) = frame.resolve(std::slice::from_ref(ident))
            {
                ident.value = found.parts[0].clone();
            }
        }
    }
}

/// Gives the joins of `select` the conditions that USING and NATURAL stand for.
pub(crate) fn into_conditions(select: &mut Select, relations: &[Relation]) {
    let Some(joined) = joined(&select.from, relations) else { return };
    let joins = select.from.iter_mut().flat_map(|tables| &mut tables.joins);
    for (join, condition) in joins.zip(joined.conditions) {
        let constraint = join_constraint!(&mut join.join_operator);
        if let Some(constraint @ (JoinConstraint::Using(_) | JoinConstraint::Natural)) = constraint
        {
            *constraint = match condition {
                Some(condition) => JoinConstraint::On(condition),
                None => {
                    let span = Span::empty();
                    let always = ValueWithSpan { value: Value::Boolean(true), span };
                    JoinConstraint::On(Expr::Value(always))
                }
            };
        }
    }
}

/// Whether a join of `select` makes one column of two and keeps all rows of its right side.
pub(crate) fn keeps_right_and_merges(select: &Select) -> bool {
    select.from.iter().any(is_of_the_right)
}

fn is_of_the_right(tables: &TableWithJoins) -> bool {
    let own = tables.joins.iter().any(|join| {
        let constraint = join_constraint!(&join.join_operator);
        keeps_right(&join.join_operator) && constraint.is_some_and(is_merging)
    });
    let joined = tables.joins.iter().map(|join| &join.relation);
    let mut factors = std::iter::once(&tables.relation).chain(joined);
    own || factors.any(|factor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => is_of_the_right(table_with_joins),
        _ => false,
    })
}

fn keeps_right(operator: &JoinOperator) -> bool {
    matches!(
        operator,
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_)
    )
}

fn is_merging(constraint: &JoinConstraint) -> bool {
    matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
}
