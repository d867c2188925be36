//! Calls of types: `double(x)` is `CAST(x AS DOUBLE)`.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    Spanned,
};

use super::ast::{arguments, function_name};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// The types that are functions, too.
const TYPES: &[&str] = &[
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

/// The type that a call casts to.
pub(super) fn type_of_call(function: &Function) -> Option<&'static str> {
    let name = function_name(function);
    TYPES.iter().find(|known| **known == name).copied()
}

/// What a call of a type casts, where it is a call of one with one argument.
pub(super) fn cast_argument(function: &Function) -> Option<&Expr> {
    type_of_call(function)?;
    let mut args = arguments(function);
    let first = args.next()?;
    args.next().is_none().then_some(first)
}

/// Rewrites a call where it is one of a type.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::Function(function) = &*expr else { return Ok(()) };
    let Some(name) = type_of_call(function) else { return Ok(()) };
    let span = function.name.0[0].span();
    match cast_argument(function) {
        Some(value) if is_plain(function) => {
            let part = ObjectNamePart::Identifier(Ident::new(name.to_uppercase()));
            *expr = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(value.clone()),
                data_type: DataType::Custom(ObjectName(vec![part]), Vec::new()),
                array: false,
                format: None,
            };
            Ok(())
        }
        _ => {
            let given = arguments(function).count();
            let message = format!("`{name}` takes 1 argument and got {given}");
            let help = format!("write CAST(x AS {})", name.to_uppercase());
            let span = lexed.span(span);
            Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) })
        }
    }
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
