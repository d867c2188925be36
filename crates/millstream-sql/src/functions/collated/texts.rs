//! Functions of texts that find one in another, as a collation compares them.
//!
//! Where blanks at the end do not count, Spark leaves them out of what is looked for, and for some
//! functions out of the text, too.

use std::borrow::Cow;

use arrow::array::ArrayRef;
use arrow::datatypes::Int32Type;
use datafusion::common::{Result, exec_err};

use super::super::define::{
    Arguments, Function, Param, returns_boolean, returns_int, returns_text,
};
use super::{collation_of, keys_of};
use crate::types::collation::Collation;
use crate::values::collated_text::{
    Part, Searched, Translation, TrimSet, between, trim_end, trim_start, trimmed,
};

use Param::{Int, Long, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("__collated_contains", &[Text, Text, Text], returns_boolean, |args| {
        compared(args, |text, part| text.find(part, 0).is_some())
    }),
    Function::new("__collated_startswith", &[Text, Text, Text], returns_boolean, |args| {
        compared(args, Searched::starts_with)
    }),
    Function::new("__collated_endswith", &[Text, Text, Text], returns_boolean, |args| {
        compared(args, Searched::ends_with)
    }),
    Function::new("__collated_instr", &[Text, Text, Text], returns_int, |args| locate(args, 1, 0)),
    Function::new("__collated_locate", &[Text, Text, Int, Text], returns_int, |args| {
        locate(args, 0, 1)
    }),
    Function::new("__collated_replace", &[Text, Text, Text, Text], returns_text, replace),
    Function::new("__collated_translate", &[Text, Text, Text, Text], returns_text, translate),
    Function::new("__collated_btrim", &[Text, Text, Text], returns_text, |args| {
        trim(args, true, true)
    }),
    Function::new("__collated_ltrim", &[Text, Text, Text], returns_text, |args| {
        trim(args, true, false)
    }),
    Function::new("__collated_rtrim", &[Text, Text, Text], returns_text, |args| {
        trim(args, false, true)
    }),
    Function::new("__collated_split_part", &[Text, Text, Long, Text], returns_text, split_part),
    Function::new("__collated_substr_index", &[Text, Text, Long, Text], returns_text, index),
    Function::new("__collated_find_in_set", &[Text, Text, Text], returns_int, find_in_set),
    Function::new("__collated_initcap", &[Text, Text], returns_text, initcap),
    Function::new("__collated_least", &[Text, Text], returns_text, |args| {
        extreme(args, |one, other| one < other)
    })
    .variadic(),
    Function::new("__collated_greatest", &[Text, Text], returns_text, |args| {
        extreme(args, |one, other| one > other)
    })
    .variadic(),
];

/// What is looked for, without the blanks that do not count.
fn part(collation: Collation, text: &str) -> Part {
    Part::new(collation, trimmed(collation, text))
}

fn compared(args: &Arguments, is: impl Fn(&Searched, &Part) -> bool) -> Result<ArrayRef> {
    let (collation, texts, parts) = (collation_of(args)?, args.text(0), args.text(1));
    args.booleans(|row| {
        let (Some(text), Some(found)) = (texts.get(row), parts.get(row)) else { return Ok(None) };
        let text = Searched::new(collation, trimmed(collation, text));
        Ok(Some(is(&text, &part(collation, found))))
    })
}

/// The first place of the text argument `of` in the text argument `whole`, in characters from 1; 0
/// if nowhere. Between the two and the collation may stand the place to begin at.
fn locate(args: &Arguments, of: usize, whole: usize) -> Result<ArrayRef> {
    let (collation, parts, wholes) = (collation_of(args)?, args.text(of), args.text(whole));
    let starts = (args.len() > 3).then(|| args.int(2));
    args.primitives::<Int32Type>(|row| {
        let start = starts.as_ref().map_or(Some(1), |starts| starts.get(row));
        let (Some(wanted), Some(whole)) = (parts.get(row), wholes.get(row)) else {
            return Ok(None);
        };
        let Some(start) = start.filter(|start| *start >= 1) else { return Ok(Some(0)) };
        let wanted = trimmed(collation, wanted);
        if wanted.is_empty() {
            return Ok(Some(1));
        }
        let (whole, wanted) = (Searched::new(collation, whole), Part::new(collation, wanted));
        let found = whole.find(&wanted, start as usize - 1);
        Ok(Some(found.map_or(0, |(at, _)| i32::try_from(at + 1).unwrap_or(i32::MAX))))
    })
}

fn replace(args: &Arguments) -> Result<ArrayRef> {
    let (collation, texts) = (collation_of(args)?, args.text(0));
    let (parts, others) = (args.text(1), args.text(2));
    args.write(|row, out| {
        let (Some(text), Some(wanted), Some(other)) =
            (texts.get(row), parts.get(row), others.get(row))
        else {
            return Ok(false);
        };
        if wanted.is_empty() {
            out.push_str(text);
            return Ok(true);
        }
        let pieces = split(collation, text, &Part::new(collation, wanted));
        for (at, piece) in pieces.into_iter().enumerate() {
            out.push_str(if at > 0 { other } else { "" });
            out.push_str(piece);
        }
        Ok(true)
    })
}

/// The pieces of `text` between the places where it has `part`, which is not empty.
fn split<'a>(collation: Collation, text: &'a str, part: &Part) -> Vec<&'a str> {
    let searched = Searched::new(collation, text);
    let bytes: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let (mut pieces, mut from) = (Vec::new(), 0);
    while let Some((start, end)) = searched.find(part, from) {
        pieces.push(&text[bytes[from]..bytes[start]]);
        from = end;
    }
    pieces.push(&text[bytes[from]..]);
    pieces
}

fn translate(args: &Arguments) -> Result<ArrayRef> {
    let (collation, texts) = (collation_of(args)?, args.text(0));
    let (letters, others) = (args.text(1), args.text(2));
    args.write(|row, out| {
        let (Some(text), Some(from), Some(to)) =
            (texts.get(row), letters.get(row), others.get(row))
        else {
            return Ok(false);
        };
        let Some(translation) = Translation::new(collation, from, to) else {
            return exec_err!(
                "translate: '{from}' has a letter twice, in both cases, with different results; \
                 name it once"
            );
        };
        translation.write(collation, text, out);
        Ok(true)
    })
}

fn trim(args: &Arguments, start: bool, end: bool) -> Result<ArrayRef> {
    let (collation, texts, sets) = (collation_of(args)?, args.text(0), args.text(1));
    args.write(|row, out| {
        let (Some(text), Some(set)) = (texts.get(row), sets.get(row)) else { return Ok(false) };
        let set = TrimSet::new(collation, set);
        let text = if start { trim_start(collation, text, &set) } else { text };
        match end {
            true => out.push_str(&trim_end(collation, text, &set)),
            false => out.push_str(text),
        }
        Ok(true)
    })
}

fn split_part(args: &Arguments) -> Result<ArrayRef> {
    let (collation, texts) = (collation_of(args)?, args.text(0));
    let (parts, numbers) = (args.text(1), args.long(2));
    args.write(|row, out| {
        let (Some(text), Some(wanted), Some(number)) =
            (texts.get(row), parts.get(row), numbers.get(row))
        else {
            return Ok(false);
        };
        if number == 0 {
            return exec_err!("split_part counts from 1, or from -1 backwards; it got 0");
        }
        let wanted = trimmed(collation, wanted);
        let pieces = match wanted.is_empty() {
            true => vec![text],
            false => split(collation, text, &Part::new(collation, wanted)),
        };
        let count = usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX);
        let at = if number > 0 { Some(count - 1) } else { pieces.len().checked_sub(count) };
        out.push_str(at.and_then(|at| pieces.get(at)).copied().unwrap_or_default());
        Ok(true)
    })
}

/// `substring_index`: what stands before or behind so many of the parts, which may overlap.
fn index(args: &Arguments) -> Result<ArrayRef> {
    let (collation, texts) = (collation_of(args)?, args.text(0));
    let (parts, counts) = (args.text(1), args.long(2));
    args.write(|row, out| {
        let (Some(text), Some(wanted), Some(count)) =
            (texts.get(row), parts.get(row), counts.get(row))
        else {
            return Ok(false);
        };
        let wanted = trimmed(collation, wanted);
        if !wanted.is_empty() && count != 0 {
            let wanted = Part::new(collation, wanted);
            let searched = Searched::new(collation, text);
            let place = match count > 0 {
                true => nth(&searched, &wanted, count).map(|(at, _)| (0, at)),
                false => nth_last(&searched, &wanted, count.unsigned_abs())
                    .map(|(_, end)| (end, searched.chars())),
            };
            out.push_str(place.map_or(text, |(from, to)| between(text, from, to)));
        }
        Ok(true)
    })
}

fn nth(text: &Searched, part: &Part, count: i64) -> Option<(usize, usize)> {
    let mut found = text.find(part, 0)?;
    for _ in 1..count {
        found = text.find(part, found.0 + 1)?;
    }
    Some(found)
}

fn nth_last(text: &Searched, part: &Part, count: u64) -> Option<(usize, usize)> {
    let mut found = text.find_last(part, text.chars())?;
    for _ in 1..count {
        found = text.find_last(part, found.1.checked_sub(1)?)?;
    }
    Some(found)
}

fn find_in_set(args: &Arguments) -> Result<ArrayRef> {
    let (keys, words, sets) = (keys_of(args)?, args.text(0), args.text(1));
    args.primitives::<Int32Type>(|row| {
        let (Some(word), Some(set)) = (words.get(row), sets.get(row)) else { return Ok(None) };
        if word.contains(',') {
            return Ok(Some(0));
        }
        let word = keys.key(word);
        let at = set.split(',').position(|one| keys.key(one) == word);
        Ok(Some(at.map_or(0, |at| i32::try_from(at + 1).unwrap_or(i32::MAX))))
    })
}

/// Spark finds words by Unicode's rules here. Those between blanks are the same, where a comma or
/// the end of a sentence stands behind one and nothing else but letters is in it.
fn initcap(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    args.write(|row, out| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        for (at, word) in text.split(' ').enumerate() {
            out.push_str(if at > 0 { " " } else { "" });
            let Some(word) = capitalised(word) else {
                return exec_err!(
                    "initcap of '{text}' depends on what words are to Unicode, which is not \
                     supported; write initcap(x COLLATE UTF8_BINARY)"
                );
            };
            out.push_str(&word);
        }
        Ok(true)
    })
}

/// A word with a capital; `None` if it could be several words, or its case depends on more.
fn capitalised(word: &str) -> Option<Cow<'_, str>> {
    let letters = word.trim_end_matches([',', '.', '!', '?']);
    if word.len() - letters.len() > 1 {
        return None;
    }
    let mut chars = letters.chars();
    let Some(first) = chars.next() else { return Some(Cow::Borrowed(word)) };
    let has_case = |char: char| char.is_lowercase() || char.is_uppercase();
    let is_letter = |char: char| has_case(char) || char.is_ascii_digit() || char == '\u{307}';
    let is_digraph = matches!(first, '\u{1C4}'..='\u{1CC}' | '\u{1F1}'..='\u{1F3}');
    let is_plain = has_case(first)
        && !is_digraph
        && first.to_uppercase().count() == 1
        && !letters.contains('Σ')
        && letters.chars().all(is_letter);
    if !is_plain {
        return None;
    }
    let rest = chars.flat_map(char::to_lowercase);
    let rest = first.to_uppercase().chain(rest).collect::<String>();
    Some(Cow::Owned(rest + &word[letters.len()..]))
}

/// The first of the arguments whose key comes before those of all others; NULLs are none.
fn extreme(args: &Arguments, is_better: fn(&[u8], &[u8]) -> bool) -> Result<ArrayRef> {
    let keys = keys_of(args)?;
    let columns: Vec<_> = (0..args.len() - 1).map(|at| args.text(at)).collect();
    args.write(|row, out| {
        let mut best: Option<(&str, Cow<'_, [u8]>)> = None;
        for text in columns.iter().filter_map(|column| column.get(row)) {
            let own = keys.key(text);
            if best.as_ref().is_none_or(|(_, best)| is_better(&own, best)) {
                best = Some((text, own));
            }
        }
        out.push_str(best.as_ref().map_or("", |(text, _)| *text));
        Ok(best.is_some())
    })
}
