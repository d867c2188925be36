//! Arithmetic of decimals in 128 bits, and in 64 where both operands have no more: the common case
//! of the exact one.

use super::types::{Digits, Operation};

/// An operation between decimals of two scales, with all that does not depend on their values.
pub(super) struct Narrow {
    operation: Operation,
    /// By what the operands are multiplied before.
    factors: [i128; 2],
    target: Target,
}

impl Narrow {
    /// An operation between operands of `scales` whose result has so many digits; `None` where
    /// 128 bits do not even hold the factors between the scales.
    pub fn new(operation: Operation, scales: [i8; 2], digits: Digits) -> Option<Self> {
        let [left, right] = scales.map(i32::from);
        let scale = i32::from(digits.1);
        let (places, exact) = match operation {
            Operation::Multiply => ([0, 0], left + right),
            // The quotient is rounded as it is made.
            Operation::Divide => ([scale + right - left, 0], scale),
            _ => ([left.max(right) - left, left.max(right) - right], left.max(right)),
        };
        let factors = [power(places[0])?, power(places[1])?];
        Some(Self { operation, factors, target: Target::new(exact, digits)? })
    }

    /// The unscaled result; `None` where 128 bits may not hold all that comes on the way, where it
    /// does not fit its type, and where the divisor is zero.
    #[inline]
    pub fn computed(&self, [left, right]: [i128; 2]) -> Option<i128> {
        let [left, right] = [product(left, self.factors[0])?, product(right, self.factors[1])?];
        let exact = match self.operation {
            Operation::Multiply => product(left, right)?,
            Operation::Add => left.checked_add(right)?,
            Operation::Subtract => left.checked_sub(right)?,
            Operation::Divide => rounded_quotient(left, right)?,
            Operation::Remainder => left.checked_rem(right)?,
            Operation::PositiveRemainder => match left.checked_rem(right)? {
                below @ ..0 => below.checked_add(right)?.checked_rem(right)?,
                rest => rest,
            },
        };
        self.target.rounded(exact)
    }
}

/// A decimal type that exact values of one scale are brought to.
pub(super) struct Target {
    rescale: Rescale,
    /// The greatest number that fits.
    most: i128,
}

enum Rescale {
    Keep,
    Multiply(i128),
    Divide(i128),
}

impl Target {
    /// From the scale `from` to so many digits; `None` where 128 bits do not hold the factor.
    pub fn new(from: i32, (precision, scale): Digits) -> Option<Self> {
        let rescale = match i32::from(scale) - from {
            0 => Rescale::Keep,
            places @ 1.. => Rescale::Multiply(power(places)?),
            places => Rescale::Divide(power(-places)?),
        };
        Some(Self { rescale, most: power(i32::from(precision))? - 1 })
    }

    /// The value rounded half up; `None` where it does not fit.
    #[inline]
    pub fn rounded(&self, exact: i128) -> Option<i128> {
        let value = match self.rescale {
            Rescale::Keep => exact,
            Rescale::Multiply(factor) => product(exact, factor)?,
            Rescale::Divide(base) => rounded_quotient(exact, base)?,
        };
        (-self.most..=self.most).contains(&value).then_some(value)
    }
}

/// Ten to a power, where 128 bits hold it.
fn power(places: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(places).ok()?)
}

/// A product; of two numbers of 64 bits it is one instruction.
#[inline]
fn product(left: i128, right: i128) -> Option<i128> {
    match (i64::try_from(left), i64::try_from(right)) {
        (_, Ok(1)) => Some(left),
        (Ok(left), Ok(right)) => Some(i128::from(left) * i128::from(right)),
        _ => left.checked_mul(right),
    }
}

/// `left / right`, rounded half up, away from zero.
#[inline]
fn rounded_quotient(left: i128, right: i128) -> Option<i128> {
    if right == 0 {
        return None;
    }
    let (whole, rest) = match (i64::try_from(left), i64::try_from(right)) {
        (Ok(left), Ok(right)) if right != -1 => {
            (i128::from(left / right), i128::from(left % right))
        }
        _ => (left.checked_div(right)?, left.checked_rem(right)?),
    };
    let (rest, divisor) = (rest.unsigned_abs(), right.unsigned_abs());
    if rest < divisor - rest {
        return Some(whole);
    }
    if (left < 0) == (right < 0) { whole.checked_add(1) } else { whole.checked_sub(1) }
}
