//! The way to a part of a value: `$.a.b[0]['c d']`.

use super::error::VariantError;
use super::read::{Value, Variant};

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To the field of an object with this key.
    Key(String),
    /// To an element of an array, from 0.
    Index(usize),
}

/// Reads a path; `None` if it is none.
pub(crate) fn parse(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let (step, after) = first(rest)?;
        steps.push(step);
        rest = after;
    }
    Some(steps)
}

fn first(path: &str) -> Option<(Step, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let (key, rest) = rest.split_at(end);
        return (!key.is_empty()).then(|| (Step::Key(key.to_owned()), rest));
    }
    for quote in ['\'', '"'] {
        if let Some(rest) = path.strip_prefix('[').and_then(|rest| rest.strip_prefix(quote)) {
            let (key, rest) = rest.split_once(quote)?;
            return Some((Step::Key(key.to_owned()), rest.strip_prefix(']')?));
        }
    }
    let (digits, rest) = path.strip_prefix('[')?.split_once(']')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let index = digits.parse::<i32>().ok().filter(|_| is_number)?;
    Some((Step::Index(usize::try_from(index).ok()?), rest))
}

/// The part at the end of a path; `None` if it is not there.
pub(crate) fn find<'a>(
    value: Variant<'a>,
    steps: &[Step],
) -> Result<Option<Variant<'a>>, VariantError> {
    let mut found = value;
    for step in steps {
        let next = match (found.get()?, step) {
            (Value::Object(items), Step::Key(key)) => items.field(key)?,
            (Value::Array(items), Step::Index(at)) if *at < items.len() => Some(items.item(*at)?),
            _ => None,
        };
        let Some(next) = next else { return Ok(None) };
        found = next;
    }
    Ok(Some(found))
}
