//! `+`, `-`, `*`, `/` and `%` of decimals, and their `try_` forms: exact, then rounded half up to
//! the digits of the result's type. What does not fit it is an error, as in Spark.
//!
//! Nearly all values are computed in 128 bits ([`Narrow`]), and those that need more in 256, which
//! is an order of magnitude slower.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBufferBuilder, Decimal128Array, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, i256};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::super::define::{Arguments, call};
use super::casts::cast_decimal;
use super::narrow::Narrow;
use super::types::{Digits, KEPT, Manner, Operation, digits_of, kept, of_operation, type_of};
use super::unscaled::{fits, power_of_ten, rescaled, written};

/// `left operation right` for decimals.
pub(in crate::functions) fn decimal_operation(
    left: Expr,
    operation: Operation,
    right: Expr,
    manner: Manner,
) -> Expr {
    let signature = Signature::any(2, Volatility::Immutable);
    let udf = Arc::new(ScalarUDF::from(DecimalOperation { operation, manner, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(udf, vec![left, right]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) struct DecimalOperation {
    operation: Operation,
    manner: Manner,
    signature: Signature,
}

impl DecimalOperation {
    /// The same of `args`, with a result in which no digits give way.
    pub(super) fn kept(&self, args: Vec<Expr>) -> Option<Expr> {
        let [left, right] = <[Expr; 2]>::try_from(args).ok()?;
        let manner = Manner { gives_way: false, ..self.manner };
        Some(decimal_operation(left, self.operation, right, manner))
    }

    /// The same of `args`, with NULL where it fails; `None` if it is so already.
    pub(in crate::functions) fn or_null(&self, args: Vec<Expr>) -> Option<Expr> {
        let [left, right] = <[Expr; 2]>::try_from(args).ok()?;
        let manner = Manner { strict: false, ..self.manner };
        self.manner.strict.then(|| decimal_operation(left, self.operation, right, manner))
    }
}

fn both_digits(types: &[DataType]) -> Result<[Digits; 2]> {
    match types {
        // NULL is of the other side's type.
        [side, DataType::Null] | [DataType::Null, side] => {
            both_digits(&[side.clone(), side.clone()])
        }
        [left, right] => match (digits_of(left), digits_of(right)) {
            (Some(left), Some(right)) => Ok([left, right]),
            _ => internal_err!("{left} and {right} are not decimals"),
        },
        _ => internal_err!("an operation on decimals has two sides"),
    }
}

impl ScalarUDFImpl for DecimalOperation {
    fn name(&self) -> &str {
        let kept = match (self.operation, self.manner.strict) {
            (Operation::Add, true) => "kept_decimal_add",
            (Operation::Subtract, true) => "kept_decimal_subtract",
            (Operation::Multiply, true) => "kept_decimal_multiply",
            (Operation::Divide, true) => "kept_decimal_divide",
            (Operation::Remainder, true) => "kept_decimal_remainder",
            (Operation::PositiveRemainder, true) => "kept_decimal_pmod",
            (Operation::Add, false) => "kept_try_add",
            (Operation::Subtract, false) => "kept_try_subtract",
            (Operation::Multiply, false) => "kept_try_multiply",
            (Operation::Divide, false) => "kept_try_divide",
            (Operation::Remainder, false) => "kept_try_mod",
            (Operation::PositiveRemainder, false) => "kept_decimal_try_pmod",
        };
        if self.manner.gives_way { &kept[KEPT.len()..] } else { kept }
    }

    fn display_name(&self, args: &[Expr]) -> Result<String> {
        Ok(format!("{} {} {}", args[0], self.operation.sign(), args[1]))
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let sign = self.operation.sign();
        Ok(format!("{} {sign} {}", args[0].schema_name(), args[1].schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        let [left, right] = both_digits(args)?;
        let digits = if self.manner.gives_way { of_operation } else { kept };
        Ok(type_of(digits(self.operation, left, right)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| self.rows(arguments))
    }
}

/// The values of one operand.
struct Side {
    values: Decimal128Array,
    constant: bool,
}

impl Side {
    /// The operand as decimals. Whole numbers are cast here where the plan has not done so.
    fn of(args: &Arguments, at: usize, digits: Digits) -> Result<Self> {
        let (values, constant) = args.array(at);
        let values = match values.data_type() {
            DataType::Decimal128(..) => Arc::clone(values),
            DataType::Null => new_null_array(&type_of(digits), values.len()),
            _ => cast_decimal(values, &type_of(digits), true)?,
        };
        Ok(Self { values: values.as_primitive::<Decimal128Type>().clone(), constant })
    }

    fn get(&self, row: usize) -> i128 {
        self.values.value(if self.constant { 0 } else { row })
    }

    /// Which of so many rows have a value.
    fn nulls(&self, rows: usize) -> Option<NullBuffer> {
        match self.constant {
            false => self.values.nulls().cloned(),
            true => self.values.is_null(0).then(|| NullBuffer::new_null(rows)),
        }
    }
}

impl DecimalOperation {
    fn rows(&self, args: &Arguments) -> Result<ArrayRef> {
        let digits = both_digits(&[args.data_type(0).clone(), args.data_type(1).clone()])?;
        let (left, right) = (Side::of(args, 0, digits[0])?, Side::of(args, 1, digits[1])?);
        let DataType::Decimal128(precision, scale) = args.returns else {
            return internal_err!("an operation on decimals gives a decimal");
        };
        let scales = digits.map(|(_, scale)| scale);
        let narrow = Narrow::new(self.operation, scales, (precision, scale));
        let given =
            NullBuffer::union(left.nulls(args.rows).as_ref(), right.nulls(args.rows).as_ref());
        let mut values = Vec::with_capacity(args.rows);
        // Rows whose result is null although both operands have a value.
        let mut failed = Vec::new();
        for row in 0..args.rows {
            if given.as_ref().is_some_and(|given| given.is_null(row)) {
                values.push(0);
                continue;
            }
            let operands = [left.get(row), right.get(row)];
            let value = match narrow.as_ref().and_then(|narrow| narrow.computed(operands)) {
                Some(value) => Some(value),
                None => self.wide(operands, scales, (precision, scale))?,
            };
            if value.is_none() {
                failed.push(row);
            }
            values.push(value.unwrap_or_default());
        }
        let nulls = without(given, &failed, args.rows);
        let values = Decimal128Array::new(values.into(), nulls);
        Ok(Arc::new(values.with_precision_and_scale(precision, scale)?))
    }

    /// The result in 256 bits; an error, or null, where there is none.
    fn wide(
        &self,
        [left, right]: [i128; 2],
        scales: [i8; 2],
        (precision, scale): Digits,
    ) -> Result<Option<i128>> {
        if self.operation.divides() && right == 0 {
            return self.failed(|| "division by zero".to_owned());
        }
        // Spark computes exactly and checks the result afterwards, so an intermediate that does
        // not fit the type is no error.
        match computed(self.operation, [left, right], scales, (precision, scale)) {
            Some(value) => Ok(Some(value)),
            None => self.failed(|| {
                let [left, right] = [(left, scales[0]), (right, scales[1])]
                    .map(|(unscaled, scale)| written(unscaled, scale));
                let sign = self.operation.sign();
                format!(
                    "{left} {sign} {right} does not fit DECIMAL({precision},{scale}) \
                     (NUMERIC_VALUE_OUT_OF_RANGE)"
                )
            }),
        }
    }

    fn failed(&self, message: impl FnOnce() -> String) -> Result<Option<i128>> {
        if self.manner.strict {
            exec_err!("{}; use {} to get NULL instead", message(), self.operation.remedy())
        } else {
            Ok(None)
        }
    }
}

/// `given` with some rows more that are null.
fn without(given: Option<NullBuffer>, failed: &[usize], rows: usize) -> Option<NullBuffer> {
    if failed.is_empty() {
        return given;
    }
    let mut valid = BooleanBufferBuilder::new(rows);
    valid.append_n(rows, true);
    failed.iter().for_each(|row| valid.set_bit(*row, false));
    NullBuffer::union(given.as_ref(), Some(&NullBuffer::new(valid.finish())))
}

/// The unscaled result; `None` where it does not fit. The caller has excluded division by zero.
fn computed(
    operation: Operation,
    [left, right]: [i128; 2],
    [left_scale, right_scale]: [i8; 2],
    (precision, scale): Digits,
) -> Option<i128> {
    let exact_scale = match operation {
        Operation::Multiply => left_scale + right_scale,
        _ => left_scale.max(right_scale),
    };
    let exact = match operation {
        Operation::Divide => {
            let shift = i32::from(scale) + i32::from(right_scale) - i32::from(left_scale);
            return fits(quotient(left, right, shift)?, precision);
        }
        Operation::Multiply => match left.checked_mul(right) {
            // Most products fit into 128 bits, whose multiplication is several times as fast.
            Some(product) => i256::from_i128(product),
            None => i256::from_i128(left).checked_mul(i256::from_i128(right))?,
        },
        _ => {
            let at_one_scale = |value: i128, scale: i8| {
                let factor = power_of_ten(u32::try_from(exact_scale - scale).ok()?)?;
                i256::from_i128(value).checked_mul(factor)
            };
            let left = at_one_scale(left, left_scale)?;
            let right = at_one_scale(right, right_scale)?;
            match operation {
                Operation::Add => left.checked_add(right)?,
                Operation::Subtract => left.checked_sub(right)?,
                Operation::Remainder => left.checked_rem(right)?,
                _ => positive_remainder(left, right)?,
            }
        }
    };
    rescaled(exact, exact_scale, (precision, scale))
}

/// Spark's: `((a % n) + n) % n` where the remainder is below zero.
fn positive_remainder(left: i256, right: i256) -> Option<i256> {
    let remainder = left.checked_rem(right)?;
    if remainder.is_negative() {
        remainder.checked_add(right)?.checked_rem(right)
    } else {
        Some(remainder)
    }
}

/// `left / right` times ten to the power of `shift`, rounded half up; `None` where it is beyond any
/// decimal. Shifted at once the numerator could have 114 digits, more than 256 bits hold. So the
/// division is done in pieces of at most 38 digits, each with the remainder of the one before.
fn quotient(left: i128, right: i128, shift: i32) -> Option<i256> {
    let divisor = i256::from_i128(right).checked_abs()?;
    let dividend = i256::from_i128(left).checked_abs()?;
    let mut whole = dividend.checked_div(divisor)?;
    let mut rest = dividend.checked_rem(divisor)?;
    // The scale of a quotient is at least that of the dividend, so the shift is not negative.
    let mut places = u32::try_from(shift).ok()?;
    while places > 0 {
        let piece = places.min(38);
        let factor = power_of_ten(piece)?;
        let shifted = rest.checked_mul(factor)?;
        whole = whole.checked_mul(factor)?.checked_add(shifted.checked_div(divisor)?)?;
        rest = shifted.checked_rem(divisor)?;
        places -= piece;
    }
    // Half up, away from zero: signs were set aside, so one comparison rounds both ways.
    if rest.checked_mul(i256::from_i128(2))? >= divisor {
        whole = whole.checked_add(i256::ONE)?;
    }
    let negative = (left < 0) != (right < 0);
    if negative { whole.checked_neg() } else { Some(whole) }
}

#[cfg(test)]
mod tests {
    use super::super::narrow::Target;
    use super::*;

    /// Checks are against a slow way: long division, digit by digit.
    fn long_division(left: u128, right: u128, places: usize) -> String {
        let mut text = (left / right).to_string() + ".";
        let mut rest = left % right;
        for _ in 0..places {
            // With a divisor of 38 digits ten times the rest may not fit 128 bits.
            let wide = i256::from_parts(rest, 0).wrapping_mul(i256::from_i128(10));
            let wide_right = i256::from_parts(right, 0);
            let digit = wide.wrapping_div(wide_right).as_i128() as u8;
            rest = wide.wrapping_rem(wide_right).as_i128() as u128;
            text.push(char::from(b'0' + digit));
        }
        text
    }

    /// Numbers of all lengths up to a precision, and those at the edges.
    fn unscaled(precision: u8, draws: &mut impl FnMut() -> u64) -> i128 {
        let most = 10_i128.pow(u32::from(precision)) - 1;
        let digits = (draws() % u64::from(precision) + 1) as u32;
        let drawn = (i128::from(draws()) << 64 | i128::from(draws())) % 10_i128.pow(digits);
        match draws() % 8 {
            0 => most,
            1 => -most,
            2 => 10_i128.pow(digits - 1),
            3 => 5 * 10_i128.pow(digits - 1) % (most + 1),
            4 => [0, 1, -1][(draws() % 3) as usize],
            _ => drawn,
        }
    }

    #[test]
    fn what_128_bits_hold_is_what_256_bits_give() {
        let mut state = 7_u64;
        let mut draws = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mixed = (state >> 33 ^ state).wrapping_mul(0xff51_afd7_ed55_8ccd);
            mixed ^ mixed >> 29
        };
        let operations = [
            Operation::Add,
            Operation::Subtract,
            Operation::Multiply,
            Operation::Divide,
            Operation::Remainder,
            Operation::PositiveRemainder,
        ];
        let mut found = 0;
        for round in 0..200_000 {
            let operation = operations[round % operations.len()];
            let digits: [Digits; 2] = std::array::from_fn(|_| {
                let precision = (draws() % 38 + 1) as u8;
                (precision, (draws() % (u64::from(precision) + 1)) as i8)
            });
            let scales = digits.map(|(_, scale)| scale);
            let operands = digits.map(|(precision, _)| unscaled(precision, &mut draws));
            let cast = Target::new(scales[0].into(), digits[1]);
            if let Some(value) = cast.and_then(|cast| cast.rounded(operands[0])) {
                let wide = rescaled(i256::from_i128(operands[0]), scales[0], digits[1]);
                assert_eq!(Some(value), wide, "{} from {digits:?}", operands[0]);
            }
            let result = of_operation(operation, digits[0], digits[1]);
            let narrow = Narrow::new(operation, scales, result);
            let Some(value) = narrow.and_then(|narrow| narrow.computed(operands)) else {
                continue;
            };
            found += 1;
            let expected = computed(operation, operands, scales, result);
            assert_eq!(Some(value), expected, "{operation:?} {operands:?} {digits:?} {result:?}");
        }
        assert!(found > 80_000, "only {found} results were found in 128 bits");
    }

    /// As in Spark's own test of the setting.
    #[test]
    fn digits_that_are_kept_are_those_of_spark() {
        use Operation::{Divide, Multiply};
        assert_eq!(kept(Multiply, (3, 1), (2, 1)), (6, 2));
        assert_eq!(kept(Multiply, (20, 18), (19, 18)), (38, 36));
        assert_eq!(kept(Multiply, (38, 18), (2, 0)), (38, 18));
        assert_eq!(kept(Divide, (38, 18), (2, 0)), (38, 19));
        assert_eq!(kept(Divide, (38, 3), (2, 1)), (38, 3));
        assert_eq!(kept(Divide, (38, 6), (3, 1)), (38, 7));
    }

    #[test]
    fn quotients_of_many_digits_are_those_of_long_division() {
        let nines = 10_i128.pow(38) - 1;
        for (left, right) in [(1, 3), (2, 7), (nines, 7), (1, nines), (nines, nines - 1)] {
            let digits = long_division(left as u128, right as u128, 38).replace('.', "");
            let expected = i256::from_string(&digits).expect("they are digits");
            let found = quotient(left, right, 38).expect("it fits");
            // One is rounded half up, the other cut off.
            assert!(found == expected || found == expected + i256::ONE, "{left} / {right}");
            assert_eq!(quotient(-left, right, 38), found.checked_neg());
        }
        assert_eq!(quotient(15, 10, 0), Some(i256::from_i128(2)));
        assert_eq!(quotient(-15, 10, 0), Some(i256::from_i128(-2)));
    }
}
