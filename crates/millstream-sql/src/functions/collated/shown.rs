//! A column of a result that says which collations it has, for those who ask for its type.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::super::define::{known_by_name, literal_text};
use crate::types::COLLATIONS;

/// The value as it is; the second argument is what the field says of its collations.
pub(crate) const SHOWN: &str = "__collated";

/// The function.
pub(super) fn shown() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Shown { signature: Signature::any(2, Volatility::Immutable) }))
}

struct Shown {
    signature: Signature,
}

known_by_name!(Shown);

impl ScalarUDFImpl for Shown {
    fn name(&self) -> &str {
        SHOWN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args {
            [of, _] => Ok(of.clone()),
            _ => plan_err!("{SHOWN} takes 2 arguments and got {}", args.len()),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let (of, names) = (&args.arg_fields[0], literal_text(SHOWN, args.scalar_arguments[1])?);
        let mut metadata = of.metadata().clone();
        metadata.insert(COLLATIONS.to_owned(), names.to_owned());
        let field = Field::new(self.name(), of.data_type().clone(), of.is_nullable());
        Ok(Arc::new(field.with_metadata(metadata)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(args.args[0].clone())
    }
}
