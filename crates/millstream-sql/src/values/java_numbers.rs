//! Texts as Java reads numbers with a fraction from them.

use std::str::FromStr;

/// Without what Java's `trim` takes off.
pub(crate) fn spaceless(text: &str) -> &str {
    text.trim_matches(|char: char| char <= ' ')
}

/// A number as `Double.parseDouble` reads it, and in Spark also `inf` and `nan` in any case. It may
/// end with the letter of its type, as in `1.5d`, and be hexadecimal, as in `0x1.8p3`.
pub(crate) fn floating<N: FromStr>(text: &str, of: fn(f64) -> N) -> Option<N> {
    let text = spaceless(text);
    let number = text.strip_suffix(['d', 'D', 'f', 'F']);
    let number =
        number.filter(|number| number.ends_with(|last: char| last.is_ascii_digit() || last == '.'));
    let number = number.unwrap_or(text);
    let unsigned = number.strip_prefix(['-', '+']).unwrap_or(number);
    if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let value = hexadecimal(digits)?;
        return Some(of(if number.starts_with('-') { -value } else { value }));
    }
    if unsigned.eq_ignore_ascii_case("nan") {
        // With a sign it is one only as Java writes it, and has none then.
        let is_one = unsigned.len() == number.len() || unsigned == "NaN";
        return is_one.then(|| of(f64::NAN));
    }
    number.parse().ok()
}

/// `1.8p3`, without the `0x` before it.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut exponent: i64 = exponent.parse::<i32>().ok()?.into();
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut value = 0_u64;
    for (at, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_kept = value < 1 << 56;
        // Of what no longer fits counts only whether there is something.
        value = if is_kept { value << 4 | digit } else { value | u64::from(digit > 0) };
        exponent += match (is_kept, at < whole.len()) {
            (true, false) => -4,
            (false, true) => 4,
            _ => 0,
        };
    }
    // In two steps, since a power of two alone may be beyond a double.
    let twos = exponent.clamp(-2_200, 2_200) as i32;
    Some(value as f64 * 2_f64.powi(twos / 2) * 2_f64.powi(twos - twos / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<f64> {
        floating(text, |value| value)
    }

    #[test]
    fn numbers_are_those_of_java() {
        assert_eq!(of("\t1.5d\n"), Some(1.5));
        assert_eq!(of("0x1p3"), Some(8.0));
        assert_eq!(of("-0x1.8P-1"), Some(-0.75));
        assert_eq!(of("0xFFFFFFFFFFFFFFFFFp0"), Some(2_f64.powi(68)));
        assert_eq!(of("0x1p-1074"), Some(5e-324));
        assert_eq!([of("-inf"), of("+Infinity")], [Some(f64::NEG_INFINITY), Some(f64::INFINITY)]);
        assert!(of("-NaN").is_some_and(f64::is_nan) && of("nan").is_some_and(f64::is_nan));
        for wrong in ["-nan", "+NAN", "0x1", "0xp1", "1_0", "1L", "\u{A0}1", ""] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
