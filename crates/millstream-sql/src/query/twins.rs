//! Several columns of one name in a SELECT list, which Spark allows and DataFusion does not.
//!
//! Those after the first get a name of their own in the plan: `x`, a mark, and a number. Whoever
//! shows the result to somebody takes that off again ([`shown`]). To name such a column in the
//! query around it is an error, as it is in Spark, since either could be meant.
//!
//! Only in batch queries: the columns of a stream's rows are known by their names later on, too.

use std::collections::{HashMap, HashSet};

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, ObjectNamePart, Select, SelectItem,
    SelectItemQualifiedWildcardKind, TableFactor, TableWithJoins, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{item_expr, one_part, qualified, quoted_ident};
use super::frame::{Column, Frame, Relation};
use super::naming::item_name;
use super::places::parts_of;
use super::using::{hides_right, merges};
use super::wildcards::excepted;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;
use crate::syntax::limits;

/// Stands between a name and its number. No name in a query has this character.
const MARK: char = limits::RESERVED;

/// The name of a result's column as Spark has it.
pub fn shown(name: &str) -> &str {
    match name.rsplit_once(MARK) {
        Some((shown, number)) if number.chars().all(|digit| digit.is_ascii_digit()) => shown,
        _ => name,
    }
}

/// The name and the table of each column in a SELECT list; no table for what is no plain column.
type Named = HashMap<String, Vec<Option<String>>>;

/// Gives the items of `select` names of their own where others have theirs. The result of the
/// `outermost` SELECT can have columns of one name that are columns of different tables.
pub(super) fn separate(select: &mut Select, frame: &Frame, outermost: bool) {
    let shown = shown_relations(select, &frame.relations).unwrap_or_default();
    let mut named = Named::new();
    for item in &select.projection {
        for (name, table) in of_wildcard(item, frame, &shown) {
            named.entry(name).or_default().push(table);
        }
    }
    for item in &mut select.projection {
        let Some(name) = item_name(item) else { continue };
        let table = table_of(item);
        let before = named.entry(name.clone()).or_default();
        let is_apart = outermost
            && table.is_some()
            && before.iter().all(|other| other.is_some() && *other != table);
        // To ORDER BY such a name is to order by a column of FROM, which none may hide.
        let hides = table.is_none() && frame.is_doubled(&name);
        let number = before.len() + 1;
        before.push(table);
        if (number > 1 || hides) && !is_apart {
            rename(item, &format!("{name}{MARK}{number}"));
        }
    }
}

/// The columns that `*` or `t.*` stands for, where they are known. `shown` are the relations whose
/// columns `*` has.
fn of_wildcard(
    item: &SelectItem,
    frame: &Frame,
    shown: &[&Relation],
) -> Vec<(String, Option<String>)> {
    let (relations, options) = match item {
        SelectItem::Wildcard(options) => (shown.to_vec(), options),
        SelectItem::QualifiedWildcard(
            SelectItemQualifiedWildcardKind::ObjectName(name),
            options,
        ) => {
            let relation = one_part(name).and_then(|name| frame.relation(&name));
            (relation.into_iter().collect(), options)
        }
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    for relation in relations {
        let table = relation.within.as_ref().or(relation.name.as_ref());
        let columns = relation.columns.iter().flatten();
        let kept = columns.filter(|column| !excepted(options, column));
        found.extend(kept.map(|column| (column.name.clone(), table.cloned())));
    }
    if matches!(item, SelectItem::Wildcard(_)) { merged_once(found, frame) } else { found }
}

/// `*` has a column once that USING or NATURAL makes of several.
fn merged_once(
    columns: Vec<(String, Option<String>)>,
    frame: &Frame,
) -> Vec<(String, Option<String>)> {
    let is_merged = |name: &str| {
        let names = frame.merged.as_deref();
        names.is_none_or(|names| names.iter().any(|merged| merged.eq_ignore_ascii_case(name)))
    };
    let mut seen = HashSet::new();
    let is_first = |(name, _): &(String, Option<String>)| {
        seen.insert(name.to_ascii_lowercase()) || !is_merged(name)
    };
    columns.into_iter().filter(is_first).collect()
}

fn table_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) if parts.len() == 2 => {
            Some(parts[0].value.clone())
        }
        _ => None,
    }
}

fn rename(item: &mut SelectItem, name: &str) {
    let alias = quoted_ident(name.to_owned(), Span::empty());
    match item {
        SelectItem::UnnamedExpr(expr) => {
            let expr = expr.clone();
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
        SelectItem::ExprWithAlias { alias: before, .. } => *before = alias,
        _ => {}
    }
}

/// Takes `*` apart, where it has several columns of one name that a query around `select` has to
/// tell apart.
pub(super) fn expand(select: &mut Select, frame: &Frame) {
    for at in (0..select.projection.len()).rev() {
        let SelectItem::Wildcard(options) = &select.projection[at] else { continue };
        if let Some(items) = expanded(select, frame, options) {
            select.projection.splice(at..=at, items);
        }
    }
}

/// The items that `*` stands for, where some of them have the same name and are columns of
/// different tables; `None` where DataFusion can read `*` itself, or the columns are not known.
fn expanded(
    select: &Select,
    frame: &Frame,
    options: &WildcardAdditionalOptions,
) -> Option<Vec<SelectItem>> {
    let is_plain = frame.visible.is_none()
        && frame.merged.as_ref().is_some_and(Vec::is_empty)
        && select.lateral_views.is_empty()
        && options.opt_replace.is_none()
        && !select.from.iter().any(hides_a_side);
    if !is_plain {
        return None;
    }
    let mut seen: Vec<&str> = Vec::new();
    let mut are_twins = false;
    let mut items = Vec::new();
    for relation in &frame.relations {
        let (name, columns) = (relation.name.as_ref()?, relation.columns.as_ref()?);
        let is_named_twice = frame.relations.iter().filter(|other| other.name == relation.name);
        if is_named_twice.count() > 1 || !twins_of(columns).is_empty() {
            return None;
        }
        for column in columns.iter().filter(|column| !excepted(options, column)) {
            are_twins |= seen.contains(&column.name.as_str());
            seen.push(&column.name);
            items.push(SelectItem::UnnamedExpr(qualified(name, &column.name)));
        }
    }
    are_twins.then_some(items)
}

/// The relations whose columns `*` has: all but one side of a semi or anti join. `None` where it is
/// not known which those are.
pub(super) fn shown_relations<'a>(
    select: &Select,
    relations: &'a [Relation],
) -> Option<Vec<&'a Relation>> {
    if !select.from.iter().any(hides_a_side) {
        return Some(relations.iter().collect());
    }
    let is_nested = |factor: &TableFactor| matches!(factor, TableFactor::NestedJoin { .. });
    let mut rest = relations.iter();
    let mut shown = Vec::new();
    for tables in &select.from {
        if is_nested(&tables.relation) {
            return None;
        }
        shown.push(rest.next()?);
        for join in &tables.joins {
            let relation = rest.next()?;
            match &join.join_operator {
                _ if is_nested(&join.relation) => return None,
                JoinOperator::RightSemi(_) | JoinOperator::RightAnti(_) => return None,
                operator if hides_right(operator) => {}
                _ => shown.push(relation),
            }
        }
    }
    shown.extend(rest);
    Some(shown)
}

fn hides_a_side(tables: &TableWithJoins) -> bool {
    let joined = tables.joins.iter().map(|join| &join.relation);
    let mut factors = std::iter::once(&tables.relation).chain(joined);
    let hides = |operator: &JoinOperator| {
        let hides_left =
            matches!(operator, JoinOperator::RightSemi(_) | JoinOperator::RightAnti(_));
        hides_left || hides_right(operator)
    };
    tables.joins.iter().any(|join| hides(&join.join_operator))
        || factors.any(|factor| match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => hides_a_side(table_with_joins),
            _ => false,
        })
}

/// Names that several of `columns` have, whatever their case; each once, in lower case.
fn twins_of(columns: &[Column]) -> Vec<String> {
    repeated_of(columns.iter().map(|column| column.name.to_ascii_lowercase()).collect())
}

/// What is in `names` more than once.
fn repeated_of(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    let pairs = names.windows(2).filter(|pair| pair[0] == pair[1]);
    let mut repeated: Vec<String> = pairs.map(|pair| pair[0].clone()).collect();
    repeated.dedup();
    repeated
}

fn has_twins(relation: &Relation, name: &str) -> bool {
    let columns = relation.columns.as_deref().unwrap_or_default();
    let is_meant = |column: &&Column| !column.is_again && column.name.eq_ignore_ascii_case(name);
    // Most columns have no namesake, and all are looked at for each name in a query.
    columns.iter().filter(is_meant).count() > 1
        && twins_of(columns).contains(&name.to_ascii_lowercase())
}

impl Frame {
    /// Whether a name of one or more parts could be several columns of one relation.
    pub(super) fn means_twins(&self, parts: &[Ident]) -> bool {
        let Some((first, rest)) = parts.split_first() else { return false };
        match (self.relation(&first.value), rest.first()) {
            (Some(relation), Some(column)) => has_twins(relation, &column.value),
            _ => self.relations.iter().any(|relation| has_twins(relation, &first.value)),
        }
    }

    /// Whether a name alone could be several columns, of a relation or of the result.
    pub(super) fn could_be_twins(&self, name: &Ident) -> bool {
        let one = std::slice::from_ref(name);
        let is_result =
            self.alias(&name.value).is_some() && (self.result_first || self.resolve(one).is_none());
        match is_result {
            true if self.is_doubled(&name.value) => true,
            true if self.result_first => false,
            _ => self.means_twins(one),
        }
    }

    /// Whether several columns of the result are called `name`, and are not the same column.
    fn is_doubled(&self, name: &str) -> bool {
        self.doubled.iter().any(|doubled| doubled.eq_ignore_ascii_case(name))
    }

    /// The column called `name` in FROM, which ORDER BY means where the result has several.
    pub(super) fn below(&self, name: &str) -> Option<Expr> {
        let mut found = None;
        for relation in &self.relations {
            for column in relation.columns.iter().flatten() {
                if !column.name.eq_ignore_ascii_case(name) {
                    continue;
                }
                let table = relation.name.as_deref()?;
                if found.replace(qualified(table, &column.name)).is_some() {
                    return None;
                }
            }
        }
        found
    }
}

/// What ORDER BY means by a name that several columns of the result have: the column of FROM.
///
/// # Errors
/// FROM has no such column, or several.
pub(super) fn below_result(
    lexed: &Lexed,
    frame: &Frame,
    name: &Ident,
) -> Result<Option<Expr>, Diagnostic> {
    if !frame.result_first || !frame.is_doubled(&name.value) {
        return Ok(None);
    }
    match frame.below(&name.value) {
        Some(column) => Ok(Some(column)),
        None => Err(ambiguous(lexed, std::slice::from_ref(name))),
    }
}

/// The names that several columns of a SELECT's result have, unless all are the same column.
pub(super) fn doubled(select: &Select, frame: &Frame) -> Vec<String> {
    let shown = shown_relations(select, &frame.relations).unwrap_or_default();
    let mut named: HashMap<String, Vec<Option<String>>> = HashMap::new();
    for item in &select.projection {
        for (name, _) in of_wildcard(item, frame, &shown) {
            named.entry(name.to_ascii_lowercase()).or_default().push(None);
        }
        if let Some(name) = item_name(item) {
            let column = item_expr(item).and_then(column_name);
            named.entry(name.to_ascii_lowercase()).or_default().push(column);
        }
    }
    // The columns of generators are among the aliases alone.
    let by_generators = repeated(&frame.aliases).into_iter().filter(|name| {
        let has_name = |alias: &&String| alias.eq_ignore_ascii_case(name);
        let count = frame.aliases.iter().filter(has_name).count();
        count > named.get(name).map_or(0, Vec::len)
    });
    let mut doubled: Vec<String> = by_generators.collect();
    for (name, values) in named {
        let is_same = |value: &Option<String>| value.is_some() && *value == values[0];
        if values.len() > 1 && !values.iter().all(is_same) {
            doubled.push(name);
        }
    }
    doubled
}

/// What tells items of a SELECT list apart that are plain columns without an alias; each other one,
/// by its `place`, is alone.
pub(super) fn plain_column(item: &SelectItem, frame: &Frame, place: usize) -> (String, usize) {
    // A field is another column each time.
    let is_column = |expr: &Expr| {
        let found = parts_of(expr).and_then(|parts| frame.resolve(parts));
        found.is_some_and(|found| !found.is_field)
    };
    let column = match item {
        SelectItem::UnnamedExpr(expr) if is_column(expr) => column_name(expr),
        _ => None,
    };
    column.map_or_else(|| (String::new(), place), |column| (column, 0))
}

/// The column that an expression is, by its name in lower case.
fn column_name(expr: &Expr) -> Option<String> {
    let parts = match expr {
        Expr::Identifier(name) => std::slice::from_ref(name),
        Expr::CompoundIdentifier(parts) => parts.as_slice(),
        _ => return None,
    };
    let parts: Vec<String> = parts.iter().map(|part| quoted(&part.value)).collect();
    Some(parts.join("."))
}

/// A part of a name, in lower case, so that a dot in it separates no parts.
fn quoted(part: &str) -> String {
    format!("`{}`", part.to_ascii_lowercase().replace('`', "``"))
}

/// The names that are in `names` more than once, whatever their case; in lower case.
pub(super) fn repeated(names: &[String]) -> Vec<String> {
    repeated_of(names.iter().map(|name| name.to_ascii_lowercase()).collect())
}

/// That a name is a column of two relations.
pub(super) fn of_both(lexed: &Lexed, ident: &Ident, relations: [&String; 2]) -> Diagnostic {
    let (name, [first, second]) = (&ident.value, relations.map(|relation| shown(relation)));
    let message = format!("`{name}` is a column of both `{first}` and `{second}`");
    let help = match first == second {
        true => "give one of them another name: FROM t JOIN t AS u".to_owned(),
        false => format!("say which: {first}.{name} or {second}.{name}"),
    };
    let span = lexed.span(ident.span);
    Diagnostic { span, ..Diagnostic::nowhere(message).help(help) }
}

/// That a name could be several columns.
pub(super) fn ambiguous(lexed: &Lexed, parts: &[Ident]) -> Diagnostic {
    let names: Vec<&str> = parts.iter().map(|part| part.value.as_str()).collect();
    let message = format!("`{}` is more than one column here", names.join("."));
    let help = "give one of them another name where they are selected: ... AS other";
    let span = parts.first().and_then(|first| lexed.span(first.span));
    Diagnostic { span, ..Diagnostic::nowhere(message).help(help) }
}

/// Names in USING and `* EXCEPT` that could be several columns, and NATURAL beside such columns;
/// and a lateral view that has a column of its table's, which are columns of one subquery here.
pub(super) fn check(lexed: &Lexed, select: &Select, frame: &Frame) -> Option<Diagnostic> {
    if frame.relations.iter().any(|relation| relation.within.is_some()) {
        let columns = frame.relations.iter().flat_map(|relation| relation.columns.iter().flatten());
        // Names that differ in case are told apart by their tables.
        let names = columns.map(|column| column.name.clone()).collect();
        if let Some(name) = repeated_of(names).first() {
            let message = format!("the table of a LATERAL VIEW has a column `{name}`, too");
            let help = format!("give the view's another name: LATERAL VIEW ... AS {name}_2");
            let span = lexed.span(select.select_token.0.span);
            return Some(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
        }
    }
    let options = select.projection.iter().filter_map(|item| match item {
        SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => Some(options),
        _ => None,
    });
    let lists = options.flat_map(|options| &options.opt_except);
    let left_out = lists.flat_map(|except| {
        std::iter::once(&except.first_element).chain(&except.additional_elements)
    });
    let mut left_out = left_out.peekable();
    if left_out.peek().is_none() && !merges(&select.from) {
        return None;
    }
    let twins = frame
        .relations
        .iter()
        .flat_map(|relation| twins_of(relation.columns.as_deref().unwrap_or_default()));
    let twins: Vec<String> = twins.collect();
    if twins.is_empty() {
        return None;
    }
    let is_twin = |name: &&Ident| twins.iter().any(|twin| twin.eq_ignore_ascii_case(&name.value));
    for join in select.from.iter().flat_map(|tables| &tables.joins) {
        match join_constraint!(&join.join_operator) {
            Some(JoinConstraint::Using(names)) => {
                let names = names.iter().flat_map(|name| &name.0);
                let mut names = names.filter_map(ObjectNamePart::as_ident);
                if let Some(name) = names.find(is_twin) {
                    return Some(ambiguous(lexed, std::slice::from_ref(name)));
                }
            }
            Some(JoinConstraint::Natural) => {
                return Some(ambiguous(lexed, &[Ident::new(twins[0].clone())]));
            }
            _ => {}
        }
    }
    left_out.find(is_twin).map(|name| ambiguous(lexed, std::slice::from_ref(name)))
}
