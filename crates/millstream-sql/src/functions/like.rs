//! LIKE as functions: with a character that escapes, and over several patterns.
//!
//! A pattern is put into Arrow's form, in which a backslash escapes, and where Spark fails for an
//! escape before a character that needs none, so does this.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Datum, Scalar, StringArray};
use arrow::compute::kernels::boolean::{and_kleene, not, or_kleene};
use datafusion::common::{Result, exec_err};

use super::define::{Arguments, Function, Param, returns_boolean};

use Param::Text;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("like", &[Text, Text, Text], returns_boolean, |args| like(args, false))
        .required(2),
    Function::new("ilike", &[Text, Text, Text], returns_boolean, |args| like(args, true))
        .required(2),
    Function::new("like_all", &[Text, Text], returns_boolean, |args| of_list(args, true, false))
        .variadic(),
    Function::new("like_any", &[Text, Text], returns_boolean, |args| of_list(args, false, false))
        .variadic(),
    Function::new("not_like_all", &[Text, Text], returns_boolean, |args| of_list(args, true, true))
        .variadic(),
    Function::new("not_like_any", &[Text, Text], returns_boolean, |args| {
        of_list(args, false, true)
    })
    .variadic(),
];

/// `like(value, pattern[, escape])`.
fn like(args: &Arguments, ignores_case: bool) -> Result<ArrayRef> {
    let escapes = (args.len() > 2).then(|| args.text(2));
    let (values, constant_value) = args.array(0);
    let values: ArrayRef = match ignores_case {
        true => {
            let lower = values.as_string::<i32>().iter().map(|value| value.map(str::to_lowercase));
            Arc::new(lower.collect::<StringArray>())
        }
        false => Arc::clone(values),
    };
    // With an escape of its own for each row, a pattern has to be read for each row.
    let constant = args.array(1).1 && (args.len() < 3 || args.array(2).1);
    let patterns = args.text(1);
    let rows = if constant { 1 } else { args.rows };
    let read = |escape| one_character("the escape of LIKE", escape);
    let pattern = |row: usize| -> Result<Option<String>> {
        let escape = match &escapes {
            None => Some('\\'),
            Some(escapes) => escapes.get(row).map(read).transpose()?,
        };
        match (patterns.get(row), escape) {
            (Some(pattern), Some(escape)) if ignores_case => {
                in_arrow(&pattern.to_lowercase(), escape).map(Some)
            }
            (Some(pattern), Some(escape)) => in_arrow(pattern, escape).map(Some),
            _ => Ok(None),
        }
    };
    let patterns = (0..rows).map(pattern).collect::<Result<StringArray>>()?;
    let values = side(values, constant_value);
    let patterns = side(Arc::new(patterns), constant);
    Ok(Arc::new(arrow::compute::like(values.as_ref(), patterns.as_ref())?))
}

fn side(array: ArrayRef, constant: bool) -> Box<dyn Datum> {
    if constant { Box::new(Scalar::new(array)) } else { Box::new(array) }
}

/// The only character of `text`; one of more than 16 bits is two in Java.
pub(super) fn one_character(what: &str, text: &str) -> Result<char> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(char), None) if char.len_utf16() == 1 => Ok(char),
        _ => exec_err!("{what} is one character, not '{text}'"),
    }
}

/// A pattern in which a backslash is what escapes.
fn in_arrow(pattern: &str, escape: char) -> Result<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        let literal = match char {
            _ if char == escape => match chars.next() {
                Some(next) if next == '_' || next == '%' || next == escape => next,
                Some(next) => {
                    return exec_err!(
                        "the pattern '{pattern}' is wrong: the escape character is not allowed to \
                         precede '{next}'"
                    );
                }
                None => {
                    return exec_err!(
                        "the pattern '{pattern}' is wrong: it is not allowed to end with the \
                         escape character"
                    );
                }
            },
            '_' | '%' => {
                out.push(char);
                continue;
            }
            other => other,
        };
        if matches!(literal, '_' | '%' | '\\') {
            out.push('\\');
        }
        out.push(literal);
    }
    Ok(out)
}

/// Whether argument 0 is like all, or any, of the patterns after it.
fn of_list(args: &Arguments, all: bool, negated: bool) -> Result<ArrayRef> {
    let value = args.expanded(0)?;
    let mut found = None;
    for at in 1..args.len() {
        let (texts, constant) = args.array(at);
        let read = |pattern: Option<&str>| pattern.map(|text| in_arrow(text, '\\')).transpose();
        let patterns =
            texts.as_string::<i32>().iter().map(read).collect::<Result<StringArray>>()?;
        let patterns = side(Arc::new(patterns), constant);
        let mut one = arrow::compute::like(&value, patterns.as_ref())?;
        if negated {
            one = not(&one)?;
        }
        found = Some(match found {
            None => one,
            Some(found) if all => and_kleene(&found, &one)?,
            Some(found) => or_kleene(&found, &one)?,
        });
    }
    match found {
        Some(found) => Ok(Arc::new(found)),
        None => exec_err!("LIKE ANY and LIKE ALL need a pattern"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_character_is_one_in_java() {
        let read = |text| one_character("it", text).ok();
        assert_eq!(read("é"), Some('é'));
        assert_eq!([read(""), read("ab"), read("😀")], [None; 3]);
    }

    #[test]
    fn an_escape_makes_the_next_character_plain() {
        let read = |pattern, escape| in_arrow(pattern, escape).ok();
        assert_eq!(read("a#%b", '#').as_deref(), Some("a\\%b"));
        assert_eq!(read("a##_", '#').as_deref(), Some("a#_"));
        assert_eq!(read("a\\b%", '#').as_deref(), Some("a\\\\b%"));
        assert_eq!(read("a#b", '#'), None);
        assert_eq!(read("a#", '#'), None);
    }
}
