//! Joins that make one column of two: `JOIN ... USING (k)` and `NATURAL JOIN`.
//!
//! What `k` is depends on the join: the left side's column, the right side's where all rows of that
//! side are kept, and the first that is not NULL of a FULL JOIN. DataFusion takes the left one
//! always, and compares names with regard to case. So where that matters the joins get conditions,
//! and `k` and `*` become what they stand for.
//!
//! Such columns come first in `*`, in the order of USING, and those of a table first in `t.*`; to
//! DataFusion each stays among those of the table whose name comes first in the alphabet.

use std::collections::{HashMap, HashSet};

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, ObjectNamePart, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, binary, call, one_part, qualified, quoted_ident};
use super::frame::{Column, Frame, Relation, Visible};
use super::laterals;
use super::wildcards::excepts;

/// The columns of `*`, and the conditions that joins have.
pub(crate) struct Joined {
    /// The columns.
    pub(crate) columns: Vec<Visible>,
    /// Columns that only `t.k` and `t.*` have, since a join has made them and others one.
    hidden: Vec<Visible>,
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
    let mut all = Joined::of(Vec::new());
    let mut rest = relations;
    for tables in from {
        let (own, others) = rest.split_at_checked(tables.joins.len() + 1)?;
        rest = others;
        let chain = chain(tables, own)?;
        all.columns.extend(chain.columns);
        all.hidden.extend(chain.hidden);
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
        return Some(Joined::of(of_one(only)?));
    }
    let (first, rest) = relations.split_first()?;
    let mut left = Joined::of(of_relation(first)?);
    let mut merges: HashMap<String, usize> = HashMap::new();
    for (join, relation) in tables.joins.iter().zip(rest) {
        left.join(&join.join_operator, of_relation(relation)?, &mut merges)?;
    }
    Some(left)
}

impl Joined {
    fn of(columns: Vec<Visible>) -> Self {
        Self { columns, hidden: Vec::new(), conditions: Vec::new(), is_beyond: false }
    }

    /// Adds a relation; `merges` counts the joins that make one column of two, by its name.
    fn join(
        &mut self,
        operator: &JoinOperator,
        right: Vec<Visible>,
        merges: &mut HashMap<String, usize>,
    ) -> Option<()> {
        let left = std::mem::take(&mut self.columns);
        let names = match join_constraint!(operator) {
            Some(JoinConstraint::Using(names)) => {
                names.iter().map(one_part).collect::<Option<Vec<_>>>()?
            }
            Some(JoinConstraint::Natural) => common_names(&left, &right),
            _ => Vec::new(),
        };
        let is_using = matches!(join_constraint!(operator), Some(JoinConstraint::Using(_)));
        let mut pairs = Vec::with_capacity(names.len());
        for name in &names {
            let only = find(&left, name);
            let count = merges.entry(name.to_lowercase()).or_default();
            *count += 1;
            self.is_beyond |= only.is_none() || *count > MERGES_MAX;
            // Spark's NATURAL takes the first of several.
            let first = only.or_else(|| first_of(&left, name).filter(|_| !is_using));
            pairs.push((first?, find(&right, name)?));
        }
        self.conditions.push(condition(&pairs));
        let merged: Vec<Visible> =
            pairs.iter().map(|(one, other)| merge(operator, one, other)).collect();
        let mut hidden = hidden(operator, &pairs);
        hidden.append(&mut self.hidden);
        self.hidden = hidden;
        let is_key =
            |one: &Visible| names.iter().any(|name| name.eq_ignore_ascii_case(&one.column.name));
        let mut taken = HashSet::new();
        let others = left.iter().filter(|one| {
            let is_taken = is_key(one) && taken.insert(one.column.name.to_lowercase());
            !is_taken
        });
        let others = others.cloned().map(|mut one| {
            // To DataFusion the name could be that of the hidden side as well.
            one.is_merged |= hides_right(operator) && first_of(&right, &one.column.name).is_some();
            one
        });
        let shown = right.iter().filter(|one| !is_key(one) && !hides_right(operator)).cloned();
        self.columns = merged.into_iter().chain(others).chain(shown).collect();
        Some(())
    }
}

/// What USING or NATURAL stands for, whose columns are `pairs`.
fn condition(pairs: &[(&Visible, &Visible)]) -> Option<Expr> {
    let equal = pairs
        .iter()
        .map(|(one, other)| binary(one.value.clone(), BinaryOperator::Eq, other.value.clone()));
    equal.reduce(|before, equal| binary(before, BinaryOperator::And, equal))
}

/// The columns that a join hides, of those that it has made one of two each.
fn hidden(operator: &JoinOperator, pairs: &[(&Visible, &Visible)]) -> Vec<Visible> {
    let left = || pairs.iter().map(|(left, _)| (*left).clone());
    let right = || pairs.iter().map(|(_, right)| (*right).clone());
    match operator {
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => left().collect(),
        JoinOperator::FullOuter(_) => left().chain(right()).collect(),
        operator if hides_right(operator) => Vec::new(),
        _ => right().collect(),
    }
}

/// The columns of `t.*` in their order, where a join of `from` makes columns of two.
pub(crate) fn of_table(
    from: &[TableWithJoins],
    relations: &[Relation],
    table: &str,
) -> Option<Vec<Column>> {
    let Joined { columns, hidden, .. } = joined(from, relations)?;
    let of_table = hidden.into_iter().chain(columns).filter(|one| match &one.value {
        Expr::CompoundIdentifier(parts) => {
            parts.first().is_some_and(|first| first.value.eq_ignore_ascii_case(table))
        }
        _ => false,
    });
    // The name of a column that a join has made is that of one side.
    let columns = of_table.filter_map(|one| match &one.value {
        Expr::CompoundIdentifier(parts) => {
            let name = parts.last()?.value.clone();
            Some(Column { name, ..one.column })
        }
        _ => None,
    });
    Some(columns.collect())
}

/// Takes `t.*` of a plain `select` apart, where a join that makes columns of two moves some of them
/// to the front.
pub(crate) fn spell_stars(select: &mut Select, frame: &Frame) {
    if !merges(&select.from) {
        return;
    }
    for at in (0..select.projection.len()).rev() {
        let SelectItem::QualifiedWildcard(
            SelectItemQualifiedWildcardKind::ObjectName(name),
            options,
        ) = &select.projection[at]
        else {
            continue;
        };
        let relation = one_part(name).and_then(|name| frame.relation(&name));
        let Some((relation, table)) = relation.and_then(|it| Some((it, it.name.as_ref()?))) else {
            continue;
        };
        let Some(columns) = of_table(&select.from, &frame.relations, table) else { continue };
        let names = columns.iter().map(|column| &column.name);
        let is_in_order = names.eq(relation.columns.iter().flatten().map(|column| &column.name));
        if columns.is_empty() || is_in_order || options.opt_replace.is_some() {
            continue;
        }
        let kept = columns.iter().filter(|column| !excepts(options, &column.name));
        let items = kept.map(|column| SelectItem::UnnamedExpr(qualified(table, &column.name)));
        let items: Vec<SelectItem> = items.collect();
        select.projection.splice(at..=at, items);
    }
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
    let (of, value) = match operator {
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (right, right.value.clone()),
        JoinOperator::FullOuter(_) => {
            let values = vec![left.value.clone(), right.value.clone()];
            (left, call("coalesce", values, Span::empty()))
        }
        _ => (left, left.value.clone()),
    };
    Visible { column: of.column.clone(), value, is_merged: true }
}

/// What the columns of `select` are, where DataFusion would read its joins otherwise.
pub(crate) fn read_otherwise(select: &Select, relations: &[Relation]) -> Option<Vec<Visible>> {
    let [only] = select.from.as_slice() else { return None };
    if !select.lateral_views.is_empty() {
        return None;
    }
    let joined = joined(&select.from, relations)?;
    let is_star = |item: &SelectItem| matches!(item, SelectItem::Wildcard(_));
    let is_otherwise = joined.is_beyond
        || is_read_otherwise(only, relations)
        || only.joins.iter().any(|join| hides_right(&join.join_operator))
        || (select.projection.iter().any(is_star) && is_moved(&joined, relations));
    is_otherwise.then_some(joined.columns)
}

/// Whether DataFusion has the columns of `*` in another order: those that joins make of two where
/// the table has them whose name comes first.
fn is_moved(joined: &Joined, relations: &[Relation]) -> bool {
    let Some((first, others)) = relations.split_first() else { return false };
    let merged = joined.columns.iter().filter(|one| one.is_merged);
    let places = merged.zip(first.columns.iter().flatten());
    let mut places = places.map(|(one, column)| one.column.name == column.name);
    others.iter().any(|other| other.name < first.name) || places.any(|is_first| !is_first)
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
