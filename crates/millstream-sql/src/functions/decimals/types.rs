//! Precision and scale of results of decimals, by Spark's rules, of which there are two sets:
//! `spark.sql.decimalOperations.allowPrecisionLoss`, which is on by default, says which.

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::logical_expr::Operator;

/// An operation on two decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    /// `pmod`
    PositiveRemainder,
}

/// How an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::functions) struct Manner {
    /// It fails on overflow instead of giving NULL.
    pub(in crate::functions) strict: bool,
    /// Where a result has too many digits, some after the point give way.
    pub(in crate::functions) gives_way: bool,
}

impl Manner {
    /// That of an operator in a text.
    pub(in crate::functions) const OPERATOR: Self = Self { strict: true, gives_way: true };
}

/// How the names of functions begin in whose results no digits give way.
pub(super) const KEPT: &str = "kept_";

impl Operation {
    /// Whether a right side of zero has no result.
    pub(super) fn divides(self) -> bool {
        !matches!(self, Self::Add | Self::Subtract | Self::Multiply)
    }

    /// The operation of a function of decimals, and how it does it.
    pub(in crate::functions) fn of_function(name: &str) -> Option<(Self, Manner)> {
        let plain = name.strip_prefix(KEPT);
        let (operation, strict) = Self::of_plain(plain.unwrap_or(name))?;
        Some((operation, Manner { strict, gives_way: plain.is_none() }))
    }

    fn of_plain(name: &str) -> Option<(Self, bool)> {
        Some(match name {
            "decimal_add" => (Self::Add, true),
            "decimal_subtract" => (Self::Subtract, true),
            "decimal_multiply" => (Self::Multiply, true),
            "decimal_divide" => (Self::Divide, true),
            "decimal_remainder" | "mod" => (Self::Remainder, true),
            "decimal_pmod" | "pmod" => (Self::PositiveRemainder, true),
            "decimal_try_pmod" => (Self::PositiveRemainder, false),
            "try_add" => (Self::Add, false),
            "try_subtract" => (Self::Subtract, false),
            "try_multiply" => (Self::Multiply, false),
            "try_divide" => (Self::Divide, false),
            "try_mod" => (Self::Remainder, false),
            _ => return None,
        })
    }

    /// The operator that the function `name` was planned for, if any.
    pub(in crate::functions) fn planned_early(self, name: &str) -> Option<Operator> {
        match self {
            _ if !name.trim_start_matches(KEPT).starts_with("decimal_") => None,
            Self::Add => Some(Operator::Plus),
            Self::Subtract => Some(Operator::Minus),
            Self::Multiply => Some(Operator::Multiply),
            Self::Divide => Some(Operator::Divide),
            Self::Remainder => Some(Operator::Modulo),
            Self::PositiveRemainder => None,
        }
    }

    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder | Self::PositiveRemainder => "%",
        }
    }

    /// The function that gives NULL instead of an error.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Add => "try_add",
            Self::Subtract => "try_subtract",
            Self::Multiply => "try_multiply",
            Self::Divide => "try_divide",
            Self::Remainder | Self::PositiveRemainder => "try_mod",
        }
    }
}

const PRECISION_MAX: i32 = DECIMAL128_MAX_PRECISION as i32;

/// The digits after the point that a result keeps at least where it exceeds the largest precision
/// (Spark's `MINIMUM_ADJUSTED_SCALE`).
const SCALE_KEPT: i32 = 6;

/// Precision and scale: how many digits a decimal has, and how many of them after the point.
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

/// The digits of `left operation right` where none after the point give way to those before it.
pub(super) fn kept(operation: Operation, left: Digits, right: Digits) -> Digits {
    let [(p1, s1), (p2, s2)] = [left, right].map(|(p, s)| (i32::from(p), i32::from(s)));
    match operation {
        Operation::Add | Operation::Subtract => {
            let scale = s1.max(s2);
            bounded((p1 - s1).max(p2 - s2) + scale + 1, scale)
        }
        Operation::Multiply => bounded(p1 + p2 + 1, s1 + s2),
        Operation::Divide => {
            let whole = PRECISION_MAX.min(p1 - s1 + s2);
            let scale = PRECISION_MAX.min(SCALE_KEPT.max(s1 + p2 + 1));
            // Both sides of the point give up half of what is too much.
            let beyond = whole + scale - PRECISION_MAX;
            if beyond > 0 {
                return decimal(PRECISION_MAX, scale - (beyond / 2 + 1));
            }
            bounded(whole + scale, scale)
        }
        Operation::Remainder | Operation::PositiveRemainder => {
            let scale = s1.max(s2);
            bounded((p1 - s1).min(p2 - s2) + scale, scale)
        }
    }
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
