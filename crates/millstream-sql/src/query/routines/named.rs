//! Arguments by name: `f(x => 1)`. They become arguments by place.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArgOperator, Ident, Spanned, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::tokenizer;

use super::super::ast::text;
use crate::diagnostic::Diagnostic;
use crate::nearest::suggest;
use crate::syntax::lexer::Lexed;

/// What a parameter is where a call does not say it.
enum Missing {
    /// A call has to.
    Refused,
    Text(&'static str),
    Null,
}

/// The parameters of a function of Spark's.
type Signature = &'static [(&'static str, Missing)];

/// The functions that take arguments by name.
const SIGNATURES: &[(&str, Signature)] = &[
    (
        "mask",
        &[
            ("str", Missing::Refused),
            ("upperChar", Missing::Text("X")),
            ("lowerChar", Missing::Text("x")),
            ("digitChar", Missing::Text("n")),
            ("otherChar", Missing::Null),
        ],
    ),
    ("explode", &[("collection", Missing::Refused)]),
    ("explode_outer", &[("collection", Missing::Refused)]),
    ("posexplode", &[("collection", Missing::Refused)]),
    ("posexplode_outer", &[("collection", Missing::Refused)]),
    ("inline", &[("input", Missing::Refused)]),
    ("inline_outer", &[("input", Missing::Refused)]),
    ("variant_explode", &[("input", Missing::Refused)]),
    ("variant_explode_outer", &[("input", Missing::Refused)]),
];

/// Whether an argument has a name.
pub(super) fn is_named(arg: &FunctionArg) -> bool {
    matches!(arg, FunctionArg::Named { operator: FunctionArgOperator::RightArrow, .. })
}

/// Puts the arguments of a function of Spark's in their places, where some have names.
pub(super) fn of_built_in(
    lexed: &Lexed,
    name: &Ident,
    args: &mut Vec<FunctionArg>,
) -> Result<(), Diagnostic> {
    if !args.iter().any(is_named) {
        return Ok(());
    }
    let known = SIGNATURES.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name.value));
    let Some((_, signature)) = known else {
        let message = format!("`{}` takes no arguments by name", name.value);
        let diagnostic = Diagnostic::nowhere(message).help("write them in their order");
        return Err(Diagnostic { span: lexed.span(name.span), ..diagnostic });
    };
    let names: Vec<&str> = signature.iter().map(|(name, _)| *name).collect();
    let placed = placed(lexed, name, &names, std::mem::take(args))?;
    for (value, (parameter, missing)) in placed.into_iter().zip(*signature) {
        let value = match (value, missing) {
            (Some(value), _) => value,
            (None, Missing::Text(content)) => text((*content).to_owned(), name.span),
            (None, Missing::Null) => null(name.span),
            (None, Missing::Refused) => return Err(missing_argument(lexed, name, parameter)),
        };
        args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(value)));
    }
    Ok(())
}

fn null(span: tokenizer::Span) -> Expr {
    Expr::Value(ValueWithSpan { value: Value::Null, span })
}

/// The error where a call leaves out what it has to say.
pub(super) fn missing_argument(lexed: &Lexed, name: &Ident, parameter: &str) -> Diagnostic {
    let message = format!("`{}` needs a value for `{parameter}`", name.value);
    let diagnostic = Diagnostic::nowhere(message).help(format!("write {parameter} => value"));
    Diagnostic { span: lexed.span(name.span), ..diagnostic }
}

/// The argument of each parameter of the function `name`.
pub(super) fn placed(
    lexed: &Lexed,
    name: &Ident,
    parameters: &[&str],
    args: Vec<FunctionArg>,
) -> Result<Vec<Option<Expr>>, Diagnostic> {
    let wrong = |span: tokenizer::Span, message: String, help: String| Diagnostic {
        span: lexed.span(span),
        ..Diagnostic::nowhere(message).help(help)
    };
    let given = args.len();
    let mut placed: Vec<Option<Expr>> = vec![None; parameters.len()];
    let mut by_name = false;
    for (at, arg) in args.into_iter().enumerate() {
        let (place, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) if by_name => {
                let message = "an argument without a name stands behind one with a name".to_owned();
                return Err(wrong(value.span(), message, "write those first".to_owned()));
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (at, value),
            FunctionArg::Named {
                name: parameter,
                arg: FunctionArgExpr::Expr(value),
                operator: FunctionArgOperator::RightArrow,
            } => {
                by_name = true;
                let is_meant = |known: &&str| known.eq_ignore_ascii_case(&parameter.value);
                let Some(place) = parameters.iter().position(is_meant) else {
                    let message =
                        format!("`{}` has no parameter `{}`", name.value, parameter.value);
                    let help = match parameters.is_empty() {
                        true => "it has none".to_owned(),
                        false => {
                            suggest(&parameter.value, "parameters", parameters.iter().copied())
                        }
                    };
                    return Err(wrong(parameter.span, message, help));
                };
                (place, value)
            }
            other => {
                let message = format!("`{}` cannot have the argument `{other}`", name.value);
                return Err(wrong(name.span, message, "write values".to_owned()));
            }
        };
        let Some(slot) = placed.get_mut(place) else {
            let most = parameters.len();
            let message = format!("`{}` takes {most} arguments at most, not {given}", name.value);
            return Err(wrong(value.span(), message, "leave out the last ones".to_owned()));
        };
        if slot.is_some() {
            let message = format!("`{}` is given twice", parameters[place]);
            return Err(wrong(value.span(), message, "leave one out".to_owned()));
        }
        *slot = Some(value);
    }
    Ok(placed)
}
