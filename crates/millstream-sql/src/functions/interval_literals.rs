//! Literals of intervals, whose type says their fields.
//!
//! Arrow's types are those that an interval is computed with: an INTERVAL of months is Arrow's of
//! the same kind, one of days a Duration in seconds, any other a Duration in microseconds. Which
//! fields it has stands in the metadata of its field.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::define::{known_by_name, literal_text};
use crate::types::INTERVAL_FIELDS;
use crate::values::calendar::{DAY_US, SECOND_US};
use crate::values::interval_literal::{INTERVAL_OF, NO_COUNT, is_of_months};

/// `interval_of('count', 'fields')`.
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

fn value_of(count: &str, fields: &str) -> Result<ScalarValue> {
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
    let value = value_of(count, fields)?;
    Ok(Expr::Literal(value, Some(FieldMetadata::from(metadata(fields)))))
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
            [_, _] => Ok(vec![DataType::Utf8; 2]),
            _ => plan_err!("{INTERVAL_OF} takes 2 arguments and got {}", given.len()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of an interval depends on its fields")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let count = literal_text(INTERVAL_OF, args.scalar_arguments[0])?;
        let fields = literal_text(INTERVAL_OF, args.scalar_arguments[1])?;
        let field = Field::new(self.name(), type_of(fields), count == NO_COUNT);
        Ok(Arc::new(field.with_metadata(metadata(fields))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = |at: usize| match &args.args[at] {
            ColumnarValue::Scalar(value) => value.try_as_str().flatten().map(str::to_owned),
            ColumnarValue::Array(_) => None,
        };
        match (text(0), text(1)) {
            (Some(count), Some(fields)) => Ok(ColumnarValue::Scalar(value_of(&count, &fields)?)),
            _ => plan_err!("{INTERVAL_OF} takes literals"),
        }
    }
}
