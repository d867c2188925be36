//! Spark's words for types, and Arrow's types for them.
//!
//! `TIMESTAMP` is a moment (microseconds, UTC), `TIMESTAMP_NTZ` a reading of a clock on a wall.
//! A decimal without precision is `DECIMAL(10, 0)`. [`collations`] are those of STRINGs.

pub mod collation;
pub mod collations;
pub(crate) mod planner;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, TimeUnit};
use datafusion::sql::sqlparser::tokenizer::Token;

use collation::Collation;

pub use millstream_records::types::{
    COLLATIONS, INTERVAL_FIELDS, TIME_DIGITS, field_type, holds_variant, is_variant, part_type,
    quoted, spark_type, variant,
};

use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::nearest::nearest;
use crate::syntax::cursor::{Cursor, Name};
use crate::syntax::lexer::Lexed;

/// Names of types without parameters.
const SIMPLE: &[(&str, DataType)] = &[
    ("STRING", DataType::Utf8),
    ("INT", DataType::Int32),
    ("INTEGER", DataType::Int32),
    ("BIGINT", DataType::Int64),
    ("LONG", DataType::Int64),
    ("SMALLINT", DataType::Int16),
    ("SHORT", DataType::Int16),
    ("TINYINT", DataType::Int8),
    ("BYTE", DataType::Int8),
    ("FLOAT", DataType::Float32),
    ("REAL", DataType::Float32),
    ("DOUBLE", DataType::Float64),
    ("BOOLEAN", DataType::Boolean),
    ("BINARY", DataType::Binary),
    ("DATE", DataType::Date32),
    ("TIMESTAMP_NTZ", DataType::Timestamp(TimeUnit::Microsecond, None)),
];

/// Names of types that need more than a constant.
const OTHER: &[&str] = &[
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "DECIMAL",
    "DEC",
    "NUMERIC",
    "ARRAY",
    "MAP",
    "STRUCT",
    "VARIANT",
    "VARCHAR",
    "CHAR",
];

/// Types of other systems that have another name here.
const FOREIGN: &[(&str, &str)] = &[
    ("TEXT", "STRING"),
    ("VARCHAR2", "STRING"),
    ("NVARCHAR", "STRING"),
    ("CLOB", "STRING"),
    ("UTF8", "STRING"),
    ("JSON", "STRING"),
    ("UUID", "STRING"),
    ("INT4", "INT"),
    ("INT32", "INT"),
    ("INT8", "BIGINT"),
    ("INT64", "BIGINT"),
    ("UINT64", "BIGINT"),
    ("BIGSERIAL", "BIGINT"),
    ("NUMBER", "DECIMAL(10, 2)"),
    ("FLOAT8", "DOUBLE"),
    ("FLOAT64", "DOUBLE"),
    ("FLOAT32", "FLOAT"),
    ("BOOL", "BOOLEAN"),
    ("BYTES", "BINARY"),
    ("BYTEA", "BINARY"),
    ("VARBINARY", "BINARY"),
    ("BLOB", "BINARY"),
    ("DATETIME", "TIMESTAMP"),
    ("TIMESTAMPTZ", "TIMESTAMP"),
    ("ROW", "STRUCT<name: TYPE, ...>"),
];

/// `TIME`: a time of a day. Spark 4.2 has it switched off but for literals and `from_json`.
pub const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);

/// Why there is no more of TIME, and what to write instead.
pub const TIME_HELP: &str = "Spark 4.2 has the type TIME for literals and for schemas of \
    from_json and from_csv alone (UNSUPPORTED_TIME_TYPE); use a TIMESTAMP, a STRING or an INTERVAL";

/// Whether a value of the type has a TIME in it. What has no values of this type asks.
pub fn holds_time(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(item) => holds_time(item.data_type()),
        DataType::Map(entries, _) => holds_time(entries.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_time(field.data_type())),
        other => *other == TIME,
    }
}

/// That a column or a parameter cannot have the type TIME.
pub fn no_time(span: Span) -> Diagnostic {
    Diagnostic::at(span, "the type TIME is not supported here").help(TIME_HELP)
}

/// What to write where there are no values of the type VARIANT.
pub const VARIANT_HELP: &str = "VARIANT is for batch queries: keep the JSON as a STRING, and write \
    parse_json(text) in such a query";

/// That a column or a parameter cannot have the type VARIANT.
pub fn no_variant(span: Span) -> Diagnostic {
    Diagnostic::at(span, "the type VARIANT is not supported here").help(VARIANT_HELP)
}

/// Spark's `TIMESTAMP`.
pub fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// A list of `element`, which may hold nulls.
pub fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element, true)))
}

/// A map in Arrow's usual spelling.
pub fn map_of(key: DataType, value: DataType) -> DataType {
    let entry = vec![Field::new("key", key, false), Field::new("value", value, true)];
    let entries = Field::new("entries", DataType::Struct(entry.into()), false);
    DataType::Map(Arc::new(entries), false)
}

/// Reads a column list, `a INT, b STRUCT<c: STRING>`, as `from_json` takes it.
///
/// # Errors
/// Spans count from the start of `text`.
pub fn parse_schema_ddl(text: &str) -> Result<Fields, Diagnostics> {
    let lexed = Lexed::new(text)?;
    let mut cursor = Cursor::new(&lexed, 0, lexed.lexemes.len());
    let mut fields = Vec::new();
    loop {
        let name = cursor.name("a column name")?;
        cursor.eat(&Token::Colon);
        fields.push(field_after(&mut cursor, &name)?.0);
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    if !cursor.at_end() {
        return Err(cursor.unexpected("`,` or the end of the columns").into());
    }
    Ok(fields.into())
}

/// Reads one type, `ARRAY<STRUCT<a: INT>>`.
///
/// # Errors
/// Spans count from the start of `text`.
pub fn parse_type_ddl(text: &str) -> Result<DataType, Diagnostics> {
    let lexed = Lexed::new(text)?;
    let mut cursor = Cursor::new(&lexed, 0, lexed.lexemes.len());
    let data_type = data_type(&mut cursor)?;
    if !cursor.at_end() {
        return Err(cursor.unexpected("the end of the type").into());
    }
    Ok(data_type)
}

/// Reads the type of one column, `ARRAY<STRING COLLATE UTF8_LCASE>`.
///
/// # Errors
/// Spans count from the start of `text`.
pub fn parse_column_ddl(name: &str, text: &str) -> Result<Field, Diagnostics> {
    let lexed = Lexed::new(text)?;
    let mut cursor = Cursor::new(&lexed, 0, lexed.lexemes.len());
    let mut collations = Vec::new();
    let data_type = collated_type(&mut cursor, &mut collations)?;
    if !cursor.at_end() {
        return Err(cursor.unexpected("the end of the type").into());
    }
    Ok(collations::with(Field::new(name, data_type, true), &collations))
}

/// Reads `TYPE [NOT NULL] [COMMENT '...']` after a field's name.
pub fn field_after(
    cursor: &mut Cursor<'_>,
    name: &Name,
) -> Result<(FieldRef, Option<Name>), Diagnostic> {
    let (here, mut collations) = (cursor.here(), Vec::new());
    let read = collated_field(cursor, name, &mut collations)?;
    refuse(here, &collations)?;
    Ok(read)
}

/// Reads what [`field_after`] does after a column's name; its STRINGs may have collations.
pub fn column_after(
    cursor: &mut Cursor<'_>,
    name: &Name,
) -> Result<(FieldRef, Option<Name>), Diagnostic> {
    let mut collations = Vec::new();
    let (field, comment) = collated_field(cursor, name, &mut collations)?;
    let field = Arc::new(collations::with(Arc::unwrap_or_clone(field), &collations));
    Ok((field, comment))
}

/// Refuses a type that names collations.
fn refuse(at: Span, collations: &[Collation]) -> Result<(), Diagnostic> {
    match collations.iter().find(|collation| !collation.is_binary()) {
        None => Ok(()),
        Some(collation) => {
            Err(Diagnostic::at(at, format!("a type cannot have the collation {collation} here"))
                .help(format!("write STRING here, and x COLLATE {collation} where it is compared")))
        }
    }
}

/// Reads a field, and adds the collations of its STRINGs to `collations`.
fn collated_field(
    cursor: &mut Cursor<'_>,
    name: &Name,
    collations: &mut Vec<Collation>,
) -> Result<(FieldRef, Option<Name>), Diagnostic> {
    let (data_type, metadata) = match time(cursor)? {
        // Arrow's type has six digits; others are for those who ask for the type.
        Some(6) => (TIME, HashMap::new()),
        Some(digits) => (TIME, HashMap::from([(TIME_DIGITS.to_owned(), digits.to_string())])),
        None => (collated_type(cursor, collations)?, HashMap::new()),
    };
    let not_null = cursor.eat_words(&["NOT", "NULL"]).is_some();
    let mut comment = None;
    if cursor.eat_words(&["COMMENT"]).is_some() {
        comment = Some(cursor.string("a comment")?);
    }
    let field = Field::new(&name.text, data_type, !not_null).with_metadata(metadata);
    Ok((Arc::new(field), comment))
}

/// Reads a type.
pub fn data_type(cursor: &mut Cursor<'_>) -> Result<DataType, Diagnostic> {
    let (here, mut collations) = (cursor.here(), Vec::new());
    let data_type = collated_type(cursor, &mut collations)?;
    refuse(here, &collations)?;
    Ok(data_type)
}

/// Reads a type, and adds the collations of its STRINGs to `collations`.
fn collated_type(
    cursor: &mut Cursor<'_>,
    collations: &mut Vec<Collation>,
) -> Result<DataType, Diagnostic> {
    let here = cursor.here();
    match time(cursor)? {
        Some(6) => return Ok(TIME),
        Some(digits) => {
            let message = format!("TIME({digits}) can only be a column or a field of a STRUCT");
            return Err(Diagnostic::at(here, message).help("write TIME, which has six digits"));
        }
        None => {}
    }
    let name = cursor.name("a type")?;
    let upper = name.text.to_uppercase();
    if let Some((_, data_type)) = SIMPLE.iter().find(|(known, _)| *known == upper) {
        if *data_type == DataType::Utf8 {
            collations.push(collation(cursor)?);
        }
        return Ok(data_type.clone());
    }
    match upper.as_str() {
        "TIMESTAMP" | "TIMESTAMP_LTZ" => Ok(timestamp()),
        "VARIANT" => Ok(variant()),
        "DECIMAL" | "DEC" | "NUMERIC" => decimal(cursor),
        "VARCHAR" | "CHAR" => {
            // Spark checks the length when it writes; here the type is a plain string.
            if cursor.is_token(&Token::LParen) {
                cursor.skip_parentheses();
            }
            collations.push(Collation::default());
            Ok(DataType::Utf8)
        }
        "ARRAY" => {
            cursor.expect(&Token::Lt, "after ARRAY, as in ARRAY<STRING>")?;
            let element = collated_type(cursor, collations)?;
            cursor.expect_closing_angle("after the element's type")?;
            Ok(list_of(element))
        }
        "MAP" => {
            cursor.expect(&Token::Lt, "after MAP, as in MAP<STRING, INT>")?;
            let key = collated_type(cursor, collations)?;
            cursor.expect(&Token::Comma, "between the types of key and value")?;
            let value = collated_type(cursor, collations)?;
            cursor.expect_closing_angle("after the value's type")?;
            Ok(map_of(key, value))
        }
        "STRUCT" => structure(cursor, collations),
        _ => Err(unknown_type(&name)),
    }
}

/// The collation behind STRING; that of a plain one where none is named.
fn collation(cursor: &mut Cursor<'_>) -> Result<Collation, Diagnostic> {
    if cursor.eat_words(&["COLLATE"]).is_none() {
        return Ok(Collation::default());
    }
    let name = cursor.name("the name of a collation")?;
    Collation::parse(&name.text).ok_or_else(|| {
        Diagnostic::at(name.span, format!("there is no collation `{}`", name.text))
            .help(format!("the collations are {}", collation::KNOWN))
    })
}

fn structure(
    cursor: &mut Cursor<'_>,
    collations: &mut Vec<Collation>,
) -> Result<DataType, Diagnostic> {
    cursor.expect(&Token::Lt, "after STRUCT, as in STRUCT<name: STRING>")?;
    let mut fields = Vec::new();
    loop {
        let name = cursor.name("a field name")?;
        cursor.eat(&Token::Colon);
        fields.push(collated_field(cursor, &name, collations)?.0);
        if !cursor.eat(&Token::Comma) {
            break;
        }
    }
    cursor.expect_closing_angle("or `,` after a field of the STRUCT")?;
    Ok(DataType::Struct(fields.into()))
}

/// The digits of `TIME` or `TIME(digits)`, where that is what stands at the cursor.
fn time(cursor: &mut Cursor<'_>) -> Result<Option<u8>, Diagnostic> {
    if cursor.eat_words(&["TIME"]).is_none() {
        return Ok(None);
    }
    if !cursor.eat(&Token::LParen) {
        return Ok(Some(6));
    }
    let digits = whole_number(cursor, "the digits of a fraction (0 to 6)", 6)?;
    cursor.expect(&Token::RParen, "after TIME's digits")?;
    Ok(Some(digits))
}

fn decimal(cursor: &mut Cursor<'_>) -> Result<DataType, Diagnostic> {
    if !cursor.eat(&Token::LParen) {
        return Ok(DataType::Decimal128(10, 0));
    }
    let precision = whole_number(cursor, "the precision (1 to 38)", 38)?;
    let scale = if cursor.eat(&Token::Comma) {
        whole_number(cursor, "the scale (0 to the precision)", precision)?
    } else {
        0
    };
    cursor.expect(&Token::RParen, "after DECIMAL's precision and scale")?;
    let scale = i8::try_from(scale).expect("a scale is at most 38");
    Ok(DataType::Decimal128(precision.max(1), scale))
}

fn whole_number(cursor: &mut Cursor<'_>, what: &str, max: u8) -> Result<u8, Diagnostic> {
    if let Some(lexeme) = cursor.peek()
        && let Token::Number(digits, false) = &lexeme.token
        && let Ok(number) = digits.parse::<u8>()
        && number <= max
    {
        cursor.advance();
        return Ok(number);
    }
    Err(cursor.unexpected(what))
}

fn unknown_type(name: &Name) -> Diagnostic {
    let diagnostic = Diagnostic::at(name.span, format!("there is no type `{}`", name.text));
    let upper = name.text.to_uppercase();
    if let Some((_, ours)) = FOREIGN.iter().find(|(foreign, _)| *foreign == upper) {
        return diagnostic.help(format!("in Spark SQL write {ours}"));
    }
    let known = SIMPLE.iter().map(|(known, _)| *known).chain(OTHER.iter().copied());
    match nearest(&name.text, known) {
        Some(known) => diagnostic.help(format!("did you mean {known}?")),
        None => diagnostic.help(
            "the types are STRING, INT, BIGINT, SMALLINT, TINYINT, FLOAT, DOUBLE, BOOLEAN, \
             BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, DECIMAL(p, s), ARRAY<..>, MAP<.., ..> \
             and STRUCT<..>",
        ),
    }
}

/// A schema in Spark's words: `a INT NOT NULL, b STRING`.
pub fn spark_schema(schema: &Schema) -> String {
    let columns = schema.fields().iter().map(|field| {
        let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
        format!("{} {}{not_null}", quoted(field.name()), spark_type(field.data_type()))
    });
    columns.collect::<Vec<_>>().join(", ")
}
