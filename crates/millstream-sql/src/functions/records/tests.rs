//! The functions in queries. Those of Avro have more tests in `tests/slt/avro.slt`, which Spark
//! answers too. For Protobuf Spark cannot be asked as easily: what is expected here follows from
//! its ProtobufDataToCatalyst, ProtobufDeserializer and SchemaConverters.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::Result;
use datafusion::physical_plan::collect;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::FileDescriptorSet;

use crate::functions::BatchClock;
use crate::session::{config, session};

/// The rows of a query, a line each.
async fn rows(sql: &str) -> Result<Vec<String>> {
    let context = session(config(), &BatchClock::default());
    let batches = context.sql(sql).await?.collect().await?;
    let table = pretty_format_batches(&batches)?.to_string();
    let lines = table.lines().filter(|line| line.starts_with('|')).skip(1);
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        cells.collect::<Vec<_>>().join(" | ")
    };
    Ok(lines.map(cells).collect())
}

async fn row(sql: &str) -> String {
    let found = rows(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(found.len(), 1, "{sql}");
    found[0].clone()
}

async fn error(sql: &str) -> String {
    match rows(sql).await {
        Ok(found) => panic!("{sql}: {found:?}"),
        Err(error) => error.strip_backtrace(),
    }
}

const PROTO: &str = r#"
    syntax = "proto3";
    package shop;
    enum Color { GREY = 0; RED = 1; }
    message Person {
        string name = 1;
        int32 id = 2;
        Color color = 3;
        repeated int32 scores = 4;
        optional int32 age = 5;
        map<string, int64> counts = 6;
        Address address = 7;
    }
    message Address { string town = 1; }
    message Empty {}
    message Node { int32 value = 1; Node next = 2; }
"#;

fn descriptors(text: &str) -> Vec<u8> {
    let file = protox::file::File::from_source("shop.proto", text).expect("it is valid");
    FileDescriptorSet { file: vec![file.file_descriptor_proto().clone()] }.encode_to_vec()
}

/// Bytes as a literal.
fn literal(bytes: &[u8]) -> String {
    let mut text = "X'".to_owned();
    for byte in bytes {
        write!(text, "{byte:02X}").expect("a String takes it");
    }
    text + "'"
}

/// A query of one call to `from_protobuf`.
fn from_protobuf(record: &str, message: &str, options: &str) -> String {
    let descriptors = literal(&descriptors(PROTO));
    format!("SELECT from_protobuf({record}, '{message}', {descriptors}{options})")
}

#[tokio::test]
async fn protobuf_records_become_structs() {
    let full = "X'0A01611005180122020102280332050A01781004'";
    let of = |record: &str, options: &str| from_protobuf(record, "Person", options);
    let expected =
        "{name: a, id: 5, color: RED, scores: [1, 2], age: 3, counts: {x: 4}, address: }";
    assert_eq!(row(&of(full, "")).await, expected);
    // Zeros are not written, and null by default.
    let absent = "{name: , id: , color: , scores: [], age: , counts: {}, address: }";
    assert_eq!(row(&of("X''", "")).await, absent);
    let emitted = "{name: , id: 0, color: GREY, scores: [], age: , counts: {}, address: }";
    let options = ", map('emit.default.values', 'true')";
    assert_eq!(row(&of("X''", options)).await, emitted);
    let ints = ", map('enums.as.ints', 'true', 'mode', 'FAILFAST')";
    assert!(row(&of(full, ints)).await.contains("color: 1"));
    let town = "SELECT get_field(get_field(r, 'address'), 'town') FROM (".to_owned();
    let nested = town + &of("X'3A030A0142'", "") + " AS r)";
    assert_eq!(row(&nested).await, "B");
    assert_eq!(row(&of("CAST(NULL AS BINARY)", "")).await, "");
}

#[tokio::test]
async fn malformed_protobuf_fails_or_becomes_a_struct_of_nulls() {
    let nulls = "{name: , id: , color: , scores: , age: , counts: , address: }";
    // Cut off; a text for the number 2; a group that does not end; no UTF-8; field 0.
    for record in ["X'0A0561'", "X'120161'", "X'13'", "X'0A02C328'", "X'0001'", "X'FF'"] {
        let failed = error(&from_protobuf(record, "Person", "")).await;
        assert!(failed.contains("malformed Protobuf record"), "{failed}");
        assert!(failed.contains("PERMISSIVE"), "{failed}");
        let permissive = from_protobuf(record, "Person", ", map('mode', 'permissive')");
        assert_eq!(row(&permissive).await, nulls, "{record}");
    }
}

#[tokio::test]
async fn what_is_said_of_protobuf_is_checked_when_a_query_is_planned() {
    let of = |message: &str, options: &str| from_protobuf("X''", message, options);
    let wrong = [
        (of("Nobody", ""), "shop.Person"),
        (of("Empty", ""), "has no fields"),
        (of("Node", ""), "recursive.fields.max.depth"),
        (of("Person", ", map('nonsense', 'x')"), "there is no option nonsense"),
        (of("Person", ", map('enums.as.ints', 'x')"), "true or false"),
        (of("Person", ", map('mode', 'DROPMALFORMED')"), "FAILFAST or PERMISSIVE"),
        (of("Person", ", 'mode'"), "map of string literals"),
        ("SELECT from_protobuf(X'', 'Person', X'FF')".to_owned(), "protoc"),
        ("SELECT from_protobuf(X'', 'Person', NULL)".to_owned(), "classes of Java"),
        ("SELECT from_protobuf(X'', 'Person', 'shop.desc')".to_owned(), "absolute"),
        ("SELECT from_protobuf(X'', 'Person', '/nowhere/shop.desc')".to_owned(), "cannot be read"),
        ("SELECT from_protobuf(X'', 'Person', '/')".to_owned(), "this is no file"),
        ("SELECT from_protobuf('', 'Person', X'')".to_owned(), "reads BINARY, not STRING"),
        ("SELECT from_protobuf(X'', 'com.Person')".to_owned(), "3 to 4 arguments"),
        ("SELECT to_protobuf(1, 'Person', X'')".to_owned(), "takes a STRUCT"),
    ];
    for (sql, expected) in wrong {
        let found = error(&sql).await;
        assert!(found.contains(expected), "{sql}: {found}");
    }
    let recursive = of("Node", ", map('recursive.fields.max.depth', '2')");
    assert_eq!(row(&recursive).await, "{value: , next: }");
}

#[tokio::test]
async fn structs_become_protobuf_records_and_come_back() {
    let descriptors = literal(&descriptors(PROTO));
    let to = |value: &str| format!("to_protobuf({value}, 'shop.Person', {descriptors})");
    let value = "named_struct('ID', 5, 'name', 'a', 'color', 'RED', 'scores', array(1, 2))";
    let sql = format!("SELECT {}", to(value));
    assert_eq!(row(&sql).await, "0a01611005180122020102");
    let back = format!("SELECT from_protobuf({}, 'Person', {descriptors})", to(value));
    let expected = "{name: a, id: 5, color: RED, scores: [1, 2], age: , counts: {}, address: }";
    assert_eq!(row(&back).await, expected);
    let found = error(&format!("SELECT {}", to("named_struct('town', 'x')"))).await;
    assert!(found.contains("no field for the column town"), "{found}");
    let found = error(&format!("SELECT {}", to("named_struct('color', 'BLUE')"))).await;
    assert!(found.contains("to_protobuf: row 0") && found.contains("BLUE"), "{found}");
}

/// A file of descriptors, removed in the end.
struct TestFile(PathBuf);

impl TestFile {
    fn new() -> Self {
        let name = format!("millstream-sql-{}.desc", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, descriptors(PROTO)).expect("it is writable");
        Self(path)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_file_of_descriptors_is_needed_only_for_planning() {
    let file = TestFile::new();
    let path = file.0.display().to_string();
    let context = session(config(), &BatchClock::default());
    let call = format!("get_field(from_protobuf(b, 'Address', '{path}'), 'town')");
    let sql = format!("SELECT {call} FROM (VALUES (X'0A0178'), (X'0A0179')) AS t(b)");
    let frame = context.sql(&sql).await.expect("it can be planned");
    let plan = frame.create_physical_plan().await.expect("it can be planned");
    drop(file);
    let batches = collect(plan, context.task_ctx()).await.expect("it runs");
    let found = pretty_format_batches(&batches).expect("it can be shown").to_string();
    assert!(found.contains("| x ") && found.contains("| y "), "{found}");
    assert!(error(&sql).await.contains("cannot be read"));
}

#[tokio::test]
async fn a_pipe_is_no_file_of_descriptors() {
    let name = format!("millstream-sql-{}.pipe", std::process::id());
    let pipe = TestFile(std::env::temp_dir().join(name));
    let made = Command::new("mkfifo").arg(&pipe.0).status().expect("it can be run");
    assert!(made.success());
    // Nobody writes to it, so that opening it would not return.
    let sql = format!("SELECT from_protobuf(X'', 'Person', '{}')", pipe.0.display());
    let found = error(&sql).await;
    assert!(found.contains("this is no file"), "{found}");
}

/// Plans a query over the table `orders`.
async fn planned(sql: &str) -> Result<()> {
    let context = session(config(), &BatchClock::default());
    let orders = Schema::new(vec![
        Field::new("id", DataType::Int32, true),
        Field::new("amount", DataType::Int64, true),
        Field::new("body", DataType::Binary, true),
        Field::new("code", DataType::Utf8, false),
    ]);
    context.register_batch("orders", RecordBatch::new_empty(Arc::new(orders)))?;
    context.sql(sql).await?.into_optimized_plan().map(drop)
}

#[tokio::test]
async fn to_avro_has_a_schema_of_columns_only_where_no_rows_are_dropped() {
    let known = [
        "SELECT to_avro(named_struct('id', id, 'amount', amount)) FROM orders",
        "SELECT to_avro(id) FROM (SELECT id FROM orders ORDER BY id LIMIT 3) AS o",
        "SELECT to_avro(id) AS b FROM orders UNION ALL SELECT to_avro(amount) AS b FROM orders",
        // What is no column can be known beside a filter, and a schema makes all known.
        "SELECT to_avro(named_struct('x', 1)) FROM orders WHERE amount > 10",
        "SELECT to_avro(id, '\"int\"'), to_avro(code, '\"string\"') FROM orders WHERE amount > 10",
    ];
    for sql in known {
        planned(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let refused = [
        "SELECT to_avro(named_struct('id', id)) FROM orders WHERE amount > 10",
        "SELECT to_avro(id) FROM (SELECT id FROM orders WHERE amount > 10) AS o",
        "SELECT b FROM (SELECT id, to_avro(id) AS b FROM orders) AS o WHERE id > 1",
        "SELECT o.b FROM (SELECT id, to_avro(id) AS b FROM orders) AS o \
         JOIN orders AS p ON o.id = p.id",
        "SELECT to_avro(id) AS b FROM orders UNION ALL \
         SELECT to_avro(id) AS b FROM orders WHERE id > 1",
        "SELECT to_avro(id), (SELECT max(id) FROM orders WHERE amount > 10) FROM orders",
        "SELECT amount, count(to_avro(id)) FROM orders GROUP BY amount HAVING amount > 10",
        "SELECT to_avro(r) FROM (SELECT from_avro(body, '\"int\"') AS r FROM orders) AS o \
         WHERE r > 1",
        "SELECT to_avro(code) FROM orders",
    ];
    for sql in refused {
        let found = planned(sql).await.expect_err(sql).strip_backtrace();
        assert!(found.contains("write the schema, for example to_avro("), "{sql}: {found}");
    }
}

#[tokio::test]
async fn to_avro_has_a_schema_of_casts_that_are_never_null_in_spark() {
    let known = [
        ("CAST(1 AS BIGINT)", "02"),
        ("CAST(1 AS TINYINT)", "02"),
        ("CAST(1 AS DOUBLE)", "000000000000f03f"),
        ("CAST(1 AS STRING)", "0231"),
        ("CAST(NULL AS DATE)", ""),
    ];
    for (value, expected) in known {
        assert_eq!(row(&format!("SELECT to_avro({value})")).await, expected, "{value}");
    }
    let refused = [
        "CAST('1' AS INT)",
        "CAST('2020-01-01' AS DATE)",
        "DATE'2020-01-01'",
        "TIMESTAMP'2020-01-01 00:00:00'",
        "CAST(1.5 AS INT)",
        "CAST(1e0 AS DECIMAL(5,2))",
        "CAST(1 AS DECIMAL(5,2))",
        "CAST(1e0 AS TIMESTAMP)",
        "named_struct('x', CAST('1' AS INT))",
    ];
    for value in refused {
        let found = error(&format!("SELECT to_avro({value})")).await;
        assert!(found.contains("write the schema"), "{value}: {found}");
    }
}

#[tokio::test]
async fn hostile_avro_is_malformed_and_no_more() {
    let list = r#"{"type":"record","name":"n","fields":[{"name":"v","type":{"type":"array",
                  "items":"int"}},{"name":"w","type":["null","n"]}]}"#;
    let ints = r#"{"type":"array","items":"int"}"#;
    let text = r#""string""#;
    let records = [
        // 2^62 items, of which each would take no byte or four; a negative length; 2^62 letters.
        (ints, "X'FEFFFFFFFFFFFFFFFF01'"),
        (ints, "X'FFFFFFFFFFFFFFFFFF01'"),
        (text, "X'01'"),
        (text, "X'FEFFFFFFFFFFFFFFFF01'"),
        (r#"{"type":"enum","name":"e","symbols":["A"]}"#, "X'02'"),
        (r#"["null","int"]"#, "X'04'"),
        (r#""int""#, "X'FFFFFFFFFF01'"),
        (r#"{"type":"fixed","name":"f","size":4}"#, "X'000000'"),
        (r#"{"type":"bytes","logicalType":"decimal","precision":2,"scale":0}"#, "X'047FFF'"),
    ];
    for (schema, record) in records {
        let found = error(&format!("SELECT from_avro({record}, '{schema}')")).await;
        assert!(found.contains("malformed Avro record"), "{schema}: {found}");
        let permissive =
            format!("SELECT from_avro({record}, '{schema}', map('mode', 'PERMISSIVE')) IS NULL");
        assert_eq!(row(&permissive).await, "true", "{schema}");
    }
    // 300 records within each other.
    let deep = format!("X'{}00'", "0002".repeat(300));
    let options = "map('recursiveFieldMaxDepth', '3', 'mode', 'PERMISSIVE')";
    let sql = format!("SELECT from_avro({deep}, '{}', {options})", list.replace(['\n', ' '], ""));
    assert_eq!(row(&sql).await, "{v: , w: }");
}

#[tokio::test]
async fn calls_with_the_same_literals_share_what_was_made_of_them() {
    // Two schemas and three modes in one query, over rows of which some are malformed.
    let sql = r#"SELECT from_avro(b, '"int"', map('mode', 'PERMISSIVE')) AS i,
        from_avro(b, '"long"', map('mode', 'PERMISSIVE')) AS l,
        from_avro(b, '"int"', map('mode', 'PERMISSIVE', 'avroSchema', '"double"')) AS d
        FROM (VALUES (X'02'), (X'FFFFFFFF7F'), (X''), (NULL)) AS t(b)"#;
    let expected = ["1 | 1 | 1.0", " | -17179869184 | ", " |  | ", " |  | "];
    assert_eq!(rows(sql).await.expect("it runs"), expected);
}
