//! Which types become a VARIANT, and which a VARIANT becomes.

use arrow::datatypes::{DataType, TimeUnit};

use crate::types::is_variant;

/// Whether a VARIANT is cast to a type, or a type to it. Only `to_variant_object` makes one of
/// STRUCTs and MAPs, whose fields then have no order any more: these are for it and for the way
/// back.
pub(super) fn can_be_variant(of: &DataType, with_fields: bool) -> bool {
    match of {
        of if is_variant(of) => true,
        of if of.is_string() || of.is_signed_integer() => true,
        DataType::Boolean
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Binary
        | DataType::Date32
        | DataType::Timestamp(TimeUnit::Microsecond, _) => true,
        DataType::List(item) => can_be_variant(item.data_type(), with_fields),
        DataType::Map(entries, _) if with_fields => match entries.data_type() {
            DataType::Struct(parts) => {
                parts[0].data_type().is_string() && can_be_variant(parts[1].data_type(), true)
            }
            _ => false,
        },
        DataType::Struct(fields) if with_fields => {
            fields.iter().all(|field| can_be_variant(field.data_type(), true))
        }
        _ => false,
    }
}
