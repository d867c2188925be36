//! `String.format` with one number: `"%.2f"`.
//!
//! Conversions are `f`, `e`, `E`, `g`, `G`, `s`, `S`, `%%` and `%n`, with Java's flags, width and
//! precision. Rounding is Java's: a 5 is rounded away from zero, and it is the shortest decimal
//! number that is rounded, so that 1.005 becomes 1.01.

use std::fmt::Write as _;

use crate::error::Problem;
use crate::java::decimal::{Digits, special};

/// A format, read once.
#[derive(Debug)]
pub(crate) struct Format {
    pieces: Vec<FormatItem>,
}

#[derive(Debug)]
enum FormatItem {
    Literal(String),
    Number(Conversion),
}

/// A number's place in the format.
#[derive(Clone, Copy, Debug, Default)]
struct Conversion {
    letter: char,
    /// `-`: at the left of its width.
    left: bool,
    /// `+`: a sign also before positive numbers.
    plus: bool,
    /// A space: one in the place of that sign.
    space: bool,
    /// `0`: zeros, and not spaces, fill the width.
    zeros: bool,
    /// `,`: one after each three digits.
    commas: bool,
    /// `(`: parentheses, and not a minus, around negative numbers.
    parentheses: bool,
    /// `#`: a decimal point also where no digit follows it.
    alternate: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Format {
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let mut pieces = Vec::new();
        let mut ordinary = 0;
        let mut rest = text;
        while let Some((literal, after)) = rest.split_once('%') {
            pieces.push(FormatItem::Literal(literal.to_owned()));
            let mut reader = FormatReader { rest: after, text };
            pieces.push(reader.specifier(&mut ordinary)?);
            rest = reader.rest;
        }
        pieces.push(FormatItem::Literal(rest.to_owned()));
        Ok(Self { pieces })
    }

    /// Appends `value`; `plain` is its text for `%s`.
    pub(crate) fn write(&self, value: f64, plain: &str, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                FormatItem::Literal(text) => out.extend_from_slice(text.as_bytes()),
                FormatItem::Number(conversion) => conversion.write(value, plain, out),
            }
        }
    }
}

struct FormatReader<'a> {
    rest: &'a str,
    text: &'a str,
}

impl FormatReader<'_> {
    fn problem(&self, why: &str) -> Problem {
        let what = format!("the format `{}` {why}", self.text);
        Problem::new(what, "write one as %.2f, %8.3e or %s")
    }

    /// What follows a `%`. `ordinary` counts the specifiers that take the next argument, and there
    /// is only one argument.
    fn specifier(&mut self, ordinary: &mut usize) -> Result<FormatItem, Problem> {
        let is_ordinary = self.argument(*ordinary)?;
        let mut conversion = Conversion::default();
        while let Some(flag) = self.rest.chars().next() {
            if !conversion.set_flag(flag) {
                break;
            }
            self.rest = &self.rest[1..];
        }
        conversion.width = self.number();
        if let Some(after) = self.rest.strip_prefix('.') {
            self.rest = after;
            let precision = self.number().ok_or_else(|| self.problem("has a `.` alone"))?;
            conversion.precision = Some(precision);
        }
        let mut letters = self.rest.chars();
        conversion.letter = letters.next().ok_or_else(|| self.problem("ends in a `%`"))?;
        self.rest = letters.as_str();
        match conversion.letter {
            '%' => return Ok(FormatItem::Literal("%".to_owned())),
            'n' => return Ok(FormatItem::Literal("\n".to_owned())),
            'f' | 'e' | 'E' | 'g' | 'G' | 's' | 'S' => {}
            _ => return Err(self.problem("has a conversion that is not f, e, g or s")),
        }
        *ordinary += usize::from(is_ordinary);
        if *ordinary > 1 {
            return Err(self.problem("asks for more than one number"));
        }
        conversion.check().map_err(|why| self.problem(why))?;
        Ok(FormatItem::Number(conversion))
    }

    /// `1$` and `<` name the number again; anything else takes the next one.
    fn argument(&mut self, ordinary: usize) -> Result<bool, Problem> {
        if let Some(after) = self.rest.strip_prefix("1$") {
            self.rest = after;
            return Ok(false);
        }
        if let Some(after) = self.rest.strip_prefix('<').filter(|_| ordinary > 0) {
            self.rest = after;
            return Ok(false);
        }
        let digits = self.rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
        if digits.starts_with('$') && digits.len() < self.rest.len() {
            return Err(self.problem("asks for more than one number"));
        }
        Ok(true)
    }

    fn number(&mut self) -> Option<usize> {
        let after = self.rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let digits = &self.rest[..self.rest.len() - after.len()];
        self.rest = after;
        digits.parse().ok().filter(|number| *number < 1_000_000)
    }
}

impl Conversion {
    /// False if it is no flag.
    fn set_flag(&mut self, flag: char) -> bool {
        let field = match flag {
            '-' => &mut self.left,
            '+' => &mut self.plus,
            ' ' => &mut self.space,
            '0' => &mut self.zeros,
            ',' => &mut self.commas,
            '(' => &mut self.parentheses,
            '#' => &mut self.alternate,
            _ => return false,
        };
        // A flag twice is an error in Java; here the second is no flag, and so no conversion.
        !std::mem::replace(field, true)
    }

    fn check(&self) -> Result<(), &'static str> {
        // Java refuses these when it runs; here a template is refused before its first message.
        let any_sign = self.plus || self.space || self.zeros || self.parentheses;
        match self.letter {
            _ if (self.left || self.zeros) && self.width.is_none() => Err("has no width"),
            _ if self.left && self.zeros => Err("has both `-` and `0`"),
            _ if self.plus && self.space => Err("has both `+` and a space"),
            's' | 'S' if any_sign || self.commas || self.alternate => Err("has a flag too many"),
            'e' | 'E' if self.commas => Err("has a `,`"),
            'g' | 'G' if self.alternate => Err("has a `#`"),
            _ => Ok(()),
        }
    }

    fn write(&self, value: f64, plain: &str, out: &mut Vec<u8>) {
        if matches!(self.letter, 's' | 'S') {
            let shown = self.precision.and_then(|length| plain.get(..length)).unwrap_or(plain);
            return self.write_padded("", shown, "", out);
        }
        let is_negative = value < 0.0 || (value == 0.0 && value.is_sign_negative());
        let (before, after) = match (is_negative, self.parentheses) {
            (true, true) => ("(", ")"),
            (true, false) => ("-", ""),
            (false, _) if self.plus => ("+", ""),
            (false, _) if self.space => (" ", ""),
            _ => ("", ""),
        };
        if !value.is_finite() {
            // Java fills up `Infinity` and `NaN` with spaces, even if zeros are asked for.
            let plain = Self { zeros: false, ..*self };
            let (before, after) = if value.is_nan() { ("", "") } else { (before, after) };
            return plain.write_padded(before, special(value.abs()), after, out);
        }
        self.write_padded(before, &self.body(value), after, out);
    }

    fn body(&self, value: f64) -> String {
        let mut digits = Digits::of(value.abs());
        let precision = self.precision.unwrap_or(6) as i32;
        match self.letter {
            'f' => self.plain(digits, precision),
            'e' | 'E' => self.scientific(digits, precision),
            _ => {
                let precision = precision.max(1);
                // Before its exponent is looked at: 9.9999999 may round to 10.
                digits.round_to(precision);
                let exponent = digits.point - 1;
                if digits.length == 0 || (-4..precision).contains(&exponent) {
                    return self.plain(digits, precision - 1 - exponent);
                }
                self.scientific(digits, precision - 1)
            }
        }
    }

    fn plain(&self, mut digits: Digits, precision: i32) -> String {
        digits.round_after_point(precision);
        let mut text = String::new();
        for power in (0..digits.point.max(1)).rev() {
            text.push(char::from(b'0' + digits.at_power(power)));
            if self.commas && power > 0 && power % 3 == 0 {
                text.push(',');
            }
        }
        self.fraction(&digits, -1, precision, &mut text);
        text
    }

    fn scientific(&self, mut digits: Digits, precision: i32) -> String {
        digits.round_to(precision + 1);
        let exponent = digits.point - 1;
        let mut text = String::new();
        text.push(char::from(b'0' + digits.at_power(exponent)));
        self.fraction(&digits, exponent - 1, precision, &mut text);
        let (letter, sign) = (if self.letter.is_uppercase() { 'E' } else { 'e' }, exponent < 0);
        let _ = write!(text, "{letter}{}{:02}", if sign { '-' } else { '+' }, exponent.abs());
        text
    }

    fn fraction(&self, digits: &Digits, highest: i32, precision: i32, text: &mut String) {
        if precision > 0 || self.alternate {
            text.push('.');
        }
        for place in 0..precision {
            text.push(char::from(b'0' + digits.at_power(highest - place)));
        }
    }

    fn write_padded(&self, before: &str, body: &str, after: &str, out: &mut Vec<u8>) {
        let length = before.len() + body.len() + after.len();
        let missing = self.width.unwrap_or(0).saturating_sub(length);
        let pad =
            |wanted: bool, with: u8| std::iter::repeat_n(with, if wanted { missing } else { 0 });
        out.extend(pad(!self.left && !self.zeros, b' '));
        out.extend_from_slice(before.as_bytes());
        out.extend(pad(self.zeros, b'0'));
        if self.letter == 'S' || self.letter == 'G' || self.letter == 'E' {
            out.extend(body.bytes().map(|byte| byte.to_ascii_uppercase()));
        } else {
            out.extend_from_slice(body.as_bytes());
        }
        out.extend_from_slice(after.as_bytes());
        out.extend(pad(self.left, b' '));
    }
}
