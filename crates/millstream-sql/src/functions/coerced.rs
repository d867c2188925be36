//! Functions of DataFusion's that are right but for what they take: their arguments are cast to
//! what Spark casts them to, where they would be refused.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::functions::{string, unicode};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion_spark::function as spark;

use super::define::{Param, known_by_name};

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
        of(unicode::translate(), &[Text, Text, Text], &[]),
        of(spark::string::soundex(), &[Text], &[]),
        of(spark::string::space(), &[Int], &[]),
        of(spark::datetime::last_day(), &[Date], &[]),
        of(spark::math::bin(), &[Long], &[]),
        with_optional(string::btrim(), &[Text, Text], 1),
        with_optional(string::ltrim(), &[Text, Text], 1),
        with_optional(string::rtrim(), &[Text, Text], 1),
    ]
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
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}
