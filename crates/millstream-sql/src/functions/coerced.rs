//! Functions of DataFusion's that are right but for what they take: their arguments are cast to
//! what Spark casts them to, where they would be refused.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, DurationMicrosecondType, DurationSecondType, Field, FieldRef, IntervalUnit,
    IntervalYearMonthType, TimeUnit,
};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::functions::{string, unicode};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion_spark::function as spark;

use super::define::{Param, call, known_by_name};
use super::interval_text::MICROSECONDS;

use Param::{Date, Int, Long, Text};

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of = |inner: Arc<ScalarUDF>, params: &'static [Param], aliases: &[&str]| {
        let aliases = aliases.iter().map(|&alias| alias.to_owned());
        let aliases = aliases.chain(inner.aliases().iter().cloned()).collect();
        let signature = Signature::user_defined(inner.signature().volatility);
        Arc::new(ScalarUDF::from(Coerced {
            inner,
            params,
            required: params.len(),
            aliases,
            signature,
        }))
    };
    let with_optional = |inner, params: &'static [Param], required| {
        let volatility = Volatility::Immutable;
        let inner: Arc<ScalarUDF> = inner;
        let (aliases, signature) = (inner.aliases().to_vec(), Signature::user_defined(volatility));
        Arc::new(ScalarUDF::from(Coerced { inner, params, required, aliases, signature }))
    };
    vec![
        of(string::lower(), &[Text], &["lcase"]),
        of(string::upper(), &[Text], &["ucase"]),
        of(string::repeat(), &[Text, Long], &[]),
        of(string::ascii(), &[Text], &[]),
        of(string::levenshtein(), &[Text, Text], &[]),
        of(unicode::translate(), &[Text, Text, Text], &[]),
        of(unicode::substr_index(), &[Text, Text, Long], &[]),
        of(spark::string::soundex(), &[Text], &[]),
        of(spark::string::space(), &[Int], &[]),
        of(spark::datetime::last_day(), &[Date], &[]),
        of(spark::math::bin(), &[Long], &[]),
        with_optional(string::btrim(), &[Text, Text], 1),
        with_optional(string::ltrim(), &[Text, Text], 1),
        with_optional(string::rtrim(), &[Text, Text], 1),
        of_numbers(spark::math::abs()),
        of_numbers(spark::math::pmod()),
    ]
}

/// A function of numbers that takes text as a number too.
fn of_numbers(inner: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(OfNumbers { inner, signature }))
}

struct OfNumbers {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

known_by_name!(OfNumbers);

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
        if self.is_of_span(given.first()) {
            return Ok(given.to_vec());
        }
        let fields = as_numbers(given).into_iter();
        let fields: Vec<FieldRef> =
            fields.map(|of| Arc::new(Field::new("argument", of, true))).collect();
        let coerced = fields_with_udf(&fields, self.inner.as_ref())?;
        Ok(coerced.iter().map(|field| field.data_type().clone()).collect())
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        self.inner.return_type(args)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}

struct Coerced {
    inner: Arc<ScalarUDF>,
    params: &'static [Param],
    required: usize,
    aliases: Vec<String>,
    signature: Signature,
}

known_by_name!(Coerced);

impl ScalarUDFImpl for Coerced {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if !(self.required..=self.params.len()).contains(&given.len()) {
            let (name, most) = (self.name(), self.params.len());
            return plan_err!("{name} takes up to {most} arguments and got {}", given.len());
        }
        given.iter().zip(self.params).map(|(given, param)| param.coerced(given)).collect()
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
            return call(&args, |arguments| absolute(&arguments.expanded(0)?));
        }
        self.inner.invoke_with_args(args)
    }
}

impl OfNumbers {
    /// Whether this is `abs` of an INTERVAL.
    fn is_of_span(&self, of: Option<&DataType>) -> bool {
        let is_span =
            matches!(of, Some(DataType::Duration(_) | DataType::Interval(IntervalUnit::YearMonth)));
        is_span && self.name() == "abs"
    }
}

/// INTERVALs without their signs.
fn absolute(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        DataType::Interval(_) => Arc::new(
            values
                .as_primitive::<IntervalYearMonthType>()
                .try_unary::<_, IntervalYearMonthType, _>(|months| {
                    positive(months.checked_abs())
                })?,
        ),
        DataType::Duration(TimeUnit::Second) => Arc::new(
            values
                .as_primitive::<DurationSecondType>()
                .try_unary::<_, DurationSecondType, _>(|seconds| positive(seconds.checked_abs()))?,
        ),
        _ => {
            let us = arrow::compute::cast(values, &MICROSECONDS)?;
            let us = us.as_primitive::<DurationMicrosecondType>();
            Arc::new(
                us.try_unary::<_, DurationMicrosecondType, _>(|us| positive(us.checked_abs()))?,
            )
        }
    })
}

fn positive<T>(value: Option<T>) -> Result<T> {
    match value {
        Some(value) => Ok(value),
        None => exec_err!("abs of the least INTERVAL is longer than an INTERVAL can be"),
    }
}
