//! Forms of casts and of constants that have the shape of something else: `int(x)` is a cast, and
//! `current_date` without parentheses may be a column.

use datafusion::sql::sqlparser::ast::{
    self, CastKind, Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart, Spanned,
    UnaryOperator, Value, ValueWithSpan,
};

use super::ast::{arguments, call, function_name};

/// The types that can be called.
const TYPES: [&str; 12] = [
    "bigint",
    "binary",
    "boolean",
    "date",
    "decimal",
    "double",
    "float",
    "int",
    "smallint",
    "string",
    "timestamp",
    "tinyint",
];

/// The only argument of a call of a type, which is a cast.
pub(crate) fn cast_argument(function: &Function) -> Option<&Expr> {
    let name = function_name(function);
    let mut args = arguments(function);
    let first = args.next()?;
    let is_cast = TYPES.contains(&name.as_str()) && args.next().is_none();
    (is_cast && function.over.is_none() && function.filter.is_none()).then_some(first)
}

/// `int(x)` as a cast.
pub(crate) fn cast_call(expr: Expr) -> Expr {
    let Expr::Function(function) = &expr else { return expr };
    let Some(argument) = cast_argument(function) else { return expr };
    let span = expr.span();
    let name = Ident::with_span(span, function_name(function).to_uppercase());
    let name = ObjectName(vec![ObjectNamePart::Identifier(name)]);
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(argument.clone()),
        data_type: ast::DataType::Custom(name, Vec::new()),
        array: false,
        format: None,
    }
}

/// The name of a function that stands there without parentheses, and so may be a column.
pub(crate) fn bare_name(function: &Function) -> Option<&Ident> {
    match (&function.args, function.name.0.as_slice()) {
        (FunctionArguments::None, [ObjectNamePart::Identifier(name)]) => Some(name),
        _ => None,
    }
}

/// `+x` as a call, except before a number.
pub(crate) fn positive(expr: Expr) -> Expr {
    let span = expr.span();
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Plus, expr: value } if !is_number(&value) => {
            call("positive", vec![*value], span)
        }
        other => other,
    }
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }))
}
