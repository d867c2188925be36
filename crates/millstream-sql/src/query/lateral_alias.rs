//! An alias that is used further on in its own SELECT list, in a subquery.
//!
//! To Spark `a` in `SELECT max(x) AS a, a + 1` is the alias, unless FROM has such a column.
//! DataFusion knows no such aliases, and takes `a` for a column of the query around the subquery
//! where there is one. That is refused, as it would be another answer.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, Spanned, Visit, Visitor,
};

use super::ast::item_expr;
use super::frame::Frame;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// The first use of an alias that a query around `select` has a column for. `around` are the
/// frames of these queries.
pub(super) fn check(
    lexed: &Lexed,
    select: &Select,
    own: &Frame,
    around: &[&Frame],
) -> Option<Diagnostic> {
    let mut uses = Uses { aliases: Vec::new(), own, around, queries: 0, found: None };
    for item in &select.projection {
        if let Some(expr) = item_expr(item) {
            let _: ControlFlow<()> = expr.visit(&mut uses);
        }
        if let SelectItem::ExprWithAlias { alias, .. } = item {
            uses.aliases.push(&alias.value);
        }
    }
    let (name, span) = uses.found?;
    let message = format!("`{name}` is an alias here, and a column outside of the subquery");
    let help = "give the alias another name, or say of which table the column is";
    Some(Diagnostic { span: lexed.span(span), ..Diagnostic::nowhere(message).help(help) })
}

struct Uses<'a> {
    /// Those that stand before.
    aliases: Vec<&'a str>,
    own: &'a Frame,
    around: &'a [&'a Frame],
    /// In how many queries of the list the visit is: they do not see its aliases.
    queries: usize,
    found: Option<(String, datafusion::sql::sqlparser::tokenizer::Span)>,
}

impl Uses<'_> {
    fn is_taken_from_around(&self, parts: &[Ident]) -> bool {
        let is_alias = |alias: &&str| alias.eq_ignore_ascii_case(&parts[0].value);
        self.queries == 0
            && self.aliases.iter().any(is_alias)
            && self.own.resolve(parts).is_none()
            && self.around.iter().any(|frame| frame.resolve(parts).is_some())
    }
}

impl Visitor for Uses<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let parts = match expr {
            Expr::Identifier(name) => std::slice::from_ref(name),
            Expr::CompoundIdentifier(parts) => parts.as_slice(),
            _ => return ControlFlow::Continue(()),
        };
        if !self.is_taken_from_around(parts) {
            return ControlFlow::Continue(());
        }
        self.found = Some((parts[0].value.clone(), expr.span()));
        ControlFlow::Break(())
    }
}
