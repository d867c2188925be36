//! JSON values to the values of Spark's types.

/// Reads a DECIMAL exactly, as its unscaled value; digits beyond `scale` are rounded half up, as
/// Java's `BigDecimal.setScale` does. `None` if `text` is no number or has too many digits.
pub(crate) fn parse_decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    let count = (whole.len() + fraction.len()) as i64;
    if count == 0 || !digits().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let shift = i64::from(exponent) - fraction.len() as i64 + i64::from(scale);
    let unscaled = shifted(digits(), count, shift)?;
    let fits = unscaled < 10_u128.pow(u32::from(precision));
    let unscaled = i128::try_from(unscaled).ok().filter(|_| fits)?;
    Some(if negative { -unscaled } else { unscaled })
}

/// The digits as a number, times ten to the power of `shift`, rounded half up.
fn shifted(digits: impl Iterator<Item = u8>, count: i64, shift: i64) -> Option<u128> {
    let kept = count.saturating_add(shift.min(0));
    let mut value = 0_u128;
    for (at, digit) in digits.enumerate() {
        let digit = u128::from(digit - b'0');
        match (at as i64).cmp(&kept) {
            std::cmp::Ordering::Less => value = value.checked_mul(10)?.checked_add(digit)?,
            std::cmp::Ordering::Equal => value += u128::from(digit >= 5),
            std::cmp::Ordering::Greater => break,
        }
    }
    if value == 0 || shift <= 0 {
        return Some(value);
    }
    value.checked_mul(10_u128.checked_pow(u32::try_from(shift).ok()?)?)
}

/// Reads a timestamp from a number: seconds since the epoch, with a fraction.
pub(super) fn timestamp_of_number(text: &str) -> Option<i64> {
    i64::try_from(parse_decimal(text, 19, 6)?).ok()
}

/// The floating-point values that JSON has no numbers for; Spark reads them from strings.
pub(super) fn special_double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" | "+Infinity" | "INF" | "+INF" => Some(f64::INFINITY),
        "-Infinity" | "-INF" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}
