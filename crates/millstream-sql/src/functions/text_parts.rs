//! Parts of texts, and numbers that texts have: `substring_index`, `parse_url`, `str_to_map`,
//! `levenshtein`, `luhn_check`, `chr`, `url_decode`, and bytes as base64.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::builder::{BinaryBuilder, StringBuilder};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Int32Type};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use datafusion::common::{Result, exec_err};

use super::binary_text::of_hex;
use super::define::{
    Arguments, Function, Param, returns_boolean, returns_int, returns_text, within_column,
};
use super::map_lambdas::{as_map, refuse_keys};
use super::pattern::Last;
use super::regex::each_piece;
use super::url_parts::{UrlParts, decoded};
use crate::types::map_of;
use crate::values::digits::digit;

use Param::{Binary, Int, Long, OnlyText, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("substr_index", &[Text, Text, Long], returns_text, substring_index)
        .aliases(&["substring_index"]),
    Function::new("parse_url", &[OnlyText, Text, Text], returns_text, |args| parse_url(args, true))
        .required(2),
    Function::new("try_parse_url", &[OnlyText, Text, Text], returns_text, |args| {
        parse_url(args, false)
    })
    .required(2),
    Function::new("url_decode", &[Text], returns_text, |args| url_decode(args, true)),
    Function::new("try_url_decode", &[Text], returns_text, |args| url_decode(args, false)),
    Function::new("str_to_map", &[Text, Text, Text], returns_map, str_to_map)
        .required(1)
        .keeps_nulls(),
    Function::new("levenshtein", &[Text, Text, Int], returns_int, levenshtein).required(2),
    Function::new("luhn_check", &[Text], returns_boolean, luhn_check),
    Function::new("chr", &[Long], returns_text, chr).aliases(&["char"]),
    Function::new("base64", &[Binary], returns_text, base64),
    Function::new("unbase64", &[Text], returns_binary, |args| {
        bytes_of(args, |text| match of_base64(text) {
            None => exec_err!(
                "the value '{text}' is not base64; use try_to_binary(x, 'base64') to get NULL \
                 instead"
            ),
            bytes => Ok(bytes),
        })
    }),
    Function::new("unhex", &[Text], returns_binary, |args| bytes_of(args, |text| Ok(of_hex(text)))),
];

fn returns_map(_: &[DataType]) -> Result<DataType> {
    Ok(map_of(DataType::Utf8, DataType::Utf8))
}

fn returns_binary(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Binary)
}

fn substring_index(args: &Arguments) -> Result<ArrayRef> {
    let (texts, parts, counts) = (args.text(0), args.text(1), args.long(2));
    args.write(|row, out| {
        let (Some(text), Some(part), Some(count)) =
            (texts.get(row), parts.get(row), counts.get(row))
        else {
            return Ok(false);
        };
        out.push_str(beside(text, part, count));
        Ok(true)
    })
}

/// What stands before or, if `count` is negative, behind so many of the parts, which may overlap.
fn beside<'t>(text: &'t str, part: &str, count: i64) -> &'t str {
    let Some(last) = text.len().checked_sub(part.len()) else {
        return if count == 0 { "" } else { text };
    };
    let Some(skipped) = count.unsigned_abs().checked_sub(1).filter(|_| !part.is_empty()) else {
        return "";
    };
    let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
    let is_part = |at: &usize| text.as_bytes()[*at..].starts_with(part.as_bytes());
    let found = match count > 0 {
        true => (0..=last).filter(is_part).nth(skipped).map(|at| &text[..at]),
        false => (0..=last).rev().filter(is_part).nth(skipped).map(|at| &text[at + part.len()..]),
    };
    found.unwrap_or(text)
}

/// Only the query has keys.
fn parse_url(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let (texts, parts) = (args.text(0), args.text(1));
    let keys = (args.len() > 2).then(|| args.text(2));
    args.write(|row, out| {
        let (Some(text), Some(part)) = (texts.get(row), parts.get(row)) else { return Ok(false) };
        let key = keys.as_ref().map(|keys| keys.get(row));
        if key.is_some_and(|key| key.is_none() || part != "QUERY") {
            return Ok(false);
        }
        let Some(url) = UrlParts::of(text) else {
            if strict {
                return exec_err!(
                    "parse_url: the value '{text}' is no URL (INVALID_URL); use try_parse_url to \
                     get NULL instead"
                );
            }
            return Ok(false);
        };
        let found = url.get(part, key.flatten());
        out.push_str(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    })
}

/// A text without its escapes. Where one of them is wrong, it is an error if `strict`.
fn url_decode(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let texts = args.text(0);
    args.write(|row, out| {
        let Some(text) = texts.get(row) else { return Ok(false) };
        let is_read = decoded(text, out);
        if strict && !is_read {
            return exec_err!(
                "url_decode: the value '{text}' has a % that two hexadecimal digits do not \
                 follow; use try_url_decode to get NULL instead"
            );
        }
        Ok(is_read)
    })
}

/// Both delimiters are regular expressions. An entry without the second one has a NULL.
fn str_to_map(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    let delimiters = [(1, ","), (2, ":")].map(|(at, plain)| {
        let given = (args.len() > at).then(|| args.text(at));
        move |row: usize| given.as_ref().map_or(Some(plain), |given| given.get(row))
    });
    let (mut between, mut within) = (Last::default(), Last::default());
    let (mut keys, mut values, mut total) = (StringBuilder::new(), StringBuilder::new(), 0);
    let (mut lengths, mut valid) = (Vec::with_capacity(args.rows), Vec::with_capacity(args.rows));
    for row in 0..args.rows {
        let given = (texts.get(row), delimiters[0](row), delimiters[1](row));
        let (Some(text), Some(entries), Some(parts)) = given else {
            lengths.push(0);
            valid.push(false);
            continue;
        };
        within_column(&mut total, text.len())?;
        let (entries, parts) = (between.get(entries)?, within.get(parts)?);
        let mut length = 0;
        each_piece(entries, text, usize::MAX, |entry| {
            let mut pieces = Vec::with_capacity(2);
            each_piece(parts, entry, 2, |piece| pieces.push(piece));
            keys.append_value(pieces[0]);
            values.append_option(pieces.get(1));
            length += 1;
        });
        lengths.push(length);
        valid.push(true);
    }
    let keys: ArrayRef = Arc::new(keys.finish());
    refuse_keys(&keys, &lengths)?;
    let columns = vec![keys, Arc::new(values.finish()) as ArrayRef];
    as_map(&args.returns, lengths, columns, Some(NullBuffer::from(valid)))
}

/// The distance, or -1 where it is more than a third argument allows.
fn levenshtein(args: &Arguments) -> Result<ArrayRef> {
    let (left, right) = (args.text(0), args.text(1));
    let most = (args.len() > 2).then(|| args.int(2));
    args.primitives::<Int32Type>(|row| {
        let most = most.as_ref().map_or(Some(i32::MAX), |most| most.get(row));
        let (Some(left), Some(right), Some(most)) = (left.get(row), right.get(row), most) else {
            return Ok(None);
        };
        // As many characters as one has more than the other have to be added at least.
        let apart = left.chars().count().abs_diff(right.chars().count());
        if i64::try_from(apart).is_ok_and(|apart| apart > i64::from(most)) {
            return Ok(Some(-1));
        }
        let distance = i32::try_from(strsim::levenshtein(left, right)).unwrap_or(i32::MAX);
        Ok(Some(if distance <= most { distance } else { -1 }))
    })
}

fn luhn_check(args: &Arguments) -> Result<ArrayRef> {
    let texts = args.text(0);
    args.booleans(|row| Ok(texts.get(row).map(is_luhn)))
}

/// Whether the digits, each second one from the end doubled, make a multiple of ten.
fn is_luhn(text: &str) -> bool {
    let mut sum = Some(0);
    for (at, char) in text.chars().rev().enumerate() {
        let value = digit(char).map(|digit| if at % 2 == 1 { digit * 2 } else { digit });
        sum = sum.zip(value).map(|(sum, value)| sum + value % 10 + value / 10);
    }
    !text.is_empty() && sum.is_some_and(|sum: u32| sum.is_multiple_of(10))
}

/// The character of the lowest eight bits; none below zero.
fn chr(args: &Arguments) -> Result<ArrayRef> {
    let numbers = args.long(0);
    args.write(|row, out| {
        let Some(number) = numbers.get(row) else { return Ok(false) };
        if number >= 0 {
            out.push(char::from((number & 0xFF) as u8));
        }
        Ok(true)
    })
}

/// How many characters a line of base64 has.
const LINE: usize = 76;

fn base64(args: &Arguments) -> Result<ArrayRef> {
    let (values, mut all) = (args.binary(0), String::new());
    args.write(|row, out| {
        let Some(bytes) = values.get(row) else { return Ok(false) };
        all.clear();
        STANDARD.encode_string(bytes, &mut all);
        let mut rest = all.as_str();
        while rest.len() > LINE {
            let (line, after) = rest.split_at(LINE);
            out.push_str(line);
            out.push_str("\r\n");
            rest = after;
        }
        out.push_str(rest);
        Ok(true)
    })
}

fn bytes_of(args: &Arguments, of: impl Fn(&str) -> Result<Option<Vec<u8>>>) -> Result<ArrayRef> {
    let (texts, mut out, mut total) = (args.text(0), BinaryBuilder::new(), 0);
    for row in 0..args.rows {
        let bytes = texts.get(row).map(&of).transpose()?.flatten();
        within_column(&mut total, bytes.as_ref().map_or(0, Vec::len))?;
        out.append_option(bytes);
    }
    Ok(Arc::new(out.finish()))
}

/// As Java reads base64 in mails: what is no digit of it is passed over, and padding may be left
/// out.
fn of_base64(text: &str) -> Option<Vec<u8>> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let (digits, padding) = text.split_at(text.find('=').unwrap_or(text.len()));
    let mut digits: Vec<u8> = digits.bytes().filter(is_digit).collect();
    let fits = match digits.len() % 4 {
        0 => padding.is_empty(),
        1 => false,
        2 => padding.is_empty() || padding[1..].starts_with('='),
        _ => true,
    };
    if !fits || padding.bytes().any(|byte| is_digit(&byte)) {
        return None;
    }
    // Bits of the last digit that belong to no byte may be set.
    let unused = match digits.len() % 4 {
        2 => 4,
        3 => 2,
        _ => 0,
    };
    if let Some(last) = digits.last_mut().filter(|_| unused > 0) {
        *last = without_bits(*last, unused);
    }
    STANDARD_NO_PAD.decode(digits).ok()
}

/// A digit of base64 with so many of its lowest bits set to zero.
fn without_bits(digit: u8, bits: u32) -> u8 {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = DIGITS.iter().position(|known| *known == digit).unwrap_or(0);
    DIGITS[value >> bits << bits]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_may_overlap() {
        assert_eq!(beside("aaaa", "aa", 2), "a");
        assert_eq!(beside("aaaa", "aa", 3), "aa");
        assert_eq!(beside("aaaa", "aa", -2), "a");
        assert_eq!(beside("a.b.c", ".", -5), "a.b.c");
        assert_eq!(beside("é.日", ".", -1), "日");
        assert_eq!([beside("a", "", 1), beside("a", "a", 0), beside("", ".", 1)], [""; 3]);
    }

    #[test]
    fn base64_may_have_anything_between() {
        assert_eq!(of_base64("YW\nJj").as_deref(), Some(&b"abc"[..]));
        assert_eq!(of_base64("YWI").as_deref(), Some(&b"ab"[..]));
        assert_eq!(of_base64("YQ==\n").as_deref(), Some(&b"a"[..]));
        assert_eq!(of_base64("YR").as_deref(), Some(&b"a"[..]));
        assert_eq!(of_base64("").as_deref(), Some(&b""[..]));
        for wrong in ["a", "YQ=", "YWJj=", "YQ==YQ"] {
            assert_eq!(of_base64(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn luhn_numbers_have_digits_of_any_script() {
        assert!(is_luhn("79927398713") && is_luhn("0") && is_luhn("١٨"));
        assert!(!is_luhn("79927398714") && !is_luhn("") && !is_luhn("12a") && !is_luhn("-18"));
    }
}
