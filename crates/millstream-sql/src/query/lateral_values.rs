//! An alias that is used further on in its own SELECT list, as what it stands for.
//!
//! To Spark `a` in `SELECT max(x) AS a, a + 1` is the alias, unless FROM has such a column; one of
//! a query around it comes after both. DataFusion knows no such aliases. To Spark the alias is one
//! value, so an expression that is another one each time is refused in its place; and so is what
//! Spark refuses: an alias in an aggregate, over a window, and in what GROUP BY names.
//!
//! What is put in is counted over a whole query, since each item can double the one before it.

use std::cell::Cell;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, Query, Select, SelectItem, Spanned, Value, ValueWithSpan, VisitMut,
    VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::{any, generator, item_expr, quoted_ident};
use super::frame::{Column, Frame, Relation};
use super::naming::expr_name;
use super::places::{Place, parts_of, path};
use super::routines::template::Contents;
use super::twins;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// How many expressions may be put in for the aliases of one query.
const SIZE_MAX: usize = 20_000;
/// How deep expressions may stand in each other then: planning goes as deep.
const DEPTH_MAX: usize = 300;
const SUBQUERY: &str = "compute it in a subquery in FROM";

/// What an alias stands for.
struct Definition {
    name: String,
    /// None where it is a generator, which makes rows.
    value: Option<Expr>,
}

/// An item with aliases in it.
struct Use {
    /// Its place in the SELECT list, from 1.
    position: usize,
    name: Option<String>,
    /// It has an aggregate besides what aliases stand for.
    aggregates: bool,
    at: tokenizer::Span,
}

/// Puts in the aliases of a SELECT list. `outermost` says that its names are those of the result;
/// `size` is how much was put in so far.
pub(super) fn put_in(
    lexed: &Lexed,
    select: &mut Select,
    frame: &Frame,
    outermost: bool,
    size: &Cell<usize>,
) -> Option<Diagnostic> {
    // A name could be a column that is not known.
    if frame.relations.iter().any(|relation| relation.columns.is_none()) {
        return None;
    }
    let mut known: Vec<Definition> = Vec::new();
    let mut uses = Vec::new();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let given = given_name(item, frame);
        let Some(expr) = expr_of(item) else { continue };
        // Spark finds no alias in the argument of a generator.
        let is_generator = generator(expr).is_some();
        if !is_generator
            && any(expr, |part| parts_of(part).is_some_and(|parts| names_one(&known, &parts[0])))
        {
            let written = expr.clone();
            let mut put = PutIn::new(lexed, frame, &known, size.get());
            let _: ControlFlow<()> = VisitMut::visit(expr, &mut put);
            size.set(put.size);
            if put.found.is_some() {
                return put.found;
            }
            if put.is_used {
                if Contents::of(expr).depth > DEPTH_MAX {
                    return Some(too_large(lexed, written.span()));
                }
                let aggregates = Contents::of(&written).aggregates;
                let (name, at_span) = (given.clone(), written.span());
                uses.push(Use { position: at + 1, name, aggregates, at: at_span });
                name_item(item, &written, outermost.then_some((lexed, frame, known.as_slice())));
            }
        }
        let value = item_expr(item).filter(|_| !is_generator).cloned();
        known.extend(given.map(|name| Definition { name, value }));
    }
    check_groups(lexed, select, frame, &uses).or_else(|| check_windows(lexed, select, &uses))
}

/// The name that later items can use for an item: its alias, or the field that it is.
fn given_name(item: &SelectItem, frame: &Frame) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
            let is_field = frame.resolve(parts).is_some_and(|found| found.is_field);
            parts.last().filter(|_| is_field).map(|last| last.value.clone())
        }
        _ => None,
    }
}

fn expr_of(item: &mut SelectItem) -> Option<&mut Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

fn names_one(known: &[Definition], name: &Ident) -> bool {
    known.iter().any(|one| one.name.eq_ignore_ascii_case(&name.value))
}

/// Gives an item without an alias the name that it has as it was `written`.
fn name_item(
    item: &mut SelectItem,
    written: &Expr,
    spelled: Option<(&Lexed, &Frame, &[Definition])>,
) {
    let SelectItem::UnnamedExpr(expr) = item else { return };
    let is_name = match written {
        Expr::Cast { expr, .. } => parts_of(expr).is_some(),
        other => parts_of(other).is_some(),
    };
    let mut named = written.clone();
    if let Some((lexed, frame, known)) = spelled.filter(|_| !is_name) {
        let mut put = PutIn { is_by_name: true, ..PutIn::new(lexed, frame, known, 0) };
        let _: ControlFlow<()> = VisitMut::visit(&mut named, &mut put);
    }
    let alias = quoted_ident(expr_name(&named), written.span());
    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
}

/// Puts aliases in one expression.
struct PutIn<'a> {
    lexed: &'a Lexed,
    frame: &'a Frame,
    known: &'a [Definition],
    /// They become their names as Spark writes them in a column's name.
    is_by_name: bool,
    place: Place,
    size: usize,
    is_used: bool,
    found: Option<Diagnostic>,
}

impl<'a> PutIn<'a> {
    fn new(lexed: &'a Lexed, frame: &'a Frame, known: &'a [Definition], size: usize) -> Self {
        let (is_by_name, place, is_used, found) = (false, Place::default(), false, None);
        Self { lexed, frame, known, is_by_name, place, size, is_used, found }
    }

    /// What is meant by a name, where it is an alias.
    fn alias(&self, parts: &[Ident]) -> Option<&'a Definition> {
        let is_other = !self.place.is_of_select(&parts[0]) || is_of_from(self.frame, parts);
        self.known.iter().find(|one| !is_other && one.name.eq_ignore_ascii_case(&parts[0].value))
    }

    fn value(&mut self, parts: &[Ident]) -> Result<Option<Expr>, Diagnostic> {
        let Some(definition) = self.alias(parts) else { return Ok(None) };
        let same = self.known.iter();
        let same = same.filter(|one| one.name.eq_ignore_ascii_case(&definition.name));
        if same.count() > 1 {
            return Err(twins::ambiguous(self.lexed, &parts[..1]));
        }
        let Some(value) = &definition.value else { return Ok(None) };
        self.is_used = true;
        if self.is_by_name {
            let name = parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join(".");
            let name = format!("lateralAliasReference({name})");
            return Ok(Some(Expr::Identifier(quoted_ident(name, parts[0].span))));
        }
        let contents = Contents::of(value);
        self.check(&parts[0], value, &contents)?;
        self.size = self.size.saturating_add(contents.expressions);
        if self.size > SIZE_MAX {
            return Err(too_large(self.lexed, parts[0].span));
        }
        Ok(Some(path(value.clone(), &parts[1..])))
    }

    /// Refuses an alias that cannot be what it stands for in this place.
    fn check(&self, name: &Ident, value: &Expr, contents: &Contents) -> Result<(), Diagnostic> {
        let is_function = |part: &Expr| matches!(part, Expr::Lambda(_));
        let problem = if self.place.is_over_rows() {
            "cannot stand in an aggregate or a call over a window"
        } else if contents.varies {
            "is another value each time"
        } else if contents.queries > 0 {
            "stands for a subquery"
        } else if self.place.is_in_function() && any(value, is_function) {
            "stands for a function x -> ..., and cannot be used in another one"
        } else {
            return Ok(());
        };
        let message = format!("`{}`, an alias of the same SELECT list, {problem}", name.value);
        let span = self.lexed.span(name.span);
        Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(SUBQUERY) })
    }
}

impl VisitorMut for PutIn<'_> {
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
        let Some(parts) = parts_of(expr) else { return ControlFlow::Continue(()) };
        match self.value(parts) {
            Ok(Some(value)) => *expr = value,
            Ok(None) => {}
            Err(diagnostic) => {
                self.found = Some(diagnostic);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Whether a name is something in FROM, or what stands for that.
fn is_of_from(frame: &Frame, parts: &[Ident]) -> bool {
    let first = &parts[0];
    let is_meant = |column: &Column| column.name.eq_ignore_ascii_case(&first.value);
    let has_it = |one: &Relation| one.columns.iter().flatten().any(is_meant);
    frame.resolve(parts).is_some()
        || frame.relation(&first.value).is_some()
        || frame.relations.iter().any(has_it)
        || frame.group_window(parts).is_some()
        || frame.stands_for_other(first)
}

fn too_large(lexed: &Lexed, at: tokenizer::Span) -> Diagnostic {
    let message = "with what its aliases stand for this query is too large to be planned";
    let diagnostic = Diagnostic::nowhere(message).help("compute parts of it in a subquery");
    Diagnostic { span: lexed.span(at), ..diagnostic }
}

/// GROUP BY cannot name an item that has aliases in it.
fn check_groups(lexed: &Lexed, select: &Select, frame: &Frame, uses: &[Use]) -> Option<Diagnostic> {
    let named = match &select.group_by {
        GroupByExpr::All(_) => uses.iter().find(|one| !one.aggregates),
        GroupByExpr::Expressions(groups, _) => {
            uses.iter().find(|one| groups.iter().any(|group| is_named(group, one, frame)))
        }
    }?;
    let message = "GROUP BY cannot name an expression that uses an alias of the SELECT list";
    let help = "write what the alias stands for in its place";
    let span = lexed.span(named.at);
    Some(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) })
}

fn is_named(group: &Expr, one: &Use, frame: &Frame) -> bool {
    let is_alias = |part: &Expr| match (part, &one.name) {
        (Expr::Identifier(name), Some(own)) => {
            own.eq_ignore_ascii_case(&name.value)
                && frame.resolve(std::slice::from_ref(name)).is_none()
        }
        _ => false,
    };
    any(group, is_alias) || is_at(group, one.position)
}

/// Whether a part of GROUP BY is the number of an item.
fn is_at(group: &Expr, position: usize) -> bool {
    match group {
        Expr::Nested(inner) => is_at(inner, position),
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
            digits.parse() == Ok(position)
        }
        Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
            sets.iter().flatten().any(|part| is_at(part, position))
        }
        Expr::Tuple(parts) => parts.iter().any(|part| is_at(part, position)),
        _ => false,
    }
}

/// Spark has no plan for HAVING below a window function beside such aliases.
fn check_windows(lexed: &Lexed, select: &Select, uses: &[Use]) -> Option<Diagnostic> {
    let first = uses.first().filter(|_| select.having.is_some())?;
    let is_window =
        |part: &Expr| matches!(part, Expr::Function(function) if function.over.is_some());
    select.projection.iter().filter_map(item_expr).find(|expr| any(expr, is_window))?;
    let message = "an alias of the same SELECT list cannot be used beside HAVING and OVER";
    let span = lexed.span(first.at);
    Some(Diagnostic { span, ..Diagnostic::nowhere(message).help(SUBQUERY) })
}
