//! Parameter markers, `?` and `:name`, in a text that `EXECUTE IMMEDIATE` runs.
//!
//! A value becomes a literal in the text, as in Spark, so that it can stand in `IDENTIFIER(:name)`
//! and wherever else a literal can. One whose type has no plain literal becomes the name of a
//! variable that lasts for the statement.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::known::{Variable, quoted_text};
use crate::diagnostic::{Diagnostic, Span};
use crate::syntax::lexer::{Lexed, Lexeme};
use crate::syntax::limits;

/// A value that USING gives.
pub struct Given {
    /// The name after AS.
    pub name: Option<String>,
    /// Its type.
    pub field: FieldRef,
    /// What it is.
    pub value: ScalarValue,
}

/// A text with values in place of its markers, and the variables that it names for some of them.
pub struct Filled {
    /// The text.
    pub text: String,
    /// The variables.
    pub variables: Vec<Arc<Variable>>,
}

enum Marker<'a> {
    Place,
    Name(&'a str),
}

/// Puts values in the places of all markers of a text.
///
/// # Errors
/// Markers and values that do not fit, by their number or their names.
pub fn fill(lexed: &Lexed, given: &[Given]) -> Result<Filled, Diagnostic> {
    let (mut text, mut end) = (String::new(), 0);
    let (mut places, mut names) = (0, 0);
    for at in 0..lexed.lexemes.len() {
        let Some((marker, span)) = marker(&lexed.lexemes, at) else { continue };
        let found = match marker {
            Marker::Place => {
                places += 1;
                Some(places - 1).filter(|at| *at < given.len())
            }
            Marker::Name(name) => {
                names += 1;
                given.iter().position(|one| one.name.as_deref() == Some(name))
            }
        };
        let Some(found) = found else {
            let marker = &lexed.text[span.range()];
            let message = format!("UNBOUND_SQL_PARAMETER: nothing is given for `{marker}`");
            return Err(Diagnostic::nowhere(message).help("add it to USING: USING value AS name"));
        };
        text.push_str(&lexed.text[end..span.start]);
        // Spaces keep it apart from what it would otherwise be one token with.
        text.push_str(&format!(" {} ", literal(&given[found].value, found)));
        end = span.end;
        limits::check_length(&text).map_err(|found| Diagnostic { span: None, ..found })?;
    }
    text.push_str(&lexed.text[end..]);
    if places > 0 && names > 0 {
        let message = "INVALID_QUERY_MIXED_QUERY_PARAMETERS: `?` and `:name` in one text";
        return Err(Diagnostic::nowhere(message).help("write one of the two"));
    }
    if names > 0 && given.iter().any(|one| one.name.is_none()) {
        let message = "ALL_PARAMETERS_MUST_BE_NAMED: USING has values without a name";
        return Err(Diagnostic::nowhere(message).help("write USING value AS name"));
    }
    let variables = given.iter().enumerate().map(|(at, one)| {
        let (field, value) = (Arc::clone(&one.field), one.value.clone());
        Arc::new(Variable { name: name_of(at), field, value, is_marker: true })
    });
    Ok(Filled { text, variables: variables.collect() })
}

/// The marker at a token, and its place.
fn marker(tokens: &[Lexeme], at: usize) -> Option<(Marker<'_>, Span)> {
    let lexeme = &tokens[at];
    match &lexeme.token {
        Token::Placeholder(text) if text == "?" => Some((Marker::Place, lexeme.span)),
        Token::Colon => {
            // In `STRUCT<a:INT>` and `v:a`, a word or an end of parentheses stands at the colon.
            let before = at.checked_sub(1).map(|before| &tokens[before]);
            let follows_word = before.is_some_and(|before| {
                matches!(before.token, Token::Word(_) | Token::RParen | Token::RBracket)
                    && before.span.end == lexeme.span.start
            });
            let next = tokens.get(at + 1)?;
            let name = next.word()?;
            let is_one = next.span.start == lexeme.span.end && !follows_word;
            is_one.then(|| (Marker::Name(name), lexeme.span.to(next.span)))
        }
        _ => None,
    }
}

fn name_of(at: usize) -> String {
    format!("__parameter_{at}")
}

fn literal(value: &ScalarValue, at: usize) -> String {
    match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => quoted_text(text),
        ScalarValue::Int32(Some(value)) if *value >= 0 => value.to_string(),
        ScalarValue::Int64(Some(value)) if *value >= 0 => format!("{value}L"),
        ScalarValue::Boolean(Some(value)) => value.to_string(),
        _ => format!("`{}`", name_of(at)),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    fn filled(text: &str, given: &[(Option<&str>, ScalarValue)]) -> Result<String, String> {
        let given = given.iter().map(|(name, value)| {
            let field = Arc::new(Field::new("value", value.data_type(), true));
            Given { name: name.map(str::to_owned), field, value: value.clone() }
        });
        let lexed = Lexed::new(text).expect("the text is right");
        let filled = fill(&lexed, &given.collect::<Vec<_>>());
        filled.map(|filled| filled.text).map_err(|wrong| wrong.message)
    }

    #[test]
    fn values_take_the_places_of_markers() {
        let text = || ScalarValue::Utf8(Some("it's".to_owned()));
        let one = || ScalarValue::Int32(Some(1));
        let places = filled("SELECT ?, ':a' WHERE ? = 1", &[(None, text()), (None, one())]);
        assert_eq!(places.as_deref(), Ok(r"SELECT  'it\'s' , ':a' WHERE  1  = 1"));
        let names = filled("SELECT :b, CAST(x AS STRUCT<a:INT>), :b", &[(Some("b"), one())]);
        assert_eq!(names.as_deref(), Ok("SELECT  1 , CAST(x AS STRUCT<a:INT>),  1 "));
        let minus = filled("SELECT 2 -?", &[(None, ScalarValue::Int32(Some(-1)))]);
        assert_eq!(minus.as_deref(), Ok("SELECT 2 - `__parameter_0` "));
    }

    #[test]
    fn markers_and_values_have_to_fit() {
        let one = || ScalarValue::Int32(Some(1));
        let wrong = |text: &str, given: &[(Option<&str>, ScalarValue)]| {
            filled(text, given).expect_err("it does not fit")
        };
        assert!(wrong("SELECT ?", &[]).contains("UNBOUND_SQL_PARAMETER"));
        assert!(wrong("SELECT :a", &[(None, one())]).contains("UNBOUND_SQL_PARAMETER"));
        let both = [(Some("a"), one()), (None, one())];
        assert!(wrong("SELECT :a, ?", &both).contains("MIXED"));
        assert!(wrong("SELECT :a", &both).contains("MUST_BE_NAMED"));
        // A value that nothing asks for is none of it.
        let unused = filled("SELECT :b", &[(Some("a"), one()), (Some("b"), one())]);
        assert_eq!(unused.as_deref(), Ok("SELECT  1 "));
    }
}
