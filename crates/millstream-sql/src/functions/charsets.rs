//! `encode` and `decode`: text as bytes in one of the character sets that Spark has.
//!
//! What cannot be converted is an error, as in Spark, and never a question mark; but where a
//! setting says so, which is then the last argument of a function of its own.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::array::builder::BinaryBuilder;
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};

use super::define::{Arguments, Function, Param, returns_text, within_column};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("encode", &[Param::Text, Param::Text], |_| Ok(DataType::Binary), encode),
    Function::new("decode", &[Param::Binary, Param::Text], returns_text, decode),
    Function::new(
        ENCODE_WITH,
        &[Param::Text, Param::Text, Param::Text],
        |_| Ok(DataType::Binary),
        encode,
    ),
    Function::new(DECODE_WITH, &[Param::Binary, Param::Text, Param::Text], returns_text, decode),
];

/// `encode` and `decode` by the rules that the last argument, a constant text, names.
pub(crate) const ENCODE_WITH: &str = "encode_with";
pub(crate) const DECODE_WITH: &str = "decode_with";
/// The rule that there are more character sets.
pub(crate) const MORE: &str = "more";
/// The rule that a mark is put in the place of what has no character.
pub(crate) const MARKS: &str = "marks";

/// The characters of the bytes from 0x80 on that Windows has otherwise than ISO-8859-1.
const OF_WINDOWS: [char; 32] = [
    '\u{20AC}', NONE, '\u{201A}', '\u{0192}', '\u{201E}', '\u{2026}', '\u{2020}', '\u{2021}',
    '\u{02C6}', '\u{2030}', '\u{0160}', '\u{2039}', '\u{0152}', NONE, '\u{017D}', NONE, NONE,
    '\u{2018}', '\u{2019}', '\u{201C}', '\u{201D}', '\u{2022}', '\u{2013}', '\u{2014}', '\u{02DC}',
    '\u{2122}', '\u{0161}', '\u{203A}', '\u{0153}', NONE, '\u{017E}', '\u{0178}',
];
/// The mark in the place of bytes that are no character.
const NONE: char = char::REPLACEMENT_CHARACTER;

/// What is done otherwise.
#[derive(Clone, Copy, Default)]
struct Rules {
    has_more: bool,
    marks: bool,
}

impl Rules {
    fn of(args: &Arguments) -> Self {
        if args.len() < 3 || args.rows == 0 {
            return Self::default();
        }
        let names = args.text(2);
        let has = |rule: &str| names.get(0).is_some_and(|names| names.contains(rule));
        Self { has_more: has(MORE), marks: has(MARKS) }
    }
}

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
    /// Only with [`MORE`].
    Windows1252,
}

impl Charset {
    fn named(name: &str, rules: Rules) -> Result<Self> {
        if rules.has_more && name.eq_ignore_ascii_case("windows-1252") {
            return Ok(Self::Windows1252);
        }
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

    /// The byte of a character; `None` where the set has none for it, or several.
    fn byte(self, char: char) -> Option<u8> {
        match self {
            Self::Ascii => char.is_ascii().then_some(char as u8),
            Self::Latin1 => u8::try_from(u32::from(char)).ok(),
            Self::Windows1252 => {
                let is_meant = |known: &char| *known == char && char != NONE;
                match OF_WINDOWS.iter().position(is_meant) {
                    Some(place) => u8::try_from(place + 0x80).ok(),
                    None => {
                        let byte = u8::try_from(u32::from(char)).ok();
                        byte.filter(|byte| !(0x80..0xA0).contains(byte))
                    }
                }
            }
            _ => None,
        }
    }

    /// The character of a byte in a set in which each has one at most.
    fn char(self, byte: u8) -> Option<char> {
        match (self, byte) {
            (Self::Ascii, 0x80..) => None,
            (Self::Ascii | Self::Latin1, _) => Some(char::from(byte)),
            (Self::Windows1252, 0x80..0xA0) => {
                Some(OF_WINDOWS[usize::from(byte - 0x80)]).filter(|char| *char != NONE)
            }
            (Self::Windows1252, _) => Some(char::from(byte)),
            _ => None,
        }
    }

    /// Whether each character is one byte.
    fn is_of_bytes(self) -> bool {
        matches!(self, Self::Ascii | Self::Latin1 | Self::Windows1252)
    }

    /// Appends the bytes of `text`, with question marks for characters that are not in the set;
    /// false where the set has all.
    fn write_marked(self, text: &str, out: &mut Vec<u8>) -> bool {
        if !self.is_of_bytes() {
            return self.write(text, out);
        }
        out.extend(text.chars().map(|char| self.byte(char).unwrap_or(b'?')));
        true
    }

    /// Appends the text that `bytes` are, with marks for those that are no character; false where
    /// it is not clear how many marks these are.
    fn read_marked(self, bytes: &[u8], out: &mut String) -> bool {
        if !self.is_of_bytes() {
            return self.read(bytes, out);
        }
        out.extend(bytes.iter().map(|byte| self.char(*byte).unwrap_or(NONE)));
        true
    }

    /// Appends the bytes of `text`; false if it has a character that is not in the set.
    fn write(self, text: &str, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Utf8 => out.extend_from_slice(text.as_bytes()),
            Self::Ascii if text.is_ascii() => out.extend_from_slice(text.as_bytes()),
            Self::Ascii => return false,
            Self::Latin1 | Self::Windows1252 => {
                for char in text.chars() {
                    let Some(byte) = self.byte(char) else { return false };
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
            Self::Latin1 | Self::Windows1252 => {
                for byte in bytes {
                    let Some(char) = self.char(*byte) else { return false };
                    out.push(char);
                }
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
    let (texts, charsets, rules) = (args.text(0), args.text(1), Rules::of(args));
    let mut out = BinaryBuilder::new();
    let (mut bytes, mut total) = (Vec::new(), 0);
    for row in 0..args.rows {
        let (Some(text), Some(charset)) = (texts.get(row), charsets.get(row)) else {
            out.append_null();
            continue;
        };
        bytes.clear();
        let set = Charset::named(charset, rules)?;
        let write = if rules.marks { Charset::write_marked } else { Charset::write };
        if !write(set, text, &mut bytes) {
            return malformed("encode", charset);
        }
        within_column(&mut total, bytes.len())?;
        out.append_value(&bytes);
    }
    Ok(Arc::new(out.finish()))
}

fn decode(args: &Arguments) -> Result<ArrayRef> {
    let (values, charsets, rules) = (args.binary(0), args.text(1), Rules::of(args));
    args.write(|row, out| {
        let (Some(bytes), Some(charset)) = (values.get(row), charsets.get(row)) else {
            return Ok(false);
        };
        let set = Charset::named(charset, rules)?;
        let read = if rules.marks { Charset::read_marked } else { Charset::read };
        match read(set, bytes, out) {
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

    #[test]
    fn a_setting_has_marks_put_in() {
        let (mut bytes, mut text) = (Vec::new(), String::new());
        assert!(Charset::Ascii.write_marked("a\u{1f4a1}ß", &mut bytes));
        assert!(Charset::Ascii.read_marked(&[0x61, 0xE5, 0x8A], &mut text));
        assert_eq!((bytes.as_slice(), text.as_str()), (&b"a??"[..], "a\u{FFFD}\u{FFFD}"));
    }

    #[test]
    fn windows_has_more_characters_than_latin1() {
        let (mut bytes, mut text) = (Vec::new(), String::new());
        assert!(Charset::Windows1252.write("€ß", &mut bytes));
        assert_eq!(bytes, [0x80, 0xDF]);
        assert!(Charset::Windows1252.read(&bytes, &mut text));
        assert_eq!(text, "€ß");
        assert!(!Charset::Windows1252.read(&[0x81], &mut text));
        assert!(!Charset::Windows1252.write("\u{80}", &mut bytes));
        assert!(Charset::named("Windows-1252", Rules::default()).is_err());
    }
}
