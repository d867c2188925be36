//! `coalesce`, `nvl` and `array`: their arguments have a common type by Spark's rules as soon as a
//! query is planned.
//!
//! Types are coerced to it later, by [`common_types`](super::common_types). But DataFusion gives a
//! call its type before, by rules of its own, and refuses a DATE beside a text there.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::functions::core::coalesce;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use datafusion_spark::function::array::array;

use super::common_types::spark_type_of_all;
use super::define::known_by_name;

/// The functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let of =
        |name, inner| Arc::new(ScalarUDF::from(OfOneType { name, inner, aliases: Vec::new() }));
    let nvl = OfOneType { name: NVL, inner: coalesce(), aliases: vec!["ifnull".to_owned()] };
    vec![of("coalesce", coalesce()), of("array", array()), Arc::new(ScalarUDF::from(nvl))]
}

/// `coalesce` of two values. DataFusion's own gives them a type by other rules.
const NVL: &str = "nvl";

struct OfOneType {
    name: &'static str,
    inner: Arc<ScalarUDF>,
    aliases: Vec<String>,
}

known_by_name!(OfOneType);

impl ScalarUDFImpl for OfOneType {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        if self.name == NVL && given.len() != 2 {
            return plan_err!("{NVL} takes 2 arguments, not {} (WRONG_NUM_ARGS)", given.len());
        }
        let mut known = given.iter().filter(|of| !of.is_null());
        // Beside NULLs any type stays what it is.
        if let Some(first) = known.next()
            && known.all(|other| other == first)
        {
            return Ok(vec![first.clone(); given.len()]);
        }
        match spark_type_of_all(given) {
            Some(common) => Ok(vec![common; given.len()]),
            None => self.inner.coerce_types(given),
        }
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        self.inner.return_type(args)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(args, context)
    }

    fn short_circuits(&self) -> bool {
        self.inner.short_circuits()
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.inner.conditional_arguments(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.inner.invoke_with_args(args)
    }
}
