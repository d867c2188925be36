//! Puts the bodies of functions in the places of their calls.
//!
//! The arguments of a call are done before the call, and the calls within a body when the body is
//! read, with its parameters still in it. What this makes is counted, since each level of functions
//! could double it.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArguments, Ident, Query, Select, SelectItem, SetExpr,
    Spanned, TableAlias, TableAliasColumnDef, TableFactor, Visit, VisitMut, VisitorMut,
    WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer;

use super::super::ast::{cast, generator, plain_alias, quoted_ident};
use super::super::naming::expr_name;
use super::super::parse::{Parsed, parse};
use super::super::prepared::TableCatalog;
use super::super::rows::query_around;
use super::super::streams::Mark;
use super::bind::{Names, bind};
use super::calls;
use super::capture::{self, Reads, Seen};
use super::declare::{Returns, Routine, is_query};
use super::resolve::{Resolve, Within};
use super::template::{
    Body, Contents, Relations, Slot, Template, data_type, has_alias, lone, span_of, substitute,
    uses, value,
};
use super::{fields, named};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::syntax::lexer::Lexed;

/// How many expressions may be put in for the calls of one query.
const SIZE_MAX: usize = 20_000;
/// How deep expressions may stand in each other, with bodies put in: planning goes as deep.
const DEPTH_MAX: usize = 300;
/// How many bodies may be read for one query: those of functions and views that read each other are
/// read several times.
const READINGS_MAX: usize = 1_000;
/// How deep functions may call each other.
const NESTING_MAX: usize = 20;
const SMALLER: &str = "compute parts of it in a subquery, or in a table";

/// Puts in the bodies of all functions that `query` calls. `within` are those in whose bodies the
/// query stands.
pub(crate) fn expand(
    lexed: &Lexed,
    query: &mut Query,
    marks: &mut HashMap<usize, Mark>,
    catalog: &dyn TableCatalog,
    within: &Within,
    resolve: Resolve,
) -> Result<(), Diagnostics> {
    calls::without_schemas(catalog, query);
    let any = catalog.has_functions();
    let ctes = if any { Relations::of(query).ctes } else { BTreeSet::new() };
    let mut expander = Expander {
        lexed,
        catalog,
        any,
        resolve,
        within: within.clone(),
        templates: HashMap::new(),
        place: Place { ctes, ..Place::default() },
        marks: HashMap::new(),
        size: 0,
        found: Diagnostics::default(),
    };
    let _: ControlFlow<()> = VisitMut::visit(query, &mut expander);
    expander.found.into_result()?;
    marks.extend(expander.marks);
    Ok(())
}

struct Expander<'a> {
    lexed: &'a Lexed,
    catalog: &'a dyn TableCatalog,
    /// Whether there are declared functions.
    any: bool,
    resolve: Resolve,
    /// The functions whose bodies are being read.
    within: Within,
    /// By the first token of the body.
    templates: HashMap<usize, Rc<Template>>,
    place: Place,
    /// The marks of tables in bodies.
    marks: HashMap<usize, Mark>,
    size: usize,
    found: Diagnostics,
}

/// What is known of the query or of the body that is being visited.
#[derive(Default)]
struct Place {
    /// By SELECT being visited, what it reads.
    selects: Vec<Reads>,
    /// The queries in FROM that are being visited: in which of these SELECTs each stands, and
    /// whether it is LATERAL.
    tables: Vec<(usize, bool)>,
    /// How many functions `x -> ...` are being visited.
    lambdas: usize,
    /// The common table expressions of the query that calls: they would hide tables of a body.
    ctes: BTreeSet<String>,
    /// The tables and views of the body that is being read.
    reads: BTreeSet<String>,
    /// What was put in: see [`Template`].
    hidden: BTreeSet<String>,
    is_open: bool,
    is_deep: bool,
}

impl VisitorMut for Expander<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let order = self.call_in(&query.order_by);
        let call = order.or_else(|| self.call_in(&query.limit_clause));
        let checked = self.check_no_call(call, "ORDER BY and LIMIT");
        self.keep(checked)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let view = self.call_in(&select.lateral_views);
        let sorted = view.or_else(|| self.call_in(&select.sort_by));
        let call = sorted.or_else(|| self.call_in(&select.cluster_by));
        let checked = self.check_no_call(call, "LATERAL VIEW, SORT BY and CLUSTER BY");
        self.keep(checked)?;
        for item in &mut select.projection {
            self.name(item);
        }
        self.place.selects.push(Reads::of(&select.from));
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<()> {
        self.place.selects.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.place.lambdas += usize::from(matches!(expr, Expr::Lambda(_)));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Lambda(_) => {
                self.place.lambdas -= 1;
                ControlFlow::Continue(())
            }
            Expr::Function(function) => match self.call(function) {
                Ok(Some(value)) => {
                    *expr = value;
                    ControlFlow::Continue(())
                }
                done => self.keep(done.map(|_| ())),
            },
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { lateral, .. } = factor {
            let at = self.place.selects.len().saturating_sub(1);
            self.place.tables.push((at, *lateral));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { .. } = factor {
            self.place.tables.pop();
        }
        let made = self.rows(factor);
        match made {
            Ok(Some(rows)) => {
                *factor = rows;
                ControlFlow::Continue(())
            }
            done => self.keep(done.map(|_| ())),
        }
    }
}

impl Expander<'_> {
    fn keep(&mut self, done: Result<(), Diagnostics>) -> ControlFlow<()> {
        match done {
            Ok(()) => ControlFlow::Continue(()),
            Err(found) => {
                self.found.0.extend(found.0);
                ControlFlow::Break(())
            }
        }
    }

    fn refused(&self, at: tokenizer::Span, message: String, help: &str) -> Diagnostics {
        let diagnostic = Diagnostic::nowhere(message).help(help);
        Diagnostic { span: self.lexed.span(at), ..diagnostic }.into()
    }

    /// A call of a declared function.
    fn call_in(&self, node: &impl Visit) -> Option<Ident> {
        if !self.any {
            return None;
        }
        calls::first(self.catalog, node)
    }

    fn check_no_call(&self, call: Option<Ident>, place: &str) -> Result<(), Diagnostics> {
        let Some(name) = call else { return Ok(()) };
        let message = format!("`{}`, a declared function, cannot stand in {place}", name.value);
        Err(self.refused(name.span, message, "call it in the SELECT list of a subquery"))
    }

    /// Gives an item the name that it has by its calls, before these are gone.
    fn name(&self, item: &mut SelectItem) {
        let SelectItem::UnnamedExpr(expr) = item else { return };
        if generator(expr).is_some() || self.call_in(&*expr).is_none() {
            return;
        }
        let mut named = expr.clone();
        calls::write_full_names(self.catalog, &mut named);
        let alias = quoted_ident(expr_name(&named), expr.span());
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }

    /// What is put in the place of a call.
    fn call(&mut self, function: &mut Function) -> Result<Option<Expr>, Diagnostics> {
        let Some(name) = calls::one_part(&function.name).cloned() else { return Ok(None) };
        let Some(routine) = self.catalog.function(&name.value) else {
            if let FunctionArguments::List(list) = &mut function.args {
                named::of_built_in(self.lexed, &name, &mut list.args)?;
            }
            return Ok(None);
        };
        if routine.gives_rows() {
            let message = format!("`{}` gives rows, and no value", name.value);
            let help = format!("write FROM {}(...)", name.value);
            return Err(self.refused(name.span, message, &help));
        }
        let is_plain = function.over.is_none()
            && function.filter.is_none()
            && function.null_treatment.is_none()
            && function.within_group.is_empty();
        let args = match &mut function.args {
            FunctionArguments::List(list)
                if is_plain && list.duplicate_treatment.is_none() && list.clauses.is_empty() =>
            {
                std::mem::take(&mut list.args)
            }
            _ => {
                let message = format!("`{}` takes arguments, and nothing else", name.value);
                return Err(self.refused(name.span, message, "write its name and its arguments"));
            }
        };
        let template = self.template(&routine, &name)?;
        let table = self.place.selects.last().and_then(|reads| reads.only.clone());
        let seen = Seen { table, is_around: false };
        let values = self.values(&routine, &template, &name, args, &seen)?;
        let Body::Value(body) = &template.body else { return Ok(None) };
        let mut body = Expr::clone(body);
        substitute(&mut body, &values);
        Ok(Some(body))
    }

    /// What is put in the place of a function in FROM.
    fn rows(&mut self, factor: &mut TableFactor) -> Result<Option<TableFactor>, Diagnostics> {
        let (name, args, alias, lateral) = match factor {
            TableFactor::Table { name, alias, args: Some(args), .. } => {
                (name, &mut args.args, alias, false)
            }
            TableFactor::Function { lateral, name, args, alias, .. } => {
                (name, args, alias, *lateral)
            }
            _ => return Ok(None),
        };
        let Some(name) = calls::one_part(name).cloned() else { return Ok(None) };
        let Some(routine) = self.catalog.function(&name.value) else {
            named::of_built_in(self.lexed, &name, args)?;
            return Ok(None);
        };
        if !routine.gives_rows() {
            let message = format!("`{}` gives a value, and no rows", name.value);
            let help = format!("write SELECT {}(...)", name.value);
            return Err(self.refused(name.span, message, &help));
        }
        let (args, alias) = (std::mem::take(args), alias.take());
        let template = self.template(&routine, &name)?;
        let table = match lateral {
            true => self.place.selects.last().and_then(|reads| reads.first.clone()),
            false => self.around(),
        };
        let seen = Seen { table, is_around: !lateral };
        let values = self.values(&routine, &template, &name, args, &seen)?;
        let Body::Rows(body) = &template.body else { return Ok(None) };
        let mut subquery = body.clone();
        substitute(subquery.as_mut(), &values);
        let alias = Some(alias.unwrap_or_else(|| plain_alias(name)));
        Ok(Some(TableFactor::Derived { lateral, subquery, alias, sample: None }))
    }

    /// The table of the SELECT around the one being visited whose columns are in sight. A function
    /// in FROM sees nothing of what stands beside it.
    fn around(&self) -> Option<Ident> {
        let at = self.place.selects.len().checked_sub(2)?;
        match self.place.tables.iter().rev().find(|(of, _)| *of == at) {
            Some((_, true)) => self.place.selects[at].first.clone(),
            Some((_, false)) => None,
            None => self.place.selects[at].only.clone(),
        }
    }

    /// By the names that they have in the template, the values of its parameters.
    fn values(
        &mut self,
        routine: &Routine,
        template: &Template,
        name: &Ident,
        args: Vec<FunctionArg>,
        seen: &Seen,
    ) -> Result<HashMap<String, Expr>, Diagnostics> {
        let names: Vec<&str> =
            routine.parameters.iter().map(|one| one.name.text.as_str()).collect();
        let placed = named::placed(self.lexed, name, &names, args)?;
        if let Some(hidden) = template.reads.intersection(&self.place.ctes).next() {
            let message = format!("`{}` reads `{hidden}`, which WITH hides here", name.value);
            return Err(self.refused(name.span, message, "give it another name in WITH"));
        }
        if template.is_deep && self.place.lambdas > 0 {
            let message = format!("`{}` has a query, and cannot stand in x -> ...", name.value);
            return Err(self.refused(name.span, message, "make rows with LATERAL VIEW explode"));
        }
        let (mut size, mut depth) = (template.size, template.depth);
        let mut values = HashMap::new();
        for ((value, slot), parameter) in placed.into_iter().zip(&template.parameters).zip(&names) {
            let Some(mut value) = value.or_else(|| slot.default.clone()) else {
                return Err(named::missing_argument(self.lexed, name, parameter).into());
            };
            self.check_use(&value, slot, name)?;
            if template.is_deep && slot.uses > 0 {
                capture::free(self.lexed, &mut value, template, seen, name)?;
            }
            let contents = Contents::of(&value);
            let each = contents.expressions.saturating_add(1);
            size = size.saturating_add(each.saturating_mul(slot.uses));
            depth = depth.max(template.depth.saturating_add(contents.depth));
            values.insert(slot.reserved.clone(), cast(value, slot.data_type.clone()));
        }
        self.size = self.size.saturating_add(size);
        if self.size > SIZE_MAX || depth > DEPTH_MAX {
            let message = "with the bodies of its functions this query is too large to be planned";
            return Err(self.refused(name.span, message.to_owned(), SMALLER));
        }
        self.place.reads.extend(template.reads.iter().cloned());
        if template.is_deep {
            self.place.hidden.extend(template.hidden.iter().cloned());
            self.place.is_open |= template.is_open;
            self.place.is_deep = true;
        }
        Ok(values)
    }

    /// Each argument is one value, however often the body names it.
    fn check_use(&self, value: &Expr, slot: &Slot, name: &Ident) -> Result<(), Diagnostics> {
        let contents = Contents::of(value);
        if slot.uses > 1 && contents.varies {
            let message = format!(
                "`{}` uses an argument several times that is another value each time",
                name.value
            );
            return Err(self.refused(name.span, message, "compute it in a subquery in FROM"));
        }
        if slot.uses == 0 && contents.names + contents.calls + contents.queries > 0 {
            let message = format!("`{}` does not use an argument", name.value);
            return Err(self.refused(name.span, message, "write NULL in its place"));
        }
        Ok(())
    }

    /// The body of a function, read once.
    fn template(
        &mut self,
        routine: &Arc<Routine>,
        name: &Ident,
    ) -> Result<Rc<Template>, Diagnostics> {
        if let Some(known) = self.templates.get(&routine.body.start) {
            return Ok(Rc::clone(known));
        }
        let own = routine.name.text.to_lowercase();
        if self.within.names.contains(&own) {
            let message = format!("`{}` calls itself", name.value);
            let help = "a recursive WITH repeats: WITH RECURSIVE name AS (...)";
            return Err(self.refused(name.span, message, help));
        }
        if self.within.names.len() >= NESTING_MAX {
            let message = format!("more than {NESTING_MAX} functions that call each other");
            return Err(self.refused(name.span, message, SMALLER));
        }
        let readings = self.within.readings.get() + 1;
        self.within.readings.set(readings);
        if readings > READINGS_MAX {
            let message = format!("bodies of functions are read more than {READINGS_MAX} times");
            return Err(self.refused(name.span, message, SMALLER));
        }
        self.within.names.push(own);
        let around = std::mem::take(&mut self.place);
        let made = self.read(routine).map(Rc::new);
        self.place = around;
        self.within.names.pop();
        let made = made?;
        self.templates.insert(routine.body.start, Rc::clone(&made));
        Ok(made)
    }

    fn read(&mut self, routine: &Routine) -> Result<Template, Diagnostics> {
        let body = &routine.body;
        let gives_rows = routine.gives_rows();
        let is_written_query = self.lexed.lexemes[body.clone()].first().is_some_and(is_query);
        let parsed = match is_written_query || gives_rows {
            true => parse(self.lexed, std::slice::from_ref(body))?,
            false => value(self.lexed, body)?,
        };
        // A query that is nothing but an expression is taken for it.
        let is_value = !gives_rows
            && match is_written_query {
                false => true,
                true => lone(&parsed.0).is_some_and(|expr| {
                    let contents = Contents::of(expr);
                    contents.calls == 0 && contents.queries == 0
                }),
            };
        if !is_written_query && is_value && (lone(&parsed.0).is_none() || has_alias(&parsed.0)) {
            let message = format!("`{}` RETURNs more than an expression", routine.name.text);
            let span = Some(span_of(self.lexed, body));
            let help = "write RETURN expression, or RETURN SELECT ...";
            return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) }.into());
        }
        let reserved = capture::reserved(body.start, routine.parameters.len());
        let names = routine.parameters.iter().map(|one| one.name.text.as_str()).collect();
        let query = self.bound(routine, parsed, names, &reserved, is_value)?;
        let uses = uses(&query, &reserved);
        let Contents { expressions: size, depth, .. } = Contents::of(&query);
        let mut parameters = Vec::with_capacity(reserved.len());
        for ((parameter, reserved), uses) in routine.parameters.iter().zip(reserved).zip(uses) {
            let data_type = data_type(self.lexed, &parameter.data_type)?;
            let default = match &parameter.default {
                Some(_) => Some(self.default(routine, parameters.len())?),
                None => None,
            };
            parameters.push(Slot { reserved, data_type, default, uses });
        }
        let body = self.body(routine, query, is_value)?;
        let hidden = std::mem::take(&mut self.place.hidden);
        let reads = std::mem::take(&mut self.place.reads);
        let (is_open, is_deep) = (self.place.is_open, self.place.is_deep || gives_rows);
        Ok(Template { body, parameters, hidden, is_open, is_deep, reads, size, depth })
    }

    /// A body whose parameters have names of their own, and whose calls are put in.
    fn bound(
        &mut self,
        routine: &Routine,
        parsed: Parsed,
        parameters: Vec<&str>,
        reserved: &[String],
        is_value: bool,
    ) -> Result<Query, Diagnostics> {
        let (mut query, marks, subqueries) = parsed;
        calls::without_schemas(self.catalog, &mut query);
        fields::name(&mut query);
        match &routine.returns {
            // Its columns have the names of parameters, where they are nothing else.
            Returns::Rows => name_items(&mut query, |_, expr| expr_name(expr)),
            // Two columns of one name cannot be told apart.
            Returns::TypedRows(_) => name_items(&mut query, |at, _| format!("__column_{at}")),
            Returns::Value | Returns::Typed(_) => {}
        }
        let reads_stream =
            marks.values().any(|mark| mark.stream.is_some() || mark.watermark.is_some());
        if reads_stream || !subqueries.is_empty() {
            let message = format!("`{}` reads a stream", routine.name.text);
            let help = "a function reads tables at rest; the query that calls it reads streams";
            let diagnostic = Diagnostic::at(span_of(self.lexed, &routine.body), message);
            return Err(diagnostic.help(help).into());
        }
        let relations = Relations::of(&query);
        self.place.ctes.extend(relations.ctes);
        self.place.reads.extend(relations.reads);
        let (mut resolved, mut watermarks) = (query.clone(), Vec::new());
        let reads = (self.resolve)(
            self.lexed,
            &mut resolved,
            marks.clone(),
            &mut watermarks,
            self.catalog,
            &self.within,
        )?;
        // A function that outlasts the session sees none of it.
        let variables = if routine.is_temporary { self.catalog.variables() } else { &[] };
        let routine = routine.name.text.as_str();
        let names = Names { lexed: self.lexed, routine, parameters, variables, is_value };
        let bound = bind(names, &resolved, &reads)?;
        bound.rename(&mut query, reserved);
        self.place.hidden.extend(bound.hidden);
        self.place.is_open |= bound.is_open;
        self.place.is_deep |= bound.is_deep;
        self.marks.extend(marks);
        match VisitMut::visit(&mut query, self) {
            ControlFlow::Continue(()) => Ok(query),
            ControlFlow::Break(()) => Err(std::mem::take(&mut self.found)),
        }
    }

    /// What a parameter is where a call does not say it.
    fn default(&mut self, routine: &Routine, at: usize) -> Result<Expr, Diagnostics> {
        let parameter = &routine.parameters[at];
        let span = parameter.name.span;
        let tokens = parameter.default.clone().unwrap_or(0..0);
        let parsed = value(self.lexed, &tokens)?;
        let is_one = lone(&parsed.0).is_some() && !has_alias(&parsed.0);
        if !is_one || Contents::of(&parsed.0).queries > 1 {
            let message = format!("the DEFAULT of `{}` is no expression", parameter.name.text);
            let help = "write a value without a query in it";
            return Err(Diagnostic::at(span, message).help(help).into());
        }
        let query = self.bound(routine, parsed, Vec::new(), &[], true)?;
        match lone(&query) {
            Some(default) => Ok(default.clone()),
            None => Err(Diagnostic::at(span, "this DEFAULT is no expression").into()),
        }
    }

    /// What the template of a function gives.
    fn body(&self, routine: &Routine, query: Query, is_value: bool) -> Result<Body, Diagnostics> {
        let columns = match &routine.returns {
            Returns::TypedRows(columns) => columns.as_slice(),
            Returns::Rows => &[],
            Returns::Value | Returns::Typed(_) => {
                let given = match lone(&query).filter(|_| is_value) {
                    Some(value) => value.clone(),
                    None => Expr::Subquery(Box::new(query)),
                };
                return Ok(Body::Value(Box::new(match &routine.returns {
                    Returns::Typed(tokens) => cast(given, data_type(self.lexed, tokens)?),
                    // A number alone is an INT where it stands in the SELECT list.
                    _ if matches!(given, Expr::Value(_) | Expr::Subquery(_)) => given,
                    _ => Expr::Nested(Box::new(given)),
                })));
            }
        };
        let span = tokenizer::Span::empty();
        let mut items = Vec::with_capacity(columns.len());
        let mut names = Vec::with_capacity(columns.len());
        for (name, tokens) in columns {
            let column = quoted_ident(name.text.clone(), span);
            let value = Expr::Identifier(column.clone());
            let expr = cast(value, data_type(self.lexed, tokens)?);
            items.push(SelectItem::ExprWithAlias { expr, alias: column.clone() });
            names.push(TableAliasColumnDef { name: column, data_type: None });
        }
        if items.is_empty() {
            items.push(SelectItem::Wildcard(WildcardAdditionalOptions::default()));
        }
        let name = quoted_ident("__rows".to_owned(), span);
        let alias = TableAlias { columns: names, ..plain_alias(name) };
        Ok(Body::Rows(Box::new(query_around(items, query, alias))))
    }
}

/// Gives the items of a SELECT list names, where they have none.
fn name_items(query: &mut Query, name: impl Fn(usize, &Expr) -> String) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    for (at, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        if generator(expr).is_some() {
            continue;
        }
        let alias = quoted_ident(name(at, expr), expr.span());
        *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    }
}
