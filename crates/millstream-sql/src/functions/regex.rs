//! Functions over regular expressions.

use arrow::array::ArrayRef;
use arrow::array::builder::{ListBuilder, StringBuilder};
use arrow::datatypes::Int32Type;
use datafusion::common::{Result, exec_err};
use regex::{Captures, Regex};
use std::ops::Range;
use std::sync::Arc;

use super::define::{
    Arguments, Function, Param, returns_boolean, returns_int, returns_text, returns_texts,
};
use super::pattern::{Last, Replacement};

use Param::{Int, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("rlike", &[Text, Text], returns_boolean, rlike)
        .aliases(&["regexp_like", "regexp"]),
    Function::new("regexp_replace", &[Text, Text, Text, Int], returns_text, regexp_replace)
        .required(3),
    Function::new("regexp_extract", &[Text, Text, Int], returns_text, regexp_extract).required(2),
    Function::new("regexp_extract_all", &[Text, Text, Int], returns_texts, regexp_extract_all)
        .required(2),
    Function::new("regexp_count", &[Text, Text], returns_int, regexp_count),
    Function::new("regexp_substr", &[Text, Text], returns_text, regexp_substr),
    Function::new("regexp_instr", &[Text, Text], returns_int, regexp_instr),
    Function::new("split", &[Text, Text, Int], returns_texts, split).required(2),
];

fn rlike(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let mut last = Last::default();
    args.booleans(|row| match (text.get(row), pattern.get(row)) {
        (Some(text), Some(pattern)) => Ok(Some(last.get(pattern)?.is_match(text))),
        _ => Ok(None),
    })
}

fn regexp_replace(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern, with) = (args.text(0), args.text(1), args.text(2));
    let position = (args.len() > 3).then(|| args.int(3));
    let mut last = Last::default();
    let mut parsed: Option<(&str, &str, Replacement)> = None;
    args.write(|row, out| {
        let position = position.as_ref().map_or(Some(1), |position| position.get(row));
        let (Some(text), Some(pattern), Some(with), Some(position)) =
            (text.get(row), pattern.get(row), with.get(row), position)
        else {
            return Ok(false);
        };
        if position < 1 {
            return exec_err!("regexp_replace: the position counts from 1 and is {position}");
        }
        let regex = last.get(pattern)?;
        if !parsed.as_ref().is_some_and(|(of, text, _)| *of == pattern && *text == with) {
            parsed = Some((pattern, with, Replacement::parse(with, regex)?));
        }
        let (_, _, replacement) = parsed.as_ref().expect("it was set above");
        let start = text.char_indices().nth(position as usize - 1).map_or(text.len(), |(at, _)| at);
        replace(regex, text, start, replacement, out);
        Ok(true)
    })
}

fn replace(regex: &Regex, text: &str, start: usize, replacement: &Replacement, out: &mut String) {
    out.push_str(&text[..start]);
    let text = &text[start..];
    let mut copied = 0;
    for captures in matches(regex, text) {
        let whole = captures.get(0).expect("group 0 is the match");
        out.push_str(&text[copied..whole.start()]);
        replacement.write(&captures, out);
        copied = whole.end();
    }
    out.push_str(&text[copied..]);
}

/// All matches with their groups, as [`found`] finds them.
fn matches<'t>(regex: &Regex, text: &'t str) -> impl Iterator<Item = Captures<'t>> {
    as_java(text, |start| {
        let captures = regex.captures_at(text, start)?;
        let whole = captures.get(0)?;
        Some((whole.start()..whole.end(), captures))
    })
}

/// All matches, without their groups, which costs less.
fn found(regex: &Regex, text: &str) -> impl Iterator<Item = Range<usize>> {
    as_java(text, |start| regex.find_at(text, start).map(|found| (found.range(), found.range())))
}

/// What `next` finds from one place after the other on, as in Java: a match that is empty may
/// follow directly on one that is not.
fn as_java<T>(
    text: &str,
    next: impl Fn(usize) -> Option<(Range<usize>, T)>,
) -> impl Iterator<Item = T> {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let (whole, found) = next(from?)?;
        from = if whole.is_empty() {
            text[whole.end..].chars().next().map(|next| whole.end + next.len_utf8())
        } else {
            Some(whole.end)
        };
        Some(found)
    })
}

/// The group that is asked for; group 1 by default.
fn group(args: &Arguments, row: usize, regex: &Regex) -> Result<Option<usize>> {
    let group = if args.len() > 2 { args.int(2).get(row) } else { Some(1) };
    let Some(group) = group else { return Ok(None) };
    match usize::try_from(group) {
        Ok(group) if group < regex.captures_len() => Ok(Some(group)),
        _ => exec_err!(
            "the pattern {:?} has {} groups and group {group} is asked for",
            regex.as_str(),
            regex.captures_len() - 1
        ),
    }
}

fn regexp_extract(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let mut last = Last::default();
    args.write(|row, out| {
        let (Some(text), Some(pattern)) = (text.get(row), pattern.get(row)) else {
            return Ok(false);
        };
        let regex = last.get(pattern)?;
        let Some(group) = group(args, row, regex)? else { return Ok(false) };
        let found = regex.captures(text).and_then(|captures| captures.get(group));
        out.push_str(found.map_or("", |found| found.as_str()));
        Ok(true)
    })
}

fn regexp_extract_all(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let mut last = Last::default();
    let mut out = ListBuilder::new(StringBuilder::new());
    for row in 0..args.rows {
        let (Some(text), Some(pattern)) = (text.get(row), pattern.get(row)) else {
            out.append_null();
            continue;
        };
        let regex = last.get(pattern)?;
        let Some(group) = group(args, row, regex)? else {
            out.append_null();
            continue;
        };
        for captures in matches(regex, text) {
            out.values().append_value(captures.get(group).map_or("", |found| found.as_str()));
        }
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}

fn regexp_count(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let mut last = Last::default();
    args.primitives::<Int32Type>(|row| match (text.get(row), pattern.get(row)) {
        (Some(text), Some(pattern)) => Ok(Some(found(last.get(pattern)?, text).count() as i32)),
        _ => Ok(None),
    })
}

fn regexp_substr(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let mut last = Last::default();
    args.write(|row, out| {
        let (Some(text), Some(pattern)) = (text.get(row), pattern.get(row)) else {
            return Ok(false);
        };
        let found = last.get(pattern)?.find(text).map_or("", |found| found.as_str());
        out.push_str(found);
        // Spark takes an empty match for none.
        Ok(!found.is_empty())
    })
}

fn regexp_instr(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let mut last = Last::default();
    args.primitives::<Int32Type>(|row| match (text.get(row), pattern.get(row)) {
        (Some(text), Some(pattern)) => {
            let found = last.get(pattern)?.find(text);
            Ok(Some(found.map_or(0, |found| text[..found.start()].chars().count() as i32 + 1)))
        }
        _ => Ok(None),
    })
}

fn split(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let limit = (args.len() > 2).then(|| args.int(2));
    let mut last = Last::default();
    let mut out = ListBuilder::new(StringBuilder::new());
    for row in 0..args.rows {
        let limit = limit.as_ref().map_or(Some(-1), |limit| limit.get(row));
        let (Some(text), Some(pattern), Some(limit)) = (text.get(row), pattern.get(row), limit)
        else {
            out.append_null();
            continue;
        };
        let pieces_max =
            usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        split_one(last.get(pattern)?, text, pieces_max, out.values());
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}

/// Java's `String.split`, keeping empty pieces at the end: an empty match at the very start makes
/// no piece. The empty pattern splits into letters, with no empty piece at either end.
fn split_one(regex: &Regex, text: &str, pieces_max: usize, out: &mut StringBuilder) {
    let mut start = 0;
    let mut pieces = 1;
    for found in regex.find_iter(text) {
        if pieces == pieces_max {
            break;
        }
        let at_end_of_letters = regex.as_str().is_empty() && found.start() == text.len();
        // These two matches are empty; the engine finds one before the first letter and one behind
        // the last.
        if found.end() == 0 || at_end_of_letters {
            continue;
        }
        out.append_value(&text[start..found.start()]);
        start = found.end();
        pieces += 1;
    }
    out.append_value(&text[start..]);
}
