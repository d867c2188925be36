//! `v:a.b[0]['c d']`, a part of a VARIANT, becomes `variant_get(v, '$.a.b[0][''c d'']')`.
//!
//! Spark writes the steps one behind the other and reads them as a path, so that a key in backticks
//! with a point in it is two steps; behind `[` it is one.

use datafusion::sql::sqlparser::ast::{
    Expr, JsonPath, JsonPathElem, Spanned, Value, ValueWithSpan,
};

use super::ast::{call, take, text};
use crate::diagnostic::Diagnostic;
use crate::functions::variant_get::GET;
use crate::syntax::lexer::Lexed;
use crate::variant::path::{Step, parse};

/// Makes a call of such an expression.
///
/// # Errors
/// A step is no key and no number.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr) -> Result<(), Diagnostic> {
    let Expr::JsonAccess { value, path } = expr else { return Ok(()) };
    let span = value.span();
    let Some(steps) = written(path) else {
        let message = format!("`{path}` is no path into a VARIANT");
        let help = "write keys and numbers of elements, as in v:a.b[0]['c d']";
        let span = lexed.span(span);
        return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    };
    take(expr, |access| match access {
        Expr::JsonAccess { value, .. } => call(GET, vec![*value, text(steps, span)], span),
        other => other,
    });
    Ok(())
}

/// The path of such an expression as Spark's function takes it.
pub(super) fn written(path: &JsonPath) -> Option<String> {
    let mut out = String::from("$");
    for step in &path.path {
        match step {
            JsonPathElem::Dot { key, .. } => {
                out.push('.');
                out.push_str(key);
            }
            JsonPathElem::Bracket { key } | JsonPathElem::ColonBracket { key } => {
                let Expr::Value(ValueWithSpan { value, .. }) = key else { return None };
                match value {
                    Value::Number(digits, _) => out.push_str(&format!("[{digits}]")),
                    Value::SingleQuotedString(key) if key.contains('\'') => {
                        out.push_str(&format!("[\"{key}\"]"));
                    }
                    Value::SingleQuotedString(key) => out.push_str(&format!("['{key}']")),
                    _ => return None,
                }
            }
        }
    }
    parse(&out).map(|_| out)
}

/// The name of such a part, which is its last key; none where it has only numbers of elements.
pub(super) fn name(path: &JsonPath) -> Option<String> {
    let steps = parse(&written(path)?)?;
    steps.into_iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(key),
        Step::Index(_) => None,
    })
}
