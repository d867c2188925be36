//! `+`, `-`, `*`, `/` and `%` of decimals, and their `try_` forms: exact in 256 bits, then rounded
//! half up to the digits of the result's type. What does not fit it is an error, as in Spark.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, new_null_array};
use arrow::datatypes::{DataType, Decimal128Type, i256};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::super::define::{Arguments, call};
use super::casts::cast_decimal;
use super::types::{Digits, Operation, digits_of, of_operation, type_of};
use super::unscaled::{fits, power_of_ten, rescaled, written};

/// `left operation right` for decimals; null instead of an error unless `strict`.
pub(in crate::functions) fn decimal_operation(
    left: Expr,
    operation: Operation,
    right: Expr,
    strict: bool,
) -> Expr {
    let signature = Signature::any(2, Volatility::Immutable);
    let udf = Arc::new(ScalarUDF::from(DecimalOperation { operation, strict, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(udf, vec![left, right]))
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) struct DecimalOperation {
    operation: Operation,
    strict: bool,
    signature: Signature,
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
        match (self.operation, self.strict) {
            (Operation::Add, true) => "decimal_add",
            (Operation::Subtract, true) => "decimal_subtract",
            (Operation::Multiply, true) => "decimal_multiply",
            (Operation::Divide, true) => "decimal_divide",
            (Operation::Remainder, true) => "decimal_remainder",
            (Operation::PositiveRemainder, _) => "decimal_pmod",
            (operation, false) => operation.remedy(),
        }
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
        Ok(type_of(of_operation(self.operation, left, right)))
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

    fn get(&self, row: usize) -> Option<i128> {
        let row = if self.constant { 0 } else { row };
        self.values.is_valid(row).then(|| self.values.value(row))
    }
}

impl DecimalOperation {
    fn rows(&self, args: &Arguments) -> Result<ArrayRef> {
        let digits = both_digits(&[args.data_type(0).clone(), args.data_type(1).clone()])?;
        let scales = digits.map(|(_, scale)| scale);
        let (left, right) = (Side::of(args, 0, digits[0])?, Side::of(args, 1, digits[1])?);
        let DataType::Decimal128(precision, scale) = args.returns else {
            return internal_err!("an operation on decimals gives a decimal");
        };
        let value = |row: usize| -> Result<Option<i128>> {
            let (Some(left), Some(right)) = (left.get(row), right.get(row)) else {
                return Ok(None);
            };
            let divides = !matches!(
                self.operation,
                Operation::Add | Operation::Subtract | Operation::Multiply
            );
            if divides && right == 0 {
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
        };
        let values = (0..args.rows).map(value).collect::<Result<Decimal128Array>>()?;
        Ok(Arc::new(values.with_precision_and_scale(precision, scale)?))
    }

    fn failed(&self, message: impl FnOnce() -> String) -> Result<Option<i128>> {
        if self.strict {
            exec_err!("{}; use {} to get NULL instead", message(), self.operation.remedy())
        } else {
            Ok(None)
        }
    }
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
