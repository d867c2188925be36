//! What clients ask about the server: what it can do, its tables and types.
//!
//! All declared tables are in one schema, with the names that Spark has for its own: the catalog
//! `spark_catalog` and the schema `default`.

use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables, Nullable,
    Searchable, SqlInfo, SqlSupportedTransaction, XdbcDataType,
};
use tonic::Status;

use crate::tables::{CATALOG, Catalog, SCHEMA};

const TABLE: &str = "TABLE";

fn bug(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// The catalogs.
pub(super) fn catalogs(command: CommandGetCatalogs) -> Result<RecordBatch, Status> {
    let mut builder = command.into_builder();
    builder.append(CATALOG);
    builder.build().map_err(bug)
}

/// The schemas.
pub(super) fn schemas(command: CommandGetDbSchemas) -> Result<RecordBatch, Status> {
    let mut builder = command.into_builder();
    builder.append(CATALOG, SCHEMA);
    builder.build().map_err(bug)
}

/// The tables, with their columns if the client asks for them.
pub(super) fn tables(command: CommandGetTables, all: &Catalog) -> Result<RecordBatch, Status> {
    let has_columns = command.include_schema;
    let mut builder = command.into_builder();
    for name in all.declared() {
        let columns = if has_columns { all.columns(&name) } else { Ok(Arc::new(Schema::empty())) };
        let columns = columns.unwrap_or_else(|wrong| {
            // The others are there all the same.
            tracing::warn!(table = name, problem = wrong.problem, "a table cannot be described");
            Arc::new(Schema::empty())
        });
        builder.append(CATALOG, SCHEMA, &name, TABLE, &columns).map_err(bug)?;
    }
    builder.build().map_err(bug)
}

/// The kinds of tables.
pub(super) fn table_types(command: CommandGetTableTypes) -> Result<RecordBatch, Status> {
    let mut builder = command.into_builder();
    builder.append(TABLE);
    builder.build().map_err(bug)
}

/// What the server can do.
pub(super) static INFO: LazyLock<SqlInfoData> = LazyLock::new(|| {
    let mut builder = SqlInfoDataBuilder::new();
    builder.append(SqlInfo::FlightSqlServerName, "Millstream");
    builder.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    builder.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    builder.append(SqlInfo::FlightSqlServerReadOnly, true);
    builder.append(SqlInfo::FlightSqlServerSql, true);
    builder.append(SqlInfo::FlightSqlServerSubstrait, false);
    builder.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    builder.append(SqlInfo::FlightSqlServerCancel, true);
    builder.append(SqlInfo::SqlDdlCatalog, false);
    builder.append(SqlInfo::SqlDdlSchema, false);
    builder.append(SqlInfo::SqlDdlTable, false);
    builder.append(SqlInfo::SqlIdentifierQuoteChar, "`");
    builder.append(SqlInfo::SqlAllTablesAreSelectable, true);
    builder.append(SqlInfo::SqlSupportsColumnAliasing, true);
    builder.append(SqlInfo::SqlNullPlusNullIsNull, true);
    builder.append(SqlInfo::SqlSchemaTerm, "schema");
    builder.append(SqlInfo::SqlCatalogTerm, "catalog");
    builder.append(SqlInfo::SqlCatalogAtStart, true);
    builder.build().expect("each value has its type")
});

/// Spark's types.
pub(super) static TYPES: LazyLock<XdbcTypeInfoData> = LazyLock::new(|| {
    let mut builder = XdbcTypeInfoDataBuilder::new();
    for (name, data_type, digits) in [
        ("BOOLEAN", XdbcDataType::XdbcBit, 1),
        ("TINYINT", XdbcDataType::XdbcTinyint, 3),
        ("SMALLINT", XdbcDataType::XdbcSmallint, 5),
        ("INT", XdbcDataType::XdbcInteger, 10),
        ("BIGINT", XdbcDataType::XdbcBigint, 19),
        ("FLOAT", XdbcDataType::XdbcReal, 7),
        ("DOUBLE", XdbcDataType::XdbcDouble, 15),
        ("DECIMAL", XdbcDataType::XdbcDecimal, 38),
        ("STRING", XdbcDataType::XdbcVarchar, i32::MAX),
        ("BINARY", XdbcDataType::XdbcVarbinary, i32::MAX),
        ("DATE", XdbcDataType::XdbcDate, 10),
        ("TIMESTAMP", XdbcDataType::XdbcTimestamp, 26),
    ] {
        let is_text = matches!(data_type, XdbcDataType::XdbcVarchar);
        builder.append(XdbcTypeInfo {
            type_name: name.to_owned(),
            data_type,
            column_size: Some(digits),
            literal_prefix: is_text.then(|| "'".to_owned()),
            literal_suffix: is_text.then(|| "'".to_owned()),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: is_text,
            searchable: Searchable::Full,
            local_type_name: Some(name.to_owned()),
            sql_data_type: data_type,
            ..XdbcTypeInfo::default()
        });
    }
    builder.build().expect("each value has its type")
});

/// The columns of the primary keys of tables, of which there are none.
pub(super) fn primary_keys() -> SchemaRef {
    let text = |name: &str, is_null| Field::new(name, DataType::Utf8, is_null);
    Arc::new(Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        text("key_name", true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

/// The columns of the foreign keys of tables, of which there are none.
pub(super) fn foreign_keys() -> SchemaRef {
    let mut fields = Vec::new();
    for side in ["pk", "fk"] {
        for part in ["catalog_name", "db_schema_name", "table_name", "column_name"] {
            let is_null = part.starts_with("catalog") || part.starts_with("db_");
            fields.push(Field::new(format!("{side}_{part}"), DataType::Utf8, is_null));
        }
    }
    fields.push(Field::new("key_sequence", DataType::Int32, false));
    fields.push(Field::new("fk_key_name", DataType::Utf8, true));
    fields.push(Field::new("pk_key_name", DataType::Utf8, true));
    fields.push(Field::new("update_rule", DataType::UInt8, false));
    fields.push(Field::new("delete_rule", DataType::UInt8, false));
    Arc::new(Schema::new(fields))
}
