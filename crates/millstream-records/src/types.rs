//! Types by the names that users of Spark SQL know, for messages.

use arrow::datatypes::{DataType, TimeUnit};

/// Spark's name of a column's type.
pub fn spark_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "BOOLEAN".to_owned(),
        DataType::Int8 => "TINYINT".to_owned(),
        DataType::Int16 => "SMALLINT".to_owned(),
        DataType::Int32 => "INT".to_owned(),
        DataType::Int64 => "BIGINT".to_owned(),
        DataType::Float32 => "FLOAT".to_owned(),
        DataType::Float64 => "DOUBLE".to_owned(),
        DataType::Date32 => "DATE".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "TIMESTAMP".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP_NTZ".to_owned(),
        DataType::Decimal128(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BINARY".to_owned(),
        DataType::List(item) => format!("ARRAY<{}>", spark_type(item.data_type())),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                let part = |at: usize| spark_type(fields[at].data_type());
                format!("MAP<{}, {}>", part(0), part(1))
            }
            other => format!("MAP of {other}"),
        },
        DataType::Struct(fields) => {
            let field = |field: &arrow::datatypes::FieldRef| {
                format!("{}: {}", field.name(), spark_type(field.data_type()))
            };
            format!("STRUCT<{}>", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
