//! `encode` and `decode`: text as bytes in one of the character sets that Spark has.
//!
//! What cannot be converted is an error, as in Spark, and never a question mark.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::builder::BinaryBuilder;
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};

use super::define::{Arguments, Function, Param, returns_text, within_column};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("encode", &[Param::Text, Param::Text], |_| Ok(DataType::Binary), encode),
    Function::new("decode", &[Param::Binary, Param::Text], returns_text, decode),
];

/// The mark of the order of bytes at the beginning of a text, and the same with its bytes swapped.
const MARK: u16 = 0xFEFF;
const SWAPPED_MARK: u16 = 0xFFFE;

/// A character set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charset {
    Utf8,
    Ascii,
    Latin1,
    /// With a mark when written; either order when read.
    Utf16,
    Utf16Big,
    Utf16Little,
    Utf32,
}

impl Charset {
    fn named(name: &str) -> Result<Self> {
        let known = [
            ("UTF-8", Self::Utf8),
            ("US-ASCII", Self::Ascii),
            ("ISO-8859-1", Self::Latin1),
            ("UTF-16", Self::Utf16),
            ("UTF-16BE", Self::Utf16Big),
            ("UTF-16LE", Self::Utf16Little),
            ("UTF-32", Self::Utf32),
        ];
        match known.into_iter().find(|(known, _)| name.eq_ignore_ascii_case(known)) {
            Some((_, charset)) => Ok(charset),
            None => exec_err!(
                "there is no character set {name} (INVALID_PARAMETER_VALUE.CHARSET); there are \
                 UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE and UTF-32"
            ),
        }
    }

    /// Appends the bytes of `text`; false if it has a character that is not in the set.
    fn write(self, text: &str, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Utf8 => out.extend_from_slice(text.as_bytes()),
            Self::Ascii if text.is_ascii() => out.extend_from_slice(text.as_bytes()),
            Self::Ascii => return false,
            Self::Latin1 => {
                for char in text.chars() {
                    let Ok(byte) = u8::try_from(u32::from(char)) else { return false };
                    out.push(byte);
                }
            }
            Self::Utf16 => {
                let mark = (!text.is_empty()).then_some(MARK);
                let units = mark.into_iter().chain(text.encode_utf16());
                units.for_each(|unit| out.extend(unit.to_be_bytes()));
            }
            Self::Utf16Big => text.encode_utf16().for_each(|unit| out.extend(unit.to_be_bytes())),
            Self::Utf16Little => {
                text.encode_utf16().for_each(|unit| out.extend(unit.to_le_bytes()));
            }
            Self::Utf32 => text.chars().for_each(|char| out.extend(u32::from(char).to_be_bytes())),
        }
        true
    }

    /// Appends the text that `bytes` are; false if they are none.
    fn read(self, bytes: &[u8], out: &mut String) -> bool {
        match self {
            Self::Utf8 => std::str::from_utf8(bytes).map(|text| out.push_str(text)).is_ok(),
            Self::Ascii => bytes.is_ascii() && Self::Utf8.read(bytes, out),
            Self::Latin1 => {
                out.extend(bytes.iter().map(|byte| char::from(*byte)));
                true
            }
            Self::Utf16 => match bytes {
                [0xFE, 0xFF, rest @ ..] => read_utf16(rest, u16::from_be_bytes, out),
                [0xFF, 0xFE, rest @ ..] => read_utf16(rest, u16::from_le_bytes, out),
                _ => read_utf16(bytes, u16::from_be_bytes, out),
            },
            Self::Utf16Big => read_utf16(bytes, u16::from_be_bytes, out),
            Self::Utf16Little => read_utf16(bytes, u16::from_le_bytes, out),
            Self::Utf32 => match bytes {
                [0, 0, 0xFE, 0xFF, rest @ ..] => read_utf32(rest, u32::from_be_bytes, out),
                [0xFF, 0xFE, 0, 0, rest @ ..] => read_utf32(rest, u32::from_le_bytes, out),
                _ => read_utf32(bytes, u32::from_be_bytes, out),
            },
        }
    }
}

fn read_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16, out: &mut String) -> bool {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units = pairs.iter().map(|pair| unit(*pair));
    // Java takes a swapped mark within a text for a sign that it is read in the wrong order.
    if !rest.is_empty() || units.clone().any(|unit| unit == SWAPPED_MARK) {
        return false;
    }
    for char in char::decode_utf16(units) {
        let Ok(char) = char else { return false };
        out.push(char);
    }
    true
}

fn read_utf32(bytes: &[u8], unit: fn([u8; 4]) -> u32, out: &mut String) -> bool {
    let (quads, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return false;
    }
    for quad in quads {
        let Some(char) = char::from_u32(unit(*quad)) else { return false };
        out.push(char);
    }
    true
}

fn malformed<T>(function: &str, charset: &str) -> Result<T> {
    exec_err!(
        "{function}: the value is not {charset} (MALFORMED_CHARACTER_CODING); a cast between \
         STRING and BINARY takes any value, with U+FFFD in the place of what is no character"
    )
}

fn encode(args: &Arguments) -> Result<ArrayRef> {
    let (texts, charsets) = (args.text(0), args.text(1));
    let mut out = BinaryBuilder::new();
    let (mut bytes, mut total) = (Vec::new(), 0);
    for row in 0..args.rows {
        let (Some(text), Some(charset)) = (texts.get(row), charsets.get(row)) else {
            out.append_null();
            continue;
        };
        bytes.clear();
        if !Charset::named(charset)?.write(text, &mut bytes) {
            return malformed("encode", charset);
        }
        within_column(&mut total, bytes.len())?;
        out.append_value(&bytes);
    }
    Ok(Arc::new(out.finish()))
}

fn decode(args: &Arguments) -> Result<ArrayRef> {
    let (values, charsets) = (args.binary(0), args.text(1));
    args.write(|row, out| {
        let (Some(bytes), Some(charset)) = (values.get(row), charsets.get(row)) else {
            return Ok(false);
        };
        match Charset::named(charset)?.read(bytes, out) {
            true => Ok(true),
            false => malformed("decode", charset),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Charset; 7] = [
        Charset::Utf8,
        Charset::Ascii,
        Charset::Latin1,
        Charset::Utf16,
        Charset::Utf16Big,
        Charset::Utf16Little,
        Charset::Utf32,
    ];

    #[test]
    fn what_is_written_is_read_back() {
        for (text, sets) in [("", 7), ("a~", 7), ("größe", 6), ("水 \u{1f4a1}", 5)] {
            let mut count = 0;
            for charset in ALL {
                let (mut bytes, mut read) = (Vec::new(), String::new());
                if charset.write(text, &mut bytes) {
                    assert!(charset.read(&bytes, &mut read), "{text} in {charset:?}");
                    assert_eq!(read, text, "{charset:?}");
                    count += 1;
                }
            }
            assert_eq!(count, sets, "{text}");
        }
    }

    #[test]
    fn bytes_are_javas() {
        let bytes = |charset: Charset, text: &str| {
            let mut bytes = Vec::new();
            assert!(charset.write(text, &mut bytes));
            bytes
        };
        assert_eq!(bytes(Charset::Utf16, "a"), [0xFE, 0xFF, 0, 0x61]);
        assert_eq!(bytes(Charset::Utf16, ""), [0u8; 0]);
        assert_eq!(bytes(Charset::Utf16Little, "a"), [0x61, 0]);
        assert_eq!(bytes(Charset::Utf32, "a"), [0, 0, 0, 0x61]);
        let read = |charset: Charset, bytes: &[u8]| {
            let mut text = String::new();
            charset.read(bytes, &mut text).then_some(text)
        };
        assert_eq!(read(Charset::Utf16, &[0xFF, 0xFE, 0x61, 0]).as_deref(), Some("a"));
        assert_eq!(read(Charset::Utf16, &[0, 0x61]).as_deref(), Some("a"));
        assert_eq!(read(Charset::Utf16, &[0, 0x61, 0]), None);
        assert_eq!(read(Charset::Utf16Big, &[0xD8, 0]), None);
        assert_eq!(read(Charset::Utf32, &[0, 0x11, 0, 0]), None);
        assert_eq!(read(Charset::Ascii, &[0x80]), None);
    }
}
