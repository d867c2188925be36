//! The rules by which rows become records.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, Date32Array, Decimal128Array, Float32Array, Int8Array,
    Int32Array, Int64Array, ListArray, MapArray, RecordBatch, StringArray, StringViewArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Int32Type};

use super::super::{EncodeError, Encoder, EncoderError, Schema};
use super::{Raw, proto2, proto3, raw};

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let columns = columns.iter().map(|(name, array)| (*name, Arc::clone(array), true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn encode(schema: &Schema, batch: &RecordBatch) -> Result<BinaryArray, EncodeError> {
    Encoder::new(schema, &batch.schema()).unwrap().encode(batch, &[])
}

fn refusal(schema: &Schema, batch: &RecordBatch) -> EncoderError {
    Encoder::new(schema, &batch.schema()).err().unwrap()
}

fn one(schema: &Schema, name: &str, array: impl Array + 'static) -> Raw {
    let encoded = encode(schema, &batch(&[(name, Arc::new(array))])).unwrap();
    Raw(encoded.value(0).to_vec())
}

fn ints(values: &[Option<i32>]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

#[test]
fn fields_are_in_the_order_of_their_numbers() {
    let schema = proto3("message M { int32 z = 1; int32 y = 2; int32 x = 300; }");
    let batch = batch(&[("X", ints(&[Some(3)])), ("z", ints(&[Some(1)])), ("y", ints(&[Some(2)]))]);
    let encoded = encode(&schema, &batch).unwrap();
    assert_eq!(encoded.value(0), raw().int(1, 1).int(2, 2).int(300, 3).0);
    let prefixed = Encoder::new(&schema, &batch.schema()).unwrap().encode(&batch, b"\0p").unwrap();
    assert_eq!(prefixed.value(0), [b"\0p".to_vec(), encoded.value(0).to_vec()].concat());
}

#[test]
fn nulls_are_absent_and_so_are_defaults_without_presence() {
    let schema =
        proto3("message M { int32 a = 1; optional int32 b = 2; double c = 3; string d = 4; }");
    let rows = |values: &[Option<i32>]| {
        let batch = batch(&[("a", ints(values)), ("b", ints(values))]);
        let encoded = encode(&schema, &batch).unwrap();
        encoded.iter().map(|record| record.unwrap().to_vec()).collect::<Vec<_>>()
    };
    let expected = [raw(), raw().int(2, 0), raw().int(1, -1).int(2, -1)].map(|raw| raw.0);
    assert_eq!(rows(&[None, Some(0), Some(-1)]), expected);
    // Negative zero is not the default value, nor is a text of zeros.
    let zero = Float32Array::from(vec![-0.0]);
    assert_eq!(one(&schema, "c", zero).0, raw().fixed64(3, (-0.0f64).to_bits()).0);
    assert_eq!(one(&schema, "d", StringArray::from(vec!["\0"])).0, raw().bytes(4, "\0").0);
    assert_eq!(one(&schema, "d", StringArray::from(vec![""])).0, raw().0);
}

#[test]
fn required_fields_need_values() {
    let schema = proto2("message M { required int32 a = 1; optional int32 b = 2; }");
    let error = encode(&schema, &batch(&[("a", ints(&[Some(0), None]))])).unwrap_err();
    assert_eq!(error, EncodeError::Null { row: 1, field: "a".to_owned() });
    let error = refusal(&schema, &batch(&[("b", ints(&[Some(1)]))]));
    let (field, message) = ("a".to_owned(), "M".to_owned());
    assert_eq!(error, EncoderError::Required { field, message });
    assert_eq!(one(&schema, "a", Int32Array::from(vec![0])).0, raw().int(1, 0).0);
}

#[test]
fn a_column_needs_a_field() {
    let schema = proto3("message M { int32 a = 1; int32 b = 2; }");
    let error = refusal(&schema, &batch(&[("c", ints(&[None]))]));
    assert_eq!(
        error.to_string(),
        "the message M has no field for the column c; it has [\"a\", \"b\"]"
    );
    let error = refusal(&schema, &batch(&[("a", ints(&[None])), ("A", ints(&[None]))]));
    assert!(matches!(error, EncoderError::Twice { .. }), "{error}");
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let error = refusal(&schema, &batch(&[("a", texts)]));
    assert_eq!(
        error.to_string(),
        "the column a of the type STRING cannot become the field M.a of the type int32: \
         convert the column to INT in the query"
    );
}

#[test]
fn numbers_take_columns_of_their_size_or_less() {
    let schema =
        proto3("message M { int64 a = 1; uint32 b = 2; uint64 c = 3; sint32 d = 4; int32 e = 5; }");
    assert_eq!(one(&schema, "a", Int8Array::from(vec![-3])).0, raw().int(1, -3).0);
    assert_eq!(one(&schema, "b", Int32Array::from(vec![-1])).0, raw().varint(2, 0xffff_ffff).0);
    let large = Int64Array::from(vec![0xffff_ffff]);
    assert_eq!(one(&schema, "b", large).0, raw().varint(2, 0xffff_ffff).0);
    assert_eq!(one(&schema, "c", Int64Array::from(vec![-1])).0, raw().varint(3, u64::MAX).0);
    let decimal =
        |value| Decimal128Array::from(vec![value]).with_data_type(DataType::Decimal128(20, 0));
    assert_eq!(one(&schema, "c", decimal(u64::MAX.into())).0, raw().varint(3, u64::MAX).0);
    assert_eq!(one(&schema, "d", Int32Array::from(vec![-2])).0, raw().varint(4, 3).0);
    assert_eq!(one(&schema, "e", Date32Array::from(vec![19_000])).0, raw().int(5, 19_000).0);

    let out_of_range: [(&str, ArrayRef); 4] = [
        ("b", Arc::new(Int64Array::from(vec![1 << 32]))),
        ("b", Arc::new(Int64Array::from(vec![-1]))),
        ("c", Arc::new(decimal(-1))),
        ("c", ints(&[Some(-1)])),
    ];
    for (name, array) in out_of_range {
        let error = encode(&schema, &batch(&[(name, array)])).unwrap_err();
        assert!(matches!(error, EncodeError::Range { row: 0, .. }), "{error}");
    }
    let long: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    assert!(matches!(refusal(&schema, &batch(&[("e", long)])), EncoderError::Type { .. }));
}

#[test]
fn enums_take_names_and_numbers() {
    let schema = proto3("message M { E a = 1; } enum E { A = 0; B = 5; }");
    assert_eq!(one(&schema, "a", StringArray::from(vec!["B"])).0, raw().int(1, 5).0);
    assert_eq!(one(&schema, "a", StringViewArray::from(vec!["B"])).0, raw().int(1, 5).0);
    assert_eq!(one(&schema, "a", Int32Array::from(vec![9])).0, raw().int(1, 9).0);
    let names: ArrayRef = Arc::new(StringArray::from(vec!["A", "C"]));
    let error = encode(&schema, &batch(&[("a", names)])).unwrap_err();
    assert_eq!(error.to_string(), "row 1: the field a cannot be \"C\", which E does not have");
    let closed = proto2("message M { optional E a = 1; } enum E { A = 0; B = 5; }");
    let error = encode(&closed, &batch(&[("a", ints(&[Some(9)]))])).unwrap_err();
    assert!(matches!(error, EncodeError::Enum { row: 0, .. }), "{error}");
}

#[test]
fn timestamps_are_seconds_and_nanoseconds() {
    let schema = proto3(
        r#"import "google/protobuf/timestamp.proto";
        message M { google.protobuf.Timestamp a = 1; }"#,
    );
    let time = |micros| TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC");
    let expected = raw().nested(1, raw().int(1, 1).int(2, 500_000_000));
    assert_eq!(one(&schema, "a", time(1_500_000)).0, expected.0);
    let expected = raw().nested(1, raw().int(1, -1).int(2, 999_999_000));
    assert_eq!(one(&schema, "a", time(-1)).0, expected.0);
    assert_eq!(one(&schema, "a", time(0)).0, raw().nested(1, raw()).0);
}

#[test]
fn lists_are_packed_where_the_schema_says_so() {
    let schema = proto3(
        "message M { repeated sint32 a = 1; repeated sint32 b = 2 [packed = false];
            repeated E c = 3; }
        enum E { A = 0; B = 1; }",
    );
    let list = |items: Vec<Option<i32>>| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(items)]))
    };
    let items = || list(vec![Some(1), Some(-1)]);
    let row = batch(&[("a", items()), ("b", items()), ("c", list(vec![Some(1), Some(7)]))]);
    let encoded = encode(&schema, &row).unwrap();
    let expected = raw().bytes(1, [2, 1]).varint(2, 2).varint(2, 1).bytes(3, [1, 7]);
    assert_eq!(encoded.value(0), expected.0);
    let empty = batch(&[("a", list(vec![])), ("b", list(vec![]))]);
    assert_eq!(encode(&schema, &empty).unwrap().value(0), b"");
    let error = encode(&schema, &batch(&[("a", list(vec![Some(1), None]))])).unwrap_err();
    assert_eq!(error, EncodeError::NullElement { row: 0, field: "a".to_owned() });
}

#[test]
fn maps_have_a_key_and_a_value_in_every_entry() {
    let schema = proto3("message M { map<string, int32> a = 1; }");
    let keys = Arc::new(StringArray::from(vec!["", "k"]));
    let values = ints(&[Some(0), None]);
    let fields =
        vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int32, true)];
    let entries = StructArray::new(fields.into(), vec![keys, values], None);
    let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let map = MapArray::new(field, OffsetBuffer::from_lengths([2]), entries, None, false);
    let entry = |key: &str, value| raw().bytes(1, key).int(2, value);
    let expected = raw().nested(1, entry("", 0)).nested(1, entry("k", 0));
    assert_eq!(one(&schema, "a", map).0, expected.0);
}

#[test]
fn errors_name_the_path_and_the_row() {
    let schema = proto2("message M { optional N n = 1; } message N { required int32 x = 1; }");
    let fields = vec![Field::new("x", DataType::Int32, true)];
    let nulls = NullBuffer::from(vec![true, false, true]);
    let values = ints(&[Some(1), None, None]);
    let structs = StructArray::new(fields.into(), vec![values], Some(nulls));
    let error = encode(&schema, &batch(&[("n", Arc::new(structs))])).unwrap_err();
    assert_eq!(error, EncodeError::Null { row: 2, field: "n.x".to_owned() });
}

#[test]
fn an_exact_encoder_refuses_what_would_be_read_as_another_value() {
    let schema = proto3(
        "message M { int32 plain = 1; optional int32 some = 2; repeated int32 list = 3;
            uint32 natural = 4; fixed64 wide = 5; }",
    );
    let exact = |name: &str, array: ArrayRef| {
        let rows = batch(&[(name, array)]);
        Encoder::exact(&schema, &rows.schema()).unwrap().encode(&rows, &[])
    };
    let ints = |value| ints(&[Some(1), value]);
    let lists = |value: Option<Vec<Option<i32>>>| {
        let lists = [Some(vec![Some(1)]), value];
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)) as ArrayRef
    };
    for (name, array) in [("plain", ints(None)), ("list", lists(None)), ("natural", ints(None))] {
        let field = name.to_owned();
        assert_eq!(exact(name, array), Err(EncodeError::NoNull { row: 1, field }), "{name}");
    }
    for name in ["natural", "wide"] {
        let error = exact(name, ints(Some(-1))).unwrap_err();
        let (row, problem) = error.in_row().unwrap();
        assert_eq!((row, &*problem), (1, &*format!("-1 is out of range for the field {name}")));
    }
    let negative = Arc::new(Int64Array::from(vec![-1]));
    assert!(matches!(exact("wide", negative), Err(EncodeError::Range { row: 0, .. })));
    assert_eq!(exact("some", ints(None)).unwrap().value(1), b"");
    assert_eq!(exact("plain", ints(Some(-1))).unwrap().len(), 2);
    assert_eq!(exact("list", lists(Some(vec![]))).unwrap().value(1), b"");
}

#[test]
fn a_oneof_has_one_member() {
    let schema = proto3("message M { oneof o { int32 a = 1; int32 b = 2; } }");
    let encoded = |a, b| encode(&schema, &batch(&[("a", ints(&[a])), ("b", ints(&[b]))]));
    assert_eq!(encoded(None, Some(0)).unwrap().value(0), raw().int(2, 0).0);
    let error = encoded(Some(1), Some(2)).unwrap_err();
    assert_eq!(error, EncodeError::Oneof { row: 0, field: "b".to_owned() });
}

#[test]
fn groups_and_wrappers_are_written_as_such() {
    let schema = proto2(
        r#"import "google/protobuf/wrappers.proto";
        message M { optional group G = 1 { optional int32 x = 2; }
            optional google.protobuf.Int64Value w = 3; }"#,
    );
    let fields = vec![Field::new("x", DataType::Int32, true)];
    let group = StructArray::new(fields.into(), vec![ints(&[Some(5)])], None);
    assert_eq!(one(&schema, "g", group).0, raw().group(1, raw().int(2, 5)).0);
    assert_eq!(one(&schema, "w", Int64Array::from(vec![7])).0, raw().nested(3, raw().int(1, 7)).0);
    assert_eq!(one(&schema, "w", Int64Array::from(vec![0])).0, raw().nested(3, raw()).0);
}

#[test]
fn null_structs_are_null_records() {
    let schema = proto3("message M { int32 a = 1; }");
    let fields = vec![Field::new("a", DataType::Int32, true)];
    let nulls = NullBuffer::from(vec![false, true]);
    let structs = StructArray::new(fields.into(), vec![ints(&[None, Some(1)])], Some(nulls));
    let columns = arrow::datatypes::Schema::new(structs.fields().clone());
    let encoder = Encoder::new(&schema, &columns).unwrap();
    let encoded = encoder.encode_structs(&structs, b"p").unwrap();
    let expected = raw().int(1, 1).0;
    assert_eq!(
        encoded.iter().collect::<Vec<_>>(),
        [None, Some([b"p".to_vec(), expected].concat().as_slice())]
    );
    let other = batch(&[("a", Arc::new(StringArray::from(vec!["x"])))]);
    let error = encoder.encode(&other, &[]).unwrap_err();
    assert!(matches!(error, EncodeError::OtherColumns { .. }), "{error}");
}
