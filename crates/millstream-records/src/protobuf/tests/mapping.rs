//! The columns of a message, as Spark has them.

use arrow::datatypes::{DataType, TimeUnit};

use super::super::{MappingError, Options};
use super::{proto2, proto3};
use crate::types::spark_type;

/// The type of the column `a` of a message with the one field `declaration`.
fn mapped(declaration: &str, options: &Options) -> String {
    let schema = proto3(&format!(
        r#"import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
        import "google/protobuf/wrappers.proto"; import "google/protobuf/any.proto";
        message M {{ {declaration} a = 1; }}
        message Inner {{ string x = 1; repeated int32 y = 2; }}
        enum Color {{ RED = 0; GREEN = 1; }}"#
    ));
    let columns = schema.columns(options).unwrap();
    assert_eq!(columns.fields().len(), 1);
    spark_type(columns.field(0).data_type())
}

#[test]
fn types_are_those_of_spark() {
    let table = [
        ("int32", "INT", "INT"),
        ("sint32", "INT", "INT"),
        ("sfixed32", "INT", "INT"),
        ("uint32", "INT", "BIGINT"),
        ("fixed32", "INT", "INT"),
        ("int64", "BIGINT", "BIGINT"),
        ("sint64", "BIGINT", "BIGINT"),
        ("sfixed64", "BIGINT", "BIGINT"),
        ("uint64", "BIGINT", "DECIMAL(20,0)"),
        ("fixed64", "BIGINT", "BIGINT"),
        ("float", "FLOAT", "FLOAT"),
        ("double", "DOUBLE", "DOUBLE"),
        ("bool", "BOOLEAN", "BOOLEAN"),
        ("string", "STRING", "STRING"),
        ("bytes", "BINARY", "BINARY"),
        ("Color", "STRING", "INT"),
        ("Inner", "STRUCT<x: STRING, y: ARRAY<INT>>", "STRUCT<x: STRING, y: ARRAY<INT>>"),
        ("repeated uint32", "ARRAY<INT>", "ARRAY<BIGINT>"),
        ("repeated Color", "ARRAY<STRING>", "ARRAY<INT>"),
        ("map<string, int64>", "MAP<STRING, BIGINT>", "MAP<STRING, BIGINT>"),
        ("map<uint32, Color>", "MAP<INT, STRING>", "MAP<BIGINT, INT>"),
        ("google.protobuf.Timestamp", "TIMESTAMP", "TIMESTAMP"),
        (
            "google.protobuf.Duration",
            "STRUCT<seconds: BIGINT, nanos: INT>",
            "STRUCT<seconds: BIGINT, nanos: INT>",
        ),
        (
            "google.protobuf.Any",
            "STRUCT<type_url: STRING, value: BINARY>",
            "STRUCT<type_url: STRING, value: BINARY>",
        ),
        ("google.protobuf.BoolValue", "STRUCT<value: BOOLEAN>", "BOOLEAN"),
        ("google.protobuf.UInt32Value", "STRUCT<value: INT>", "BIGINT"),
        ("google.protobuf.UInt64Value", "STRUCT<value: BIGINT>", "DECIMAL(20,0)"),
        ("google.protobuf.StringValue", "STRUCT<value: STRING>", "STRING"),
        ("repeated google.protobuf.DoubleValue", "ARRAY<STRUCT<value: DOUBLE>>", "ARRAY<DOUBLE>"),
        ("optional int32", "INT", "INT"),
    ];
    let changed = Options {
        enums_as_ints: true,
        upcast_unsigned_ints: true,
        unwrap_primitive_wrapper_types: true,
        ..Options::default()
    };
    for (declaration, plain, with_options) in table {
        assert_eq!(mapped(declaration, &Options::default()), plain, "{declaration}");
        assert_eq!(mapped(declaration, &changed), with_options, "{declaration}");
    }
}

#[test]
fn what_can_be_null_is_what_spark_says() {
    let schema = proto2(
        "message M { required int32 a = 1; optional int32 b = 2; repeated int32 c = 3;
            map<string, int32> d = 5; oneof o { int32 e = 6; } }",
    );
    let columns = schema.columns(&Options::default()).unwrap();
    let nullable: Vec<bool> = columns.fields().iter().map(|field| field.is_nullable()).collect();
    assert_eq!(nullable, [false, true, true, true, true]);
    let DataType::List(item) = columns.field(2).data_type() else { panic!("a list") };
    assert_eq!((item.name().as_str(), item.is_nullable()), ("element", false));
    let DataType::Map(entries, false) = columns.field(3).data_type() else { panic!("a map") };
    assert_eq!(entries.name(), "entries");
    let DataType::Struct(parts) = entries.data_type() else { panic!("a struct") };
    assert!(parts.iter().all(|part| !part.is_nullable()));
}

#[test]
fn columns_are_in_the_order_of_declaration() {
    let schema = proto3("message M { int32 z = 9; int32 a = 3; int32 m = 5; }");
    let columns = schema.columns(&Options::default()).unwrap();
    let names: Vec<_> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
}

#[test]
fn any_message_called_timestamp_is_one_if_it_looks_like_it() {
    let schema = proto3(
        "message M { Timestamp a = 1; Other.Timestamp b = 2; }
        message Timestamp { int64 seconds = 7; int32 nanos = 8; }
        message Other { message Timestamp { int64 seconds = 1; int64 nanos = 2; } }",
    );
    let columns = schema.columns(&Options::default()).unwrap();
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    assert_eq!(columns.field(0).data_type(), &time);
    assert_eq!(spark_type(columns.field(1).data_type()), "STRUCT<seconds: BIGINT, nanos: BIGINT>");
}

#[test]
fn recursion_ends_where_the_option_says() {
    let schema = proto3("message Person { string name = 1; Person bff = 2; }");
    let columns = |depth| {
        let options = Options { recursive_fields_max_depth: depth, ..Options::default() };
        let columns = schema.columns(&options)?;
        Ok(spark_type(&DataType::Struct(columns.fields)))
    };
    let error = |field: &str| MappingError::Recursion {
        field: field.to_owned(),
        message: "Person".to_owned(),
    };
    for depth in [-1, 0, 11] {
        assert_eq!(columns(depth), Err(error("Person.bff")), "{depth}");
    }
    assert!(error("Person.bff").to_string().contains("recursive.fields.max.depth"));
    assert_eq!(columns(1).unwrap(), "STRUCT<name: STRING>");
    assert_eq!(columns(2).unwrap(), "STRUCT<name: STRING, bff: STRUCT<name: STRING>>");
    assert_eq!(
        columns(3).unwrap(),
        "STRUCT<name: STRING, bff: STRUCT<name: STRING, bff: STRUCT<name: STRING>>>"
    );
    assert!(columns(10).is_ok());
}

#[test]
fn recursion_in_arrays_and_maps_takes_them_away() {
    let schema = proto3(
        "message M { int32 a = 1; repeated M b = 2; map<string, M> c = 3; Other d = 4; }
        message Other { M m = 1; }",
    );
    let options = Options { recursive_fields_max_depth: 1, ..Options::default() };
    let columns = schema.columns(&options).unwrap();
    assert_eq!(spark_type(&DataType::Struct(columns.fields)), "STRUCT<a: INT>");
}

#[test]
fn messages_without_fields_are_left_out_or_kept() {
    let schema = proto3("message M { Empty a = 1; int32 b = 2; } message Empty {}");
    let columns = schema.columns(&Options::default()).unwrap();
    assert_eq!(spark_type(&DataType::Struct(columns.fields)), "STRUCT<b: INT>");
    let options = Options { retain_empty_message_types: true, ..Options::default() };
    let columns = schema.columns(&options).unwrap();
    assert_eq!(
        spark_type(&DataType::Struct(columns.fields)),
        "STRUCT<a: STRUCT<__dummy_field_in_empty_struct: STRING>, b: INT>"
    );
    let empty = schema.with_message("Empty").unwrap();
    assert_eq!(empty.columns(&Options::default()).unwrap().fields().len(), 0);
    assert_eq!(empty.columns(&options).unwrap().fields().len(), 1);
}

#[test]
fn any_is_not_converted_to_json() {
    let schema =
        proto3(r#"import "google/protobuf/any.proto"; message M { google.protobuf.Any a = 1; }"#);
    let options = Options { convert_any_fields_to_json: true, ..Options::default() };
    assert_eq!(schema.columns(&options), Err(MappingError::AnyToJson { field: "M.a".to_owned() }));
}

#[test]
fn types_that_multiply_are_refused() {
    let mut text = "message M0 { int32 a = 1; }".to_owned();
    for level in 1..60 {
        let inner = level - 1;
        text = format!("message M{level} {{ M{inner} a = 1; M{inner} b = 2; }} {text}");
    }
    let error = proto3(&text).columns(&Options::default()).unwrap_err();
    assert!(matches!(error, MappingError::TooManyFields { .. }), "{error}");

    let mut deep = "message M0 { int32 a = 1; }".to_owned();
    for level in 1..150 {
        deep = format!("message M{level} {{ M{} a = 1; }} {deep}", level - 1);
    }
    let error = proto3(&deep).columns(&Options::default()).unwrap_err();
    assert!(matches!(error, MappingError::TooDeep { .. }), "{error}");
}

#[test]
fn options_have_the_names_of_spark() {
    let mut options = Options::default();
    assert_eq!(options.set("Recursive.Fields.Max.Depth", "3"), Ok(true));
    assert_eq!(options.set("enums.as.ints", "TRUE"), Ok(true));
    assert_eq!(options.set("mode", "PERMISSIVE"), Ok(false));
    assert_eq!((options.recursive_fields_max_depth, options.enums_as_ints), (3, true));
    let error = options.set("emit.default.values", "yes").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the option emit.default.values cannot be \"yes\": it takes true or false"
    );
    assert!(options.set("recursive.fields.max.depth", "deep").is_err());
}
