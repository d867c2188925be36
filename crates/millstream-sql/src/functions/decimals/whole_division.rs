//! `DIV`: how often the right side goes into the left one, as a BIGINT; also of two INTERVALs.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DurationMicrosecondType, Int64Type,
    IntervalUnit, IntervalYearMonthType, i256,
};
use datafusion::common::{Result, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::super::define::{Arguments, call, known_by_name};
use super::super::interval_text::MICROSECONDS;
use super::types::{digits_of, type_of};
use super::unscaled::power_of_ten;
use crate::types::spark_type;

/// The function behind `DIV`.
pub(in crate::functions) fn whole_division() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(WholeDivision(Signature::user_defined(Volatility::Immutable))))
}

struct WholeDivision(Signature);

known_by_name!(WholeDivision);

impl ScalarUDFImpl for WholeDivision {
    fn name(&self) -> &str {
        "div"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [DataType::Duration(_), DataType::Duration(_)] => return Ok(vec![MICROSECONDS; 2]),
            [left @ DataType::Interval(IntervalUnit::YearMonth), right] if left == right => {
                return Ok(given.to_vec());
            }
            _ => {}
        }
        let is_decimal = |given: &DataType| matches!(given, DataType::Decimal128(..));
        let decimals = given.iter().any(is_decimal);
        let side = |given: &DataType| match given {
            DataType::Null | DataType::Utf8 if !decimals => Ok(DataType::Int64),
            DataType::Null => Ok(DataType::Decimal128(38, 0)),
            given => match digits_of(given) {
                Some(digits) if decimals => Ok(type_of(digits)),
                Some(_) => Ok(DataType::Int64),
                None => plan_err!(
                    "DIV takes whole numbers and DECIMALs, not {}; cast it, or write floor(a / b)",
                    spark_type(given)
                ),
            },
        };
        given.iter().map(side).collect()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, quotients)
    }
}

fn by_zero<T>() -> Result<T> {
    exec_err!("division by zero; use nullif(..., 0) for NULL instead")
}

/// The quotient of two whole numbers, or of two INTERVALs of one kind.
fn of_counts(left: Option<i64>, right: Option<i64>) -> Result<Option<i64>> {
    match (left, right) {
        (Some(_), Some(0)) => by_zero(),
        (Some(left), Some(right)) => match left.checked_div(right) {
            None => exec_err!("{left} DIV {right} does not fit BIGINT"),
            quotient => Ok(quotient),
        },
        _ => Ok(None),
    }
}

/// `DIV` without ANSI mode, of whole numbers or DECIMALs: a quotient that does not fit BIGINT has
/// its low bits, and one of more digits than a DECIMAL has is NULL. A divisor of zero has been made
/// NULL.
pub(in crate::functions) fn wrapping_quotients(args: &Arguments) -> Result<ArrayRef> {
    if !are_decimals(args)? {
        let (left, right) = (args.long(0), args.long(1));
        return args.primitives::<Int64Type>(|row| match (left.get(row), right.get(row)) {
            (Some(_), Some(0)) => by_zero(),
            (left, right) => Ok(left.zip(right).map(|(left, right)| left.wrapping_div(right))),
        });
    }
    let beyond = i256::from_i128(10_i128.pow(u32::from(DECIMAL128_MAX_PRECISION)));
    let far_beyond = beyond.wrapping_mul(i256::from_i128(10));
    of_decimals(args, |quotient| match quotient {
        Some(quotient) if quotient.wrapping_abs() < beyond => {
            Ok(quotient.to_i128().map(|quotient| quotient as i64))
        }
        Some(quotient) if quotient.wrapping_abs() < far_beyond => Ok(None),
        // Spark divides to one digit more than a DECIMAL has.
        _ => exec_err!("a result of DIV has more digits than a DECIMAL; cast one side"),
    })
}

fn quotients(args: &Arguments) -> Result<ArrayRef> {
    match args.data_type(0) {
        DataType::Duration(_) => {
            let left = args.primitive::<DurationMicrosecondType>(0);
            let right = args.primitive::<DurationMicrosecondType>(1);
            return args.primitives::<Int64Type>(|row| of_counts(left.get(row), right.get(row)));
        }
        DataType::Interval(_) => {
            let left = args.primitive::<IntervalYearMonthType>(0);
            let right = args.primitive::<IntervalYearMonthType>(1);
            return args.primitives::<Int64Type>(|row| match (left.get(row), right.get(row)) {
                // What Java's division makes of this is no result.
                (Some(i32::MIN), Some(-1)) => exec_err!("a result of DIV does not fit an INTERVAL"),
                (left, right) => of_counts(left.map(i64::from), right.map(i64::from)),
            });
        }
        _ => {}
    }
    if !are_decimals(args)? {
        let (left, right) = (args.long(0), args.long(1));
        return args.primitives::<Int64Type>(|row| of_counts(left.get(row), right.get(row)));
    }
    of_decimals(args, |quotient| {
        let quotient = quotient.and_then(|quotient| quotient.to_i128());
        match quotient.and_then(|quotient| i64::try_from(quotient).ok()) {
            None => exec_err!("a result of DIV does not fit BIGINT; use floor(a / b)"),
            quotient => Ok(quotient),
        }
    })
}

/// Whether both sides are DECIMALs; if not, they are BIGINTs.
fn are_decimals(args: &Arguments) -> Result<bool> {
    match (args.data_type(0), args.data_type(1)) {
        (DataType::Decimal128(..), DataType::Decimal128(..)) => Ok(true),
        (DataType::Int64, DataType::Int64) => Ok(false),
        (left, right) => internal_err!("{left} DIV {right} was not coerced"),
    }
}

/// What `long` makes of the quotients of two DECIMALs; there is none where they are beyond 256
/// bits.
fn of_decimals(
    args: &Arguments,
    long: impl Fn(Option<i256>) -> Result<Option<i64>>,
) -> Result<ArrayRef> {
    let (DataType::Decimal128(_, left_scale), DataType::Decimal128(_, right_scale)) =
        (args.data_type(0), args.data_type(1))
    else {
        return exec_err!("both sides of DIV are decimals, or none is");
    };
    let (left_scale, right_scale) = (*left_scale, *right_scale);
    let scale = left_scale.max(right_scale);
    let at_one_scale = |value: i128, from: i8| {
        i256::from_i128(value).checked_mul(power_of_ten(u32::try_from(scale - from).ok()?)?)
    };
    let (left, right) = (args.primitive::<Decimal128Type>(0), args.primitive::<Decimal128Type>(1));
    args.primitives::<Int64Type>(|row| match (left.get(row), right.get(row)) {
        (Some(_), Some(0)) => by_zero(),
        (Some(left), Some(right)) => {
            let sides = at_one_scale(left, left_scale).zip(at_one_scale(right, right_scale));
            long(sides.and_then(|(left, right)| left.checked_div(right)))
        }
        _ => Ok(None),
    })
}
