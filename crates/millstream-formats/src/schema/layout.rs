//! Columns in the one layout that encoders know.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};

/// The columns without views, large offsets and dictionaries. Values stay the same.
pub(super) fn plain(columns: &Schema) -> Schema {
    Schema::new(columns.fields().iter().map(plain_field).collect::<Vec<_>>())
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let plain = plain_type(field.data_type());
    Arc::new(Field::new(field.name(), plain, field.is_nullable()))
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::Int64,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(plain_field(item))
        }
        DataType::Map(entries, sorted) => DataType::Map(plain_field(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        other => other.clone(),
    }
}
