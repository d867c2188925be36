//! Patterns of numbers such as `$#,##0.00` and `0.0%`, in which `format_number` writes them, as
//! Java's `DecimalFormat` does.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type};
use datafusion::common::{Result, exec_err};

use super::decimals::rounded_text;
use super::define::Arguments;

/// The most digits that Java's `DecimalFormat` writes of a DOUBLE before the point, and after it.
const WHOLE_MAX: usize = 309;
const FRACTION_MAX: usize = 340;

/// What stands for no pattern.
const DEFAULT: &str = "#,##0";

/// A pattern that was read.
struct NumberPattern<'p> {
    prefix: &'p str,
    suffix: &'p str,
    is_percent: bool,
    /// How many digits stand between two commas; 0 where there are none.
    group: usize,
    whole_min: usize,
    fraction_min: usize,
    fraction_max: usize,
}

impl<'p> NumberPattern<'p> {
    /// Reads a pattern; `None` if it is none, or has quotation marks, an exponent or a form of its
    /// own for what is negative.
    fn parse(text: &'p str) -> Option<Self> {
        let text = if text.is_empty() { DEFAULT } else { text };
        let is_part = |char: char| matches!(char, '#' | '0' | ',' | '.');
        let start = text.find(is_part)?;
        let (prefix, rest) = text.split_at(start);
        let (number, suffix) =
            rest.split_at(rest.find(|char: char| !is_part(char)).unwrap_or(rest.len()));
        let is_plain = |part: &str| {
            !part.contains(['#', '0', ',', '.', ';', '\'', 'E', '-', '\u{2030}', '\u{a4}'])
        };
        let percents = prefix.matches('%').count() + suffix.matches('%').count();
        if !is_plain(prefix) || !is_plain(suffix) || percents > 1 {
            return None;
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let group = whole.rsplit_once(',').map_or(0, |(_, last)| last.len());
        let digits: String = whole.chars().filter(|char| *char != ',').collect();
        let is_ordered = |optional: &str| !optional.contains(['0', ',', '.']);
        if !is_ordered(digits.trim_end_matches('0'))
            || !is_ordered(fraction.trim_start_matches('0'))
            || whole.ends_with(',')
            || digits.len() > WHOLE_MAX
            || fraction.len() > FRACTION_MAX
        {
            return None;
        }
        let mut whole_min = digits.len() - digits.trim_end_matches('0').len();
        let mut fraction_min = fraction.len() - fraction.trim_start_matches('0').len();
        // A point without any `0`: the last `#` before it is one, or else the first behind it.
        if whole_min == 0 && fraction_min == 0 && number.contains('.') {
            (whole_min, fraction_min) =
                if digits.is_empty() { (0, fraction.len().min(1)) } else { (1, 0) };
        }
        let (is_percent, fraction_max) = (percents == 1, fraction.len());
        Some(Self { prefix, suffix, is_percent, group, whole_min, fraction_min, fraction_max })
    }

    /// Writes the digits of a number, which has as many places as the pattern at most.
    fn write(&self, digits: &str, is_negative: bool, out: &mut String) {
        out.push_str(if is_negative { "-" } else { "" });
        out.push_str(self.prefix);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let kept = fraction.trim_end_matches('0').len().max(self.fraction_min);
        let fraction = &fraction[..kept.min(fraction.len())];
        let whole = whole.trim_start_matches('0');
        let least = if fraction.is_empty() { self.whole_min.max(1) } else { self.whole_min };
        let whole = format!("{whole:0>least$}");
        for (at, digit) in whole.chars().enumerate() {
            let left = whole.len() - at;
            if at > 0 && self.group > 0 && left.is_multiple_of(self.group) {
                out.push(',');
            }
            out.push(digit);
        }
        if !fraction.is_empty() {
            out.push('.');
            out.push_str(fraction);
        }
        out.push_str(self.suffix);
    }
}

/// Argument 0, DOUBLEs or DECIMALs, in the patterns that argument 1 has.
pub(super) fn written(args: &Arguments, values: &ArrayRef, constant: bool) -> Result<ArrayRef> {
    let patterns = args.text(1);
    args.write(|row, out| {
        let at = if constant { 0 } else { row };
        let Some(text) = patterns.get(row).filter(|_| values.is_valid(at)) else {
            return Ok(false);
        };
        let Some(pattern) = NumberPattern::parse(text) else {
            return exec_err!(
                "format_number: the pattern '{text}' is none, or has an exponent, a quotation mark \
                 or a form for what is negative, which are not supported; write the number of places"
            );
        };
        let DataType::Decimal128(_, scale) = values.data_type() else {
            write_double(values.as_primitive::<Float64Type>().value(at), &pattern, out);
            return Ok(true);
        };
        let value = values.as_primitive::<Decimal128Type>().value(at);
        let times = if pattern.is_percent { 100 } else { 1 };
        let places = u32::try_from(pattern.fraction_max).unwrap_or(u32::MAX);
        match value.checked_mul(times).and_then(|value| rounded_text(value, *scale, places)) {
            Some(digits) => pattern.write(digits.trim_start_matches('-'), value < 0, out),
            None => return exec_err!("format_number: the pattern '{text}' has too many digits"),
        }
        Ok(true)
    })
}

/// A finite number that is not negative, rounded half to even to so many places, of which Java's
/// `DecimalFormat` has [`FRACTION_MAX`] at most. Like Java it does not write more digits than tell
/// the number from its neighbours: 0.1 is followed by zeros.
pub(super) fn in_places(value: f64, places: usize) -> String {
    let places = places.min(FRACTION_MAX);
    let mut shortest = value.to_string();
    let fraction = shortest.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    if fraction > places {
        return format!("{value:.places$}");
    }
    if fraction == 0 && places > 0 {
        shortest.push('.');
    }
    shortest.extend(std::iter::repeat_n('0', places - fraction));
    shortest
}

fn write_double(value: f64, pattern: &NumberPattern<'_>, out: &mut String) {
    if value.is_nan() {
        return out.push_str("NaN");
    }
    let value = if pattern.is_percent { value * 100.0 } else { value };
    if value.is_infinite() {
        let sign = if value < 0.0 { "-" } else { "" };
        for part in [sign, pattern.prefix, "\u{221e}", pattern.suffix] {
            out.push_str(part);
        }
        return;
    }
    let digits = in_places(value.abs(), pattern.fraction_max);
    pattern.write(&digits, value.is_sign_negative(), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64, pattern: &str) -> Option<String> {
        let mut out = String::new();
        write_double(value, &NumberPattern::parse(pattern)?, &mut out);
        Some(out)
    }

    #[test]
    fn numbers_have_the_form_of_the_pattern() {
        let cases = [
            (1_234_567.891_5, "#,###.00", "1,234,567.89"),
            (-0.005, "#,###.00", "-.01"),
            (0.0, "#,###.00", ".00"),
            (-0.005, "0.00%", "-0.50%"),
            (0.125, "0.00%", "12.50%"),
            (-0.005, "$#,##0.00", "-$0.01"),
            (-0.005, "000000", "-000000"),
            (12_332.123_456, "##################.###", "12332.123"),
            (1_234.5, "", "1,234"),
            (7.0, "00.0", "07.0"),
            (-1_234_567.0, "#,###", "-1,234,567"),
            (0.5, "#", "0"),
            (0.5, "#.##", "0.5"),
            (0.0, "#.##", "0"),
            (0.25, ".###", ".25"),
            (0.0, ".###", ".0"),
            (0.1, "0.####################", "0.1"),
            (1e22, "#,##0", "10,000,000,000,000,000,000,000"),
            (0.1, "0.0000000000000000000", "0.1000000000000000000"),
            (2.5, "0", "2"),
            (3.5, "0", "4"),
        ];
        for (value, pattern, wanted) in cases {
            assert_eq!(of(value, pattern).as_deref(), Some(wanted), "{value} in {pattern}");
        }
        for pattern in ["0.###E0", "0;(0)", "'a'0", "0#", "0.#0", "abc", "0,"] {
            assert_eq!(of(1.0, pattern), None, "{pattern}");
        }
        assert_eq!(of(1.0, &"0".repeat(70_000)), None);
        assert_eq!(of(1.0, &format!("0.{}", "0".repeat(70_000))), None);
        assert_eq!(in_places(0.5, 70_000).len(), 2 + FRACTION_MAX);
    }
}
