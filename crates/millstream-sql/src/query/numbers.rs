//! Whole numbers in places where their type is the result's.

use datafusion::sql::sqlparser::ast::{
    self, CastKind, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
    Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer;

use super::ast::function_name;

/// Replaces an expression by the result of `make`.
pub(crate) fn take(expr: &mut Expr, make: impl FnOnce(Expr) -> Expr) {
    let null = Expr::Value(ValueWithSpan { value: Value::Null, span: tokenizer::Span::empty() });
    let before = std::mem::replace(expr, null);
    *expr = make(before);
}

/// Functions whose result has the type of their arguments.
const KEEPS_TYPES: &[&str] = &[
    "aggregate",
    "array",
    "coalesce",
    "greatest",
    "if",
    "ifnull",
    "least",
    "map",
    "named_struct",
    "nvl",
    "nvl2",
    "reduce",
];

/// Makes INTs of the whole numbers among the arguments of a function that keeps their type.
pub(crate) fn keep_types(function: &mut Function) {
    if KEEPS_TYPES.contains(&function_name(function).as_str()) {
        arguments_mut(function).for_each(as_int);
    }
}

fn arguments_mut(function: &mut Function) -> impl Iterator<Item = &mut Expr> {
    let args = match &mut function.args {
        FunctionArguments::List(list) => list.args.as_mut_slice(),
        _ => &mut [],
    };
    args.iter_mut().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    })
}

/// A whole number that fits is an INT in Spark; DataFusion makes it a BIGINT.
///
/// Only where the number's type is the result's: elsewhere (`LIMIT 1`, `GROUP BY 1`, a position in
/// a string) a number must stay a plain literal.
pub(crate) fn as_int(expr: &mut Expr) {
    let digits = match &*expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => expr.as_ref(),
        other => other,
    };
    if let Expr::Value(ValueWithSpan { value: Value::Number(digits, false), .. }) = digits
        && digits.parse::<i32>().is_ok()
    {
        take(expr, |number| Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(number),
            data_type: ast::DataType::Int(None),
            array: false,
            format: None,
        });
    }
}
