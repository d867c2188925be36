//! `(a, b) IN (SELECT ...)`, which DataFusion does not read: a struct of each side is compared,
//! and the plan takes the structs apart again.

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, Query, Select, SelectFlavor, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, helpers::attached_token::AttachedToken,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{call, quoted_ident, text};

/// The name of the first part of such a struct, by which the plan knows it.
pub(crate) const FIRST_PART: &str = "__row_0";
const ROWS: &str = "__rows";

fn part(at: usize) -> String {
    format!("__row_{at}")
}

/// Makes structs of both sides where several values are compared.
pub(super) fn into_structs(expr: &mut Expr) {
    let Expr::InSubquery { expr: compared, subquery, .. } = expr else { return };
    let Expr::Tuple(values) = compared.as_mut() else { return };
    let values = std::mem::take(values);
    let span = Span::empty();
    let columns: Vec<Ident> = (0..values.len()).map(|at| quoted_ident(part(at), span)).collect();
    **compared = row(values);
    let definition = |name: &Ident| TableAliasColumnDef { name: name.clone(), data_type: None };
    let alias = TableAlias {
        explicit: true,
        name: quoted_ident(ROWS.to_owned(), span),
        columns: columns.iter().map(definition).collect(),
        at: None,
    };
    let item = SelectItem::UnnamedExpr(row(columns.into_iter().map(Expr::Identifier).collect()));
    let inner = std::mem::replace(subquery.as_mut(), query_of(Vec::new(), Vec::new()));
    **subquery = query_around(vec![item], inner, alias);
}

fn row(values: Vec<Expr>) -> Expr {
    let span = Span::empty();
    let named = values.into_iter().enumerate();
    let named = named.flat_map(|(at, value)| [text(part(at), span), value]);
    call("named_struct", named.collect(), span)
}

/// `SELECT items FROM (inner) AS alias`
pub(super) fn query_around(items: Vec<SelectItem>, inner: Query, alias: TableAlias) -> Query {
    let (subquery, alias) = (Box::new(inner), Some(alias));
    let relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    query_of(items, vec![TableWithJoins { relation, joins: Vec::new() }])
}

/// A query of a SELECT list and what it reads.
pub(super) fn query_of(projection: Vec<SelectItem>, from: Vec<TableWithJoins>) -> Query {
    let select = Select {
        select_token: AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection,
        exclude: None,
        into: None,
        from,
        lateral_views: Vec::new(),
        prewhere: None,
        selection: None,
        connect_by: Vec::new(),
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: SelectFlavor::Standard,
    };
    Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}
