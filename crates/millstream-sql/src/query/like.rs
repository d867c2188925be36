//! The forms of LIKE that DataFusion does not have.
//!
//! `x LIKE ALL (a, b)`, with ANY or SOME, negated or not, becomes a call of `like_all` or
//! `like_any`; ILIKE is LIKE of both sides in lower case. `ESCAPE`, a literal pattern with a
//! backslash and one that is no literal become a call of `like`, which says where an escape stands
//! before what it cannot. Over a stream LIKE stays as it is but for `ESCAPE` and literals that are
//! wrong: checkpoints know the query by that form.

use datafusion::sql::sqlparser::ast::{Expr, Function, Spanned, UnaryOperator, Value};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{arguments, call, function_name, text};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// LIKE or ILIKE with all that can stand in it.
struct Like<'a> {
    negated: bool,
    any: bool,
    ignores_case: bool,
    value: &'a Expr,
    pattern: &'a Expr,
    escape: Option<&'a Value>,
}

impl<'a> Like<'a> {
    fn of(expr: &'a Expr) -> Option<Self> {
        let (ignores_case, negated, any, value, pattern, escape) = match expr {
            Expr::Like { negated, any, expr, pattern, escape_char } => {
                (false, *negated, *any, expr, pattern, escape_char)
            }
            Expr::ILike { negated, any, expr, pattern, escape_char } => {
                (true, *negated, *any, expr, pattern, escape_char)
            }
            _ => return None,
        };
        let escape = escape.as_ref().map(|escape| &escape.value);
        Some(Self { negated, any, ignores_case, value, pattern, escape })
    }

    /// The patterns of a list, and whether all of them must match.
    fn list(&self) -> Option<(bool, Vec<&'a Expr>)> {
        match self.pattern {
            Expr::Function(function) => listed(function),
            Expr::Tuple(patterns) if self.any => Some((false, patterns.iter().collect())),
            Expr::Nested(pattern) if self.any => Some((false, vec![pattern])),
            _ => None,
        }
    }

    /// A side as it is compared.
    fn side(&self, side: &Expr) -> Expr {
        if self.ignores_case {
            call("lower", vec![side.clone()], side.span())
        } else {
            side.clone()
        }
    }
}

/// `ALL (a, b)` as sqlparser reads it where it does not know it, as a call.
fn listed(function: &Function) -> Option<(bool, Vec<&Expr>)> {
    let all = match function_name(function).as_str() {
        "all" => true,
        "any" | "some" => false,
        _ => return None,
    };
    Some((all, arguments(function).collect()))
}

/// Rewrites an expression where it is one of these.
pub(super) fn rewrite(lexed: &Lexed, expr: &mut Expr, is_batch: bool) -> Result<(), Diagnostic> {
    let Some(like) = Like::of(expr) else { return Ok(()) };
    let span = expr.span();
    let refused = |message: &str, help: &str| Diagnostic {
        span: lexed.span(span),
        ..Diagnostic::nowhere(message).help(help)
    };
    if let Some((all, patterns)) = like.list() {
        if patterns.is_empty() {
            return Err(refused("LIKE ANY and LIKE ALL need a pattern", "write LIKE ANY ('a%')"));
        }
        if like.escape.is_some() {
            return Err(refused(
                "LIKE ANY and LIKE ALL take no ESCAPE",
                "write x LIKE a ESCAPE c for each pattern",
            ));
        }
        *expr = of_list(&like, all, &patterns, span);
        return Ok(());
    }
    if like.any {
        return Err(refused("LIKE ANY takes a list of patterns", "write LIKE ANY ('a%', 'b%')"));
    }
    if like.escape.is_none() && stays(like.pattern, is_batch) {
        if like.ignores_case && is_batch {
            *expr = in_lower_case(&like);
        }
        return Ok(());
    }
    let mut args = vec![like.side(like.value), like.side(like.pattern)];
    match like.escape {
        Some(Value::SingleQuotedString(escape)) if escape.chars().count() == 1 => {
            args.push(text(escape.clone(), Span::empty()));
        }
        Some(_) => {
            return Err(refused("the ESCAPE of LIKE is one character", "write ESCAPE '#'"));
        }
        None => {}
    }
    *expr = negated_if(like.negated, call("like", args, span));
    Ok(())
}

/// ILIKE as Spark has it: LIKE of both sides in lower case. To DataFusion letters are the same that
/// are only so in upper case.
fn in_lower_case(like: &Like<'_>) -> Expr {
    let pattern = match literal(like.pattern) {
        Some(pattern) => text(pattern.to_lowercase(), like.pattern.span()),
        None => like.side(like.pattern),
    };
    Expr::Like {
        negated: like.negated,
        any: false,
        expr: Box::new(like.side(like.value)),
        pattern: Box::new(pattern),
        escape_char: None,
    }
}

fn of_list(like: &Like<'_>, all: bool, patterns: &[&Expr], span: Span) -> Expr {
    let name = match (all, like.negated) {
        (true, false) => "like_all",
        (false, false) => "like_any",
        (true, true) => "not_like_all",
        (false, true) => "not_like_any",
    };
    let args = std::iter::once(&like.value).chain(patterns).map(|side| like.side(side));
    call(name, args.collect(), span)
}

fn negated_if(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) } } else { expr }
}

/// Whether DataFusion's LIKE means the same. It knows no escape that stands before what needs none.
fn stays(pattern: &Expr, is_batch: bool) -> bool {
    match literal(pattern) {
        Some(text) => !text.contains('\\') || (!is_batch && escapes_well(text)),
        None => !is_batch,
    }
}

/// Whether a backslash stands only before what needs one: DataFusion's LIKE then means the same.
fn escapes_well(text: &str) -> bool {
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        if char == '\\' && !matches!(rest.next(), Some('_' | '%' | '\\')) {
            return false;
        }
    }
    true
}

fn literal(pattern: &Expr) -> Option<&str> {
    match pattern {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.as_str()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_is_well_placed_before_what_needs_one() {
        for pattern in ["a", r"a\_b", r"\%\\"] {
            assert!(escapes_well(pattern), "{pattern}");
        }
        for pattern in [r"a\b", r"a\", r"\\\"] {
            assert!(!escapes_well(pattern), "{pattern}");
        }
    }
}
