//! Calls of functions: where those of declared ones are, and their full names.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, TableFactor, Visit, VisitMut, Visitor,
    VisitorMut,
};

use super::super::prepared::TableCatalog;

/// A name that has one part.
pub(super) fn one_part(name: &ObjectName) -> Option<&Ident> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name),
        _ => None,
    }
}

/// Takes away the schemas in front of functions that have no others: `session.f` and
/// `system.session.f`, where `f` is temporary, and `builtin.abs` and `system.builtin.abs`.
pub(super) fn without_schemas(catalog: &dyn TableCatalog, query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Schemas { catalog });
}

struct Schemas<'a> {
    catalog: &'a dyn TableCatalog,
}

impl VisitorMut for Schemas<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr {
            self.shorten(&mut function.name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                self.shorten(name);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Schemas<'_> {
    fn shorten(&self, name: &mut ObjectName) {
        let is = |part: &ObjectNamePart, word: &str| {
            part.as_ident().is_some_and(|ident| ident.value.eq_ignore_ascii_case(word))
        };
        let parts = match name.0.as_slice() {
            [catalog, parts @ ..] if parts.len() == 2 && is(catalog, "system") => parts,
            parts => parts,
        };
        let [schema, ObjectNamePart::Identifier(last)] = parts else { return };
        let known = self.catalog.function(&last.value);
        let is_own = match known {
            Some(routine) => routine.is_temporary && is(schema, "session"),
            None => is(schema, "builtin"),
        };
        if is_own {
            let last = last.clone();
            name.0 = vec![ObjectNamePart::Identifier(last)];
        }
    }
}

/// The first call of a declared function in `node`.
pub(super) fn first(catalog: &dyn TableCatalog, node: &impl Visit) -> Option<Ident> {
    let mut calls = Calls { catalog, found: None };
    let _: ControlFlow<()> = node.visit(&mut calls);
    calls.found
}

struct Calls<'a> {
    catalog: &'a dyn TableCatalog,
    found: Option<Ident>,
}

impl Visitor for Calls<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && let Some(name) = one_part(&function.name)
            && self.catalog.function(&name.value).is_some()
        {
            self.found = Some(name.clone());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

/// Writes the names of functions as Spark does in the names of columns: those that are not
/// temporary with the schema that they are in.
pub(super) fn write_full_names(catalog: &dyn TableCatalog, expr: &mut Expr) {
    let _: ControlFlow<()> = VisitMut::visit(expr, &mut FullNames { catalog });
}

struct FullNames<'a> {
    catalog: &'a dyn TableCatalog,
}

impl VisitorMut for FullNames<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && let [ObjectNamePart::Identifier(name)] = function.name.0.as_mut_slice()
            && let Some(routine) = self.catalog.function(&name.value)
            && !routine.is_temporary
        {
            name.value = format!("spark_catalog.default.{}", routine.name.text);
        }
        ControlFlow::Continue(())
    }
}
