//! Names in HAVING that are columns of FROM as well as of the result; and GROUP BY ALL.
//!
//! In HAVING a name is the column of FROM where the rows are grouped by that, and else the column
//! of the result: in `SELECT k, sum(x) AS x FROM t GROUP BY k HAVING x > 1` it is the sum.
//! DataFusion takes the column of FROM always.
//!
//! `GROUP BY ALL` becomes the expressions that it stands for. DataFusion groups by them under their
//! aliases, and so does not find in HAVING and ORDER BY what has another name in FROM.
//!
//! Only in batch queries: how an expression of a query over a stream is planned is kept.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, Ident, Query, Select, SelectItem, TableFactor, TableWithJoins,
    Value, ValueWithSpan, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{any, generator, item_expr, plain_alias, quoted_ident};
use super::frame::{Column, Frame, Relation};
use super::naming::item_name;
use super::places::{Place, parts_of, path, typed};
use super::routines::template::Contents;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Gives HAVING and GROUP BY ALL of a batch query the form in which DataFusion reads them as Spark
/// does.
pub(super) fn settle(select: &mut Select, frame: &Frame) {
    spell_out_all(select, frame);
    let is_known = |one: &Relation| one.columns.is_some() && one.within.is_none();
    if !frame.relations.iter().all(is_known) {
        return;
    }
    let Some(mut having) = select.having.take() else { return };
    let (items, keys) = (select.projection.as_slice(), keys(select, frame));
    let mut names = Names { frame, items, keys, place: Place::default(), keeps_column: false };
    let _: ControlFlow<()> = VisitMut::visit(&mut having, &mut names);
    let keeps_column = names.keeps_column;
    select.having = Some(having);
    if keeps_column {
        name_subquery(select);
    }
}

/// Refuses a name in HAVING that nothing but a text of the SELECT list has, which is called by its
/// letters: to Spark it may be no name of a column.
pub(super) fn check(lexed: &Lexed, select: &Select, frame: &Frame) -> Option<Diagnostic> {
    let having = select.having.as_ref()?;
    if frame.relations.iter().any(|one| one.columns.is_none()) {
        return None;
    }
    let mut found = None;
    any(having, |part| {
        let Expr::Identifier(name) = part else { return false };
        let is_called = |item: &&SelectItem| {
            item_name(item).is_some_and(|own| own.eq_ignore_ascii_case(&name.value))
        };
        let mut items = select.projection.iter().filter(is_called).peekable();
        let is_text = items.peek().is_some() && items.all(is_plain_text);
        if is_text && columns(frame, name).next().is_none() {
            found = Some(name.clone());
        }
        found.is_some()
    });
    let name = found?;
    let message = format!("`{}` in HAVING is a text of the SELECT list, not a column", name.value);
    let help = format!("give the text the name: '{0}' AS {0}", name.value);
    Some(Diagnostic { span: lexed.span(name.span), ..Diagnostic::nowhere(message).help(help) })
}

fn is_plain_text(item: &SelectItem) -> bool {
    let SelectItem::UnnamedExpr(Expr::Value(literal)) = item else { return false };
    matches!(literal.value, Value::SingleQuotedString(_) | Value::DoubleQuotedString(_))
}

/// Gives a subquery that is all of FROM a name: DataFusion takes the alias of a column without a
/// table for the column.
fn name_subquery(select: &mut Select) {
    if let [TableWithJoins { relation: TableFactor::Derived { alias: alias @ None, .. }, joins }] =
        select.from.as_mut_slice()
        && joins.is_empty()
    {
        *alias = Some(plain_alias(quoted_ident("__relation_1".to_owned(), Span::empty())));
    }
}

/// Makes GROUP BY ALL the items without aggregates, where each of them is a plain expression.
fn spell_out_all(select: &mut Select, frame: &Frame) {
    let GroupByExpr::All(modifiers) = &select.group_by else { return };
    if !modifiers.is_empty() || frame.window.is_some() {
        return;
    }
    let (mut groups, mut seen) = (Vec::new(), HashSet::new());
    for item in &select.projection {
        let Some(mut expr) = item_expr(item) else { return };
        // A number in parentheses would be the place of an item.
        while let Expr::Nested(inner) = expr {
            expr = inner;
        }
        let contents = Contents::of(expr);
        if generator(expr).is_some() || contents.queries > 0 || contents.varies || is_over(expr) {
            return;
        }
        if !contents.aggregates && seen.insert(expr.to_string()) {
            groups.push(typed(expr.clone()));
        }
    }
    if !groups.is_empty() {
        select.group_by = GroupByExpr::Expressions(groups, Vec::new());
    }
}

fn is_over(expr: &Expr) -> bool {
    any(expr, |part| matches!(part, Expr::Function(Function { over: Some(_), .. })))
}

/// What the rows are grouped by.
fn keys(select: &Select, frame: &Frame) -> Vec<Expr> {
    let items = || select.projection.iter();
    match &select.group_by {
        GroupByExpr::All(_) => {
            let exprs = items().filter_map(item_expr);
            exprs.filter(|expr| !Contents::of(*expr).aggregates).cloned().collect()
        }
        GroupByExpr::Expressions(groups, _) => {
            let parts = groups.iter().flat_map(|group| match group {
                Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                    sets.iter().flatten().collect()
                }
                other => vec![other],
            });
            parts.map(|part| meant(select, frame, part).clone()).collect()
        }
    }
}

/// What a number or an alias in GROUP BY stands for.
fn meant<'a>(select: &'a Select, frame: &Frame, group: &'a Expr) -> &'a Expr {
    let found = match group {
        Expr::Nested(inner) => Some(meant(select, frame, inner)),
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
            let number = digits.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            number.and_then(|at| select.projection.get(at)).and_then(item_expr)
        }
        Expr::Identifier(name) if columns(frame, name).next().is_none() => {
            select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias }
                    if alias.value.eq_ignore_ascii_case(&name.value) =>
                {
                    Some(expr)
                }
                _ => None,
            })
        }
        _ => None,
    };
    found.unwrap_or(group)
}

/// The columns of FROM called `name`, whatever their case.
fn columns<'a>(
    frame: &'a Frame,
    name: &'a Ident,
) -> impl Iterator<Item = (&'a Relation, &'a Column)> {
    let all = frame.relations.iter().flat_map(|relation| {
        relation.columns.iter().flatten().map(move |column| (relation, column))
    });
    all.filter(move |(_, column)| column.name.eq_ignore_ascii_case(&name.value))
}

/// Whether the rows are grouped by a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Grouped {
    Yes,
    No,
    /// They are grouped by an expression with the column in it.
    Within,
}

/// The names of one HAVING.
struct Names<'a> {
    frame: &'a Frame,
    items: &'a [SelectItem],
    keys: Vec<Expr>,
    place: Place,
    /// A name is the column of FROM.
    keeps_column: bool,
}

impl Names<'_> {
    /// What takes the place of a name that is a column of FROM, but means one of the result.
    fn value(&mut self, parts: &[Ident]) -> Option<Expr> {
        let first = &parts[0];
        let is_other = !self.place.is_of_select(first)
            || self.place.is_over_rows()
            || self.frame.relation(&first.value).is_some()
            || self.frame.group_window(parts).is_some()
            || self.frame.stands_for_other(first);
        if is_other {
            return None;
        }
        let mut columns = columns(self.frame, first);
        let (relation, _) = columns.next()?;
        // A name that several columns have is none of them.
        let is_one = columns.next().is_none();
        if is_one {
            let found = self.frame.resolve(parts);
            let is_wrong = found.is_some_and(|found| found.wrong_field.is_some());
            match self.grouped(relation, parts) {
                Grouped::Yes if !is_wrong => {
                    self.keeps_column = true;
                    return None;
                }
                Grouped::Within => return None,
                _ => {}
            }
        }
        let own = |item: &&SelectItem| {
            item_name(item).is_some_and(|name| name.eq_ignore_ascii_case(&first.value))
        };
        let mut items = self.items.iter().filter(own).filter_map(item_expr);
        let item = items.next().filter(|_| items.next().is_none())?;
        let is_column = parts_of(item)
            .and_then(<[Ident]>::last)
            .is_some_and(|last| last.value.eq_ignore_ascii_case(&first.value));
        let contents = Contents::of(item);
        let is_value = generator(item).is_none() && contents.queries == 0 && !contents.varies;
        (is_value && !is_column && !is_over(item)).then(|| path(item.clone(), &parts[1..]))
    }

    /// Whether the rows are grouped by the column of `relation` that `parts` begins with, or by the
    /// field of it that they are.
    fn grouped(&self, relation: &Relation, parts: &[Ident]) -> Grouped {
        let is_named = |name: &Ident| name.value.eq_ignore_ascii_case(&parts[0].value);
        let mut found = Grouped::No;
        for key in &self.keys {
            let Some(names) = parts_of(key) else {
                let has_it = |part: &Expr| parts_of(part).is_some_and(|it| it.iter().any(is_named));
                if any(key, has_it) {
                    found = Grouped::Within;
                }
                continue;
            };
            let own = match self.frame.relation(&names[0].value) {
                Some(of) if names.len() > 1 && of.name == relation.name => &names[1..],
                Some(_) if names.len() > 1 => continue,
                _ => names,
            };
            let is_prefix = own.len() <= parts.len()
                && own
                    .iter()
                    .zip(parts)
                    .all(|(key, part)| key.value.eq_ignore_ascii_case(&part.value));
            if is_prefix {
                return Grouped::Yes;
            }
            if own.first().is_some_and(is_named) {
                found = Grouped::Within;
            }
        }
        found
    }
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.place.enter_query();
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.place.leave_query();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.place.enter(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.place.leave(expr);
        if let Some(value) = parts_of(expr).and_then(|parts| self.value(parts)) {
            *expr = value;
        }
        ControlFlow::Continue(())
    }
}
