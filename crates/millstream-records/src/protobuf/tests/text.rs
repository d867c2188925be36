//! The text of a schema for columns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema as Columns, TimeUnit};

use super::super::{Options, Schema, TextError, proto_text_of};

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("element", item, false)))
}

fn map(key: DataType, value: DataType) -> DataType {
    let entries = vec![Field::new("key", key, false), Field::new("value", value, false)];
    let entries = Field::new("entries", DataType::Struct(entries.into()), false);
    DataType::Map(Arc::new(entries), false)
}

#[test]
fn columns_become_a_message_that_has_these_columns() {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let inner =
        DataType::Struct(vec![field("x", DataType::Int32), field("at", time.clone())].into());
    let columns = Columns::new(vec![
        Field::new("id", DataType::Int64, false),
        field("name", DataType::Utf8),
        field("at", time),
        field("order_line", inner.clone()),
        field("lines", list(inner.clone())),
        field("tags", list(DataType::Utf8)),
        field("by_name", map(DataType::Utf8, inner)),
        field("flags", map(DataType::Int32, DataType::Boolean)),
        field("raw", DataType::Binary),
        field("f", DataType::Float32),
        field("d", DataType::Float64),
    ]);
    let text = proto_text_of(&columns, "shop.v1.Order").unwrap();
    assert_eq!(
        text,
        r#"syntax = "proto3";

package shop.v1;

import "google/protobuf/timestamp.proto";

message Order {
  message OrderLine {
    optional int32 x = 1;
    .google.protobuf.Timestamp at = 2;
  }
  message Lines {
    optional int32 x = 1;
    .google.protobuf.Timestamp at = 2;
  }
  message ByName {
    optional int32 x = 1;
    .google.protobuf.Timestamp at = 2;
  }
  int64 id = 1;
  optional string name = 2;
  .google.protobuf.Timestamp at = 3;
  OrderLine order_line = 4;
  repeated Lines lines = 5;
  repeated string tags = 6;
  map<string, ByName> by_name = 7;
  map<int32, bool> flags = 8;
  optional bytes raw = 9;
  optional float f = 10;
  optional double d = 11;
}
"#
    );
    let schema = Schema::from_text(&text, &[], None).unwrap();
    let back = schema.columns(&Options::default()).unwrap();
    for (there, here) in columns.fields().iter().zip(back.fields()) {
        assert_eq!((there.name(), there.data_type()), (here.name(), here.data_type()));
    }
}

#[test]
fn types_without_a_counterpart_have_a_remedy() {
    let ntz = DataType::Timestamp(TimeUnit::Microsecond, None);
    let table = [
        (DataType::Decimal128(10, 2), "DECIMAL(10,2)", "STRING"),
        (DataType::Date32, "DATE", "STRING"),
        (ntz, "TIMESTAMP_NTZ", "TIMESTAMP"),
        (list(list(DataType::Int32)), "ARRAY<INT>", "STRUCT"),
        (list(map(DataType::Utf8, DataType::Utf8)), "MAP<STRING, STRING>", "STRUCT"),
        (map(DataType::Utf8, list(DataType::Int32)), "ARRAY<INT>", "STRUCT"),
        (map(DataType::Float64, DataType::Utf8), "MAP<DOUBLE, STRING>", "keys"),
    ];
    for (data_type, name, help) in table {
        let columns = Columns::new(vec![field("c", data_type)]);
        let error = proto_text_of(&columns, "M").unwrap_err();
        let TextError::Type { column, column_type, remedy } = &error else { panic!("{error}") };
        assert_eq!((column.as_str(), column_type.as_str()), ("c", name));
        assert!(remedy.contains(help), "{error}");
    }
}

#[test]
fn names_must_be_identifiers() {
    let error = |name: &str, message: &str| {
        proto_text_of(&Columns::new(vec![field(name, DataType::Int32)]), message).unwrap_err()
    };
    assert_eq!(error("a b", "M"), TextError::Name { column: "a b".to_owned() });
    assert_eq!(error("a", "M-1"), TextError::MessageName("M-1".to_owned()));
    assert!(matches!(error("a", ""), TextError::MessageName(_)));
    // The compiler refuses names that would be the same in JSON.
    let columns = vec![field("foo_bar", DataType::Int32), field("fooBar", DataType::Int32)];
    let error = proto_text_of(&Columns::new(columns), "M").unwrap_err();
    assert!(matches!(error, TextError::Invalid(_)), "{error}");
}

#[test]
fn nested_messages_do_not_take_the_name_of_a_field() {
    let inner = DataType::Struct(vec![field("_1", DataType::Int32)].into());
    let names = ["Inner", "inner", "_", "_2"];
    let columns: Vec<Field> = names.iter().map(|name| field(name, inner.clone())).collect();
    assert!(matches!(proto_text_of(&Columns::new(columns), "Inner"), Err(TextError::Invalid(_))));
    let columns: Vec<Field> = names[1..].iter().map(|name| field(name, inner.clone())).collect();
    let text = proto_text_of(&Columns::new(columns), "Inner").unwrap();
    assert!(text.contains("InnerStruct inner = 1;"), "{text}");
}

#[test]
fn reserved_numbers_are_left_out() {
    let name = |n| field(&format!("c{n}"), DataType::Int32);
    let columns = Columns::new((1..=19_002).map(name).collect::<Vec<_>>());
    let text = proto_text_of(&columns, "M").unwrap();
    assert!(text.contains(" c18999 = 18999;") && text.contains(" c19000 = 20000;"));
}
