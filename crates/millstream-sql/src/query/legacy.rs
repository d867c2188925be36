//! What a query says where a setting keeps what an earlier version of Spark did, in the words of
//! this one.
//!
//! Tokens are read otherwise before the text is parsed, each as one token, so that places among
//! them stay what they are; calls become others once columns have their names.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned, Value,
};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::ast::{arguments, arguments_mut, call, function_name, take, text};
use super::settings::Settings;
use crate::functions::arrays::ONE_EARLIER;
use crate::functions::binary_text::TEXT_OF_BYTES;
use crate::functions::charsets::{DECODE_WITH, ENCODE_WITH, MARKS, MORE};
use crate::syntax::lexer::{Lexed, Lexeme};

/// Words of predicates that `!` can stand before.
const PREDICATES: &[&str] = &["BETWEEN", "ILIKE", "IN", "LIKE", "REGEXP", "RLIKE"];

/// The tokens as they are read with `settings`, where that is not how they stand there.
pub(super) fn read(settings: Settings, lexed: &Lexed) -> Option<Lexed> {
    if !settings.bang_is_not && !settings.doubled_quotes_join {
        return None;
    }
    let mut tokens = lexed.lexemes.clone();
    for (at, lexeme) in tokens.iter_mut().enumerate() {
        if settings.bang_is_not && is_negation(&lexed.lexemes, at) {
            lexeme.token = Token::make_word("NOT", None);
        } else if settings.doubled_quotes_join
            && let Some(joined) = joined(lexed, &lexed.lexemes[at])
        {
            lexeme.token = joined;
        }
    }
    Some(lexed.with(tokens))
}

/// True at the `!` of `a ! IN (...)` and `a IS ! NULL`.
fn is_negation(tokens: &[Lexeme], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    let next = tokens.get(at + 1);
    let is_predicate = |next: &Lexeme| PREDICATES.iter().any(|word| next.is_word(word));
    tokens[at].token == Token::ExclamationMark
        && (before.is_some_and(|before| before.is_word("IS")) || next.is_some_and(is_predicate))
}

/// A text without the quotation marks that stand in it twice.
fn joined(lexed: &Lexed, lexeme: &Lexeme) -> Option<Token> {
    let (Token::SingleQuotedString(_) | Token::DoubleQuotedString(_)) = lexeme.token else {
        return None;
    };
    let written = lexed.text.get(lexeme.span.range())?;
    let quote = written.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let inner = written.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut kept = String::with_capacity(written.len());
    kept.push(quote);
    let mut chars = inner.chars().peekable();
    while let Some(char) = chars.next() {
        if char == quote && chars.peek() == Some(&quote) {
            chars.next();
            continue;
        }
        kept.push(char);
        if char == '\\' {
            kept.extend(chars.next());
        }
    }
    kept.push(quote);
    match Lexed::new(&kept).ok()?.lexemes.as_slice() {
        [only] => Some(only.token.clone()),
        _ => None,
    }
}

/// Rewrites an expression in place; those within it are visited by themselves.
pub(super) fn rewrite(settings: Settings, expr: &mut Expr) {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right }
            if settings.joins_bytes_as_text =>
        {
            take(left, of_bytes);
            take(right, of_bytes);
        }
        Expr::Function(function) => rewrite_call(settings, function),
        _ => {}
    }
}

fn rewrite_call(settings: Settings, function: &mut Function) {
    let given = arguments(function).count();
    match (function_name(function).as_str(), given) {
        ("concat", _) if settings.joins_bytes_as_text => {
            arguments_mut(function).for_each(|arg| take(arg, of_bytes));
        }
        ("elt", _) if settings.picks_bytes_as_text => {
            arguments_mut(function).skip(1).for_each(|arg| take(arg, of_bytes));
        }
        (name @ ("encode" | "decode"), 2)
            if settings.has_more_charsets || settings.marks_characters =>
        {
            let name = if name == "encode" { ENCODE_WITH } else { DECODE_WITH };
            with_rules(settings, function, name);
        }
        ("array_insert", 3) if settings.inserts_before_last => {
            arguments_mut(function).skip(1).take(1).for_each(|place| take(place, one_earlier));
        }
        ("count", 0) if settings.counts_nothing => {
            let null = Value::Null.with_span(function.name.span());
            if let FunctionArguments::List(list) = &mut function.args
                && list.args.is_empty()
            {
                list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(null))));
            }
        }
        _ => {}
    }
}

/// BINARY as a STRING, and anything else as it is.
fn of_bytes(value: Expr) -> Expr {
    let span = value.span();
    call(TEXT_OF_BYTES, vec![value], span)
}

/// Calls the form of `encode` or `decode` whose last argument names the rules of these settings.
fn with_rules(settings: Settings, function: &mut Function, name: &str) {
    let span = function.name.span();
    let rules = [(settings.has_more_charsets, MORE), (settings.marks_characters, MARKS)];
    let rules = rules.into_iter().filter(|(is_set, _)| *is_set).map(|(_, rule)| rule);
    let rules = text(rules.collect::<Vec<_>>().join(" "), span);
    let args = arguments(function).cloned().chain([rules]).collect();
    if let Expr::Function(other) = call(name, args, span) {
        (function.name, function.args) = (other.name, other.args);
    }
}

/// A place from the end, which was counted from the last element, counted from the end.
fn one_earlier(place: Expr) -> Expr {
    let span = place.span();
    call(ONE_EARLIER, vec![place], span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(settings: Settings, text: &str) -> Vec<String> {
        let lexed = Lexed::new(text).expect("the text has tokens");
        let read = read(settings, &lexed).expect("the setting is not the default");
        assert_eq!(read.lexemes.len(), lexed.lexemes.len());
        read.lexemes.iter().map(|lexeme| lexeme.token.to_string()).collect()
    }

    #[test]
    fn a_mark_is_a_word_before_predicates() {
        let settings = Settings { bang_is_not: true, ..Settings::default() };
        assert_eq!(shown(settings, "a ! IN"), ["a", "NOT", "IN"]);
        assert_eq!(shown(settings, "a IS ! b"), ["a", "IS", "NOT", "b"]);
        assert_eq!(shown(settings, "! a"), ["!", "a"]);
    }

    #[test]
    fn doubled_quotes_join_texts() {
        let settings = Settings { doubled_quotes_join: true, ..Settings::default() };
        let text = |token: &str| {
            let lexed = Lexed::new(token).expect("the text has tokens");
            let read = read(settings, &lexed).expect("the setting is not the default");
            match &read.lexemes[0].token {
                Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => text.clone(),
                other => panic!("{other} is no text"),
            }
        };
        assert_eq!(text("'S''par''k'"), "Spark");
        assert_eq!(text(r"'S\'par\'k'"), "S'par'k");
        assert_eq!(text("''"), "");
    }
}
