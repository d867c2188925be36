//! Types by the names that users of Spark SQL know.

use std::collections::HashMap;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

/// The key in the metadata of a field whose value is the fields of an INTERVAL: `year to month`.
pub const INTERVAL_FIELDS: &str = "millstream.interval";

/// The key in the metadata of a field whose value is the digits of a TIME's fraction, where these
/// are not six.
pub const TIME_DIGITS: &str = "millstream.time";

/// The key in the metadata of a column's field whose value are the collations of its STRINGs: their
/// names with commas between them, in the order in which the STRINGs stand in the type. One that is
/// compared byte by byte has no name there.
pub const COLLATIONS: &str = "millstream.collations";

/// The key in the metadata of the first field of a STRUCT that is a VARIANT.
pub const VARIANT_MARK: &str = "millstream.variant";

/// Spark's `VARIANT`, a value that says itself of which type it is. Arrow lacks it: it is a STRUCT
/// of two BINARYs, a value in the encoding of Spark and Parquet and the names in it, with a mark.
///
/// There is one such type, so that values of it need no casts.
pub fn variant() -> DataType {
    let mark = HashMap::from([(VARIANT_MARK.to_owned(), "1".to_owned())]);
    let value = Field::new("value", DataType::Binary, true).with_metadata(mark);
    DataType::Struct(vec![value, Field::new("metadata", DataType::Binary, true)].into())
}

/// Whether a type is VARIANT.
pub fn is_variant(data_type: &DataType) -> bool {
    let DataType::Struct(fields) = data_type else { return false };
    let is_marked = |field: &Field| field.metadata().contains_key(VARIANT_MARK);
    let is_bytes = |field: &Field| *field.data_type() == DataType::Binary;
    fields.len() == 2 && is_marked(&fields[0]) && is_bytes(&fields[0]) && is_bytes(&fields[1])
}

/// Whether a value of a type has a VARIANT in it.
pub fn holds_variant(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => holds_variant(item.data_type()),
        DataType::Struct(fields) => {
            is_variant(data_type) || fields.iter().any(|field| holds_variant(field.data_type()))
        }
        DataType::Dictionary(_, values) => holds_variant(values),
        _ => false,
    }
}

/// The type of a field in Spark's words: an INTERVAL with its fields, a TIME with its digits, a
/// STRING with its collation.
pub fn field_type(field: &Field) -> String {
    let is_interval = matches!(field.data_type(), DataType::Interval(_) | DataType::Duration(_));
    let collations = field.metadata().get(COLLATIONS);
    match field.metadata().get(INTERVAL_FIELDS) {
        Some(fields) if is_interval => format!("INTERVAL {}", fields.to_uppercase()),
        _ => part(field, &mut collations.map(String::as_str).unwrap_or_default().split(',')),
    }
}

/// The type of a part of a value in Spark's words, a TIME with its digits.
pub fn part_type(field: &Field) -> String {
    part(field, &mut std::iter::empty())
}

/// An Arrow type in Spark's words.
pub fn spark_type(data_type: &DataType) -> String {
    written(data_type, &mut std::iter::empty())
}

/// The type of a part, whose STRINGs have the next ones of `collations`.
fn part(field: &Field, collations: &mut dyn Iterator<Item = &str>) -> String {
    match field.metadata().get(TIME_DIGITS) {
        Some(digits) if matches!(field.data_type(), DataType::Time64(_)) => {
            format!("TIME({digits})")
        }
        _ => written(field.data_type(), collations),
    }
}

fn written(data_type: &DataType, collations: &mut dyn Iterator<Item = &str>) -> String {
    match data_type {
        DataType::Null => "VOID".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => match collations.next() {
            None | Some("") => "STRING".into(),
            Some(name) => format!("STRING COLLATE {name}"),
        },
        DataType::Int8 => "TINYINT".into(),
        DataType::Int16 | DataType::UInt8 => "SMALLINT".into(),
        DataType::Int32 | DataType::UInt16 => "INT".into(),
        DataType::Int64 | DataType::UInt32 => "BIGINT".into(),
        DataType::UInt64 => "DECIMAL(20,0)".into(),
        DataType::Float16 | DataType::Float32 => "FLOAT".into(),
        DataType::Float64 => "DOUBLE".into(),
        DataType::Boolean => "BOOLEAN".into(),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "BINARY".into(),
        DataType::Date32 | DataType::Date64 => "DATE".into(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP".into(),
        DataType::Timestamp(_, None) => "TIMESTAMP_NTZ".into(),
        DataType::Time64(TimeUnit::Microsecond) => "TIME(6)".into(),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => format!("DECIMAL({precision},{scale})"),
        DataType::Duration(TimeUnit::Second) => "INTERVAL DAY".into(),
        DataType::Duration(_) => "INTERVAL DAY TO SECOND".into(),
        DataType::Interval(IntervalUnit::YearMonth) => "INTERVAL YEAR TO MONTH".into(),
        DataType::Interval(_) => "INTERVAL".into(),
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => {
            format!("ARRAY<{}>", written(element.data_type(), collations))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(entry) if entry.len() == 2 => {
                let key = written(entry[0].data_type(), collations);
                format!("MAP<{key}, {}>", written(entry[1].data_type(), collations))
            }
            other => format!("MAP<{}>", written(other, collations)),
        },
        of if is_variant(of) => "VARIANT".into(),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| {
                let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
                format!("{}: {}{not_null}", quoted(field.name()), part(field, collations))
            });
            format!("STRUCT<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Dictionary(_, value) => written(value, collations),
        DataType::RunEndEncoded(_, value) => written(value.data_type(), collations),
        other => other.to_string(),
    }
}

/// A name as it has to be written: in backticks where it is not a plain word.
pub fn quoted(name: &str) -> String {
    let plain = name.chars().all(|ch| ch.is_ascii_alphanumeric() || ch == '_')
        && name.starts_with(|ch: char| ch.is_ascii_alphabetic() || ch == '_');
    if plain { name.to_owned() } else { format!("`{}`", name.replace('`', "``")) }
}
