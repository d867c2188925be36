use millstream_sql::types::parse_schema_ddl;
use serde_json::{Value, json};

use super::*;

/// A schema as Spark's SQL declares it.
fn schema(ddl: &str) -> Schema {
    Schema::new(parse_schema_ddl(ddl).unwrap_or_else(|_| panic!("{ddl} is a schema")))
}

fn created(ddl: &str) -> Result<Vec<Column>, Mismatch> {
    schema(ddl).fields().iter().map(|field| column_for(field)).collect()
}

fn columns(json: Value) -> Vec<Column> {
    serde_json::from_value(json).expect("they are columns")
}

#[test]
fn each_type_has_its_column() {
    let types = |ddl: &str| -> Vec<String> {
        created(ddl).expect("they can be").iter().map(Column::sql_type).collect()
    };
    assert_eq!(types("a TINYINT, b SMALLINT, c INT, d BIGINT"), ["INT64"; 4]);
    assert_eq!(types("a FLOAT, b DOUBLE"), ["FLOAT64"; 2]);
    assert_eq!(
        types("a STRING, b BINARY, c BOOLEAN, d DATE, e TIMESTAMP, f TIMESTAMP_NTZ"),
        ["STRING", "BYTES", "BOOL", "DATE", "TIMESTAMP", "DATETIME"]
    );
    assert_eq!(
        types("a DECIMAL(38,9), b DECIMAL(29,0), c DECIMAL(30,0), d DECIMAL(38,10), e DECIMAL"),
        ["NUMERIC", "NUMERIC", "BIGNUMERIC", "BIGNUMERIC", "NUMERIC"]
    );
    assert_eq!(
        types("a ARRAY<INT>, b STRUCT<x: INT>, c MAP<STRING, INT>, d ARRAY<STRUCT<x: INT>>"),
        ["ARRAY<INT64>", "STRUCT", "ARRAY<STRUCT>", "ARRAY<STRUCT>"]
    );
    let map = created("m MAP<STRING, ARRAY<INT>> NOT NULL").expect("it can be").remove(0);
    let fields: Vec<_> = map.fields.iter().map(|field| (&*field.name, field.sql_type())).collect();
    assert_eq!(fields, [("key", "STRING".to_owned()), ("value", "ARRAY<INT64>".to_owned())]);
    let required = created("a INT NOT NULL, b STRUCT<x: INT NOT NULL>").expect("they can be");
    assert!(required[0].needs_value() && required[1].fields[0].needs_value());
}

#[test]
fn what_bigquery_does_not_have_is_refused_with_the_column() {
    let refused = |ddl: &str| created(ddl).expect_err("it cannot be");
    let nested = refused("s STRUCT<x: ARRAY<ARRAY<INT>>>");
    assert_eq!(nested.column, "s.x");
    assert!(nested.remedy.contains("struct"), "{nested:?}");
    assert!(refused("a ARRAY<MAP<STRING, INT>>").problem.contains("arrays or maps"));
    let interval = Field::new("i", DataType::Duration(TimeUnit::Microsecond), true);
    let interval = column_for(&interval).expect_err("it cannot be");
    assert!(interval.remedy.contains("STRING"), "{interval:?}");
    let void = column_for(&Field::new("v", DataType::Null, true)).expect_err("it cannot be");
    assert!(void.remedy.contains("CAST(NULL AS type)"));
}

#[test]
fn a_table_made_for_a_query_takes_it() {
    let ddl = "a INT NOT NULL, b DECIMAL(38,20), c ARRAY<STRUCT<x: STRING, y: ARRAY<DATE>>>, \
               d MAP<STRING, STRUCT<z: TIMESTAMP>>, e STRUCT<f: BINARY NOT NULL>";
    let mapping = map(&schema(ddl), &created(ddl).expect("it can be")).expect("it fits");
    let names: Vec<&str> = mapping.sent.fields().iter().map(|field| &**field.name()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert!(!mapping.checked.field(0).is_nullable() && mapping.sent.field(0).is_nullable());
    assert_eq!(*mapping.sent.field(1).data_type(), BIGNUMERIC);
}

#[test]
fn names_have_no_case_and_more_columns_may_be_left_out() {
    let table = columns(json!([
        {"name": "Id", "type": "INTEGER", "mode": "REQUIRED"},
        {"name": "more", "type": "TIME"},
        {"name": "doc", "type": "JSON"},
        {"name": "given", "type": "STRING", "mode": "REQUIRED", "defaultValueExpression": "'x'"},
        {"name": "money", "type": "BIGNUMERIC"}
    ]));
    let mapping = map(&schema("DOC STRING, id SMALLINT, money INT"), &table).expect("it fits");
    let names: Vec<&str> = mapping.sent.fields().iter().map(|field| &**field.name()).collect();
    assert_eq!(names, ["doc", "Id", "money"]);
    assert_eq!(*mapping.sent.field(1).data_type(), DataType::Int64);
}

#[test]
fn a_column_that_does_not_fit_is_named() {
    let table = columns(json!([
        {"name": "id", "type": "INTEGER", "mode": "REQUIRED"},
        {"name": "name", "type": "STRING"},
        {"name": "at", "type": "TIME"},
        {"name": "list", "type": "STRING", "mode": "REPEATED"},
        {"name": "r", "type": "RECORD", "fields": [{"name": "x", "type": "DATE"}]}
    ]));
    let refused = |ddl: &str| {
        let Mismatch { column, problem, remedy } =
            map(&schema(ddl), &table).expect_err("it does not fit");
        format!("{column}: {problem}; {remedy}")
    };
    for (ddl, wanted) in [
        ("name STRING", "id: the table requires a value"),
        ("id INT, nam STRING", "nam: the table has no such column; its columns are id, name"),
        ("id INT, ID INT", "ID: it is there twice"),
        (
            "id STRING",
            "id: it is STRING in the query and INT64 in the table; write CAST(... AS BIGINT)",
        ),
        ("id INT, name INT", "CAST(... AS STRING)"),
        ("id INT, at STRING", "TIME cannot be written; leave the column out"),
        ("id INT, list STRING", "list: it is STRING in the query and ARRAY<STRING> in the table"),
        ("id INT, name ARRAY<STRING>", "name: it is ARRAY<STRING> in the query"),
        ("id INT, r STRUCT<x: TIMESTAMP>", "r.x: it is TIMESTAMP in the query and DATE"),
        ("id INT, r STRUCT<y: DATE>", "r.y: the record has no such column"),
        ("id DOUBLE", "id: it is DOUBLE in the query"),
    ] {
        let text = refused(ddl);
        assert!(text.contains(wanted), "{ddl}: {text}");
    }
}
