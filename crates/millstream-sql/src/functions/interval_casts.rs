//! Casts of INTERVALs to numbers, and of numbers, texts and INTERVALs to INTERVALs.
//!
//! A number counts the last field of the INTERVAL's type: 90 as INTERVAL HOUR TO MINUTE is 90
//! minutes. So the fields must be known, which are no part of Arrow's types.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, DurationMicrosecondArray, DurationSecondArray,
    Int64Array, IntervalYearMonthArray,
};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{
    DataType, Decimal128Type, DurationMicrosecondType, DurationSecondType, Field, FieldRef,
    Int64Type, IntervalUnit, IntervalYearMonthType, TimeUnit,
};
use datafusion::common::{DFSchema, Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
};

use super::define::{call, known_by_name, literal_text};
use super::interval_arithmetic::half_up;
use super::interval_literals::{metadata, type_of};
use crate::types::INTERVAL_FIELDS;
use crate::values::calendar::SECOND_US;
use crate::values::interval_literal::{is_of_months, last_unit, of_text};

/// Enough digits for all microseconds.
const MICROSECONDS_DIGITS: u8 = 19;

/// Whether a type is one of INTERVALs of months, or of days and less.
pub(super) fn is_interval(of: &DataType) -> bool {
    matches!(of, DataType::Duration(_) | DataType::Interval(IntervalUnit::YearMonth))
}

/// The functions that a cast to an INTERVAL becomes, with the INTERVAL's fields as its second
/// argument: where a plan is computed elsewhere functions are known by their names.
pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    [CAST, TRY_CAST].map(function)
}

const CAST: &str = "cast_to_interval";
const TRY_CAST: &str = "try_cast_to_interval";

fn function(name: &'static str) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(IntervalCast { name, signature }))
}

/// `expr` cast to the INTERVAL of `to`; NULL where that fails unless `strict`.
pub(super) fn to_interval(expr: Expr, to: &FieldRef, strict: bool) -> Expr {
    let fields = to.metadata().get(INTERVAL_FIELDS).cloned().unwrap_or_default();
    let function = function(if strict { CAST } else { TRY_CAST });
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![expr, lit(fields)]))
}

/// INTERVALs as such of `fields`, which are all that they have.
pub(super) fn with_fields(expr: Expr, fields: &str) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function(CAST), vec![expr, lit(fields)]))
}

/// The fields of the INTERVALs of `expr`: those that it says, or else all that its type has.
pub(super) fn fields_of(expr: &Expr, schema: &DFSchema) -> Option<String> {
    let (_, field) = expr.to_field(schema).ok()?;
    let whole = fields_of_type(field.data_type())?;
    Some(field.metadata().get(INTERVAL_FIELDS).map_or(whole, String::as_str).to_owned())
}

/// The fields of INTERVALs of the type `of` that say none.
pub(super) fn fields_of_type(of: &DataType) -> Option<&'static str> {
    match of {
        DataType::Duration(TimeUnit::Second) => Some("day"),
        DataType::Duration(_) => Some("day to second"),
        DataType::Interval(IntervalUnit::YearMonth) => Some("year to month"),
        _ => None,
    }
}

struct IntervalCast {
    name: &'static str,
    signature: Signature,
}

known_by_name!(IntervalCast);

impl ScalarUDFImpl for IntervalCast {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [of, _] => Ok(vec![of.clone(), DataType::Utf8]),
            _ => plan_err!("{} takes 2 arguments and got {}", self.name, given.len()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of an INTERVAL depends on its fields")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let fields = literal_text(self.name, args.scalar_arguments[1])?;
        let nullable = self.name != CAST || args.arg_fields[0].is_nullable();
        let field = Field::new(self.name, type_of(fields), nullable);
        Ok(Arc::new(field.with_metadata(metadata(fields))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| {
            let fields = arguments.text(1).get(0).unwrap_or_default();
            let (values, strict) = (arguments.expanded(0)?, self.name == CAST);
            to_intervals(&values, fields, &arguments.returns, strict)
        })
    }
}

/// INTERVALs as numbers, which `cast` casts to their type. Without `fields` only days are known to
/// be such.
pub(super) fn to_numbers(
    values: &ArrayRef,
    fields: Option<&str>,
    cast: impl Fn(&ArrayRef) -> Result<ArrayRef>,
    to: &DataType,
) -> Result<ArrayRef> {
    let fields = match (fields, values.data_type()) {
        (Some(fields), _) => fields,
        (None, DataType::Duration(TimeUnit::Second)) => "day",
        (None, of) => {
            let (whole, last) = match of {
                DataType::Interval(_) => ("YEAR TO MONTH", "MONTH"),
                _ => ("DAY TO SECOND", "SECOND"),
            };
            return exec_err!(
                "a cast of this INTERVAL {whole} to a number would count its last field, which is \
                 not known here; write CAST(CAST(x AS INTERVAL {last}) AS ...)"
            );
        }
    };
    let counts = (0..values.len()).map(|row| count(values, row));
    if matches!(to, DataType::Decimal128(..)) && fields.ends_with("second") {
        let us: Decimal128Array = counts.map(|us| us.map(i128::from)).collect();
        let seconds = us.with_precision_and_scale(MICROSECONDS_DIGITS, 6)?;
        return cast(&(Arc::new(seconds) as ArrayRef));
    }
    let unit = last_unit(fields);
    let whole: Int64Array = counts.map(|count| count.map(|count| count / unit)).collect();
    cast(&(Arc::new(whole) as ArrayRef))
}

/// Months or microseconds of an INTERVAL.
fn count(values: &ArrayRef, row: usize) -> Option<i64> {
    if values.is_null(row) {
        return None;
    }
    match values.data_type() {
        DataType::Interval(_) => {
            Some(values.as_primitive::<IntervalYearMonthType>().value(row).into())
        }
        DataType::Duration(TimeUnit::Second) => {
            values.as_primitive::<DurationSecondType>().value(row).checked_mul(SECOND_US)
        }
        _ => Some(values.as_primitive::<DurationMicrosecondType>().value(row)),
    }
}

/// `values` as INTERVALs of `fields`, which have the type `to`. A value that is none is an error if
/// `strict`, else NULL.
pub(super) fn to_intervals(
    values: &ArrayRef,
    fields: &str,
    to: &DataType,
    strict: bool,
) -> Result<ArrayRef> {
    let values = match values.data_type() {
        of if of.is_integer() => arrow_cast(values, &DataType::Int64)?,
        of if of.is_string() || of.is_null() => arrow_cast(values, &DataType::Utf8)?,
        _ => Arc::clone(values),
    };
    let interval = |row: usize| {
        if values.is_null(row) {
            return Ok(None);
        }
        match interval(&values, row, fields)? {
            None if strict => refused(&values, row, fields),
            found => Ok(found),
        }
    };
    let counts = (0..values.len()).map(interval).collect::<Result<Vec<Option<i64>>>>()?;
    let counts = counts.into_iter();
    Ok(match to {
        DataType::Interval(IntervalUnit::YearMonth) => {
            let months = counts.map(|count| count.and_then(|months| i32::try_from(months).ok()));
            Arc::new(months.collect::<IntervalYearMonthArray>())
        }
        DataType::Duration(TimeUnit::Second) => {
            let seconds = counts.map(|us| us.map(|us| us / SECOND_US));
            Arc::new(seconds.collect::<DurationSecondArray>())
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            Arc::new(counts.collect::<DurationMicrosecondArray>())
        }
        other => return internal_err!("{other} is no INTERVAL"),
    })
}

/// The months or microseconds of a value that is not NULL; `None` if it is no such INTERVAL.
fn interval(values: &ArrayRef, row: usize, fields: &str) -> Result<Option<i64>> {
    let unit = last_unit(fields);
    let count = match values.data_type() {
        DataType::Utf8 => of_text(values.as_string::<i32>().value(row), fields),
        DataType::Int64 => values.as_primitive::<Int64Type>().value(row).checked_mul(unit),
        DataType::Decimal128(_, scale) => {
            let unscaled = values.as_primitive::<Decimal128Type>().value(row);
            let scale = 10_i128.pow(scale.unsigned_abs().into());
            let count = unscaled.checked_mul(unit.into()).map(|count| half_up(count, scale));
            count.and_then(|count| i64::try_from(count).ok())
        }
        of if is_interval(of) => count(values, row).map(|count| count / unit * unit),
        other => return internal_err!("{other} is cast to no INTERVAL"),
    };
    let fits = |count: &i64| !is_of_months(fields) || i32::try_from(*count).is_ok();
    Ok(count.filter(fits))
}

fn refused<T>(values: &ArrayRef, row: usize, fields: &str) -> Result<T> {
    let value = ScalarValue::try_from_array(values, row)?;
    let fields = fields.to_uppercase();
    exec_err!(
        "{value} is no INTERVAL {fields}, or too long for one; use try_cast to get NULL instead"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn months(values: ArrayRef, fields: &str) -> Vec<Option<i32>> {
        let to = DataType::Interval(IntervalUnit::YearMonth);
        let found = to_intervals(&values, fields, &to, false).expect("it can be cast");
        found.as_primitive::<IntervalYearMonthType>().iter().collect()
    }

    #[test]
    fn numbers_count_the_last_field() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), None, Some(i64::MAX)]));
        assert_eq!(months(Arc::clone(&numbers), "year"), [Some(24), None, None]);
        assert_eq!(months(numbers, "year to month"), [Some(2), None, None]);
        let halves = Decimal128Array::from(vec![105, -105, 104]);
        let halves = halves.with_precision_and_scale(4, 1).expect("they fit");
        assert_eq!(months(Arc::new(halves), "month"), [Some(11), Some(-11), Some(10)]);
    }

    #[test]
    fn the_fields_of_a_number_must_be_known() {
        let minutes: ArrayRef = Arc::new(DurationMicrosecondArray::from(vec![90_000_000]));
        let of = |fields| {
            let as_it_is = |numbers: &ArrayRef| Ok(Arc::clone(numbers));
            to_numbers(&minutes, fields, as_it_is, &DataType::Int64)
        };
        let found = of(Some("hour to minute")).expect("they are known");
        assert_eq!(found.as_primitive::<Int64Type>().value(0), 1);
        assert!(of(None).is_err());
    }
}
