//! `variant_get(v, path[, type])` and `try_variant_get`: a part of a VARIANT as a type.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_datafusion_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::cast::cast;
use super::define::{Arguments, Param, call, known_by_name, literal_text};
use super::types::type_of;
use super::variant_casts::{Target, failed};
use super::variant_types::can_be_variant;
use crate::types::{spark_type, variant};
use crate::variant::path::{Step, find, parse};
use crate::variant::{Variant, Variants};

/// What `v:a.b` is a call of.
pub(crate) const GET: &str = "variant_get";
const TRY_GET: &str = "try_variant_get";

/// Both functions, for registration.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let function = |name| {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::from(Get { name, signature }))
    };
    vec![function(GET), function(TRY_GET)]
}

struct Get {
    name: &'static str,
    signature: Signature,
}

known_by_name!(Get);

impl ScalarUDFImpl for Get {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let Some((of, texts)) =
            given.split_first().filter(|(_, texts)| matches!(texts.len(), 1..=2))
        else {
            let (name, count) = (self.name, given.len());
            return plan_err!("{name} takes a VARIANT, a path and perhaps a type, not {count}");
        };
        let texts = texts.iter().map(|_| DataType::Utf8);
        Ok(std::iter::once(Param::Variant.coerced(of)?).chain(texts).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        plan_err!("the type of {} depends on its arguments' values", self.name)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let to = match args.scalar_arguments.get(2) {
            None => variant(),
            Some(ddl) => {
                let ddl = literal_text(self.name, *ddl)?;
                type_of(ddl).map_err(|error| plan_datafusion_err!("{}: {error}", self.name))?
            }
        };
        if !can_be_variant(&to, true) {
            let (name, to) = (self.name, spark_type(&to));
            return plan_err!("{name}: a VARIANT cannot be cast to {to} (DATATYPE_MISMATCH)");
        }
        if let Some(Some(path)) = args.scalar_arguments[1].and_then(|path| path.try_as_str()) {
            self.steps(path)?;
        }
        Ok(Arc::new(Field::new(self.name, to, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        call(&args, |arguments| self.parts(arguments))
    }
}

impl Get {
    fn steps(&self, path: &str) -> Result<Vec<Step>> {
        match parse(path) {
            Some(steps) => Ok(steps),
            None => exec_err!(
                "{}: '{path}' is no path (INVALID_VARIANT_GET_PATH); write $, and behind it keys \
                 and numbers of elements, as in $.a[0]['b c']",
                self.name
            ),
        }
    }

    fn parts(&self, args: &Arguments) -> Result<ArrayRef> {
        let values = args.expanded(0)?;
        let (variants, paths) = (Variants::of(&values), args.text(1));
        let mut last: Option<(&str, Vec<Step>)> = None;
        let mut found: Vec<Option<Variant<'_>>> = Vec::with_capacity(args.rows);
        for row in 0..args.rows {
            let value = variants.get(row).map_err(failed)?;
            let (Some(value), Some(path)) = (value, paths.get(row)) else {
                found.push(None);
                continue;
            };
            if last.as_ref().is_none_or(|(known, _)| *known != path) {
                last = Some((path, self.steps(path)?));
            }
            let steps = last.as_ref().map_or(&[][..], |(_, steps)| steps.as_slice());
            found.push(find(value, steps).map_err(failed)?);
        }
        let target = Target { strict: self.name == GET, cast, items_max: variants.length() };
        target.values(&found, &args.returns)
    }
}
