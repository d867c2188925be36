//! Calls of declared functions: where they are, and their full names.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Visit, VisitMut, Visitor, VisitorMut,
};

use super::super::prepared::TableCatalog;

/// A name that has one part.
pub(super) fn one_part(name: &ObjectName) -> Option<&Ident> {
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => Some(name),
        _ => None,
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
