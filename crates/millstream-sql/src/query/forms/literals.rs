//! Texts that stand side by side, which are one, names that are written as texts, and words that
//! sqlparser would read otherwise: TIMESTAMP_LTZ before a text, X apart from one, and columns
//! called `all`.

use datafusion::sql::sqlparser::tokenizer::{self, Token};

use super::tokens::Added;
use crate::syntax::lexer::Lexeme;

/// True at the second of two texts that stand side by side.
pub(super) fn continues_text(tokens: &[Lexeme], at: usize) -> bool {
    let is_text = |at: usize| matches!(tokens[at].token, Token::SingleQuotedString(_));
    at > 0 && is_text(at) && is_text(at - 1)
}

/// True at `IDENTIFIER('...`.
pub(super) fn is_identifier(tokens: &[Lexeme], at: usize) -> bool {
    tokens[at].is_word("IDENTIFIER")
        && tokens.get(at + 1).is_some_and(|next| next.token == Token::LParen)
        && matches!(tokens.get(at + 2).map(|next| &next.token), Some(Token::SingleQuotedString(_)))
}

/// True at `TIMESTAMP_LTZ '...'`, which is `TIMESTAMP '...'`.
pub(super) fn is_local_timestamp(tokens: &[Lexeme], at: usize) -> bool {
    tokens[at].is_word("TIMESTAMP_LTZ")
        && tokens.get(at + 1).is_some_and(|next| matches!(next.token, Token::SingleQuotedString(_)))
}

/// The digits of `X '1F'`; without the space sqlparser knows them.
pub(super) fn bytes(tokens: &[Lexeme], at: usize) -> Option<Lexeme> {
    let (first, last) = (&tokens[at], tokens.get(at + 1)?);
    let Token::SingleQuotedString(digits) = &last.token else { return None };
    let place = tokenizer::Span::new(first.at.start, last.at.end);
    first.is_word("X").then(|| Lexeme {
        token: Token::HexStringLiteral(digits.clone()),
        span: first.span.to(last.span),
        at: place,
    })
}

/// True at the first of several columns, where that is called `all`.
pub(super) fn is_column_all(tokens: &[Lexeme], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| &tokens[before]);
    tokens[at].is_word("ALL")
        && tokens.get(at + 1).is_some_and(|next| next.token == Token::Comma)
        && before.is_some_and(|before| before.is_word("SELECT") || before.is_word("BY"))
}

/// `'a' 'b'` as `'ab'`, and `IDENTIFIER('t.' || 'a')` as `t.a`.
pub(super) fn plain(tokens: &[Lexeme]) -> Vec<Lexeme> {
    let mut plain: Vec<Lexeme> = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let lexeme = &tokens[at];
        if continues_text(tokens, at)
            && let (Some(last), Token::SingleQuotedString(more)) = (plain.last_mut(), &lexeme.token)
            && let Token::SingleQuotedString(text) = &mut last.token
        {
            text.push_str(more);
            at += 1;
            continue;
        }
        if is_identifier(tokens, at)
            && let Some((name, length)) = name(&tokens[at..])
            // Such a name is a whole one.
            && tokens.get(at + length).is_none_or(|next| next.token != Token::Period)
        {
            plain.extend(name);
            at += length;
            continue;
        }
        if let Some(bytes) = bytes(tokens, at) {
            plain.push(bytes);
            at += 2;
            continue;
        }
        plain.push(if is_local_timestamp(tokens, at) {
            Added(lexeme).word("TIMESTAMP")
        } else if is_column_all(tokens, at) {
            Added(lexeme).token(Token::make_word("all", Some('`')))
        } else {
            lexeme.clone()
        });
        at += 1;
    }
    plain
}

/// The name that `IDENTIFIER(...)` means, and how many tokens that is.
fn name(tokens: &[Lexeme]) -> Option<(Vec<Lexeme>, usize)> {
    let mut text = String::new();
    let mut at = 2;
    loop {
        let Token::SingleQuotedString(part) = &tokens.get(at)?.token else { return None };
        text.push_str(part);
        at += 1;
        match tokens.get(at)?.token {
            Token::StringConcat => at += 1,
            Token::SingleQuotedString(_) => {}
            Token::RParen => break,
            _ => return None,
        }
    }
    let added = Added(&tokens[0]);
    let mut parts = parts(&text)?;
    // Functions are looked up by their names in lower case, and nothing else that is called so
    // differs by its case.
    if let [function] = parts.as_mut_slice()
        && tokens.get(at + 1).is_some_and(|next| next.token == Token::LParen)
    {
        *function = function.to_lowercase();
    }
    let mut name = Vec::new();
    for part in parts {
        if !name.is_empty() {
            name.push(added.token(Token::Period));
        }
        name.push(added.token(Token::make_word(&part, Some('`'))));
    }
    Some((name, at + 1))
}

/// The parts of a name with dots, each bare or in backticks.
pub(crate) fn parts(text: &str) -> Option<Vec<String>> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let part = if let Some(quoted) = rest.strip_prefix('`') {
            let (part, behind) = quoted_part(quoted)?;
            rest = behind;
            part
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            let (part, behind) = rest.split_at(end);
            let is_bare = |ch: char| ch.is_alphanumeric() || ch == '_';
            if part.is_empty() || !part.chars().all(is_bare) {
                return None;
            }
            rest = behind;
            part.to_owned()
        };
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(behind) => rest = behind,
            None => return rest.is_empty().then_some(parts),
        }
    }
}

/// What stands before the backtick that ends a name, and what behind it.
fn quoted_part(text: &str) -> Option<(String, &str)> {
    let mut part = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('`')?;
        part.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('`') {
            Some(behind) => {
                part.push('`');
                rest = behind;
            }
            None => return Some((part, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn a_name_is_taken_apart_at_its_dots() {
        let of = |text| parts(text).unwrap_or_default();
        assert_eq!(of("a.b"), ["a", "b"]);
        assert_eq!(of("`a.``b`.c"), ["a.`b", "c"]);
        assert_eq!(of("``"), [""]);
        for wrong in ["", "a.", "a b", "`a", "a;b"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }
}
