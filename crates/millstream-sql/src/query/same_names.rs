//! Relations of one name in FROM, as in `FROM t JOIN t`, which Spark allows as long as nothing is
//! called by the name.
//!
//! DataFusion takes columns of one name apart by their relations. So the relations after the first
//! get names of their own, unless something in the query is called by the name they had: that could
//! be of any of them, and is left to be refused.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableFactor, TableWithJoins, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{one_part, plain_alias, quoted_ident};
use crate::syntax::limits::RESERVED;

/// Gives such relations of a query that is one SELECT names of their own.
pub(super) fn separate(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let (mut seen, mut doubled) = (HashSet::new(), HashSet::new());
    each(&mut select.from, &mut |factor: &mut TableFactor| {
        if let Some(name) = name_of(factor).map(|name| name.to_lowercase())
            && !seen.insert(name.clone())
        {
            doubled.insert(name);
        }
    });
    if doubled.is_empty() {
        return;
    }
    let mut used = Used::default();
    let _: ControlFlow<()> = query.visit(&mut used);
    doubled.retain(|name| !used.names.contains(name));
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    let (mut before, mut number) = (HashSet::new(), 1);
    each(&mut select.from, &mut |factor: &mut TableFactor| {
        let Some(name) = name_of(factor) else { return };
        let lower = name.to_lowercase();
        if doubled.contains(&lower) && !before.insert(lower) {
            number += 1;
            rename(factor, format!("{name}{RESERVED}{number}"));
        }
    });
}

/// Does something with each relation that joins do not hide.
fn each(from: &mut [TableWithJoins], with: &mut dyn FnMut(&mut TableFactor)) {
    for tables in from {
        let joined = tables.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut tables.relation).chain(joined) {
            match factor {
                TableFactor::NestedJoin { table_with_joins, alias: None } => {
                    each(std::slice::from_mut(&mut **table_with_joins), with);
                }
                other => with(other),
            }
        }
    }
}

fn name_of(factor: &TableFactor) -> Option<String> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } => Some(alias.name.value.clone()),
        TableFactor::Table { name, alias: None, args: None, .. } => one_part(name),
        _ => None,
    }
}

fn rename(factor: &mut TableFactor, name: String) {
    if let TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } = factor {
        match alias {
            Some(alias) => alias.name.value = name,
            None => *alias = Some(plain_alias(quoted_ident(name, Span::empty()))),
        }
    }
}

/// The first parts of all names of several parts, in lower case.
#[derive(Default)]
struct Used {
    names: HashSet<String>,
}

impl Used {
    fn name(&mut self, name: &ObjectName) {
        if let Some(first) = name.0.first().and_then(ObjectNamePart::as_ident) {
            self.names.insert(first.value.to_lowercase());
        }
    }
}

impl Visitor for Used {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::QualifiedWildcard(kind, _) = item
                && let SelectItemQualifiedWildcardKind::ObjectName(name) = kind
            {
                self.name(name);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundIdentifier(parts) => {
                self.names.extend(parts.first().map(|first| first.value.to_lowercase()));
            }
            Expr::QualifiedWildcard(name, _) => self.name(name),
            Expr::Function(call) => self.name(&call.name),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
