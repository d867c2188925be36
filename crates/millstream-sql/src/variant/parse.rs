//! Makes a value of JSON, as Spark's `parse_json` does.
//!
//! A number without an exponent is a whole number or a decimal, if it has at most 38 digits; any
//! other is a double. What stands behind the first value is not looked at.

use std::borrow::Cow;

use super::build::{Builder, Entry};
use super::error::VariantError;

/// How deep arrays and objects may stand in each other. As in Spark.
const DEPTH_MAX: usize = 1_000;
/// How long the text of a number may be. As in Spark.
const NUMBER_MAX: usize = 1_000;
/// How many digits a decimal has at most.
const DIGITS_MAX: usize = 38;

/// Makes the value that `text` begins with.
///
/// # Errors
/// It is not JSON, has a key twice in an object, is nested too deep or too long.
pub(crate) fn parse(text: &str, builder: &mut Builder) -> Result<(), VariantError> {
    builder.clear();
    let mut parser = Parser { text, at: 0, depth: 0, builder };
    parser.space();
    parser.value()
}

struct Parser<'a> {
    text: &'a str,
    /// The next byte.
    at: usize,
    depth: usize,
    builder: &'a mut Builder,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong<T>(&self) -> Result<T, VariantError> {
        Err(VariantError::NoJson(self.at))
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn value(&mut self) -> Result<(), VariantError> {
        self.builder.check()?;
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => {
                self.at += 1;
                let text = self.string()?;
                self.builder.text(&text);
                Ok(())
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", |builder| builder.boolean(true)),
            Some(b'f') => self.word("false", |builder| builder.boolean(false)),
            Some(b'n') => self.word("null", Builder::null),
            _ => self.wrong(),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<(), VariantError>,
    ) -> Result<(), VariantError> {
        if self.depth == DEPTH_MAX {
            return Err(VariantError::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        read(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn word(&mut self, word: &str, write: fn(&mut Builder)) -> Result<(), VariantError> {
        if !self.text[self.at..].starts_with(word) {
            return self.wrong();
        }
        self.at += word.len();
        if self.text[self.at..].starts_with(|next: char| next.is_alphanumeric() || next == '_') {
            return self.wrong();
        }
        write(self.builder);
        Ok(())
    }

    fn object(&mut self) -> Result<(), VariantError> {
        let (start, mut fields) = (self.builder.place(), Vec::new());
        self.space();
        if !self.eat(b'}') {
            loop {
                if !self.eat(b'"') {
                    return self.wrong();
                }
                let key = self.string()?;
                let key = self.builder.key(&key);
                fields.push(Entry { key, place: self.builder.place() - start });
                self.space();
                if !self.eat(b':') {
                    return self.wrong();
                }
                self.space();
                self.value()?;
                self.space();
                if self.eat(b'}') {
                    break;
                }
                if !self.eat(b',') {
                    return self.wrong();
                }
                self.space();
            }
        }
        self.builder.object(start, fields)
    }

    fn array(&mut self) -> Result<(), VariantError> {
        let (start, mut places) = (self.builder.place(), Vec::new());
        self.space();
        if !self.eat(b']') {
            loop {
                places.push(self.builder.place() - start);
                self.value()?;
                self.space();
                if self.eat(b']') {
                    break;
                }
                if !self.eat(b',') {
                    return self.wrong();
                }
                self.space();
            }
        }
        self.builder.array(start, &places)
    }

    /// The text of a string whose first quotation mark is read.
    fn string(&mut self) -> Result<Cow<'a, str>, VariantError> {
        let text = self.text;
        let start = self.at;
        let mut out = String::new();
        let mut run = start;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let rest = &text[run..self.at];
                    self.at += 1;
                    if run == start {
                        return Ok(Cow::Borrowed(rest));
                    }
                    out.push_str(rest);
                    return Ok(Cow::Owned(out));
                }
                Some(b'\\') => {
                    out.push_str(&text[run..self.at]);
                    self.at += 1;
                    self.escape(&mut out)?;
                    run = self.at;
                }
                Some(0x20..) => self.at += 1,
                _ => return self.wrong(),
            }
        }
    }

    /// One escape, whose `\` is read.
    fn escape(&mut self, out: &mut String) -> Result<(), VariantError> {
        let char = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let char = self.unicode()?;
                out.push(char);
                return Ok(());
            }
            _ => return self.wrong(),
        };
        self.at += 1;
        out.push(char);
        Ok(())
    }

    /// The character of `XXXX` or, for one of two halves, `XXXX\uXXXX`.
    fn unicode(&mut self) -> Result<char, VariantError> {
        let first = self.unit()?;
        let point = match first {
            0xD800..0xDC00 => {
                let is_pair = self.eat(b'\\') && self.eat(b'u');
                let second = if is_pair { self.unit()? } else { 0 };
                if !(0xDC00..0xE000).contains(&second) {
                    return self.wrong();
                }
                0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            }
            other => other,
        };
        char::from_u32(point).ok_or(VariantError::NoJson(self.at))
    }

    fn unit(&mut self) -> Result<u32, VariantError> {
        let digits = self.text.get(self.at..self.at + 4);
        let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        match unit {
            Some(unit) => {
                self.at += 4;
                Ok(unit)
            }
            None => self.wrong(),
        }
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<(), VariantError> {
        let start = self.at;
        self.eat(b'-');
        let has_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (has_zero && whole > 1) {
            return self.wrong();
        }
        let mut scale = 0;
        if self.eat(b'.') {
            scale = self.digits();
            if scale == 0 {
                return self.wrong();
            }
        }
        let mantissa = &self.text[start..self.at];
        let has_exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if has_exponent {
            self.at += 1;
            let _ = self.eat(b'+') || self.eat(b'-');
            if self.digits() == 0 {
                return self.wrong();
            }
        }
        let text = &self.text[start..self.at];
        // Within arrays and objects whatever follows is looked at there.
        let is_end = matches!(self.peek(), None | Some(b' ' | b'\t' | b'\n' | b'\r'));
        if text.len() > NUMBER_MAX || (self.depth == 0 && !is_end) {
            return self.wrong();
        }
        match exact(mantissa, scale).filter(|_| !has_exponent) {
            Some(Exact::Long(value)) => self.builder.long(value),
            Some(Exact::Decimal(unscaled, scale)) => self.builder.decimal(unscaled, scale),
            None => match text.parse() {
                Ok(value) => self.builder.double(value),
                Err(_) => return self.wrong(),
            },
        }
        Ok(())
    }
}

/// A number without an exponent.
enum Exact {
    Long(i64),
    Decimal(i128, u8),
}

/// The number, if its digits fit.
fn exact(mantissa: &str, scale: usize) -> Option<Exact> {
    if scale == 0
        && let Ok(value) = mantissa.parse()
    {
        return Some(Exact::Long(value));
    }
    let scale = u8::try_from(scale).ok().filter(|scale| usize::from(*scale) <= DIGITS_MAX)?;
    let digits: String = mantissa.chars().filter(|char| *char != '.').collect();
    let significant = digits.trim_start_matches('-').trim_start_matches('0');
    if significant.len() > DIGITS_MAX {
        return None;
    }
    digits.parse().ok().map(|unscaled| Exact::Decimal(unscaled, scale))
}
