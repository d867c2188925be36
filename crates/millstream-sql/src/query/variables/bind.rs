//! Puts the values of variables in the places of names that mean them.
//!
//! As in Spark a name is a column where a query in sight has one, else a name that the SELECT list
//! gives, else a variable: `total`, `session.total` or `system.session.total`, and behind it the
//! fields of its STRUCT. Where the columns of a table are not known a name could be either, and is
//! refused.
//!
//! A value is a call of a function that has it ([`super::known::function_of`]), whose argument is
//! what Spark shows of it in the names of columns. Once columns have their names, a text becomes a
//! literal: there are functions that have to know a text before the query runs.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Function, Ident, OneOrManyWithParens, Query, Select, SelectItem, Spanned,
    TableFactor, VisitMut, VisitorMut, With,
};
use datafusion::sql::sqlparser::tokenizer::{self, Location, Token};

use super::super::ast::{any, call, function_name, generator, quoted_ident, text};
use super::super::frame::Frame;
use super::super::naming::expr_name;
use super::super::prepared::{ReadMode, TableRead};
use super::super::scope::Scopes;
use super::super::{units, words};
use super::known::{BYTES_MAX, FUNCTION_PREFIX, Variable, function_of, places};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::nearest::suggest;
use crate::recursion::levels;
use crate::syntax::lexer::Lexed;
use crate::types::spark_type;

/// Words that begin a step of a query behind `|`, and may be names.
const STEPS: &[&str] = &["aggregate", "as", "drop", "extend", "pivot", "set", "unpivot", "window"];

/// Puts the values of `variables` into `query`, whose tables are resolved to `reads`.
pub(crate) fn put_in(
    lexed: &Lexed,
    query: &mut Query,
    reads: &[TableRead],
    variables: &[Arc<Variable>],
) -> Result<(), Diagnostics> {
    if variables.is_empty() {
        return Ok(());
    }
    let tables = reads.iter().map(|read| (read.registered_as.clone(), read.schema.clone()));
    let mut binder = Binder {
        lexed,
        variables,
        places: places(variables),
        is_stream: reads.iter().any(|read| read.mode == ReadMode::Stream),
        scopes: Scopes::new(tables.collect(), true),
        taken: Vec::new(),
        levels: Vec::new(),
        hidden: Vec::new(),
        visited: Vec::new(),
        lambdas: Vec::new(),
        words: HashSet::new(),
        bytes: 0,
        found: Diagnostics::default(),
    };
    let _: ControlFlow<()> = VisitMut::visit(query, &mut binder);
    binder.found.into_result()?;
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Texts { variables });
    Ok(())
}

/// What the expressions of a query see of it.
struct Level {
    frame: Frame,
    /// The names that its SELECT list gives.
    aliases: Vec<Alias>,
    /// This is what ORDER BY sees.
    orders: bool,
}

/// A name that an item of a SELECT list is given.
struct Alias {
    lower: String,
    /// Where it is written: only what follows sees it. ORDER BY sees all of them, and what has no
    /// place.
    at: Option<Location>,
}

impl Alias {
    fn of(ident: &Ident) -> Self {
        let at = Some(ident.span.start).filter(|at| at.line > 0);
        Self { lower: ident.value.to_lowercase(), at }
    }

    fn is_seen_by(&self, name: &Ident) -> bool {
        let place = name.span.start;
        place.line == 0 || self.at.is_none_or(|at| at < place)
    }
}

struct Binder<'a> {
    lexed: &'a Lexed,
    variables: &'a [Arc<Variable>],
    /// Where each is among them, by its name in lower case.
    places: HashMap<String, usize>,
    /// A table is read as a stream.
    is_stream: bool,
    scopes: Scopes,
    /// WITH clauses taken out of the queries being visited, and how many names were visible.
    taken: Vec<(Option<With>, usize)>,
    /// Those of the queries being visited, innermost last.
    levels: Vec<Level>,
    /// Which of them are of a SELECT in whose FROM a subquery is being visited, that does not see
    /// what stands beside it. A LATERAL one has a level of what stands before it instead.
    hidden: Vec<usize>,
    /// By SELECT being visited, how many relations of its FROM clause have been.
    visited: Vec<usize>,
    /// The parameters of the functions `x -> ...` being visited, in lower case.
    lambdas: Vec<Vec<String>>,
    /// Where words stand that look like names and are none: fields, units of time.
    words: HashSet<Location>,
    /// How many bytes the values have that were put in.
    bytes: usize,
    found: Diagnostics,
}

impl VisitorMut for Binder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let known = self.scopes.ctes.len();
        let mut with = query.with.take();
        for cte in with.iter_mut().flat_map(|with| &mut with.cte_tables) {
            let (alias, before) = (cte.alias.clone(), cte.query.clone());
            let reads_itself = levels(&alias.name.value).is_some();
            if reads_itself {
                self.scopes.add_cte(&alias, &before);
            }
            VisitMut::visit(&mut cte.query, self)?;
            if !reads_itself {
                self.scopes.add_cte(&alias, &before);
            }
        }
        self.taken.push((with, known));
        let frame = self.scopes.frame_of_body(&query.body);
        let aliases =
            frame.aliases.iter().map(|name| Alias { lower: name.to_lowercase(), at: None });
        let aliases = aliases.collect();
        self.levels.push(Level { frame, aliases, orders: true });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.levels.pop();
        if let Some((with, known)) = self.taken.pop() {
            query.with = with;
            self.scopes.ctes.truncate(known);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let frame = self.scopes.frame(select);
        let aliases = select.projection.iter().flat_map(given_names).collect();
        self.levels.push(Level { frame, aliases, orders: false });
        self.visited.push(0);
        for item in &mut select.projection {
            self.keep_name(item);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        self.levels.pop();
        self.visited.pop();
        select.projection.iter_mut().for_each(name_value);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { lateral, .. } = factor {
            let before = lateral.then(|| self.before());
            self.hidden.push(self.levels.len().saturating_sub(1));
            self.levels.extend(before);
        }
        // The tables of a join in parentheses are counted one by one.
        let is_one = !matches!(factor, TableFactor::NestedJoin { .. });
        if let Some(visited) = self.visited.last_mut() {
            *visited += usize::from(is_one);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { lateral, .. } = factor {
            self.hidden.pop();
            if *lateral {
                self.levels.pop();
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(lambda) => {
                let parameters = match &lambda.params {
                    OneOrManyWithParens::One(parameter) => std::slice::from_ref(parameter),
                    OneOrManyWithParens::Many(parameters) => parameters.as_slice(),
                };
                let names = parameters.iter().map(|one| one.name.value.to_lowercase());
                self.lambdas.push(names.collect());
            }
            Expr::CompoundFieldAccess { access_chain, .. } => {
                let fields = access_chain.iter().filter_map(|access| match access {
                    AccessExpr::Dot(Expr::Identifier(field)) => Some(field.span.start),
                    _ => None,
                });
                self.words.extend(fields);
            }
            Expr::Function(function) => {
                self.words.extend(units::unit(function).map(|unit| unit.span.start));
            }
            Expr::Struct { values, fields } if fields.is_empty() => {
                let checked = self.check_struct(values);
                return self.keep(checked);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Some(parts) = parts(expr) else {
            if let Expr::Lambda(_) = expr {
                self.lambdas.pop();
            }
            return ControlFlow::Continue(());
        };
        match self.value(parts) {
            Ok(Some(value)) => *expr = value,
            Ok(None) => {}
            Err(diagnostic) => return self.keep(Err(diagnostic)),
        }
        ControlFlow::Continue(())
    }
}

/// The parts of an expression that is a name.
fn parts(expr: &Expr) -> Option<&[Ident]> {
    match expr {
        Expr::Identifier(ident) => Some(std::slice::from_ref(ident)),
        Expr::CompoundIdentifier(parts) => Some(parts),
        _ => None,
    }
}

/// The names that an item of a SELECT list is given, where it would have others.
fn given_names(item: &SelectItem) -> Vec<Alias> {
    match item {
        SelectItem::ExprWithAlias { expr: Expr::Identifier(name), alias }
            if name.value.eq_ignore_ascii_case(&alias.value) =>
        {
            Vec::new()
        }
        SelectItem::ExprWithAlias { alias, .. } => vec![Alias::of(alias)],
        SelectItem::ExprWithAliases { aliases, .. } => aliases.iter().map(Alias::of).collect(),
        _ => Vec::new(),
    }
}

/// Gives an item that has a value of a variable in it the name that Spark has for it.
fn name_value(item: &mut SelectItem) {
    let SelectItem::UnnamedExpr(expr) = item else { return };
    let is_value = |expr: &Expr| matches!(expr, Expr::Function(call) if place(call).is_some());
    if generator(expr).is_some() || !any(expr, is_value) {
        return;
    }
    let alias = quoted_ident(expr_name(expr), expr.span());
    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
}

/// Which variable a call gives the value of.
fn place(function: &Function) -> Option<usize> {
    function_name(function).strip_prefix(FUNCTION_PREFIX)?.parse().ok()
}

impl Binder<'_> {
    fn keep(&mut self, checked: Result<(), Diagnostic>) -> ControlFlow<()> {
        match checked {
            Ok(()) => ControlFlow::Continue(()),
            Err(diagnostic) => {
                self.found.0.push(diagnostic);
                ControlFlow::Break(())
            }
        }
    }

    fn refused(&self, at: tokenizer::Span, message: String, help: impl Into<String>) -> Diagnostic {
        let span = self.lexed.span(at);
        Diagnostic { span, ..Diagnostic::nowhere(message).help(help) }
    }

    /// What a LATERAL subquery sees of the SELECT in whose FROM it is: the relations before it.
    fn before(&self) -> Level {
        let count = self.visited.last().copied().unwrap_or(0);
        let relations = self.levels.last().map(|level| &level.frame.relations);
        let relations = relations.into_iter().flatten().take(count).cloned().collect();
        let frame = Frame { relations, ..Frame::default() };
        Level { frame, aliases: Vec::new(), orders: false }
    }

    /// An item that is a variable alone is called by the variable's name, as it is written, and one
    /// that is a marker alone by its value.
    fn keep_name(&self, item: &mut SelectItem) {
        let SelectItem::UnnamedExpr(expr) = item else { return };
        let mut inner = &*expr;
        while let Expr::Nested(within) = inner {
            inner = within;
        }
        let Some(parts) = parts(inner) else { return };
        let (Ok(Some((at, _))), Some(last)) = (self.meant(parts), parts.last()) else { return };
        let variable = &self.variables[at];
        let name = if variable.is_marker { variable.shown() } else { last.value.clone() };
        let alias = quoted_ident(name, last.span);
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }

    /// A field of `struct(...)` has the name of the column that it is.
    fn check_struct(&self, values: &[Expr]) -> Result<(), Diagnostic> {
        for parts in values.iter().filter_map(parts) {
            if self.meant(parts)?.is_some_and(|(at, _)| !self.variables[at].is_marker) {
                let name = &parts[parts.len() - 1].value;
                let message = format!("the variable `{name}` is a field without a name");
                let help = format!("write struct({name} AS {name})");
                return Err(self.refused(parts[0].span, message, help));
            }
        }
        Ok(())
    }

    /// The variable that a name would be, and how many of its parts say so.
    fn variable(&self, parts: &[Ident]) -> Option<(usize, usize)> {
        let is = |at: usize, word: &str| parts[at].value.eq_ignore_ascii_case(word);
        let known = |at: usize| self.places.get(&parts.get(at)?.value.to_lowercase()).copied();
        if parts.len() > 2 && is(0, "system") && is(1, "session") {
            return known(2).map(|found| (found, 3));
        }
        let in_schema = known(1).filter(|_| is(0, "session")).map(|found| (found, 2));
        in_schema.or_else(|| {
            let found = known(0)?;
            let data_type = self.variables[found].field.data_type();
            let may_be = parts.len() == 1 || matches!(data_type, DataType::Struct(_));
            may_be.then_some((found, 1))
        })
    }

    /// The variable that a name is, and how many of its parts say so.
    fn meant(&self, parts: &[Ident]) -> Result<Option<(usize, usize)>, Diagnostic> {
        let (Some(found), Some(first)) = (self.variable(parts), parts.first()) else {
            return Ok(None);
        };
        let is_bare = first.quote_style.is_none() && parts.len() == 1;
        let is_all = is_bare && first.value.eq_ignore_ascii_case("all");
        let lower = first.value.to_lowercase();
        let is_parameter = self.lambdas.iter().flatten().any(|name| *name == lower);
        // Where no column has this name it is a function without parentheses.
        let is_function = parts.len() == 1 && words::is_word(&first.value);
        if is_all || is_function || is_parameter || self.words.contains(&first.span.start) {
            return Ok(None);
        }
        let innermost = self.levels.len().saturating_sub(1);
        for (at, level) in self.levels.iter().enumerate().rev() {
            // Before the level of a SELECT stands that of its query.
            if self.hidden.iter().any(|of| *of == at || *of == at + 1) {
                continue;
            }
            let mut columns =
                level.frame.relations.iter().flat_map(|one| one.columns.iter().flatten());
            let is_column = level.frame.resolve(parts).is_some()
                || columns.any(|column| column.name.to_lowercase() == lower);
            let sees_aliases = !level.orders || at == innermost;
            let named = |alias: &Alias| alias.lower == lower && alias.is_seen_by(first);
            let is_alias = sees_aliases && parts.len() == 1 && level.aliases.iter().any(named);
            if is_column || is_alias {
                return Ok(None);
            }
            if level.frame.relations.iter().any(|relation| relation.columns.is_none()) {
                let message = format!("`{}` may be a variable or a column", first.value);
                let help = "name the columns of what is in FROM: (...) AS t(id)";
                return Err(self.refused(first.span, message, help));
            }
        }
        Ok(Some(found))
    }

    /// Whether Spark takes `|` and a word for what we write `|>` for.
    fn begins_step(&self, first: &Ident) -> bool {
        let is_step = STEPS.iter().any(|word| first.value.eq_ignore_ascii_case(word));
        if first.quote_style.is_some() || !is_step {
            return false;
        }
        let start = self.lexed.byte(first.span.start);
        let at = self.lexed.lexemes.partition_point(|lexeme| lexeme.span.start < start);
        let before = at.checked_sub(1).map(|before| &self.lexed.lexemes[before].token);
        before == Some(&Token::Pipe)
    }

    /// The value of the variable that a name is.
    fn value(&mut self, parts: &[Ident]) -> Result<Option<Expr>, Diagnostic> {
        let Some((at, said)) = self.meant(parts)? else { return Ok(None) };
        let variables = self.variables;
        let variable = &variables[at];
        let span = parts[0].span;
        if self.begins_step(&parts[0]) {
            let message = format!("`| {}` begins a step of the query", parts[0].value);
            return Err(self.refused(span, message, "write the variable's name in backticks"));
        }
        if self.is_stream {
            let message = format!("the variable `{}` in a query over a stream", variable.name);
            return Err(self.refused(span, message, "write its value into the query"));
        }
        self.bytes = self.bytes.saturating_add(variable.value.size());
        if self.bytes > BYTES_MAX {
            let message = format!("the values of variables here have more than {BYTES_MAX} bytes");
            return Err(self.refused(span, message, "write them to a table, and read that"));
        }
        let mut value = call(&function_of(at), vec![text(variable.shown(), span)], span);
        let mut data_type = variable.field.data_type();
        for field in &parts[said..] {
            let DataType::Struct(fields) = data_type else {
                let message = format!(
                    "`{}` has no fields: what is before it is {}",
                    field.value,
                    spark_type(data_type)
                );
                return Err(self.refused(field.span, message, "leave it out"));
            };
            let mut near =
                fields.iter().filter(|known| known.name().eq_ignore_ascii_case(&field.value));
            let (Some(found), None) = (near.next(), near.next()) else {
                let message = format!("`{}` has no one field `{}`", variable.name, field.value);
                let names = fields.iter().map(|known| known.name().as_str());
                return Err(self.refused(
                    field.span,
                    message,
                    suggest(&field.value, "fields", names),
                ));
            };
            let name = text(found.name().clone(), field.span);
            value = call("get_field", vec![value, name], field.span);
            data_type = found.data_type();
        }
        Ok(Some(value))
    }
}

/// Makes literals of the texts among the values.
struct Texts<'a> {
    variables: &'a [Arc<Variable>],
}

impl VisitorMut for Texts<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = &*expr
            && let Some(variable) = place(function).and_then(|at| self.variables.get(at))
            && let Some(content) = variable.text()
        {
            *expr = text(content.to_owned(), function.name.span());
        }
        ControlFlow::Continue(())
    }
}
