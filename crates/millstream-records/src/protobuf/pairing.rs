//! How columns find the fields they are paired with, which decoding and encoding have in common.

use arrow::datatypes::{DataType, Field as ArrowField, FieldRef};
use prost_reflect::{FieldDescriptor, MessageDescriptor};

use super::mapping::declared_fields;
use super::wire::MAX_DEPTH;

/// The field of a message that a column is paired with: that of the same name, else the only one
/// whose name differs in case.
///
/// # Errors
/// The names of several.
pub(super) fn field_named(
    message: &MessageDescriptor,
    column: &str,
) -> Result<Option<FieldDescriptor>, Vec<String>> {
    if let Some(field) = message.get_field_by_name(column) {
        return Ok(Some(field));
    }
    let lower = column.to_lowercase();
    let fields = declared_fields(message).filter(|field| field.name().to_lowercase() == lower);
    let mut fields: Vec<FieldDescriptor> = fields.collect();
    match fields.len() {
        0 | 1 => Ok(fields.pop()),
        _ => Err(fields.iter().map(|field| field.name().to_owned()).collect()),
    }
}

/// True when columns are nested deeper than values can be.
pub(super) fn is_too_deep(path: &[String]) -> bool {
    path.len() > MAX_DEPTH
}

/// The columns of a struct.
pub(super) fn struct_fields(field: &ArrowField) -> Option<&[FieldRef]> {
    match field.data_type() {
        DataType::Struct(fields) => Some(fields),
        _ => None,
    }
}
