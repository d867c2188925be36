//! Functions in FROM that make rows, as subqueries: `FROM explode(a) AS t(x)` is
//! `FROM (SELECT explode(a)) AS t(x)`, and `FROM range(3)` has a column `id`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, Select, SelectItem, TableFactor,
    TableFunctionArgs, TableWithJoins, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{call, is_generator, one_part, quoted_ident};
use super::lateral::query_of;

/// Makes subqueries of the functions in the FROM clauses of `query`.
pub(crate) fn into_subqueries(query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Functions);
}

struct Functions;

impl VisitorMut for Functions {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for tables in &mut select.from {
            in_tables(tables);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
            in_tables(table_with_joins);
        }
        ControlFlow::Continue(())
    }
}

fn in_tables(tables: &mut TableWithJoins) {
    in_factor(&mut tables.relation);
    for join in &mut tables.joins {
        in_factor(&mut join.relation);
    }
}

fn in_factor(factor: &mut TableFactor) {
    let (name, args, alias, lateral) = match factor {
        TableFactor::Table { name, alias, args: Some(args), .. } => {
            (name.clone(), args.args.clone(), alias.take(), false)
        }
        TableFactor::Function { lateral, name, args, alias, .. } => {
            (name.clone(), args.clone(), alias.take(), *lateral)
        }
        _ => return,
    };
    match subquery(&name, &args) {
        Some(subquery) => {
            *factor = TableFactor::Derived { lateral, subquery, alias, sample: None };
        }
        None => {
            if let TableFactor::Table { alias: place, .. }
            | TableFactor::Function { alias: place, .. } = factor
            {
                *place = alias;
            }
        }
    }
}

fn subquery(name: &ObjectName, args: &[FunctionArg]) -> Option<Box<Query>> {
    let function = one_part(name)?.to_lowercase();
    let span = name.0.first()?.as_ident()?.span;
    let values = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    let values: Vec<Expr> = values.collect::<Option<_>>()?;
    if is_generator(&function) {
        let item = SelectItem::UnnamedExpr(call(&function, values, span));
        return Some(Box::new(query_of(vec![item], Vec::new())));
    }
    if function == "range" && (1..=4).contains(&values.len()) {
        return Some(Box::new(range(name, &values)));
    }
    None
}

/// `SELECT value AS id FROM range(...)`: DataFusion calls the column otherwise. How many
/// partitions there are, the fourth argument, says nothing about the rows.
fn range(name: &ObjectName, values: &[Expr]) -> Query {
    let span = name.0.first().and_then(|part| part.as_ident()).map(|part| part.span);
    let span = span.unwrap_or_else(Span::empty);
    let ident = |text: &str| quoted_ident(text.to_owned(), span);
    // DataFusion would look the quotation marks of a function's name up as well.
    let function = Ident { value: "range".to_owned(), quote_style: None, span };
    let (expr, alias) = (Expr::Identifier(ident("value")), ident("id"));
    let item = SelectItem::ExprWithAlias { expr, alias };
    let args = values.iter().take(3).cloned();
    let args = args.map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    let relation = TableFactor::Table {
        name: ObjectName::from(vec![function]),
        alias: None,
        args: Some(TableFunctionArgs { args, settings: None }),
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    };
    query_of(vec![item], vec![TableWithJoins { relation, joins: Vec::new() }])
}
