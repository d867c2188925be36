//! Functions in FROM. One that makes several rows of one is a subquery:
//! `FROM explode(array(1, 2)) AS t(x)` is `FROM (SELECT explode(array(1, 2)) AS (x)) AS t(x)`.
//! And `range(...)` has one column, which is called `id`.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, SelectItem,
    TableAlias, TableAliasColumnDef, TableFactor,
};

use super::ast::{call, cast, generator, plain_alias, take};
use super::rows::query_of;

/// Gives a function in FROM the form in which it is planned.
pub(super) fn into_plain(factor: &mut TableFactor) {
    let (name, args, alias, lateral) = match factor {
        TableFactor::Table { name, alias, args: Some(args), .. } => {
            (name, &mut args.args, alias, false)
        }
        TableFactor::Function { lateral, name, args, alias, .. } => (name, args, alias, *lateral),
        _ => return,
    };
    let Some(call) = generator_call(name, args) else { return range(name, args, alias) };
    let alias = alias.take();
    let columns = alias.iter().flat_map(|alias| &alias.columns);
    let aliases: Vec<Ident> = columns.map(|column| column.name.clone()).collect();
    let item = match aliases.is_empty() {
        true => SelectItem::UnnamedExpr(call),
        false => SelectItem::ExprWithAliases { expr: call, aliases },
    };
    let subquery = Box::new(query_of(vec![item], Vec::new()));
    *factor = TableFactor::Derived { lateral, subquery, alias, sample: None };
}

fn generator_call(name: &ObjectName, args: &[FunctionArg]) -> Option<Expr> {
    let [ObjectNamePart::Identifier(Ident { value, span, .. })] = name.0.as_slice() else {
        return None;
    };
    let plain = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    let made = call(value, plain.collect::<Option<Vec<_>>>()?, *span);
    generator(&made).is_some().then_some(made)
}

/// How many partitions there are, the fourth argument of `range`, says nothing about the rows.
const RANGE_ARGUMENTS: usize = 3;

fn range(name: &mut ObjectName, args: &mut Vec<FunctionArg>, alias: &mut Option<TableAlias>) {
    let [ObjectNamePart::Identifier(written)] = name.0.as_mut_slice() else { return };
    if !written.value.eq_ignore_ascii_case("range") {
        return;
    }
    let alias = alias.get_or_insert_with(|| plain_alias(written.clone()));
    if alias.columns.is_empty() {
        let name = Ident { value: "id".to_owned(), quote_style: None, span: written.span };
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    // DataFusion looks a function up with regard to case, and its quotation marks with it.
    *written = Ident { value: "range".to_owned(), quote_style: None, span: written.span };
    if args.len() == RANGE_ARGUMENTS + 1 {
        args.truncate(RANGE_ARGUMENTS);
    }
    args.iter_mut().for_each(whole);
}

/// Spark takes a DECIMAL as a BIGINT here.
fn whole(arg: &mut FunctionArg) {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg
        && let Expr::Cast { data_type: DataType::Decimal(_) | DataType::Numeric(_), .. } = expr
    {
        take(expr, |decimal| cast(decimal, DataType::BigInt(None)));
    }
}
