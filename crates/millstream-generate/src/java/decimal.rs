//! Floating point numbers as decimal digits, and as `Double.toString` and `Float.toString` write
//! them: plain between 10^-3 and 10^7, else with an `E`; always with a digit after the point.
//!
//! Digits are the fewest that tell the number from its neighbours. Java before 19 sometimes writes
//! one more.

use std::fmt::{self, Write as _};

/// Room for the longest: `-2.2250738585072014E-308`.
const LONGEST: usize = 32;

/// A short text on the stack.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Text {
    fn new() -> Self {
        Self { bytes: [0; LONGEST], length: 0 }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// The digits of a finite number: 0.d1d2d3... times 10^`point`. Zero has none.
pub(crate) struct Digits {
    pub(crate) is_negative: bool,
    pub(crate) digits: [u8; LONGEST],
    pub(crate) length: usize,
    pub(crate) point: i32,
}

impl Digits {
    pub(crate) fn of(value: f64) -> Self {
        let mut text = Text::new();
        let _ = write!(text, "{value:e}");
        Self::from_scientific(text.as_str())
    }

    fn from_scientific(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut digits = [0; LONGEST];
        let mut length = 0;
        for digit in mantissa.bytes().filter(u8::is_ascii_digit) {
            digits[length] = digit - b'0';
            length += 1;
        }
        let is_negative = mantissa.starts_with('-');
        let point = exponent.parse::<i32>().unwrap_or_default() + 1;
        if digits[..length] == [0] {
            return Self { is_negative, digits, length: 0, point: 1 };
        }
        Self { is_negative, digits, length, point }
    }

    /// Keeps `places` digits after the decimal point, rounding a 5 away from zero.
    pub(crate) fn round_after_point(&mut self, places: i32) {
        self.round_to(self.point + places);
    }

    /// Keeps `count` digits.
    pub(crate) fn round_to(&mut self, count: i32) {
        if count >= self.length as i32 {
            return;
        }
        let Ok(kept) = usize::try_from(count) else {
            self.length = 0;
            return;
        };
        let rounds_up = self.digits[kept] >= 5;
        self.length = kept;
        if rounds_up {
            self.add_one();
        }
    }

    fn add_one(&mut self) {
        while self.length > 0 {
            self.length -= 1;
            if self.digits[self.length] < 9 {
                self.digits[self.length] += 1;
                self.length += 1;
                return;
            }
        }
        self.digits[0] = 1;
        self.length = 1;
        self.point += 1;
    }

    /// The digit worth 10^`power`.
    pub(crate) fn at_power(&self, power: i32) -> u8 {
        let index = self.point - 1 - power;
        usize::try_from(index)
            .ok()
            .filter(|index| *index < self.length)
            .map_or(0, |index| self.digits[index])
    }
}

/// As `Double.toString`.
pub(crate) fn double_text(value: f64) -> Text {
    java_text(value.is_finite(), value, || Digits::of(value))
}

/// As `Float.toString`.
pub(crate) fn float_text(value: f32) -> Text {
    java_text(value.is_finite(), f64::from(value), || {
        let mut text = Text::new();
        let _ = write!(text, "{value:e}");
        Digits::from_scientific(text.as_str())
    })
}

fn java_text(is_finite: bool, value: f64, digits: impl FnOnce() -> Digits) -> Text {
    let mut text = Text::new();
    // All of these fit, so that nothing can fail here.
    let _ =
        if is_finite { write_digits(&digits(), &mut text) } else { text.write_str(special(value)) };
    text
}

/// How Java calls what is no finite number.
pub(crate) fn special(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value < 0.0 => "-Infinity",
        _ => "Infinity",
    }
}

fn write_digits(digits: &Digits, text: &mut Text) -> fmt::Result {
    if digits.is_negative {
        text.write_char('-')?;
    }
    let exponent = digits.point - 1;
    if digits.length == 0 || (-3..7).contains(&exponent) {
        let highest = exponent.max(0);
        let lowest = (digits.point - digits.length as i32).min(-1);
        return write_places(digits, highest, 0, lowest, text);
    }
    write_places(digits, exponent, exponent, exponent - (digits.length as i32 - 1).max(1), text)?;
    write!(text, "E{exponent}")
}

/// Digits from 10^`highest` to 10^`lowest`, with the point after 10^`unit`.
fn write_places(
    digits: &Digits,
    highest: i32,
    unit: i32,
    lowest: i32,
    text: &mut Text,
) -> fmt::Result {
    for power in (lowest..=highest).rev() {
        text.write_char(char::from(b'0' + digits.at_power(power)))?;
        if power == unit {
            text.write_char('.')?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_java() {
        let cases = [
            (1.0, "1.0"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (123.456, "123.456"),
            (0.001, "0.001"),
            (0.000_99, "9.9E-4"),
            (9_999_999.0, "9999999.0"),
            (10_000_000.0, "1.0E7"),
            (12_345_678.0, "1.2345678E7"),
            (-1.5e300, "-1.5E300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
        ];
        for (value, text) in cases {
            assert_eq!(double_text(value).as_str(), text);
        }
        assert_eq!(float_text(0.1).as_str(), "0.1");
        assert_eq!(float_text(16_777_216.0).as_str(), "1.6777216E7");
    }
}
