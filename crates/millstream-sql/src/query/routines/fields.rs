//! Names of fields in the body of a function: those of `STRUCT(a, b)` are a and b, also where these
//! are parameters, in whose place values come.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, visit_expressions_mut};

use super::super::ast::take;
use super::super::star_tokens::ALL_COLUMNS;

/// Writes the names out.
pub(super) fn name(query: &mut Query) {
    let _: ControlFlow<()> = visit_expressions_mut(query, |expr| {
        if let Expr::Struct { values, fields } = expr
            && fields.is_empty()
        {
            values.iter_mut().for_each(name_value);
        }
        ControlFlow::Continue(())
    });
}

fn name_value(value: &mut Expr) {
    let name = match value {
        Expr::Identifier(name) => Some(&*name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    };
    if let Some(name) = name.filter(|name| name.value != ALL_COLUMNS).cloned() {
        take(value, |value| Expr::Named { expr: Box::new(value), name });
    }
}
