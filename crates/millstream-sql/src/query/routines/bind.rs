//! Which names in a function's body are its parameters.
//!
//! A name that the body's own queries have a column for is that column, as in Spark; else it is
//! the parameter of this name. A name that could be either, or is neither, is refused: in the place
//! of a call it could turn out to be a column of the query that calls.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, Query, Select, SelectItem, Spanned, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::{self, Location};

use super::super::ast::{call, function_name, generator_name, quoted_ident, text};
use super::super::frame::Frame;
use super::super::prepared::TableRead;
use super::super::scope::Scopes;
use super::built_in;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::syntax::lexer::Lexed;

/// A body whose names are looked up.
pub(super) struct Names<'a> {
    pub(super) lexed: &'a Lexed,
    /// The function's name.
    pub(super) routine: &'a str,
    pub(super) parameters: Vec<&'a str>,
    /// The body is an expression, and the query around it one that was added.
    pub(super) is_value: bool,
}

/// What the names of a body are.
#[derive(Default)]
pub(super) struct Bound {
    /// By where a name stands: which parameter it is, and how many of its parts say so.
    places: HashMap<Location, (usize, usize)>,
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
    /// This is what ORDER BY sees.
    orders: bool,
}

struct Binder<'a> {
    names: Names<'a>,
    scopes: Scopes,
    /// How many common table expressions were in sight before each query that is being visited.
    known: Vec<usize>,
    levels: Vec<Level>,
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
        self.levels.push(Level { frame, aliases, orders: true });
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
        let aliases: Vec<String> = select.projection.iter().flat_map(given_names).collect();
        self.bound.hidden.extend(aliases.iter().map(|alias| alias.to_lowercase()));
        for relation in &frame.relations {
            self.bound.hidden.extend(relation.name.iter().map(|name| name.to_lowercase()));
            let columns = relation.columns.iter().flatten();
            self.bound.hidden.extend(columns.map(|column| column.name.to_lowercase()));
            self.bound.is_open |= relation.columns.is_none();
        }
        self.levels.push(Level { frame, aliases, orders: false });
        self.selects += 1;
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
fn given_names(item: &SelectItem) -> Vec<String> {
    match item {
        SelectItem::ExprWithAlias { expr: Expr::Identifier(name), alias }
            if name.value.eq_ignore_ascii_case(&alias.value) =>
        {
            Vec::new()
        }
        SelectItem::ExprWithAlias { alias, .. } => vec![alias.value.clone()],
        SelectItem::ExprWithAliases { aliases, .. } => {
            aliases.iter().map(|alias| alias.value.clone()).collect()
        }
        _ => Vec::new(),
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
            let is_sure = is_column && at == innermost;
            if parameter.is_some() && !is_sure && (is_column || is_alias || is_open) {
                let message = format!("`{}` may be a parameter or a column", first.value);
                let help = "give the parameter a name that no column has";
                return Err(self.refused(first.span, message, help));
            }
            if is_column || is_alias {
                return Ok(());
            }
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

impl VisitorMut for Rename<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let parts = match &*expr {
            Expr::Identifier(ident) => std::slice::from_ref(ident),
            Expr::CompoundIdentifier(parts) => parts.as_slice(),
            _ => return ControlFlow::Continue(()),
        };
        let Some(first) = parts.first() else { return ControlFlow::Continue(()) };
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
