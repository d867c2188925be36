//! Functions over regular expressions.

use arrow::array::ArrayRef;
use arrow::array::builder::{ListBuilder, StringBuilder};
use arrow::datatypes::Int32Type;
use datafusion::common::{Result, exec_err};
use std::ops::Range;
use std::sync::Arc;

use super::define::{
    Arguments, Function, Param, returns_boolean, returns_int, returns_text, returns_texts,
};
use super::pattern::{Groups, Last, Pattern, Replacement};

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
        let start = start_of(text, position);
        let rest = start.map_or("", |start| &text[start..]);
        let mut found = matches(regex, rest).peekable();
        let (Some(start), Some(_)) = (start, found.peek()) else {
            out.push_str(text);
            return Ok(true);
        };
        // A replacement that the pattern does not have is an error where something is replaced.
        if !parsed.as_ref().is_some_and(|(of, text, _)| *of == pattern && *text == with) {
            parsed = Some((pattern, with, Replacement::parse(with, regex)?));
        }
        let (_, _, replacement) = parsed.as_ref().expect("it was set above");
        out.push_str(&text[..start]);
        replace(found, rest, replacement, out);
        Ok(true)
    })
}

/// Where a text goes on at a position from 1, in units of UTF-16 as in Java; `None` behind its end.
fn start_of(text: &str, position: i32) -> Option<usize> {
    let wanted = usize::try_from(position).ok()?.checked_sub(1)?;
    let mut units = 0;
    for (at, char) in text.char_indices() {
        if units >= wanted {
            return Some(at);
        }
        units += char.len_utf16();
    }
    (wanted == 0).then_some(0)
}

fn replace<'p>(
    found: impl Iterator<Item = Groups<'p>>,
    text: &str,
    replacement: &Replacement,
    out: &mut String,
) {
    let mut copied = 0;
    for groups in found {
        let whole = groups.get(0).expect("group 0 is the match");
        out.push_str(&text[copied..whole.start]);
        replacement.write(&groups, text, out);
        copied = whole.end;
    }
    out.push_str(&text[copied..]);
}

/// All matches with their groups, as [`found`] finds them.
fn matches<'p>(regex: &'p Pattern, text: &str) -> impl Iterator<Item = Groups<'p>> {
    as_java(text, move |start| {
        let groups = regex.groups_at(text, start)?;
        Some((groups.get(0)?, groups))
    })
}

/// All matches, without their groups, which costs less.
fn found(regex: &Pattern, text: &str) -> impl Iterator<Item = Range<usize>> {
    as_java(text, |start| regex.find_at(text, start).map(|found| (found.clone(), found)))
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
fn group(args: &Arguments, row: usize) -> Option<i32> {
    if args.len() > 2 { args.int(2).get(row) } else { Some(1) }
}

/// A group of a match. Where there is none, Spark does not ask whether there is such a group.
fn there(group: i32, regex: &Pattern) -> Result<usize> {
    match usize::try_from(group) {
        Ok(group) if group < regex.groups_len() => Ok(group),
        _ => exec_err!(
            "the pattern {:?} has {} groups and group {group} is asked for",
            regex.source(),
            regex.groups_len() - 1
        ),
    }
}

fn regexp_extract(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let mut last = Last::default();
    args.write(|row, out| {
        let (Some(text), Some(pattern), Some(group)) =
            (text.get(row), pattern.get(row), group(args, row))
        else {
            return Ok(false);
        };
        let regex = last.get(pattern)?;
        if let Some(found) = regex.groups_at(text, 0) {
            out.push_str(found.text(there(group, regex)?, text));
        }
        Ok(true)
    })
}

fn regexp_extract_all(args: &Arguments) -> Result<ArrayRef> {
    let (text, pattern) = (args.text(0), args.text(1));
    let mut last = Last::default();
    let mut out = ListBuilder::new(StringBuilder::new());
    for row in 0..args.rows {
        let (Some(text), Some(pattern), Some(group)) =
            (text.get(row), pattern.get(row), group(args, row))
        else {
            out.append_null();
            continue;
        };
        let regex = last.get(pattern)?;
        for groups in matches(regex, text) {
            out.values().append_value(groups.text(there(group, regex)?, text));
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
        let found = last.get(pattern)?.find(text).map_or("", |found| &text[found]);
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
            Ok(Some(found.map_or(0, |found| text[..found.start].encode_utf16().count() as i32 + 1)))
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
        let regex = last.get(pattern)?;
        each_piece(regex, text, pieces_max, |piece| out.values().append_value(piece));
        out.append(true);
    }
    Ok(Arc::new(out.finish()))
}

/// Java's `String.split`, keeping empty pieces at the end: an empty match at the very start makes
/// no piece. The empty pattern splits into letters, with no empty piece at either end.
pub(super) fn each_piece<'t>(
    regex: &Pattern,
    text: &'t str,
    pieces_max: usize,
    mut take: impl FnMut(&'t str),
) {
    let mut start = 0;
    let mut pieces = 1;
    for found in found(regex, text) {
        if pieces == pieces_max {
            break;
        }
        let at_end_of_letters = regex.source().is_empty() && found.start == text.len();
        // These two matches are empty; the engine finds one before the first letter and one behind
        // the last.
        if found.end == 0 || at_end_of_letters {
            continue;
        }
        take(&text[start..found.start]);
        start = found.end;
        pieces += 1;
    }
    take(&text[start..]);
}
