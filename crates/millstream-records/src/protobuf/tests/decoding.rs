//! The rules by which records become rows.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, Field, Schema as Columns, TimeUnit};
use serde_json::{Value as Json, json};

use super::super::wire::WireError;
use super::super::{Decoder, Fault, Options, Plan, PlanError, Schema};
use super::{all, decode, decode_as, decode_one, float, proto2, proto3, raw, row};

fn plain(schema: &Schema, record: super::Raw) -> Json {
    decode_one(schema, &Options::default(), &record.0).unwrap()
}

fn fault(schema: &Schema, record: super::Raw) -> (String, Fault) {
    let error = decode_one(schema, &Options::default(), &record.0).unwrap_err();
    (error.path.join("."), error.fault)
}

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

#[test]
fn numbers_are_what_their_types_say() {
    let schema = proto3(
        "message M { int32 a = 1; sint32 b = 2; uint32 c = 3; fixed32 d = 4; sfixed32 e = 5;
            int64 f = 6; sint64 g = 7; uint64 h = 8; fixed64 i = 9; sfixed64 j = 10;
            float k = 11; double l = 12; bool m = 13; }",
    );
    let record = raw()
        .int(1, -2)
        .varint(2, 3)
        .varint(3, u64::from(u32::MAX))
        .fixed32(4, u32::MAX)
        .fixed32(5, u32::MAX - 1)
        .int(6, i64::MIN)
        .varint(7, u64::MAX)
        .varint(8, u64::MAX)
        .fixed64(9, 1 << 63)
        .fixed64(10, u64::MAX)
        .fixed32(11, 1.5f32.to_bits())
        .fixed64(12, f64::NAN.to_bits())
        .varint(13, 2);
    let expected = |c: Json, h: Json| {
        json!({"a": -2, "b": -2, "c": c, "d": -1, "e": -2, "f": i64::MIN, "g": i64::MIN, "h": h,
            "i": i64::MIN, "j": -1, "k": float(1.5), "l": float(f64::NAN), "m": true})
    };
    assert_eq!(plain(&schema, record.clone()), expected(json!(-1), json!(-1)));
    let options = Options { upcast_unsigned_ints: true, ..Options::default() };
    let upcast = decode_one(&schema, &options, &record.0).unwrap();
    assert_eq!(upcast, expected(json!(u32::MAX), json!(u64::MAX.to_string())));
}

#[test]
fn declared_columns_are_wider_or_checked() {
    let schema =
        proto3("message M { int32 a = 1; uint32 b = 2; float c = 3; uint64 d = 4; int32 e = 5; }");
    let fields = || {
        vec![
            field("A", DataType::Int64),
            field("b", DataType::Int64),
            field("c", DataType::Float64),
            field("d", DataType::Decimal128(20, 0)),
            field("e", DataType::Int8),
            field("none", DataType::Date32),
        ]
    };
    let record = raw().int(1, -5).varint(2, u64::from(u32::MAX)).fixed32(3, 2.5f32.to_bits());
    let record = record.varint(4, u64::MAX);
    let decoded = decode_as(&schema, fields(), &record.clone().int(5, -128).0).unwrap();
    assert_eq!(
        decoded,
        json!({"A": -5, "b": u32::MAX, "c": float(2.5), "d": u64::MAX.to_string(), "e": -128,
            "none": null})
    );
    let error = decode_as(&schema, fields(), &record.int(5, 128).0).unwrap_err();
    assert_eq!(error.fault, Fault::Range { value: 128, data_type: "TINYINT" });
    assert_eq!(
        error.to_string(),
        "malformed Protobuf record, field e: 128 does not fit into the column's type TINYINT"
    );
}

#[test]
fn columns_are_matched_in_their_case_first() {
    let schema = proto2(
        "message M { optional int32 value = 1; optional int32 VALUE = 2;
            optional int32 other = 3; }",
    );
    let record = raw().int(1, 1).int(2, 2).int(3, 3);
    let fields = vec![field("VALUE", DataType::Int32), field("OTHER", DataType::Int32)];
    let decoded = decode_as(&schema, fields, &record.0).unwrap();
    assert_eq!(decoded, json!({"VALUE": 2, "OTHER": 3}));
    let columns = Columns::new(vec![field("Value", DataType::Int32)]);
    let error = Plan::new(&schema, &Options::default(), &columns, &[0]).err().unwrap();
    assert!(matches!(error, PlanError::Ambiguous { fields, .. } if fields == ["value", "VALUE"]));
}

#[test]
fn a_column_of_another_type_is_an_error_with_a_remedy() {
    let schema = proto3(
        r#"import "google/protobuf/timestamp.proto"; import "google/protobuf/any.proto";
        import "google/protobuf/duration.proto";
        message M { int64 a = 1; string b = 2; repeated int32 c = 3; map<string, bool> d = 4;
            google.protobuf.Timestamp e = 5; google.protobuf.Any f = 6; N n = 7;
            google.protobuf.Duration g = 8; uint64 h = 9; }
        message N { bytes x = 1; }"#,
    );
    let inner = DataType::Struct(vec![field("x", DataType::Utf8)].into());
    let table = [
        ("a", DataType::Int32, "INT", "int64", "declare BIGINT"),
        ("a", DataType::Utf8, "STRING", "int64", "declare BIGINT"),
        ("b", DataType::Binary, "BINARY", "string", "declare STRING"),
        ("c", DataType::Int32, "INT", "repeated int32", "declare ARRAY<INT>"),
        ("d", DataType::Utf8, "STRING", "map<string, bool>", "declare MAP<STRING, BOOLEAN>"),
        ("e", DataType::Int64, "BIGINT", "google.protobuf.Timestamp", "declare TIMESTAMP"),
        (
            "e",
            DataType::Timestamp(TimeUnit::Microsecond, None),
            "TIMESTAMP_NTZ",
            "google.protobuf.Timestamp",
            "declare TIMESTAMP",
        ),
        ("f", DataType::Utf8, "STRING", "google.protobuf.Any", "STRUCT<type_url: STRING"),
        ("g", DataType::Int64, "BIGINT", "google.protobuf.Duration", "STRUCT<seconds: BIGINT"),
        ("h", DataType::Decimal128(19, 0), "DECIMAL(19,0)", "uint64", "declare BIGINT"),
        ("n", inner, "STRING", "bytes", "declare BINARY"),
    ];
    for (name, data_type, column, proto, help) in table {
        let columns = Columns::new(vec![field(name, data_type)]);
        let error = Plan::new(&schema, &Options::default(), &columns, &[0]).err().unwrap();
        let PlanError::Type { column_type, field_type, remedy, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((column_type.as_str(), field_type.as_str()), (column, proto));
        assert!(remedy.contains(help), "{error}");
    }
    let columns = Columns::new(vec![field("a", DataType::UInt8)]);
    assert_eq!(Decoder::new(&columns, &[0]).err().unwrap().column, "a");
}

#[test]
fn the_last_value_counts() {
    let schema = proto3("message M { int32 a = 1; string b = 2; repeated int32 c = 3; }");
    let record = raw().int(1, 1).bytes(2, "x").int(3, 1).int(1, 2).bytes(2, "longer").int(3, 2);
    let record = record.bytes(3, [3, 4]).bytes(2, "y").bytes(3, []);
    assert_eq!(plain(&schema, record), json!({"a": 2, "b": "y", "c": [1, 2, 3, 4]}));
}

#[test]
fn nested_messages_are_merged() {
    let schema = proto3(
        "message M { N n = 1; int32 z = 2; }
        message N { int32 a = 1; string b = 2; repeated int32 c = 3; N2 n = 4; }
        message N2 { int32 x = 1; int32 y = 2; }",
    );
    let record = raw()
        .nested(1, raw().int(1, 1).bytes(2, "old").int(3, 1).nested(4, raw().int(1, 7)))
        .int(2, 9)
        .nested(1, raw().bytes(2, "new").int(3, 2).nested(4, raw().int(2, 8)))
        .nested(1, raw());
    assert_eq!(
        plain(&schema, record),
        json!({"n": {"a": 1, "b": "new", "c": [1, 2], "n": {"x": 7, "y": 8}}, "z": 9})
    );
}

#[test]
fn one_member_of_a_oneof_is_left() {
    let schema = proto3(
        "message M { oneof o { int32 a = 1; N b = 2; string c = 3; } }
        message N { int32 x = 1; int32 y = 2; }",
    );
    let record = raw().int(1, 5).bytes(3, "text");
    assert_eq!(plain(&schema, record), json!({"a": null, "b": null, "c": "text"}));
    // The message that another member replaced does not come back.
    let record = raw().nested(2, raw().int(1, 1)).int(1, 5).nested(2, raw().int(2, 2));
    assert_eq!(plain(&schema, record), json!({"a": null, "b": {"x": null, "y": 2}, "c": null}));
    let record = raw().nested(2, raw().int(1, 1)).int(1, 0);
    assert_eq!(plain(&schema, record), json!({"a": 0, "b": null, "c": null}));
    // A member that no column wants replaces one all the same.
    let fields = vec![field("a", DataType::Int32)];
    let decoded = decode_as(&schema, fields, &raw().int(1, 5).bytes(3, "x").0).unwrap();
    assert_eq!(decoded, json!({"a": null}));
}

#[test]
fn lists_are_packed_or_not() {
    let schema = proto2(
        "message M { repeated fixed32 a = 1 [packed = true]; repeated sint64 b = 2;
            repeated bool c = 3; repeated double d = 4; repeated string e = 5; }",
    );
    let mut fixed = 1u32.to_le_bytes().to_vec();
    fixed.extend(2u32.to_le_bytes());
    let record = raw().bytes(1, &fixed).fixed32(1, 3).bytes(2, [1, 2]).varint(2, 3);
    let record = record.varint(3, 1).bytes(3, [0, 1]).bytes(4, 1f64.to_le_bytes()).bytes(5, "t");
    assert_eq!(
        plain(&schema, record),
        json!({"a": [1, 2, 3], "b": [-1, 1, -2], "c": [true, false, true], "d": [float(1.0)],
            "e": ["t"]})
    );
    assert_eq!(
        fault(&schema, raw().bytes(1, &fixed[..7])),
        ("a".to_owned(), WireError::Truncated.into())
    );
}

#[test]
fn the_last_entry_of_a_key_counts() {
    let schema = proto3(
        "message M { map<string, int32> a = 1; map<int32, N> b = 2; }
        message N { int32 x = 1; int32 y = 2; }",
    );
    let entry = |key: &str, value| raw().bytes(1, key).int(2, value);
    let record = raw()
        .nested(1, entry("k", 1))
        .nested(2, raw().int(1, 7).nested(2, raw().int(1, 1)).nested(2, raw().int(2, 2)))
        .nested(1, entry("l", 2))
        .nested(1, raw().int(2, 3).bytes(1, "k"))
        .nested(1, raw());
    assert_eq!(
        plain(&schema, record),
        json!({"a": {"\"k\"": 3, "\"l\"": 2, "\"\"": 0}, "b": {"7": {"x": 1, "y": 2}}})
    );
    let mut many = raw();
    for at in 0..100 {
        many = many.nested(1, entry(&format!("k{}", at % 30), at));
    }
    let decoded = plain(&schema, many.nested(2, raw()));
    assert_eq!(decoded["a"].as_object().unwrap().len(), 30);
    assert_eq!(decoded["a"]["\"k9\""], json!(99));
    assert_eq!(decoded["b"], json!({"0": {"x": null, "y": null}}));
}

#[test]
fn absent_fields_are_null_unless_defaults_are_emitted() {
    let schema = proto3(
        r#"import "google/protobuf/wrappers.proto";
        message M { int32 a = 1; optional int32 b = 2; string c = 3; E d = 4; N e = 5;
            repeated int32 f = 6; map<int32, int32> g = 7; oneof o { int32 h = 8; }
            google.protobuf.Int32Value i = 9; google.protobuf.StringValue j = 10; }
        enum E { ZERO = 0; } message N { double x = 1; }"#,
    );
    let absent = json!({"a": null, "b": null, "c": null, "d": null, "e": null, "f": [], "g": {},
        "h": null, "i": null, "j": null});
    assert_eq!(plain(&schema, raw()), absent);
    // A field without presence that is there with its default value is absent.
    let record = raw().int(1, 3).int(1, 0).bytes(3, "").int(4, 0);
    assert_eq!(plain(&schema, record), absent);

    let unwrap = Options { unwrap_primitive_wrapper_types: true, ..Options::default() };
    let emit = Options { emit_default_values: true, ..unwrap.clone() };
    let decoded = decode_one(&schema, &emit, &raw().nested(5, raw()).nested(9, raw()).0).unwrap();
    assert_eq!(
        decoded,
        json!({"a": 0, "b": null, "c": "", "d": "ZERO", "e": {"x": float(0.0)}, "f": [], "g": {},
            "h": null, "i": 0, "j": null})
    );
    // As in Spark, a wrapper whose value is the default one is null without the option.
    let record = raw().nested(9, raw()).nested(10, raw().bytes(1, "x"));
    let decoded = decode_one(&schema, &unwrap, &record.0).unwrap();
    assert_eq!((&decoded["i"], &decoded["j"]), (&json!(null), &json!("x")));
}

#[test]
fn proto2_has_defaults_of_its_own() {
    let schema = proto2(
        r#"message M { optional int32 a = 1 [default = -7]; optional string b = 2 [default = "d"];
            optional E c = 3 [default = TWO]; optional E d = 4;
            optional float e = 5 [default = 1.5];
            optional bytes f = 6 [default = "\001"]; optional uint64 g = 7
            [default = 18446744073709551615]; }
        enum E { ONE = 1; TWO = 2; }"#,
    );
    assert_eq!(
        plain(&schema, raw()),
        json!({"a": -7, "b": "d", "c": "TWO", "d": null, "e": float(1.5), "f": [1], "g": -1})
    );
    assert_eq!(plain(&schema, raw().int(1, 0))["a"], json!(0));
}

#[test]
fn enums_have_names_or_numbers() {
    let open = proto3("message M { E a = 1; repeated E b = 2; } enum E { A = 0; B = 5; C = -1; }");
    let record = raw().int(1, 5).int(2, -1).bytes(2, [0, 9]);
    assert_eq!(
        plain(&open, record.clone()),
        json!({"a": "B", "b": ["C", "A", "UNKNOWN_ENUM_VALUE_E_9"]})
    );
    let ints = Options { enums_as_ints: true, ..Options::default() };
    let decoded = decode_one(&open, &ints, &record.0).unwrap();
    assert_eq!(decoded, json!({"a": 5, "b": [-1, 0, 9]}));

    let alias = proto3(
        "message M { E a = 1; }
        enum E { option allow_alias = true; A = 0; Z = 1; B = 1; }",
    );
    assert_eq!(plain(&alias, raw().int(1, 1)), json!({"a": "Z"}));
}

#[test]
fn closed_enums_have_their_values_only() {
    let closed = proto2(
        "message M { optional E a = 1; optional N n = 2; }
        message N { optional E a = 1; repeated E b = 2; oneof o { E c = 3; int32 d = 4; } }
        enum E { A = 0; B = 5; }",
    );
    assert_eq!(fault(&closed, raw().int(1, 9)), ("a".to_owned(), Fault::Enum(9)));
    let nested = raw().int(1, 5).int(1, 9).bytes(2, [0, 9, 5]).int(2, 9).int(4, 7).int(3, 9);
    assert_eq!(
        plain(&closed, raw().nested(2, nested))["n"],
        json!({"a": "B", "b": ["A", "B"], "c": null, "d": 7})
    );
}

#[test]
fn a_field_of_another_wire_type_is_refused_in_the_record_and_ignored_below() {
    let schema = proto3(
        "message M { int32 a = 1; N n = 2; repeated string l = 3; }
        message N { int32 a = 1; }",
    );
    let expected = Fault::WireType { expected: 0, found: 5 };
    assert_eq!(fault(&schema, raw().fixed32(1, 1)), ("a".to_owned(), expected));
    assert!(matches!(fault(&schema, raw().int(3, 1)).1, Fault::WireType { expected: 2, found: 0 }));
    let nested = raw().int(1, 4).bytes(1, "text").fixed64(1, 3);
    assert_eq!(plain(&schema, raw().nested(2, nested))["n"], json!({"a": 4}));
}

#[test]
fn required_fields_are_required() {
    let schema = proto2(
        "message M { required int32 a = 1; optional N n = 2; optional int32 b = 3; }
        message N { required string x = 1; optional int32 y = 2; }",
    );
    assert_eq!(fault(&schema, raw()), ("a".to_owned(), Fault::Required));
    let record = raw().int(1, 0).nested(2, raw().int(2, 1));
    assert_eq!(fault(&schema, record), ("n.x".to_owned(), Fault::Required));
    // Also when no column wants them.
    let fields = || vec![field("b", DataType::Int32)];
    assert!(decode_as(&schema, fields(), &raw().int(3, 1).0).is_err());
    assert!(decode_as(&schema, fields(), &raw().int(3, 1).int(1, 1).0).is_ok());
}

#[test]
fn groups_are_messages() {
    let schema = proto2(
        "message M { optional group One = 1 { optional int32 a = 2;
        repeated group Many = 3 { optional string b = 4; } } optional int32 z = 5; }",
    );
    let many = |text: &str| raw().bytes(4, text);
    let one = raw().int(2, 1).group(3, many("x")).group(3, many("y"));
    let record = raw().group(1, one).int(5, 6).group(1, raw().int(2, 2));
    assert_eq!(
        plain(&schema, record),
        json!({"one": {"a": 2, "many": [{"b": "x"}, {"b": "y"}]}, "z": 6})
    );
}

#[test]
fn unknown_fields_are_skipped() {
    let schema = proto3("message M { int32 a = 1; }");
    let unknown = raw().int(7, 1).fixed32(8, 1).fixed64(9, 1).bytes(10, "xyz");
    let record = raw().group(70_000, unknown.clone().group(3, raw())).int(1, 5);
    let record = super::Raw([unknown.0, record.0].concat());
    assert_eq!(plain(&schema, record), json!({"a": 5}));
}

#[test]
fn text_is_utf8() {
    let schema =
        proto3("message M { string a = 1; N n = 2; } message N { repeated string b = 1; }");
    assert_eq!(fault(&schema, raw().bytes(1, [0xff])), ("a".to_owned(), Fault::Utf8));
    let record = raw().nested(2, raw().bytes(1, "ä").bytes(1, [0xc3]));
    assert_eq!(fault(&schema, record), ("n.b".to_owned(), Fault::Utf8));
    // In proto2 the Java library replaces what is invalid.
    let loose = proto2("message M { optional string a = 1; }");
    assert_eq!(plain(&loose, raw().bytes(1, [b'x', 0xff])), json!({"a": "x\u{fffd}"}));
    let strict =
        proto2("option java_string_check_utf8 = true; message M { optional string a = 1; }");
    assert_eq!(fault(&strict, raw().bytes(1, [0xff])).1, Fault::Utf8);
}

#[test]
fn timestamps_are_microseconds() {
    let schema = proto3(
        r#"import "google/protobuf/timestamp.proto";
        message M { google.protobuf.Timestamp a = 1; repeated google.protobuf.Timestamp b = 2; }"#,
    );
    let time = |seconds: i64, nanos: i64| raw().int(1, seconds).int(2, nanos);
    let record = raw().nested(1, raw().int(1, 5)).nested(1, raw().int(2, 7_999));
    let record = record.nested(2, time(-1, 1_000)).nested(2, raw());
    assert_eq!(plain(&schema, record), json!({"a": 5_000_007, "b": [-999_999, 0]}));
    assert_eq!(
        fault(&schema, raw().nested(1, time(i64::MAX, 0))),
        ("a".to_owned(), Fault::Timestamp { seconds: i64::MAX })
    );
}

#[test]
fn wrappers_in_lists_and_maps_are_never_null() {
    let schema = proto3(
        r#"import "google/protobuf/wrappers.proto";
        message M { repeated google.protobuf.Int64Value a = 1;
            map<string, google.protobuf.BoolValue> b = 2; }"#,
    );
    let options = Options { unwrap_primitive_wrapper_types: true, ..Options::default() };
    let record = raw().nested(1, raw()).nested(1, raw().int(1, 4)).nested(2, raw().bytes(1, "k"));
    let decoded = decode_one(&schema, &options, &record.0).unwrap();
    assert_eq!(decoded, json!({"a": [0, 4], "b": {"\"k\"": false}}));
}

#[test]
fn nesting_has_a_limit() {
    let schema = proto3("message M { int32 a = 1; M m = 2; }");
    // As deep as columns and records may be.
    let mut data_type = DataType::Int32;
    let mut record = raw().int(1, 7);
    for _ in 0..99 {
        let name = if data_type == DataType::Int32 { "a" } else { "m" };
        data_type = DataType::Struct(vec![field(name, data_type)].into());
        record = raw().nested(2, record);
    }
    let columns = Columns::new(vec![field("m", data_type.clone())]);
    let plan = Plan::new(&schema, &Options::default(), &columns, &[0]).unwrap();
    let mut decoder = Decoder::new(&columns, &[0]).unwrap();
    decoder.append(&plan, &record.0).unwrap();
    assert_eq!(decoder.finish().column(0).null_count(), 0);
    for _ in 0..2 {
        data_type = DataType::Struct(vec![field("m", data_type)].into());
    }
    let columns = Columns::new(vec![field("m", data_type)]);
    let error = Plan::new(&schema, &Options::default(), &columns, &[0]).err().unwrap();
    assert!(matches!(error, PlanError::TooDeep { .. }));
}

#[test]
fn projections_keep_the_number_of_rows() {
    let schema = proto3("message M { int32 a = 1; string b = 2; }");
    let columns = schema.columns(&Options::default()).unwrap();
    let record = raw().int(1, 1).bytes(2, "x").0;
    for (projection, expected) in
        [(vec![], json!({})), (vec![1], json!({"b": "x"})), (vec![1, 0], json!({"a": 1, "b": "x"}))]
    {
        let plan = Plan::new(&schema, &Options::default(), &columns, &projection).unwrap();
        let mut decoder = Decoder::new(&columns, &projection).unwrap();
        decoder.append(&plan, &record).unwrap();
        decoder.append(&plan, &record).unwrap();
        decoder.append_null();
        assert_eq!(decoder.rows(), 3);
        let batch = decoder.finish();
        assert_eq!((batch.num_rows(), batch.num_columns()), (3, projection.len()));
        assert_eq!(row(&batch, 1), expected);
        assert_eq!((decoder.rows(), decoder.finish().num_rows()), (0, 0));
    }
}

#[test]
fn a_plan_for_other_columns_is_refused() {
    let schema = proto3("message M { int32 a = 1; string b = 2; }");
    let columns = schema.columns(&Options::default()).unwrap();
    let plan = Plan::new(&schema, &Options::default(), &columns, &[0]).unwrap();
    for projection in [vec![], vec![1], vec![0, 1]] {
        let mut decoder = Decoder::new(&columns, &projection).unwrap();
        assert_eq!(decoder.append(&plan, &[]).unwrap_err().fault, Fault::OtherColumns);
    }
}

#[test]
fn columns_that_are_not_null_refuse_nulls() {
    let schema = proto3("message M { int32 a = 1; N n = 2; } message N { optional int32 x = 1; }");
    let inner = DataType::Struct(vec![Field::new("x", DataType::Int32, false)].into());
    let columns = || vec![Field::new("a", DataType::Int32, false), field("n", inner.clone())];
    let error = decode_as(&schema, columns(), &[]).unwrap_err();
    assert_eq!((error.path.join("."), error.fault), ("a".to_owned(), Fault::Null));
    let error = decode_as(&schema, columns(), &raw().int(1, 1).nested(2, raw()).0).unwrap_err();
    assert_eq!((error.path.join("."), error.fault), ("n.x".to_owned(), Fault::Null));
    let decoded = decode_as(&schema, columns(), &raw().int(1, 1).0).unwrap();
    assert_eq!(decoded, json!({"a": 1, "n": null}));
    // The row of a malformed record is null whatever is declared.
    let mut decoder = Decoder::new(&Columns::new(columns()), &[0, 1]).unwrap();
    decoder.append_null();
    let batch = decoder.finish();
    assert_eq!(batch.column(0).null_count(), 1);
    assert!(batch.schema().field(0).is_nullable());
}

#[test]
fn one_decoder_takes_records_of_several_schemas() {
    let old = proto3("message M { int32 a = 1; }");
    let new = proto3("message M { string b = 1; int64 a = 2; }");
    let columns = Columns::new(vec![field("a", DataType::Int64), field("b", DataType::Utf8)]);
    let plan = |schema| Plan::new(schema, &Options::default(), &columns, &all(&columns)).unwrap();
    let mut decoder = Decoder::new(&columns, &all(&columns)).unwrap();
    decoder.append(&plan(&old), &raw().int(1, 1).0).unwrap();
    decoder.append(&plan(&new), &raw().bytes(1, "x").int(2, 2).0).unwrap();
    let batch = decoder.finish();
    assert_eq!(row(&batch, 0), json!({"a": 1, "b": null}));
    assert_eq!(row(&batch, 1), json!({"a": 2, "b": "x"}));
}

#[test]
fn messages_may_have_hundreds_of_fields() {
    let fields: String = (1..=400).map(|n| format!("optional int32 f{n} = {};", n * 3)).collect();
    let schema = proto2(&format!("message M {{ {fields} }}"));
    let record =
        (1..=400).rev().step_by(2).fold(raw(), |record, n| record.int(n * 3, i64::from(n)));
    let batch = decode(&schema, &Options::default(), &[record.0]);
    let row = row(&batch, 0);
    assert_eq!((&row["f400"], &row["f399"], &row["f2"]), (&json!(400), &json!(null), &json!(2)));
    assert_eq!(Arc::strong_count(batch.column(0)), 1);
}
