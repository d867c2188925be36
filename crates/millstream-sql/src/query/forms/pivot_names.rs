//! What the columns of PIVOT are called where no name was written: `2012`, `{2012, x}`, `[1, 2]`,
//! `2012-01-31`, and with several aggregates `2012_sum(a)`. A name that only an evaluation would
//! tell has to be written, and so has that of a TIMESTAMP, which depends on the session's zone.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::{end_of_parenthesis, items, listed};
use crate::diagnostic::{Diagnostic, Span};
use crate::syntax::lexer::Lexeme;
use crate::values::calendar::{parse_date, parse_timestamp_ntz, write_date, write_timestamp};

pub(super) fn text_of(lexeme: &Lexeme) -> String {
    match &lexeme.token {
        Token::Word(word) => word.value.clone(),
        Token::SingleQuotedString(text) => text.clone(),
        Token::Number(digits, _) => digits.clone(),
        other => other.to_string(),
    }
}

pub(super) fn text_of_all(tokens: &[Lexeme]) -> String {
    tokens.iter().map(text_of).collect()
}

/// What the column of a value is called.
pub(super) fn value_name(value: &[Lexeme], place: Span) -> Result<String, Diagnostic> {
    let texts: Option<Vec<String>> = listed(value).into_iter().map(literal).collect();
    match texts.as_deref() {
        Some([text]) => Ok(text.clone()),
        Some(several) => Ok(format!("{{{}}}", several.join(", "))),
        None => {
            let at = value.first().map_or(place, |first| first.span);
            let message = "a column of PIVOT for this value has to be named";
            Err(Diagnostic::at(at, message).help("write IN (value AS name, ...)"))
        }
    }
}

/// A literal as text.
fn literal(value: &[Lexeme]) -> Option<String> {
    match value {
        [only] => match &only.token {
            Token::SingleQuotedString(text) => Some(text.clone()),
            Token::Number(digits, _) => is_plain(digits).then(|| digits.clone()),
            Token::Word(_) => {
                let word = ["true", "false", "null"].into_iter().find(|word| only.is_word(word));
                word.map(str::to_owned)
            }
            _ => None,
        },
        [sign, number] if sign.token == Token::Minus => match &number.token {
            Token::Number(digits, _) => is_plain(digits).then(|| format!("-{digits}")),
            _ => None,
        },
        [of, Lexeme { token: Token::SingleQuotedString(text), .. }] => time(of, text),
        [array, rest @ ..] if array.is_word("ARRAY") => {
            let elements = items(within(rest)?);
            let texts = elements.iter().map(|element| literal(element));
            let texts = texts.collect::<Option<Vec<_>>>()?;
            are_alike(&elements).then(|| format!("[{}]", texts.join(", ")))
        }
        row => {
            let texts = items(within(row)?).into_iter().map(literal);
            match texts.collect::<Option<Vec<_>>>()?.as_slice() {
                [text] => Some(text.clone()),
                several => Some(format!("{{{}}}", several.join(", "))),
            }
        }
    }
}

/// The text of `DATE '...'` and of `TIMESTAMP_NTZ '...'`.
fn time(of: &Lexeme, text: &str) -> Option<String> {
    let mut written = String::new();
    if of.is_word("DATE") {
        write_date(parse_date(text)?, &mut written);
    } else if of.is_word("TIMESTAMP_NTZ") {
        write_timestamp(parse_timestamp_ntz(text)?, &mut written);
    } else {
        return None;
    }
    Some(written)
}

/// What the parenthesis encloses that `tokens` are.
fn within(tokens: &[Lexeme]) -> Option<&[Lexeme]> {
    let is_one =
        tokens.first()?.token == Token::LParen && end_of_parenthesis(tokens, 1) + 1 == tokens.len();
    is_one.then(|| &tokens[1..tokens.len() - 1])
}

/// Whether no element of an array has to be converted to the type of another.
fn are_alike(elements: &[&[Lexeme]]) -> bool {
    let is_text = |element: &&[Lexeme]| {
        matches!(element, [Lexeme { token: Token::SingleQuotedString(_), .. }])
    };
    let is_whole = |element: &&[Lexeme]| match element.last().map(|last| &last.token) {
        Some(Token::Number(digits, _)) => !digits.contains('.'),
        _ => false,
    };
    elements.iter().all(is_text) || elements.iter().all(is_whole)
}

/// True for digits that are the number's text: `1e2` is 100.0, `007` is 7, and `.5` is 0.5.
fn is_plain(digits: &str) -> bool {
    let whole = digits.split('.').next().unwrap_or("");
    let leads = whole.is_empty() || (whole.len() > 1 && whole.starts_with('0'));
    let is_number = digits.chars().all(|digit| digit.is_ascii_digit() || digit == '.');
    is_number && !leads && !digits.ends_with('.')
}

/// What Spark calls an aggregate: `sum(a)`, `count(1)`.
pub(super) fn aggregate_name(aggregate: &[Lexeme], place: Span) -> Result<String, Diagnostic> {
    let name = match aggregate {
        [function, open, of, close]
            if open.token == Token::LParen && close.token == Token::RParen =>
        {
            let name = text_of(function).to_lowercase();
            match of.token {
                Token::Mul if name == "count" => Some("count(1)".to_owned()),
                Token::Word(_) => Some(format!("{name}({})", text_of(of))),
                _ => None,
            }
        }
        _ => None,
    };
    name.ok_or_else(|| {
        let at = aggregate.first().map_or(place, |first| first.span);
        Diagnostic::at(at, "this aggregate of PIVOT has to be named")
            .help("write PIVOT (sum(a + b) AS s, ... FOR ...)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::lexer::Lexed;

    #[test]
    fn literals_are_called_as_they_are_written() {
        let named = |text| {
            let lexed = Lexed::new(text).expect("the text has tokens");
            value_name(&lexed.lexemes, lexed.lexemes[0].span).ok()
        };
        let cases = [
            ("'x y'", Some("x y")),
            ("2012", Some("2012")),
            ("-1.50", Some("-1.50")),
            ("TRUE", Some("true")),
            ("(2012, 'x')", Some("{2012, x}")),
            ("array(1, -2)", Some("[1, -2]")),
            ("('x', array('a', 'b'))", Some("{x, [a, b]}")),
            ("('x', (1, 'a'))", Some("{x, {1, a}}")),
            ("('x', (1))", Some("{x, 1}")),
            ("array(1, 2.5)", None),
            ("array()", None),
            ("1e2", None),
            ("007", None),
            ("DATE '2026-1-31'", Some("2026-01-31")),
            ("('x', DATE '2026-01-31')", Some("{x, 2026-01-31}")),
            ("TIMESTAMP_NTZ '2026-01-31 10:00:00.50'", Some("2026-01-31 10:00:00.5")),
            ("TIMESTAMP '2026-01-31 10:00:00'", None),
            ("DATE 'today'", None),
            ("a", None),
        ];
        for (text, name) in cases {
            assert_eq!(named(text).as_deref(), name, "{text}");
        }
    }
}
