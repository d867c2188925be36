//! Forms of casts and of constants that have the shape of something else: `int(x)` is a cast, a
//! whole number is an INT, and `current_date` without parentheses may be a column.

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    SetExpr, Spanned, UnaryOperator, Value, ValueWithSpan,
};

use super::ast::{arguments, binary, call, cast, function_name, take};
use super::frame::Frame;
use crate::diagnostic::Diagnostic;
use crate::functions::operators::NEGATED;
use crate::syntax::lexer::Lexed;

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
    let mut args = arguments(function);
    let first = args.next()?;
    let is_cast = is_type(function) && args.next().is_none() && is_plain(function);
    is_cast.then_some(first)
}

fn is_type(function: &Function) -> bool {
    TYPES.contains(&function_name(function).as_str())
}

/// Whether a call is nothing but a name and arguments.
fn is_plain(function: &Function) -> bool {
    let FunctionArguments::List(list) = &function.args else { return false };
    list.duplicate_treatment.is_none()
        && list.clauses.is_empty()
        && function.over.is_none()
        && function.filter.is_none()
        && function.within_group.is_empty()
}

/// Rewrites `int(x)` to a cast.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::Function(function) = &*expr else { return Ok(()) };
    // A word without parentheses may be a column.
    if !is_type(function) || matches!(function.args, FunctionArguments::None) {
        return Ok(());
    }
    let name = function_name(function);
    let Some(argument) = cast_argument(function) else {
        let given = arguments(function).count();
        let message = format!("`{name}` takes 1 argument, and nothing else; it got {given}");
        let help = format!("write CAST(x AS {})", name.to_uppercase());
        let span = lexed.span(function.name.span());
        return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    };
    let name = Ident::with_span(expr.span(), name.to_uppercase());
    let name = ObjectName(vec![ObjectNamePart::Identifier(name)]);
    *expr = cast(argument.clone(), ast::DataType::Custom(name, Vec::new()));
    Ok(())
}

/// The name of a function that stands there without parentheses, and so may be a column.
pub(crate) fn bare_name(function: &Function) -> Option<&Ident> {
    match (&function.args, function.name.0.as_slice()) {
        (FunctionArguments::None, [ObjectNamePart::Identifier(name)]) => Some(name),
        _ => None,
    }
}

/// Whether a call without parentheses, `current_date`, has the name of a column of `frame`.
pub(super) fn is_bare_column(frame: Option<&Frame>, function: &Function) -> bool {
    let Some(name) = bare_name(function) else { return false };
    frame.is_some_and(|frame| frame.resolve(std::slice::from_ref(name)).is_some())
}

/// `+x` as a call, except before a number, `-'1'` as that of a DOUBLE, and any other `-x` as an
/// operator whose operand has a type when it is planned.
pub(crate) fn signed(expr: Expr) -> Expr {
    let span = expr.span();
    match expr {
        Expr::UnaryOp { op: op @ UnaryOperator::Minus, expr: text } if is_text(&text) => {
            let number = cast(*text, ast::DataType::Double(ast::ExactNumberInfo::None));
            Expr::UnaryOp { op, expr: Box::new(number) }
        }
        Expr::UnaryOp { op: UnaryOperator::Plus, expr: value } if !is_number(&value) => {
            call("positive", vec![*value], span)
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: value }
            if !is_number(&value) && !matches!(*value, Expr::Interval(_)) =>
        {
            let none = Expr::Value(Value::Null.with_span(span));
            binary(*value, BinaryOperator::Custom(NEGATED.to_owned()), none)
        }
        other => other,
    }
}

/// Numeric types as CAST names them.
const NUMBERS: [&str; 12] = [
    "BIGINT", "BYTE", "DEC", "DECIMAL", "DOUBLE", "FLOAT", "INT", "INTEGER", "LONG", "NUMERIC",
    "SMALLINT", "TINYINT",
];

/// Lets the casts to numbers in the cells of inline tables be known from those that DataFusion
/// adds to give the cells of a column one type, which Spark chooses otherwise.
pub(super) fn keep_in_values(body: &mut SetExpr) {
    let mut bodies = vec![body];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::SetOperation { left, right, .. } => bodies.extend([&mut **left, &mut **right]),
            SetExpr::Values(values) => {
                values.rows.iter_mut().flat_map(|row| &mut row.content).for_each(keep)
            }
            _ => {}
        }
    }
}

fn keep(cell: &mut Expr) {
    let Expr::Cast { data_type, .. } = cell else { return };
    let name = data_type.to_string().to_uppercase();
    let name = name.split(|char: char| !char.is_ascii_alphabetic()).next().unwrap_or_default();
    if NUMBERS.contains(&name) {
        let span = cell.span();
        take(cell, |cast| call("positive", vec![cast], span));
    }
}

fn is_text(expr: &Expr) -> bool {
    use Value::{DoubleQuotedString, SingleQuotedString};
    match expr {
        Expr::Value(literal) => {
            matches!(literal.value, SingleQuotedString(_) | DoubleQuotedString(_))
        }
        _ => false,
    }
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }))
}

/// A whole number that fits is an INT in Spark; DataFusion makes it a BIGINT.
///
/// Only where the number's type is the result's: elsewhere (`LIMIT 1`, `GROUP BY 1`, a position in
/// a string) a number must stay a plain literal.
pub(super) fn as_int(expr: &mut Expr) {
    let digits = match &*expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => expr.as_ref(),
        other => other,
    };
    if let Expr::Value(ValueWithSpan { value: Value::Number(digits, false), .. }) = digits
        && digits.parse::<i32>().is_ok()
    {
        take(expr, |number| cast(number, ast::DataType::Int(None)));
    }
}
