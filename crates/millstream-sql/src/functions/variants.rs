//! Functions that make VARIANTs, and say what is in them.

use std::sync::Arc;

use arrow::array::builder::{Int32Builder, StringBuilder};
use arrow::array::{Array, ArrayRef, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::{DFSchema, Result, exec_err, plan_err};
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::define::{Arguments, Function, Param, returns_boolean, returns_text};
use super::variant_casts::{failed, to_variants};
use super::variant_types::can_be_variant;
use crate::types::{holds_variant, is_variant, spark_type, variant};
use crate::variant::schema::{Schema, check_all};
use crate::variant::{Builder, Value, Variants, VariantsBuilder, parse};

/// The function that makes the rows of `variant_explode`.
pub(crate) const ENTRIES: &str = "variant_entries";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("parse_json", &[Param::Text], returns_variant, |args| parsed(args, true)),
    Function::new("try_parse_json", &[Param::Text], returns_variant, |args| parsed(args, false)),
    Function::new("is_variant_null", &[Param::Variant], returns_boolean, is_null),
    Function::new("is_valid_variant", &[Param::Variant], returns_boolean, is_valid),
    Function::new("to_variant_object", &[Param::Any], returns_object, |args| {
        to_variants(&args.expanded(0)?)
    }),
    Function::new("schema_of_variant", &[Param::Variant], returns_text, schema_of_variant),
    Function::new(ENTRIES, &[Param::Variant], |_| Ok(entries_type()), entries),
];

fn returns_variant(_: &[DataType]) -> Result<DataType> {
    Ok(variant())
}

/// Characters of a text in an error.
const SHOWN_MAX: usize = 100;

fn parsed(args: &Arguments, strict: bool) -> Result<ArrayRef> {
    let texts = args.text(0);
    let (mut builder, mut out) = (Builder::default(), VariantsBuilder::default());
    for row in 0..args.rows {
        let Some(text) = texts.get(row) else {
            out.append_null();
            continue;
        };
        let made = match parse(text, &mut builder) {
            Ok(()) => builder.finish(),
            Err(error) => Err(error),
        };
        match made {
            Ok(made) => out.append_made(made).map_err(failed)?,
            Err(_) if !strict => out.append_null(),
            Err(error) => {
                let shown: String = text.chars().take(SHOWN_MAX).collect();
                return exec_err!(
                    "parse_json: '{shown}' is no JSON value (MALFORMED_RECORD_IN_PARSING): \
                     {error}; use try_parse_json to get NULL instead"
                );
            }
        }
    }
    Ok(out.finish())
}

/// Whether a value is a VARIANT null; NULL is none.
fn is_null(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let values = Variants::of(&values);
    args.booleans(|row| {
        let Some(value) = values.get(row).map_err(failed)? else { return Ok(Some(false)) };
        Ok(Some(matches!(value.get().map_err(failed)?, Value::Null)))
    })
}

/// Whether all of a value can be read.
fn is_valid(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let values = Variants::of(&values);
    args.booleans(|row| match values.get(row) {
        Ok(None) => Ok(None),
        Ok(Some(value)) => Ok(Some(check_all(value).is_ok())),
        Err(_) => Ok(Some(false)),
    })
}

fn returns_object(args: &[DataType]) -> Result<DataType> {
    let of = &args[0];
    if is_variant(of) || !of.is_nested() || !can_be_variant(of, true) {
        return plan_err!(
            "to_variant_object takes a STRUCT, an ARRAY or a MAP with STRINGs as keys and got {} \
             (DATATYPE_MISMATCH); write CAST(x AS VARIANT) for a value without parts",
            spark_type(of)
        );
    }
    Ok(variant())
}

fn schema_of_variant(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let values = Variants::of(&values);
    args.write(|row, out| {
        let Some(value) = values.get(row).map_err(failed)? else { return Ok(false) };
        Schema::of(value).map_err(failed)?.write(out);
        Ok(true)
    })
}

fn entry_fields() -> Fields {
    let pos = Field::new("pos", DataType::Int32, true);
    let key = Field::new("key", DataType::Utf8, true);
    vec![pos, key, Field::new("value", variant(), true)].into()
}

fn entries_type() -> DataType {
    DataType::new_list(DataType::Struct(entry_fields()), true)
}

/// The fields of an object or the elements of an array, each with its position; none of anything
/// else.
fn entries(args: &Arguments) -> Result<ArrayRef> {
    let values = args.expanded(0)?;
    let values = Variants::of(&values);
    let (mut positions, mut keys) = (Int32Builder::new(), StringBuilder::new());
    let (mut builder, mut items) = (Builder::default(), VariantsBuilder::default());
    let (mut lengths, mut is_there) = (Vec::new(), Vec::new());
    for row in 0..args.rows {
        let value = values.get(row).map_err(failed)?;
        is_there.push(value.is_some());
        let value = value.map(|value| value.get()).transpose().map_err(failed)?;
        let (found, has_keys) = match value {
            Some(Value::Object(found)) => (found, true),
            Some(Value::Array(found)) => (found, false),
            _ => {
                lengths.push(0);
                continue;
            }
        };
        for at in 0..found.len() {
            positions.append_value(i32::try_from(at).unwrap_or(i32::MAX));
            match has_keys {
                true => keys.append_value(found.key(at).map_err(failed)?),
                false => keys.append_null(),
            }
            builder.clear();
            builder.variant(found.item(at).map_err(failed)?).map_err(failed)?;
            items.append(&mut builder).map_err(failed)?;
        }
        lengths.push(found.len());
    }
    let columns: Vec<ArrayRef> =
        vec![Arc::new(positions.finish()), Arc::new(keys.finish()), items.finish()];
    let entries = StructArray::try_new(entry_fields(), columns, None)?;
    let item = Arc::new(Field::new_list_field(entries.data_type().clone(), true));
    let (offsets, nulls) = (OffsetBuffer::from_lengths(lengths), NullBuffer::from(is_there));
    Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(entries), Some(nulls))?))
}

/// Whether an expression is a VARIANT that comes from no column.
pub(crate) fn makes_variant(expr: &Expr, schema: &DFSchema) -> bool {
    let can_be = match expr {
        Expr::Literal(..) | Expr::Cast(_) | Expr::TryCast(_) | Expr::ScalarVariable(..) => true,
        Expr::ScalarFunction(call) => {
            let name = call.func.name();
            name.starts_with("spark_")
                || name.starts_with("__variable_")
                || name.contains("variant")
                || name.ends_with("parse_json")
        }
        _ => false,
    };
    can_be && expr.get_type(schema).is_ok_and(|of| holds_variant(&of))
}
