//! Which column of a table a column of the query goes to, and as what.
//!
//! | query | table | sent as (Arrow) |
//! |---|---|---|
//! | TINYINT to BIGINT | INT64 | Int64 |
//! | FLOAT, DOUBLE | FLOAT64 | Float64 |
//! | DECIMAL of at most 29 digits before the point and 9 behind | NUMERIC | Decimal128(38, 9) |
//! | any other DECIMAL | BIGNUMERIC | Decimal256(76, 38) |
//! | STRING | STRING, JSON, GEOGRAPHY | Utf8 |
//! | BINARY | BYTES | Binary |
//! | BOOLEAN, DATE | BOOL, DATE | Boolean, Date32 |
//! | TIMESTAMP, TIMESTAMP_NTZ | TIMESTAMP, DATETIME | Timestamp(us, UTC), Timestamp(us) |
//! | ARRAY | REPEATED | List |
//! | STRUCT | RECORD | Struct |
//! | MAP | REPEATED RECORD of `key` and `value` | List of Struct |

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use millstream_sql::types::spark_type;

use super::columns::{Column, Kind, Mode};

/// Digits before the point that a NUMERIC has.
const NUMERIC_WHOLE_DIGITS: i16 = 29;
/// Digits behind it.
const NUMERIC_SCALE: i8 = 9;
/// What a BIGNUMERIC is sent as: all of its values fit.
const BIGNUMERIC: DataType = DataType::Decimal256(76, 38);
/// The fields of a record that holds an entry of a map.
const ENTRY: [&str; 2] = ["key", "value"];

/// Why a column cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// The column, with the fields that lead into it.
    pub(super) column: String,
    /// What is wrong with it.
    pub(super) problem: String,
    /// What to do about it.
    pub(super) remedy: String,
}

impl Mismatch {
    fn new(column: &str, problem: String, remedy: String) -> Self {
        Self { column: column.to_owned(), problem, remedy }
    }

    fn within(mut self, outer: &str) -> Self {
        self.column = format!("{outer}.{}", self.column);
        self
    }
}

/// The column that a table gets that is created for a query with the column `field`.
///
/// # Errors
/// Its type has no counterpart in BigQuery.
pub(super) fn column_for(field: &Field) -> Result<Column, Mismatch> {
    let mode = if field.is_nullable() { Mode::Nullable } else { Mode::Required };
    let name = field.name();
    let plain = |kind| Ok(Column { mode, ..Column::nullable(name, kind) });
    match field.data_type() {
        DataType::Dictionary(_, value) => {
            column_for(&field.clone().with_data_type(value.as_ref().clone()))
        }
        DataType::List(element) | DataType::LargeList(element) => {
            if is_list(element.data_type()) {
                return Err(nested_list(name));
            }
            let column = column_for(&element.as_ref().clone().with_name(name))?;
            Ok(Column { mode: Mode::Repeated, ..column })
        }
        DataType::Map(entries, _) => {
            let fields = entry_fields(entries).map_err(|mismatch| mismatch.within(name))?;
            Ok(Column { mode: Mode::Repeated, fields, ..Column::nullable(name, Kind::Record) })
        }
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| column_for(field));
            let fields: Result<Vec<_>, _> = fields.collect();
            let fields = fields.map_err(|mismatch| mismatch.within(name))?;
            Ok(Column { mode, fields, ..Column::nullable(name, Kind::Record) })
        }
        DataType::Null => Err(Mismatch::new(
            name,
            "it is always NULL and has no type".to_owned(),
            format!("write CAST(NULL AS type) AS {name}, with the type of the column"),
        )),
        other => match kind_for(other) {
            Some(kind) => plain(kind),
            None => Err(Mismatch::new(
                name,
                format!("BigQuery has no column for {}", spark_type(other)),
                "write it as STRING, with CAST or to_json".to_owned(),
            )),
        },
    }
}

fn entry_fields(entries: &Field) -> Result<Vec<Column>, Mismatch> {
    let DataType::Struct(entry) = entries.data_type() else {
        unreachable!("the entries of a map are a struct of two")
    };
    let fields = entry.iter().zip(ENTRY).map(|(field, name)| {
        // A list may be a value, as a field of the record.
        column_for(&field.as_ref().clone().with_name(name))
    });
    fields.collect()
}

fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::Map(..))
}

fn nested_list(name: &str) -> Mismatch {
    Mismatch::new(
        name,
        "BigQuery has no array of arrays or maps".to_owned(),
        format!("wrap the inner one, as in transform({name}, x -> struct(x AS items))"),
    )
}

/// The type of a value without parts; `None` where BigQuery has none for it.
fn kind_for(data_type: &DataType) -> Option<Kind> {
    Some(match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Kind::Int64,
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => Kind::Int64,
        DataType::UInt64 => Kind::Numeric,
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Kind::Float64,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::String,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Kind::Bytes,
        DataType::Boolean => Kind::Bool,
        DataType::Date32 => Kind::Date,
        DataType::Timestamp(_, Some(_)) => Kind::Timestamp,
        DataType::Timestamp(_, None) => Kind::DateTime,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => {
            let is_small = *scale <= NUMERIC_SCALE
                && i16::from(*precision) - i16::from(*scale) <= NUMERIC_WHOLE_DIGITS;
            if is_small { Kind::Numeric } else { Kind::BigNumeric }
        }
        _ => return None,
    })
}

/// Where the columns of a query go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mapping {
    /// For each column of the query, in its order, its column of the table; not nullable where the
    /// table requires a value.
    pub(super) checked: SchemaRef,
    /// The same as it is sent: everything may be NULL, since what must not be was checked.
    pub(super) sent: SchemaRef,
}

/// Matches the columns of a query with those of a table, by name and without case.
///
/// # Errors
/// A column is not there, is there with another type, or must have a value and gets none.
pub(super) fn map(query: &Schema, table: &[Column]) -> Result<Mapping, Mismatch> {
    let fields = struct_fields(query.fields(), table, "the table")?;
    let sent = relaxed_fields(&fields);
    Ok(Mapping { checked: Arc::new(Schema::new(fields)), sent: Arc::new(Schema::new(sent)) })
}

/// `data_type` where everything may be NULL.
pub(super) fn relaxed(data_type: &DataType) -> DataType {
    match data_type {
        DataType::List(element) => {
            DataType::List(Arc::new(Field::new("item", relaxed(element.data_type()), true)))
        }
        DataType::Struct(fields) => DataType::Struct(relaxed_fields(fields)),
        plain => plain.clone(),
    }
}

/// `fields` where everything may be NULL.
pub(super) fn relaxed_fields(fields: &Fields) -> Fields {
    let relax = |field: &Arc<Field>| Field::new(field.name(), relaxed(field.data_type()), true);
    fields.iter().map(relax).collect()
}

fn struct_fields(query: &Fields, table: &[Column], whole: &str) -> Result<Fields, Mismatch> {
    let mut fields: Vec<Field> = Vec::with_capacity(query.len());
    for field in query {
        let is_it = |column: &&Column| column.name.eq_ignore_ascii_case(field.name());
        let Some(column) = table.iter().find(is_it) else {
            let names: Vec<&str> = table.iter().map(|column| column.name.as_str()).collect();
            return Err(Mismatch::new(
                field.name(),
                format!("{whole} has no such column"),
                format!("its columns are {}; add it there, or leave it out", names.join(", ")),
            ));
        };
        if fields.iter().any(|other| other.name().eq_ignore_ascii_case(&column.name)) {
            let remedy = "give one of them another name; BigQuery ignores case".to_owned();
            return Err(Mismatch::new(field.name(), "it is there twice".to_owned(), remedy));
        }
        fields.push(sent_field(field, column)?);
    }
    let is_given = |column: &Column| {
        fields.iter().any(|field| field.name().eq_ignore_ascii_case(&column.name))
    };
    if let Some(missing) = table.iter().find(|column| column.needs_value() && !is_given(column)) {
        return Err(Mismatch::new(
            &missing.name,
            format!("{whole} requires a value in it (mode REQUIRED), and the query has none"),
            "select a column of that name, or relax the mode to NULLABLE".to_owned(),
        ));
    }
    Ok(fields.into())
}

/// What is sent for a column of the query that goes to `column`.
fn sent_field(field: &Field, column: &Column) -> Result<Field, Mismatch> {
    let found = match field.data_type() {
        DataType::Dictionary(_, value) => value.as_ref(),
        other => other,
    };
    let is_nullable = column.mode != Mode::Required;
    let sent = |data_type| Ok(Field::new(&column.name, data_type, is_nullable));
    if *found == DataType::Null && is_nullable {
        let element = element_type(column)?;
        let data_type = if column.mode == Mode::Repeated { list(element) } else { element };
        return sent(data_type);
    }
    match (found, column.mode) {
        (DataType::List(element) | DataType::LargeList(element), Mode::Repeated) => {
            if is_list(element.data_type()) {
                return Err(nested_list(field.name()));
            }
            let one = Column { mode: Mode::Required, ..column.clone() };
            let element = sent_field(&element.as_ref().clone().with_name(field.name()), &one)?;
            Ok(Field::new(&column.name, list(element.data_type().clone()), false))
        }
        (DataType::Map(entries, _), Mode::Repeated) if column.kind == Kind::Record => {
            let DataType::Struct(entry) = entries.data_type() else {
                unreachable!("the entries of a map are a struct of two")
            };
            let named = entry.iter().zip(ENTRY);
            let named: Fields =
                named.map(|(field, name)| field.as_ref().clone().with_name(name)).collect();
            let entry = struct_fields(&named, &column.fields, "the record")
                .map_err(|mismatch| mismatch.within(&column.name))?;
            Ok(Field::new(&column.name, list(DataType::Struct(entry)), false))
        }
        (DataType::Struct(fields), Mode::Nullable | Mode::Required)
            if column.kind == Kind::Record =>
        {
            let fields = struct_fields(fields, &column.fields, "the record")
                .map_err(|mismatch| mismatch.within(&column.name))?;
            sent(DataType::Struct(fields))
        }
        (plain, Mode::Nullable | Mode::Required) if takes(&column.kind, plain) => {
            sent(element_type(column)?)
        }
        _ => Err(Mismatch::new(
            field.name(),
            format!(
                "it is {} in the query and {} in the table",
                spark_type(found),
                column.sql_type()
            ),
            remedy(&column.kind, column.mode),
        )),
    }
}

/// What the query may do, to fit the column.
fn remedy(kind: &Kind, mode: Mode) -> String {
    let spark = match kind {
        _ if mode == Mode::Repeated => return "select an ARRAY of the column's type".to_owned(),
        Kind::String | Kind::Json | Kind::Geography => "STRING",
        Kind::Bytes => "BINARY",
        Kind::Int64 => "BIGINT",
        Kind::Float64 => "DOUBLE",
        Kind::Numeric => "DECIMAL(38,9)",
        Kind::BigNumeric => "DECIMAL(38,18)",
        Kind::Bool => "BOOLEAN",
        Kind::Timestamp => "TIMESTAMP",
        Kind::DateTime => "TIMESTAMP_NTZ",
        Kind::Date => "DATE",
        Kind::Record => return "select a STRUCT with the record's fields".to_owned(),
        Kind::Other(name) => return format!("{name} cannot be written; leave the column out"),
    };
    format!("write CAST(... AS {spark}), or change the table's column")
}

/// Whether a column of `kind` takes values of `data_type`, without loss.
fn takes(kind: &Kind, data_type: &DataType) -> bool {
    let Some(own) = kind_for(data_type) else { return false };
    match (&own, kind) {
        (own, kind) if own == kind => true,
        (Kind::String, Kind::Json | Kind::Geography) => true,
        (Kind::Int64, Kind::Numeric | Kind::BigNumeric) => true,
        (Kind::Numeric, Kind::BigNumeric) => true,
        _ => false,
    }
}

/// What a value of the column is sent as, or an element of one that is repeated.
fn element_type(column: &Column) -> Result<DataType, Mismatch> {
    Ok(match &column.kind {
        Kind::String | Kind::Json | Kind::Geography => DataType::Utf8,
        Kind::Bytes => DataType::Binary,
        Kind::Int64 => DataType::Int64,
        Kind::Float64 => DataType::Float64,
        Kind::Numeric => DataType::Decimal128(38, NUMERIC_SCALE),
        Kind::BigNumeric => BIGNUMERIC,
        Kind::Bool => DataType::Boolean,
        Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Kind::DateTime => DataType::Timestamp(TimeUnit::Microsecond, None),
        Kind::Date => DataType::Date32,
        Kind::Record => {
            let fields = column.fields.iter().map(|field| {
                let element = element_type(field)?;
                let is_repeated = field.mode == Mode::Repeated;
                let data_type = if is_repeated { list(element) } else { element };
                Ok(Field::new(&field.name, data_type, true))
            });
            DataType::Struct(fields.collect::<Result<Fields, Mismatch>>()?)
        }
        Kind::Other(name) => {
            let problem = format!("{name} cannot be written");
            return Err(Mismatch::new(&column.name, problem, "leave the column out".to_owned()));
        }
    })
}

fn list(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", element, false)))
}

#[cfg(test)]
mod tests;
