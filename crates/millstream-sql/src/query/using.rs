//! Joins that make one column of two: `JOIN ... USING (k)` and `NATURAL JOIN`.
//!
//! What `k` is depends on the join: the left side's column, the right side's where all rows of that
//! side are kept, and the first that is not NULL of a FULL JOIN. DataFusion takes the left one
//! always, and compares names with regard to case. So where that matters the joins get conditions,
//! and `k` and `*` become what they stand for.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, ObjectNamePart, Select, TableFactor,
    TableWithJoins, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, binary, call, one_part, qualified};
use super::frame::{Frame, Relation, Visible};

/// The columns of `*`, and the conditions that joins have.
pub(crate) struct Joined {
    /// The columns.
    pub(crate) columns: Vec<Visible>,
    /// For each join, the condition that USING or NATURAL stands for.
    conditions: Vec<Option<Expr>>,
}

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
            JoinConstraint::Using(_) => keeps_right,
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
/// one column of two.
pub(crate) fn joined(from: &[TableWithJoins], relations: &[Relation]) -> Option<Joined> {
    let [tables] = from else { return None };
    let is_plain = |factor: &TableFactor| !matches!(factor, TableFactor::NestedJoin { .. });
    let all_plain = is_plain(&tables.relation)
        && tables.joins.iter().all(|join| is_plain(&join.relation))
        && relations.len() == tables.joins.len() + 1;
    if !all_plain || !merges(from) {
        return None;
    }
    let (first, rest) = relations.split_first()?;
    let (mut left, mut conditions) = (of_relation(first)?, Vec::new());
    for (join, relation) in tables.joins.iter().zip(rest) {
        let right = of_relation(relation)?;
        let names = match join_constraint!(&join.join_operator) {
            Some(JoinConstraint::Using(names)) => {
                names.iter().map(one_part).collect::<Option<Vec<_>>>()?
            }
            Some(JoinConstraint::Natural) => {
                let is_common = |one: &&Visible| find(&right, &one.column.name).is_some();
                left.iter().filter(is_common).map(|one| one.column.name.clone()).collect()
            }
            _ => Vec::new(),
        };
        let mut merged = Vec::new();
        let mut condition: Option<Expr> = None;
        for name in &names {
            let (one, other) = (find(&left, name)?, find(&right, name)?);
            let equal = binary(one.value.clone(), BinaryOperator::Eq, other.value.clone());
            condition = Some(match condition {
                Some(before) => binary(before, BinaryOperator::And, equal),
                None => equal,
            });
            merged.push(merge(&join.join_operator, one, other));
        }
        let is_key =
            |one: &Visible| names.iter().any(|name| name.eq_ignore_ascii_case(&one.column.name));
        let others = left.into_iter().filter(|one| !is_key(one));
        let right =
            right.into_iter().filter(|one| !is_key(one) && !hides_right(&join.join_operator));
        left = merged.into_iter().chain(others).chain(right).collect();
        conditions.push(condition);
    }
    Some(Joined { columns: left, conditions })
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

fn of_relation(relation: &Relation) -> Option<Vec<Visible>> {
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
    let is_one = matches!(select.from.as_slice(), [only] if is_read_otherwise(only, relations));
    let is_plain = is_one && select.lateral_views.is_empty();
    let joined = is_plain.then(|| joined(&select.from, relations)).flatten();
    joined.map(|joined| joined.columns)
}

/// What the columns of `select` are, where its joins make columns of two, as in
/// [`read_otherwise`].
pub(crate) fn merged(select: &Select, relations: &[Relation]) -> Option<Vec<Visible>> {
    let is_plain = select.lateral_views.is_empty();
    let joined = is_plain.then(|| joined(&select.from, relations)).flatten();
    joined.map(|joined| joined.columns)
}

/// Lets `frame` know what columns are that joins make of two, where DataFusion needs that:
/// `is_within` a subquery it would take such a column for one outside of it, and in WHERE it finds
/// two columns.
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
    if is_within || select.selection.as_ref().is_some_and(|filter| any(filter, is_merged)) {
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
