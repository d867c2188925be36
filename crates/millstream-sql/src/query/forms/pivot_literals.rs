//! Which values PIVOT takes: those that no column is needed for. Spark computes them before the
//! query; here a name among them would be that of a column of the result.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::diagnostic::{Diagnostic, Span};
use crate::syntax::lexer::Lexeme;

/// Refuses a value with a word that could be a column.
pub(super) fn check_literal(value: &[Lexeme], place: Span) -> Result<(), Diagnostic> {
    let is_interval = value.iter().any(|lexeme| lexeme.is_word("INTERVAL"));
    let has_unit = value.iter().any(is_unit);
    let mut words = (0..value.len()).filter(|at| matches!(value[*at].token, Token::Word(_)));
    let wrong = words.find(|at| !is_literal(value, *at, is_interval));
    let at = match wrong {
        Some(at) => value[at].span,
        // The unit was taken for a name.
        None if is_interval && !has_unit => value.first().map_or(place, |first| first.span),
        None => return Ok(()),
    };
    Err(Diagnostic::at(at, "the values of PIVOT are literals (NON_LITERAL_PIVOT_VALUES)")
        .help("write IN ('x' AS x, DATE '2026-01-31' AS y, INTERVAL '1' DAY AS z)"))
}

/// Whether the word at `at` is part of a literal, calls a function, or names the type of a CAST.
fn is_literal(value: &[Lexeme], at: usize, in_interval: bool) -> bool {
    let word = &value[at];
    let next = value.get(at + 1).map(|next| &next.token);
    let is = |words: &[&str]| words.iter().any(|one| word.is_word(one));
    let is_text = matches!(next, Some(Token::SingleQuotedString(_)));
    let names_type = |before: usize| value[before].is_word("AS") && at == before + 1 && ends(next);
    is(&["TRUE", "FALSE", "NULL", "AS"])
        || (is(&["DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "X"]) && is_text)
        || (is(&["INTERVAL"]) && next.is_some())
        || (in_interval && (is(&["TO"]) || is_unit(word)))
        || matches!(next, Some(Token::LParen))
        || at.checked_sub(1).is_some_and(names_type)
}

/// A type is the last word of a CAST.
fn ends(next: Option<&Token>) -> bool {
    matches!(next, Some(Token::RParen | Token::Comma))
}

const UNITS: &[&str] =
    &["YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"];

/// True at the name of a unit of time, `DAY` or `DAYS`.
pub(super) fn is_unit(lexeme: &Lexeme) -> bool {
    let Some(word) = lexeme.word() else { return false };
    let word = word.to_ascii_uppercase();
    UNITS.contains(&word.strip_suffix('S').unwrap_or(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::lexer::Lexed;

    fn is_taken(text: &str) -> bool {
        let lexed = Lexed::new(text).expect("the text has tokens");
        check_literal(&lexed.lexemes, lexed.lexemes[0].span).is_ok()
    }

    #[test]
    fn literals_and_calls_of_them_are_values() {
        let cases = [
            "1",
            "-1.5",
            "'x'",
            "(2012, TRUE)",
            "NULL",
            "DATE '2026-01-31'",
            "INTERVAL '1' DAY",
            "INTERVAL '1-2' YEAR TO MONTH",
            "array(1, upper('x'))",
            "CAST('1' AS BIGINT)",
            "CAST('1' AS DECIMAL(4, 1))",
        ];
        for text in cases {
            assert!(is_taken(text), "{text}");
        }
    }

    #[test]
    fn columns_are_no_values() {
        for text in ["a", "`true`", "date", "t.a", "upper(a)", "day", "a + 1", "INTERVAL '1'"] {
            assert!(!is_taken(text), "{text}");
        }
    }
}
