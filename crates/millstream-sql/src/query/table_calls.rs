//! Functions that make several rows of one, in FROM: `FROM explode(array(1, 2)) AS t(x)` is
//! `FROM (SELECT explode(array(1, 2))) AS t(x)`.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, SelectItem, TableFactor,
};

use super::ast::{call, generator};
use super::rows::query_of;

/// Makes a subquery of a call of a generator in FROM.
pub(super) fn into_subquery(factor: &mut TableFactor) {
    let TableFactor::Table { name, alias, args: Some(args), .. } = factor else { return };
    let Some(call) = generator_call(name, &args.args) else { return };
    let query = query_of(vec![SelectItem::UnnamedExpr(call)], Vec::new());
    let alias = alias.take();
    *factor =
        TableFactor::Derived { lateral: false, subquery: Box::new(query), alias, sample: None };
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
