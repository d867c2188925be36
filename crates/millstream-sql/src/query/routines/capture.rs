//! Names in an argument mean what they mean where the call stands, also where the function's body
//! has a query with a column of the same name.
//!
//! An argument that goes into a query of the body gets the name of its table before its columns,
//! where the query that calls reads only one; and what still could be taken for something of the
//! body is refused.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectNamePart, Query, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};

use super::template::{Contents, Template};
use crate::diagnostic::Diagnostic;
use crate::query::ast::counting_queries;
use crate::syntax::lexer::Lexed;

/// The table of whose columns an argument can only be.
#[derive(Default)]
pub(super) struct Reads {
    /// That of an expression: the only one of the FROM clause.
    pub(super) only: Option<Ident>,
    /// That of a LATERAL function: the other one of the two of the FROM clause.
    pub(super) first: Option<Ident>,
}

/// The table whose columns the names in an argument can be.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) table: Option<Ident>,
    /// It is one of a query around, so that a name can as well be a column further out: its
    /// columns get the table's name only where they need it.
    pub(super) is_around: bool,
}

impl Reads {
    pub(super) fn of(from: &[TableWithJoins]) -> Self {
        let joined = from.iter().flat_map(|tables| {
            let joins = tables.joins.iter().map(|join| &join.relation);
            std::iter::once(&tables.relation).chain(joins)
        });
        match joined.take(3).collect::<Vec<_>>().as_slice() {
            [only] => Self { only: relation_name(only), first: None },
            [first, _] => Self { only: None, first: relation_name(first) },
            _ => Self::default(),
        }
    }
}

fn relation_name(relation: &TableFactor) -> Option<Ident> {
    match relation {
        TableFactor::Table { alias: Some(alias), args: None, .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, alias: None, args: None, .. } => match name.0.as_slice() {
            [ObjectNamePart::Identifier(name)] => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Makes an argument one that can stand anywhere in a template. `seen` is the table that it is
/// computed of, if that is one.
pub(super) fn free(
    lexed: &Lexed,
    argument: &mut Expr,
    template: &Template,
    seen: &Seen,
    at: &Ident,
) -> Result<(), Diagnostic> {
    let contents = Contents::of(argument);
    if contents.aggregates || contents.varies {
        let what = if contents.varies { "what is another value each time" } else { "an aggregate" };
        let message = format!("{what} as an argument of `{}`, which has queries in it", at.value);
        return Err(refused(lexed, at, message, "compute it in a subquery in FROM"));
    }
    let mut free = Free { lexed, template, seen, queries: 0, lambdas: Vec::new(), found: None };
    let _: ControlFlow<()> = VisitMut::visit(argument, &mut free);
    free.found.map_or(Ok(()), Err)
}

fn refused(lexed: &Lexed, at: &Ident, message: String, help: &str) -> Diagnostic {
    Diagnostic { span: lexed.span(at.span), ..Diagnostic::nowhere(message).help(help) }
}

struct Free<'a> {
    lexed: &'a Lexed,
    template: &'a Template,
    seen: &'a Seen,
    /// In how many queries of the argument the visit is.
    queries: usize,
    lambdas: Vec<Vec<String>>,
    found: Option<Diagnostic>,
}

impl VisitorMut for Free<'_> {
    type Break = ();

    counting_queries!();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let parts = match &*expr {
            Expr::Lambda(lambda) => {
                let names = lambda.params.iter().map(|one| one.name.value.to_lowercase());
                self.lambdas.push(names.collect());
                return ControlFlow::Continue(());
            }
            Expr::Identifier(ident) => vec![ident.clone()],
            Expr::CompoundIdentifier(parts) => parts.clone(),
            _ => return ControlFlow::Continue(()),
        };
        let Some(first) = parts.first() else { return ControlFlow::Continue(()) };
        let lower = first.value.to_lowercase();
        if self.lambdas.iter().flatten().any(|name| *name == lower) || is_reserved(&lower) {
            return ControlFlow::Continue(());
        }
        let qualified = match self.seen.is_around && !self.is_taken(&parts) {
            true => parts.clone(),
            false => self.qualified(parts.clone()),
        };
        if self.is_taken(&qualified) {
            let message = format!(
                "`{}` in this argument would be something else in the function's query",
                qualified[0].value
            );
            let help = "give the column another name in a subquery in FROM";
            self.found = Some(refused(self.lexed, first, message, help));
            return ControlFlow::Break(());
        }
        if qualified.len() > parts.len() {
            *expr = Expr::CompoundIdentifier(qualified);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Lambda(_) = expr {
            self.lambdas.pop();
        }
        ControlFlow::Continue(())
    }
}

impl Free<'_> {
    /// Whether a name would be something else in the template.
    fn is_taken(&self, parts: &[Ident]) -> bool {
        self.template.hidden.contains(&parts[0].value.to_lowercase())
            || (self.template.is_open && parts.len() == 1)
    }

    /// A column's name with that of its table.
    fn qualified(&self, parts: Vec<Ident>) -> Vec<Ident> {
        match &self.seen.table {
            Some(relation)
                if self.queries == 0 && !parts[0].value.eq_ignore_ascii_case(&relation.value) =>
            {
                let relation = Ident { span: parts[0].span, ..relation.clone() };
                std::iter::once(relation).chain(parts).collect()
            }
            _ => parts,
        }
    }
}

/// The names that parameters have in templates begin with this.
const RESERVED: &str = "__parameter_";

fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}

/// The names of parameters in the template of a body that begins at token `start`.
pub(super) fn reserved(start: usize, count: usize) -> Vec<String> {
    (0..count).map(|at| format!("{RESERVED}{start}_{at}")).collect()
}
