//! Texts from texts.

use std::borrow::Cow;

use crate::error::Problem;
use crate::functions::Action;
use crate::java::parse_i32;

pub(crate) fn concat<'a>(arguments: &[&'a str]) -> Action<'a> {
    Action::Text(Cow::Owned(arguments.concat()))
}

pub(crate) fn random<'a>(arguments: &[&'a str]) -> Action<'a> {
    Action::Pick(arguments.iter().map(|text| Cow::Borrowed(*text)).collect())
}

/// Indices count Java's characters, so that one beyond U+FFFF is two.
pub(crate) fn substring<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let text = arguments[0];
    let start = offset(text, arguments[1])?;
    let end = arguments.get(2).map_or(Ok(text.len()), |end| offset(text, end))?;
    let Some(part) = text.get(start..end) else {
        let what = format!("index {} is after index {}", arguments[1], arguments[2]);
        return Err(Problem::new(what, "write the smaller index first"));
    };
    Ok(Action::Text(Cow::Borrowed(part)))
}

fn offset(text: &str, index: &str) -> Result<usize, Problem> {
    let wanted = i64::from(parse_i32(index)?);
    let mut units = 0;
    for (offset, letter) in text.char_indices() {
        if units == wanted {
            return Ok(offset);
        }
        units += letter.len_utf16() as i64;
    }
    if units == wanted {
        return Ok(text.len());
    }
    let what = format!("`{text}` has no index {wanted}");
    Err(Problem::new(what, "indices count from 0 to the text's length"))
}

pub(crate) fn upper(text: &str, out: &mut Vec<u8>) {
    if text.is_ascii() {
        out.extend(text.bytes().map(|byte| byte.to_ascii_uppercase()));
    } else {
        out.extend_from_slice(text.to_uppercase().as_bytes());
    }
}

pub(crate) fn lower(text: &str, out: &mut Vec<u8>) {
    if text.is_ascii() {
        out.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
    } else {
        out.extend_from_slice(text.to_lowercase().as_bytes());
    }
}
