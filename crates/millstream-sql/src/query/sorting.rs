//! SORT BY, CLUSTER BY and DISTRIBUTE BY; and ORDER BY ALL.
//!
//! The first three say how rows are sorted within the partitions of a result, and which rows share
//! one. A result here is one sequence of rows: where it is sorted as a whole, each part of it is.

use datafusion::sql::sqlparser::ast::{
    Expr, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, SetExpr, Value, ValueWithSpan,
};

use super::frame::Frame;
use super::scope::Scopes;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Makes an ORDER BY of these.
pub(crate) fn into_order(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    select.distribute_by.clear();
    let options = OrderByOptions { asc: None, nulls_first: None };
    let clusters = std::mem::take(&mut select.cluster_by).into_iter();
    let clusters = clusters.map(|expr| OrderByExpr { expr, options, with_fill: None });
    let mut keys: Vec<OrderByExpr> = clusters.collect();
    keys.append(&mut select.sort_by);
    if query.order_by.is_none() && !keys.is_empty() {
        let kind = OrderByKind::Expressions(keys);
        query.order_by = Some(OrderBy { kind, interpolate: None });
    }
}

/// Makes `ORDER BY ALL` the positions of all columns of the result, unless `all` is the name of a
/// column in `frame`.
pub(crate) fn by_all(
    lexed: &Lexed,
    query: &mut Query,
    frame: &Frame,
    scopes: &mut Scopes,
) -> Result<(), Diagnostic> {
    let Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }) = &query.order_by else {
        return Ok(());
    };
    let [OrderByExpr { expr: Expr::Identifier(name), options, .. }] = keys.as_slice() else {
        return Ok(());
    };
    let is_column = frame.resolve(std::slice::from_ref(name)).is_some();
    let is_all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
    if !is_all || is_column || frame.alias(&name.value).is_some() {
        return Ok(());
    }
    let (span, options) = (name.span, *options);
    let Some(columns) = scopes.columns_of_query(query) else {
        let message = "ORDER BY ALL: the columns of the result are not known here";
        let diagnostic = Diagnostic::nowhere(message).help("write the columns' names");
        return Err(Diagnostic { span: lexed.span(span), ..diagnostic });
    };
    let keys = (1..=columns.len()).map(|position| {
        let value = Value::Number(position.to_string(), false);
        let expr = Expr::Value(ValueWithSpan { value, span });
        OrderByExpr { expr, options, with_fill: None }
    });
    let kind = OrderByKind::Expressions(keys.collect());
    query.order_by = Some(OrderBy { kind, interpolate: None });
    Ok(())
}
