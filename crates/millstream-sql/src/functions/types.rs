//! Types by their names in Spark, for the functions: in messages, and in the schema argument of
//! `from_json`.

use arrow::datatypes::DataType;
use thiserror::Error;

use crate::json::nullable;
use crate::types::{holds_variant, parse_schema_ddl, parse_type_ddl};

/// The text does not describe a schema.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{ddl:?} is not a schema: {reason}. Write for example a INT, b STRUCT<c: STRING>")]
pub(crate) struct InvalidSchema {
    /// The whole text.
    pub ddl: String,
    /// Where it stops making sense.
    pub reason: String,
}

/// Reads a schema as Spark's `from_json` does: one type, such as `ARRAY<INT>`, or the columns of a
/// table, such as `a INT, b STRING`, which make a STRUCT. Everything becomes nullable, since any
/// part of a text may be missing.
pub(crate) fn schema_of(ddl: &str) -> Result<DataType, InvalidSchema> {
    let found = type_of(ddl)?;
    if holds_variant(&found) {
        let reason = "records are not read as VARIANT; parse_json(text) makes one".to_owned();
        return Err(InvalidSchema { ddl: ddl.to_owned(), reason });
    }
    Ok(found)
}

/// The same, where VARIANT is a type, too.
pub(crate) fn type_of(ddl: &str) -> Result<DataType, InvalidSchema> {
    let found = parse_type_ddl(ddl).or_else(|of_type| {
        let columns = parse_schema_ddl(ddl).map(DataType::Struct);
        // Of the two complaints, the one about what was meant.
        let is_type = ddl.trim_start().contains('<') && !ddl.trim_start().contains(' ');
        columns.map_err(|of_columns| if is_type { of_type } else { of_columns })
    });
    let invalid = |reason: String| InvalidSchema { ddl: ddl.to_owned(), reason };
    found.map(|data_type| nullable(&data_type)).map_err(|reason| invalid(reason.to_string()))
}
