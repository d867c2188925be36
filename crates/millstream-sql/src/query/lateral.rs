//! `FROM t LATERAL VIEW explode(x) v AS c` as `FROM (SELECT *, explode(x) AS c FROM t) AS t`.
//!
//! The subquery has the name of the table it stands for, so that qualified columns stay valid,
//! and `v.c` becomes `t.c`.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, Ident, LateralView, ObjectName, ObjectNamePart, Select, SelectItem, Spanned,
    TableFactor, TableWithJoins, WildcardAdditionalOptions,
};

use super::ast::{generator_name, plain_alias, quoted_ident};
use super::frame::Frame;
use super::generators;
use super::rows::query_of;
use super::scope::lateral_relation;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// The name of a subquery that has none.
const UNNAMED: &str = "__lateral";

/// Turns the lateral views of `select` into a subquery, and lets `frame` know.
pub(crate) fn into_subquery(
    lexed: &Lexed,
    select: &mut Select,
    frame: &mut Frame,
) -> Result<(), Diagnostic> {
    let views = std::mem::take(&mut select.lateral_views);
    let relation = frame.relations.first().map(|relation| relation.name.clone());
    let relation = relation.map(|name| name.unwrap_or_else(|| UNNAMED.to_owned()));
    let one_table = matches!(select.from.as_slice(), [only] if only.joins.is_empty());
    let (Some(name), true) = (relation, one_table) else {
        let span = views.first().and_then(|view| lexed.span(view.lateral_view.span()));
        let message = "LATERAL VIEW over a join is not supported yet";
        let help =
            "join in a subquery with a name: FROM (SELECT ... JOIN ...) AS j LATERAL VIEW ...";
        return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    };
    let plain = frame.relations.len() - views.len();
    frame.relations.truncate(plain);
    for view in views {
        let relation = lateral_relation(frame, &view, Some(name.clone()));
        let mut projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        projection.extend(items(lexed, frame, view)?);
        frame.relations.push(relation);
        let from = std::mem::take(&mut select.from);
        let span = from
            .first()
            .map_or_else(datafusion::sql::sqlparser::tokenizer::Span::empty, Spanned::span);
        let alias = Some(plain_alias(quoted_ident(name.clone(), span)));
        let subquery = Box::new(query_of(projection, from));
        let relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        select.from = vec![TableWithJoins { relation, joins: Vec::new() }];
    }
    Ok(())
}

fn items(lexed: &Lexed, frame: &Frame, view: LateralView) -> Result<Vec<SelectItem>, Diagnostic> {
    let span = view.lateral_view.span();
    let generates = match &view.lateral_view {
        Expr::Function(function) => generator_name(function).is_some(),
        _ => false,
    };
    if !generates {
        let message = "LATERAL VIEW takes a function that makes rows, such as `explode`";
        return Err(Diagnostic { span: lexed.span(span), ..Diagnostic::nowhere(message) });
    }
    let expr = if view.outer { outer(view.lateral_view) } else { view.lateral_view };
    generators::items(lexed, frame, &expr, &view.lateral_col_alias)
}

/// `LATERAL VIEW OUTER explode(x)` keeps rows without elements, as `explode_outer` does.
fn outer(expr: Expr) -> Expr {
    let Expr::Function(function) = expr else { return expr };
    let name = generator_name(&function).unwrap_or_default();
    let value = if name.ends_with("_outer") { name } else { format!("{name}_outer") };
    let span = function.name.0[0].span();
    let ident = Ident { value, quote_style: None, span };
    let name = ObjectName(vec![ObjectNamePart::Identifier(ident)]);
    Expr::Function(Function { name, ..function })
}
