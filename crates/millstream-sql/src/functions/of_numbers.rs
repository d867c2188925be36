//! Functions of numbers that take text as a number too, as Spark casts it implicitly: `abs`,
//! `negative` and `pmod`. The first two take INTERVALs as well.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, DurationMicrosecondType, DurationSecondType, Field, FieldRef, IntervalUnit,
    IntervalYearMonthType, TimeUnit,
};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion_spark::function::math;

use super::define::{call, known_by_name};
use super::interval_text::MICROSECONDS;

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let function = |inner: Arc<ScalarUDF>| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(OfNumbers { inner, signature }))
    };
    vec![function(math::abs()), function(math::negative()), function(math::pmod())]
}

const NEGATIVE: &str = "negative";

struct OfNumbers {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

known_by_name!(OfNumbers);

impl OfNumbers {
    /// Whether this is `abs` or `negative` of an INTERVAL.
    fn is_of_span(&self, of: Option<&DataType>) -> bool {
        let is_span =
            matches!(of, Some(DataType::Duration(_) | DataType::Interval(IntervalUnit::YearMonth)));
        is_span && matches!(self.name(), "abs" | NEGATIVE)
    }
}

/// The numbers that texts are: beside whole numbers BIGINTs, else DOUBLEs.
fn as_numbers(given: &[DataType]) -> Vec<DataType> {
    let is_whole = |of: &DataType| of.is_signed_integer();
    let of_text = if given.iter().any(is_whole) { DataType::Int64 } else { DataType::Float64 };
    given.iter().map(|of| if of.is_string() { of_text.clone() } else { of.clone() }).collect()
}

impl ScalarUDFImpl for OfNumbers {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if given.len() == 1 && self.is_of_span(given.first()) {
            return Ok(given.to_vec());
        }
        let field = |of| Arc::new(Field::new("argument", of, true));
        let fields: Vec<FieldRef> = as_numbers(given).into_iter().map(field).collect();
        let coerced = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        self.inner.return_type(args)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let first = args.arg_fields.first();
        match first.filter(|field| self.is_of_span(Some(field.data_type()))) {
            // The field says of which parts the INTERVAL is.
            Some(field) => Ok(Arc::new(field.as_ref().clone().with_name(self.name()))),
            None => self.inner.return_field_from_args(args),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if self.is_of_span(args.arg_fields.first().map(|field| field.data_type())) {
            let negates = self.name() == NEGATIVE;
            return call(&args, |arguments| signed(&arguments.expanded(0)?, negates));
        }
        self.inner.invoke_with_args(args)
    }
}

/// INTERVALs without their signs, or with the other ones if that `negates`.
fn signed(values: &ArrayRef, negates: bool) -> Result<ArrayRef> {
    let signed = |count: i64| {
        let found = if negates { count.checked_neg() } else { count.checked_abs() };
        within(found)
    };
    Ok(match values.data_type() {
        DataType::Interval(_) => {
            let months = values.as_primitive::<IntervalYearMonthType>();
            let signed = |months: i32| within(i32::try_from(signed(months.into())?).ok());
            Arc::new(months.try_unary::<_, IntervalYearMonthType, _>(signed)?)
        }
        DataType::Duration(TimeUnit::Second) => {
            let seconds = values.as_primitive::<DurationSecondType>();
            Arc::new(seconds.try_unary::<_, DurationSecondType, _>(signed)?)
        }
        _ => {
            let us = arrow::compute::cast(values, &MICROSECONDS)?;
            let us = us.as_primitive::<DurationMicrosecondType>();
            Arc::new(us.try_unary::<_, DurationMicrosecondType, _>(signed)?)
        }
    })
}

fn within<T>(value: Option<T>) -> Result<T> {
    match value {
        Some(value) => Ok(value),
        None => exec_err!("the least INTERVAL without its minus is longer than an INTERVAL can be"),
    }
}
