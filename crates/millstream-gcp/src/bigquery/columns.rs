//! The columns of a BigQuery table, as the service describes them in JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A column of a table, or a field of a record in one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Column {
    /// Its name; BigQuery compares names without case.
    pub(super) name: String,
    /// The type of a value, or of each element where the column is repeated.
    #[serde(rename = "type")]
    pub(super) kind: Kind,
    #[serde(default)]
    pub(super) mode: Mode,
    /// The fields of a record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) fields: Vec<Self>,
    /// What fills the column where a row has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) default_value_expression: Option<String>,
}

/// Whether a column has to have a value, or has many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Mode {
    #[default]
    Nullable,
    Required,
    Repeated,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub(super) enum Kind {
    String,
    Bytes,
    Int64,
    Float64,
    Numeric,
    BigNumeric,
    Bool,
    Timestamp,
    Date,
    DateTime,
    Json,
    Geography,
    Record,
    /// A type that no column of a query becomes: TIME, INTERVAL, RANGE, and what BigQuery gets
    /// after this was written.
    Other(String),
}

impl From<String> for Kind {
    fn from(name: String) -> Self {
        // The first name is the one of BigQuery's SQL, the second that of its REST interface.
        match name.to_ascii_uppercase().as_str() {
            "STRING" => Self::String,
            "BYTES" => Self::Bytes,
            "INT64" | "INTEGER" => Self::Int64,
            "FLOAT64" | "FLOAT" => Self::Float64,
            "NUMERIC" => Self::Numeric,
            "BIGNUMERIC" => Self::BigNumeric,
            "BOOL" | "BOOLEAN" => Self::Bool,
            "TIMESTAMP" => Self::Timestamp,
            "DATE" => Self::Date,
            "DATETIME" => Self::DateTime,
            "JSON" => Self::Json,
            "GEOGRAPHY" => Self::Geography,
            "STRUCT" | "RECORD" => Self::Record,
            _ => Self::Other(name),
        }
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.rest_name().to_owned()
    }
}

impl Kind {
    fn rest_name(&self) -> &str {
        match self {
            Self::Int64 => "INTEGER",
            Self::Float64 => "FLOAT",
            Self::Bool => "BOOLEAN",
            Self::Record => "RECORD",
            other => other.sql_name(),
        }
    }

    fn sql_name(&self) -> &str {
        match self {
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Int64 => "INT64",
            Self::Float64 => "FLOAT64",
            Self::Numeric => "NUMERIC",
            Self::BigNumeric => "BIGNUMERIC",
            Self::Bool => "BOOL",
            Self::Timestamp => "TIMESTAMP",
            Self::Date => "DATE",
            Self::DateTime => "DATETIME",
            Self::Json => "JSON",
            Self::Geography => "GEOGRAPHY",
            Self::Record => "STRUCT",
            Self::Other(name) => name,
        }
    }
}

/// As BigQuery's SQL writes it.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sql_name())
    }
}

impl Column {
    /// A column without fields that may be NULL.
    pub(super) fn nullable(name: &str, kind: Kind) -> Self {
        let (name, fields) = (name.to_owned(), Vec::new());
        Self { name, kind, mode: Mode::Nullable, fields, default_value_expression: None }
    }

    /// Its type as BigQuery's SQL writes it.
    pub(super) fn sql_type(&self) -> String {
        match self.mode {
            Mode::Repeated => format!("ARRAY<{}>", self.kind),
            Mode::Nullable | Mode::Required => self.kind.to_string(),
        }
    }

    /// Whether a row must bring a value.
    pub(super) fn needs_value(&self) -> bool {
        self.mode == Mode::Required && self.default_value_expression.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_service_writes_is_read_and_written() {
        let json = r#"{"name":"r","type":"RECORD","mode":"REPEATED","fields":[
            {"name":"n","type":"INTEGER"},{"name":"t","type":"TIME","mode":"REQUIRED"},
            {"name":"d","type":"DATE","mode":"REQUIRED",
             "defaultValueExpression":"CURRENT_DATE()"}]}"#;
        let column: Column = serde_json::from_str(json).expect("it is one");
        assert_eq!((column.mode, &column.kind), (Mode::Repeated, &Kind::Record));
        assert_eq!(column.fields[0], Column::nullable("n", Kind::Int64));
        assert_eq!(column.fields[1].kind, Kind::Other("TIME".to_owned()));
        assert!(column.fields[1].needs_value());
        assert!(!column.fields[2].needs_value(), "it has a default");
        assert_eq!(column.sql_type(), "ARRAY<STRUCT>");
        let written = serde_json::to_value(&column).expect("plain values");
        assert_eq!(written["type"], "RECORD");
        assert_eq!(written["fields"][0]["type"], "INTEGER");
        assert_eq!(written["fields"][2]["defaultValueExpression"], "CURRENT_DATE()");
    }
}
