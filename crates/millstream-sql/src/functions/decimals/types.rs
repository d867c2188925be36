//! Precision and scale of what decimals become, by Spark's rules
//! (`spark.sql.decimalOperations.allowPrecisionLoss`, which is on by default).

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};

use super::arithmetic::Operation;

const PRECISION_MAX: i32 = DECIMAL128_MAX_PRECISION as i32;

/// As many digits after the point as a result keeps where it has to give some up.
const SCALE_KEPT: i32 = 6;

/// How many digits a decimal has, and how many of them after the point.
pub(in crate::functions) type Digits = (u8, i8);

fn decimal(precision: i32, scale: i32) -> Digits {
    // Both were brought within 0 to 38.
    (precision as u8, scale as i8)
}

/// What is cut off is cut off after the point, down to [`SCALE_KEPT`] digits.
fn adjusted(precision: i32, scale: i32) -> Digits {
    if precision <= PRECISION_MAX {
        return decimal(precision, scale);
    }
    let whole = precision - scale;
    decimal(PRECISION_MAX, (PRECISION_MAX - whole).max(scale.min(SCALE_KEPT)))
}

/// Precision and scale bounded each by itself.
pub(super) fn bounded(precision: i32, scale: i32) -> Digits {
    decimal(precision.min(PRECISION_MAX), scale.min(PRECISION_MAX))
}

/// The digits of `left operation right`.
pub(super) fn of_operation(operation: Operation, left: Digits, right: Digits) -> Digits {
    let [(p1, s1), (p2, s2)] = [left, right].map(|(p, s)| (i32::from(p), i32::from(s)));
    match operation {
        Operation::Add | Operation::Subtract => {
            let scale = s1.max(s2);
            adjusted((p1 - s1).max(p2 - s2) + scale + 1, scale)
        }
        Operation::Multiply => adjusted(p1 + p2 + 1, s1 + s2),
        Operation::Divide => {
            let scale = SCALE_KEPT.max(s1 + p2 + 1);
            adjusted(p1 - s1 + s2 + scale, scale)
        }
        Operation::Remainder | Operation::PositiveRemainder => {
            let scale = s1.max(s2);
            adjusted((p1 - s1).min(p2 - s2) + scale, scale)
        }
    }
}

/// The digits in which both values are compared, or become one column. Where they are too many,
/// those after the point give way.
pub(in crate::functions) fn wider(left: Digits, right: Digits) -> Digits {
    let [(p1, s1), (p2, s2)] = [left, right].map(|(p, s)| (i32::from(p), i32::from(s)));
    let scale = s1.max(s2);
    let precision = (p1 - s1).max(p2 - s2) + scale;
    let beyond = (precision - PRECISION_MAX).max(0);
    decimal(precision - beyond, (scale - beyond).max(0))
}

/// The digits that hold every value of a type of whole numbers, or those of a decimal.
pub(in crate::functions) fn digits_of(data_type: &DataType) -> Option<Digits> {
    Some(match data_type {
        DataType::Int8 => (3, 0),
        DataType::Int16 => (5, 0),
        DataType::Int32 => (10, 0),
        DataType::Int64 => (20, 0),
        DataType::UInt8 => (3, 0),
        DataType::UInt16 => (5, 0),
        DataType::UInt32 => (10, 0),
        DataType::UInt64 => (20, 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
            if *scale >= 0 =>
        {
            (*precision, *scale)
        }
        _ => return None,
    })
}

/// The type with these digits.
pub(in crate::functions) fn type_of((precision, scale): Digits) -> DataType {
    DataType::Decimal128(precision.max(1), scale)
}
