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
    Number(&'static str),
    False,
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
    ("tuple_sketch_agg_double", TUPLES_OF_VALUES),
    ("tuple_sketch_agg_integer", TUPLES_OF_VALUES),
    ("tuple_union_double", UNION_OF_TUPLES),
    ("tuple_union_integer", UNION_OF_TUPLES),
    ("tuple_union_theta_double", UNION_OF_TUPLES),
    ("tuple_union_theta_integer", UNION_OF_TUPLES),
    ("tuple_union_agg_double", UNION_OF_ROWS),
    ("tuple_union_agg_integer", UNION_OF_ROWS),
];

const TUPLES_OF_VALUES: Signature = &[
    ("key", Missing::Refused),
    ("summary", Missing::Refused),
    ("lgNomEntries", SIZE),
    ("mode", MODE),
];

const UNION_OF_TUPLES: Signature = &[
    ("first", Missing::Refused),
    ("second", Missing::Refused),
    ("lgNomEntries", SIZE),
    ("mode", MODE),
];

const UNION_OF_ROWS: Signature =
    &[("child", Missing::Refused), ("lgNomEntries", SIZE), ("mode", MODE)];

/// What Spark puts behind the first arguments of a function where a call ends with them: how many
/// these are, and what the others are. So the names of columns have them too.
const COMPLETED: &[(&str, usize, &[Missing])] = &[
    ("hll_sketch_agg", 1, &[SIZE]),
    ("hll_union", 2, &[Missing::False]),
    ("hll_union_agg", 1, &[Missing::False]),
    ("theta_sketch_agg", 1, &[SIZE]),
    ("theta_union", 2, &[SIZE]),
    ("theta_union_agg", 1, &[SIZE]),
    ("tuple_intersection_agg_double", 1, &[MODE]),
    ("tuple_intersection_agg_integer", 1, &[MODE]),
    ("tuple_intersection_double", 2, &[MODE]),
    ("tuple_intersection_integer", 2, &[MODE]),
    ("tuple_intersection_theta_double", 2, &[MODE]),
    ("tuple_intersection_theta_integer", 2, &[MODE]),
    ("tuple_sketch_agg_double", 2, &[SIZE, MODE]),
    ("tuple_sketch_agg_integer", 2, &[SIZE, MODE]),
    ("tuple_sketch_summary_double", 1, &[MODE]),
    ("tuple_sketch_summary_integer", 1, &[MODE]),
    ("tuple_union_agg_double", 1, &[SIZE, MODE]),
    ("tuple_union_agg_integer", 1, &[SIZE, MODE]),
    ("tuple_union_double", 2, &[SIZE, MODE]),
    ("tuple_union_integer", 2, &[SIZE, MODE]),
    ("tuple_union_theta_double", 2, &[SIZE, MODE]),
    ("tuple_union_theta_integer", 2, &[SIZE, MODE]),
];

/// The size of a sketch, as a logarithm.
const SIZE: Missing = Missing::Number("12");

/// How the numbers of a value in a tuple sketch become one.
const MODE: Missing = Missing::Text("sum");

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
        complete(name, args);
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
        let Some(value) = value.or_else(|| missing.value(name.span)) else {
            return Err(missing_argument(lexed, name, parameter));
        };
        args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(value)));
    }
    Ok(())
}

/// Puts behind the arguments of a call what Spark puts there.
fn complete(name: &Ident, args: &mut Vec<FunctionArg>) {
    let is_meant = |known: &&(&str, usize, &[Missing])| known.0.eq_ignore_ascii_case(&name.value);
    let Some((_, first, others)) = COMPLETED.iter().find(is_meant) else { return };
    let Some(given) = args.len().checked_sub(*first) else { return };
    let values = others.iter().skip(given).filter_map(|missing| missing.value(name.span));
    args.extend(values.map(|value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value))));
}

impl Missing {
    /// The argument, unless a call has to have it.
    fn value(&self, span: tokenizer::Span) -> Option<Expr> {
        let value = match self {
            Self::Refused => return None,
            Self::Text(content) => return Some(text((*content).to_owned(), span)),
            Self::Number(digits) => Value::Number((*digits).to_owned(), false),
            Self::False => Value::Boolean(false),
            Self::Null => Value::Null,
        };
        Some(Expr::Value(ValueWithSpan { value, span }))
    }
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
