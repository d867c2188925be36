//! Literals of intervals, whose type says their fields.
//!
//! Arrow's types are those that an interval is computed with: an INTERVAL of months is Arrow's of
//! the same kind, one of days a Duration in seconds, any other a Duration in microseconds. Which
//! fields it has stands in the metadata of its field.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNano, IntervalUnit, TimeUnit};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{known_by_name, literal_text};
use crate::types::INTERVAL_FIELDS;
use crate::values::calendar::{DAY_US, SECOND_US};
use crate::values::interval_literal::{INTERVAL_OF, NO_COUNT, is_of_months};

/// `interval_of('count', 'fields')`, or with 'calendar' behind them.
pub(super) struct IntervalOf {
    signature: Signature,
}

known_by_name!(IntervalOf);

impl IntervalOf {
    pub fn udf() -> Arc<ScalarUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Self { signature }))
    }
}

/// The type of intervals of these fields.
pub(super) fn type_of(fields: &str) -> DataType {
    match fields {
        fields if is_of_months(fields) => DataType::Interval(IntervalUnit::YearMonth),
        "day" => DataType::Duration(TimeUnit::Second),
        _ => DataType::Duration(TimeUnit::Microsecond),
    }
}

/// The value; with months, days and less in one if it is `calendar`.
fn value_of(count: &str, fields: &str, calendar: bool) -> Result<ScalarValue> {
    let value = plain_value_of(count, fields)?;
    if !calendar {
        return Ok(value);
    }
    let of = IntervalMonthDayNano::new;
    let nanoseconds = |us: i64| us.checked_mul(1000);
    let value = match value {
        ScalarValue::IntervalYearMonth(Some(months)) => Some(of(months, 0, 0)),
        ScalarValue::DurationSecond(Some(seconds)) => {
            i32::try_from(seconds / (DAY_US / SECOND_US)).ok().map(|days| of(0, days, 0))
        }
        ScalarValue::DurationMicrosecond(Some(us)) => nanoseconds(us).map(|ns| of(0, 0, ns)),
        _ => None,
    };
    match value {
        Some(value) => Ok(ScalarValue::IntervalMonthDayNano(Some(value))),
        None => exec_err!("the interval is too long"),
    }
}

fn plain_value_of(count: &str, fields: &str) -> Result<ScalarValue> {
    if count == NO_COUNT {
        return ScalarValue::try_from(type_of(fields));
    }
    let too_long = || exec_datafusion_err!("the interval is too long");
    let count: i64 = count.parse().map_err(|_| too_long())?;
    Ok(match type_of(fields) {
        DataType::Interval(_) => {
            ScalarValue::IntervalYearMonth(Some(i32::try_from(count).map_err(|_| too_long())?))
        }
        DataType::Duration(TimeUnit::Second) => {
            ScalarValue::DurationSecond(Some(count / DAY_US * (DAY_US / SECOND_US)))
        }
        _ => ScalarValue::DurationMicrosecond(Some(count)),
    })
}

/// What a field says of its intervals' fields.
pub(super) fn metadata(fields: &str) -> HashMap<String, String> {
    HashMap::from([(INTERVAL_FIELDS.to_owned(), fields.to_owned())])
}

/// The literal that a call of [`INTERVAL_OF`] stands for; any other expression as it is.
pub(super) fn literal(expr: Expr) -> Result<Expr> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = &expr else { return Ok(expr) };
    if func.name() != INTERVAL_OF {
        return Ok(expr);
    }
    let text = |at: usize| match args.get(at) {
        Some(Expr::Literal(value, _)) => value.try_as_str().flatten(),
        _ => None,
    };
    let (Some(count), Some(fields)) = (text(0), text(1)) else { return Ok(expr) };
    let calendar = args.len() > 2;
    let value = value_of(count, fields, calendar)?;
    let metadata = (!calendar).then(|| FieldMetadata::from(metadata(fields)));
    Ok(Expr::Literal(value, metadata))
}

impl ScalarUDFImpl for IntervalOf {
    fn name(&self) -> &str {
        INTERVAL_OF
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [_, _] | [_, _, _] => Ok(vec![DataType::Utf8; given.len()]),
            _ => plan_err!("{INTERVAL_OF} takes 2 or 3 arguments and got {}", given.len()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of an interval depends on its fields")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let count = literal_text(INTERVAL_OF, args.scalar_arguments[0])?;
        let fields = literal_text(INTERVAL_OF, args.scalar_arguments[1])?;
        if args.arg_fields.len() > 2 {
            let of = DataType::Interval(IntervalUnit::MonthDayNano);
            return Ok(Arc::new(Field::new(self.name(), of, false)));
        }
        let field = Field::new(self.name(), type_of(fields), count == NO_COUNT);
        Ok(Arc::new(field.with_metadata(metadata(fields))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = |at: usize| match &args.args[at] {
            ColumnarValue::Scalar(value) => value.try_as_str().flatten().map(str::to_owned),
            ColumnarValue::Array(_) => None,
        };
        match (text(0), text(1)) {
            (Some(count), Some(fields)) => {
                let value = value_of(&count, &fields, args.args.len() > 2)?;
                Ok(ColumnarValue::Scalar(value))
            }
            _ => plan_err!("{INTERVAL_OF} takes literals"),
        }
    }
}
