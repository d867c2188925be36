//! The whole number that a decimal is kept as, and what is done with it whatever the operation:
//! scaling, rounding, writing.

use arrow::datatypes::{Decimal128Type, DecimalType, i256};

use super::types::Digits;
use crate::values::java_text::write_decimal;

/// Ten to a power; none beyond 76, which 256 bits do not hold.
pub(super) fn power_of_ten(power: u32) -> Option<i256> {
    match power {
        0..=38 => Some(i256::from_i128(10_i128.pow(power))),
        _ => i256::from_i128(10).checked_pow(power),
    }
}

/// How a value of too many digits gets fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rounding {
    /// To the nearest, a half away from zero.
    HalfUp,
    /// To the nearest, a half to the even one.
    HalfEven,
    /// Towards positive infinity.
    Up,
    /// Towards negative infinity.
    Down,
}

/// `value / base`, rounded; `base` is a power of ten.
pub(super) fn divided(value: i256, base: i256, rounding: Rounding) -> Option<i256> {
    let (whole, rest) = (value.checked_div(base)?, value.checked_rem(base)?);
    if rest == i256::ZERO {
        return Some(whole);
    }
    let negative = value.is_negative();
    let double = rest.checked_abs()?.checked_mul(i256::from_i128(2))?;
    let away = match rounding {
        Rounding::HalfUp => double >= base,
        Rounding::HalfEven => {
            let is_odd = whole.checked_rem(i256::from_i128(2))? != i256::ZERO;
            double > base || (double == base && is_odd)
        }
        Rounding::Up => !negative,
        Rounding::Down => negative,
    };
    match (away, negative) {
        (false, _) => Some(whole),
        (true, false) => whole.checked_add(i256::ONE),
        (true, true) => whole.checked_sub(i256::ONE),
    }
}

/// A value of the scale `from` with other digits, rounded half up; none where it does not fit.
pub(super) fn rescaled(value: i256, from: i8, (precision, scale): Digits) -> Option<i128> {
    let shift = i32::from(scale) - i32::from(from);
    let base = power_of_ten(shift.unsigned_abs())?;
    let value = match shift {
        0 => value,
        1.. => value.checked_mul(base)?,
        _ => divided(value, base, Rounding::HalfUp)?,
    };
    fits(value, precision)
}

/// The value, where it has no more than so many digits.
pub(super) fn fits(value: i256, precision: u8) -> Option<i128> {
    let value = value.to_i128()?;
    Decimal128Type::is_valid_decimal_precision(value, precision).then_some(value)
}

/// A decimal as text with so many digits after the point, rounded half to even.
pub(in crate::functions) fn rounded_text(unscaled: i128, scale: i8, places: u32) -> Option<String> {
    let places = i8::try_from(places).ok()?;
    let dropped = u32::try_from(i32::from(scale) - i32::from(places)).unwrap_or(0);
    let kept = divided(i256::from_i128(unscaled), power_of_ten(dropped)?, Rounding::HalfEven)?;
    let mut text = written(kept.to_i128()?, scale.min(places));
    if scale < places {
        text.push_str(if scale == 0 { "." } else { "" });
        (scale..places).for_each(|_| text.push('0'));
    }
    Some(text)
}

/// A decimal as text, without an exponent.
pub(super) fn written(unscaled: i128, scale: i8) -> String {
    let mut text = String::new();
    write_decimal(unscaled, scale, &mut text);
    text
}
