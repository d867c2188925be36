//! Which names in a function's body are its parameters.
//!
//! A name that the body's own queries have a column for is that column, as in Spark, or what an
//! earlier item of the SELECT list is called; else it is the parameter of this name. A name that
//! could be either, or is neither, is refused: in the place of a call it could turn out to be a
//! column of the query that calls.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, Query, Select, SelectItem, Spanned, TableFactor, Visit, VisitMut,
    Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{self, Location};

use super::super::ast::{call, function_name, generator_name, quoted_ident, take, text};
use super::super::frame::Frame;
use super::super::prepared::TableRead;
use super::super::scope::Scopes;
use super::super::variables::known::{Variable, function_of};
use super::built_in;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::syntax::lexer::Lexed;

/// Bytes of the value of a variable that a function names: each call has a copy.
const VALUE_BYTES_MAX: usize = 4_096;

/// A body whose names are looked up.
pub(super) struct Names<'a> {
    pub(super) lexed: &'a Lexed,
    /// The function's name.
    pub(super) routine: &'a str,
    pub(super) parameters: Vec<&'a str>,
    /// The variables that it sees.
    pub(super) variables: &'a [Arc<Variable>],
    /// The body is an expression, and the query around it one that was added.
    pub(super) is_value: bool,
}

/// What the names of a body are.
#[derive(Default)]
pub(super) struct Bound {
    /// By where a name stands: which parameter it is, and how many of its parts say so.
    places: HashMap<Location, (usize, usize)>,
    /// By where a name stands: which variable it is.
    variables: HashMap<Location, usize>,
    /// What the body's queries and functions call something, in lower case.
    pub(super) hidden: BTreeSet<String>,
    /// A query of the body has columns that are not known.
    pub(super) is_open: bool,
    /// A parameter stands in a query or a function of the body.
    pub(super) is_deep: bool,
}

/// Looks the names of `query` up, which is a body whose tables are resolved to `reads`.
pub(super) fn bind(
    names: Names<'_>,
    query: &Query,
    reads: &[TableRead],
) -> Result<Bound, Diagnostics> {
    let tables = reads.iter().map(|read| (read.registered_as.clone(), read.schema.clone()));
    let mut binder = Binder {
        names,
        scopes: Scopes::new(tables.collect(), true),
        known: Vec::new(),
        levels: Vec::new(),
        tables: Vec::new(),
        selects: 0,
        lambdas: Vec::new(),
        bound: Bound::default(),
        found: Diagnostics::default(),
    };
    let _: ControlFlow<()> = query.visit(&mut binder);
    binder.found.into_result()?;
    Ok(binder.bound)
}

/// What the expressions of a query see of it.
struct Level {
    frame: Frame,
    /// The names that its SELECT list gives.
    aliases: Vec<String>,
    /// The same names with where each is given, for what stands behind it in the list.
    given: Vec<Ident>,
    /// Where the last item of the list ends.
    items_end: Location,
    /// This is what ORDER BY sees.
    orders: bool,
}

struct Binder<'a> {
    names: Names<'a>,
    scopes: Scopes,
    /// How many common table expressions were in sight before each query that is being visited.
    known: Vec<usize>,
    levels: Vec<Level>,
    /// How many levels there were around each query in FROM that is being visited: it does not
    /// see what they have, unless it is LATERAL.
    tables: Vec<usize>,
    selects: usize,
    /// The parameters of the functions `x -> ...` being visited.
    lambdas: Vec<Vec<String>>,
    bound: Bound,
    found: Diagnostics,
}

impl Visitor for Binder<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.known.push(self.scopes.ctes.len());
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.scopes.add_cte(&cte.alias, &cte.query);
        }
        let frame = self.scopes.frame_of_body(&query.body);
        let aliases = frame.aliases.clone();
        let (given, items_end) = (Vec::new(), Location::empty());
        self.levels.push(Level { frame, aliases, given, items_end, orders: true });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.levels.pop();
        let known = self.known.pop().unwrap_or(0);
        self.scopes.ctes.truncate(known);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        let frame = self.scopes.frame(select);
        let given: Vec<Ident> = select.projection.iter().flat_map(given_names).collect();
        let aliases: Vec<String> = given.iter().map(|name| name.value.clone()).collect();
        let items_end = select.projection.last().map(|item| item.span().end);
        let items_end = items_end.unwrap_or_else(Location::empty);
        self.bound.hidden.extend(aliases.iter().map(|alias| alias.to_lowercase()));
        for relation in &frame.relations {
            self.bound.hidden.extend(relation.name.iter().map(|name| name.to_lowercase()));
            let columns = relation.columns.iter().flatten();
            self.bound.hidden.extend(columns.map(|column| column.name.to_lowercase()));
            self.bound.is_open |= relation.columns.is_none();
        }
        self.levels.push(Level { frame, aliases, given, items_end, orders: false });
        self.selects += 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { .. } = factor {
            self.tables.push(self.levels.len());
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { .. } = factor {
            self.tables.pop();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &Select) -> ControlFlow<()> {
        self.levels.pop();
        self.selects -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let looked_up = match expr {
            Expr::Lambda(lambda) => {
                let names =
                    lambda.params.iter().map(|parameter| parameter.name.value.to_lowercase());
                let names: Vec<String> = names.collect();
                self.bound.hidden.extend(names.iter().cloned());
                self.lambdas.push(names);
                Ok(())
            }
            Expr::Function(function) => self.check_call(function),
            Expr::Identifier(ident) => self.name(std::slice::from_ref(ident)),
            Expr::CompoundIdentifier(parts) => self.name(parts),
            _ => Ok(()),
        };
        match looked_up {
            Ok(()) => ControlFlow::Continue(()),
            Err(diagnostic) => {
                self.found.0.push(diagnostic);
                ControlFlow::Break(())
            }
        }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Lambda(_) = expr {
            self.lambdas.pop();
        }
        ControlFlow::Continue(())
    }
}

/// The names that an item of a SELECT list is given, where it would have others.
fn given_names(item: &SelectItem) -> Vec<Ident> {
    match item {
        SelectItem::ExprWithAlias { expr: Expr::Identifier(name), alias }
            if name.value.eq_ignore_ascii_case(&alias.value) =>
        {
            Vec::new()
        }
        SelectItem::ExprWithAlias { alias, .. } => vec![alias.clone()],
        SelectItem::ExprWithAliases { aliases, .. } => aliases.clone(),
        _ => Vec::new(),
    }
}

impl Level {
    /// Whether `name` stands in the SELECT list, behind the item that gives this name.
    fn is_earlier(&self, name: &Ident) -> bool {
        let at = name.span.start;
        let mut given = self.given.iter();
        at < self.items_end
            && given.any(|one| one.value.eq_ignore_ascii_case(&name.value) && one.span.start < at)
    }
}

impl Binder<'_> {
    fn refused(&self, at: tokenizer::Span, message: String, help: &str) -> Diagnostic {
        let span = self.names.lexed.span(at);
        Diagnostic { span, ..Diagnostic::nowhere(message).help(help) }
    }

    /// Whether the visit is in the expression that the body is, and in no query of it.
    fn is_outermost(&self) -> bool {
        self.names.is_value && self.selects == 1
    }

    /// An aggregate would be one of the query that calls.
    fn check_call(&self, function: &Function) -> Result<(), Diagnostic> {
        let name = function_name(function);
        let is_plain = function.over.is_none()
            && generator_name(function).is_none()
            && !built_in::is_aggregate(&name);
        if !self.is_outermost() || is_plain {
            return Ok(());
        }
        let message = format!("`{name}` cannot stand in the expression that a function RETURNs");
        let help = "write it in a query: RETURN (SELECT ... FROM ...)";
        Err(self.refused(function.name.span(), message, help))
    }

    /// The parameter that a name would be, and how many of its parts say so.
    fn parameter(&self, parts: &[Ident]) -> Option<(usize, usize)> {
        let place = |part: &Ident| {
            let is_meant = |known: &&str| known.eq_ignore_ascii_case(&part.value);
            self.names.parameters.iter().position(is_meant)
        };
        let (first, rest) = parts.split_first()?;
        if let Some(at) = place(first) {
            return Some((at, 1));
        }
        let is_own = first.value.eq_ignore_ascii_case(self.names.routine);
        rest.first().filter(|_| is_own).and_then(place).map(|at| (at, 2))
    }

    /// The variable that a name means which is neither a column nor a parameter.
    fn variable(&self, parts: &[Ident]) -> Result<Option<usize>, Diagnostic> {
        let [name] = parts else { return Ok(None) };
        let Some(at) = self.names.variables.iter().rposition(|one| one.is_called(&name.value))
        else {
            return Ok(None);
        };
        let mut relations = self.levels.iter().flat_map(|level| &level.frame.relations);
        if relations.any(|relation| relation.columns.is_none()) {
            let message = format!("`{}` may be a variable or a column", name.value);
            let help = "name the columns of what is in FROM: (...) AS t(id)";
            return Err(self.refused(name.span, message, help));
        }
        if self.names.variables[at].value.size() > VALUE_BYTES_MAX {
            let message = format!("the value of `{}` is long for one in a function", name.value);
            return Err(self.refused(name.span, message, "give it to the function as an argument"));
        }
        Ok(Some(at))
    }

    fn name(&mut self, parts: &[Ident]) -> Result<(), Diagnostic> {
        let Some(first) = parts.first() else { return Ok(()) };
        let lower = first.value.to_lowercase();
        if self.lambdas.iter().flatten().any(|name| *name == lower) {
            return Ok(());
        }
        let parameter = self.parameter(parts);
        let innermost = self.levels.len().saturating_sub(1);
        for (at, level) in self.levels.iter().enumerate().rev() {
            let is_column = level.frame.resolve(parts).is_some();
            let sees_aliases = !level.orders || at == innermost;
            let named = |alias: &String| alias.to_lowercase() == lower;
            let is_alias = sees_aliases && parts.len() == 1 && level.aliases.iter().any(named);
            let is_open = level.frame.relations.iter().any(|one| one.columns.is_none());
            let is_seen = self.tables.last().is_none_or(|around| at >= *around);
            let is_earlier = at == innermost && !is_open && level.is_earlier(first);
            let is_sure = (is_column && is_seen) || (is_alias && is_earlier);
            if parameter.is_some() && !is_sure && (is_column || is_alias || is_open) {
                let message = format!("`{}` may be a parameter or a column", first.value);
                let help = "give the parameter a name that no column has";
                return Err(self.refused(first.span, message, help));
            }
            if is_column || is_alias {
                return Ok(());
            }
        }
        if parameter.is_some() && lower == "grouping__id" {
            let message = "`grouping__id` is a function, and no parameter".to_owned();
            return Err(self.refused(first.span, message, "give the parameter another name"));
        }
        if parameter.is_none()
            && let Some(at) = self.variable(parts)?
        {
            self.bound.variables.insert(first.span.start, at);
            return Ok(());
        }
        let Some(found) = parameter else {
            let message = format!("there is no column and no parameter `{}`", first.value);
            let help = "a function sees its parameters, and columns of its own queries";
            return Err(self.refused(first.span, message, help));
        };
        self.bound.is_deep |= !self.is_outermost() || !self.lambdas.is_empty();
        self.bound.places.insert(first.span.start, found);
        Ok(())
    }
}

impl Bound {
    /// Gives the parameters in `query` names that nothing else has, which are `reserved`.
    pub(super) fn rename(&self, query: &mut Query, reserved: &[String]) {
        let mut rename = Rename { bound: self, reserved };
        let _: ControlFlow<()> = VisitMut::visit(query, &mut rename);
    }
}

struct Rename<'a> {
    bound: &'a Bound,
    reserved: &'a [String],
}

impl Rename<'_> {
    /// A field of `struct(...)` is called as the parameter that it is.
    fn name_field(&self, value: &mut Expr) {
        let parts = match &*value {
            Expr::Identifier(name) => std::slice::from_ref(name),
            Expr::CompoundIdentifier(parts) => parts.as_slice(),
            _ => return,
        };
        if let [first, ..] = parts
            && self.bound.places.contains_key(&first.span.start)
            && let Some(name) = parts.last().cloned()
        {
            take(value, |value| Expr::Named { expr: Box::new(value), name });
        }
    }
}

impl VisitorMut for Rename<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Struct { values, fields } = expr
            && fields.is_empty()
        {
            values.iter_mut().for_each(|value| self.name_field(value));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let parts = match &*expr {
            Expr::Identifier(ident) => std::slice::from_ref(ident),
            Expr::CompoundIdentifier(parts) => parts.as_slice(),
            _ => return ControlFlow::Continue(()),
        };
        let Some(first) = parts.first() else { return ControlFlow::Continue(()) };
        if let Some(at) = self.bound.variables.get(&first.span.start) {
            let shown = text(String::new(), first.span);
            *expr = call(&function_of(*at), vec![shown], first.span);
            return ControlFlow::Continue(());
        }
        let Some((at, said)) = self.bound.places.get(&first.span.start) else {
            return ControlFlow::Continue(());
        };
        let parameter = Expr::Identifier(quoted_ident(self.reserved[*at].clone(), first.span));
        let fields = parts[*said..].iter();
        *expr = fields.fold(parameter, |of, field| {
            call("get_field", vec![of, text(field.value.clone(), field.span)], field.span)
        });
        ControlFlow::Continue(())
    }
}
