//! Rows to records.

use std::sync::Arc;

use apache_avro::types::Value;
use arrow::array::{
    BinaryArray, Decimal128Array, Int32Array, Int64Array, StringArray, StructArray,
};
use arrow::datatypes::{Field, TimeUnit};

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}

fn refusal(columns: &RecordBatch, schema: &Schema) -> String {
    Encoder::of_columns(&columns.schema(), Some(schema)).err().unwrap().to_string()
}

#[test]
fn the_derived_schema_is_sparks() {
    let inner = vec![Field::new("price", DataType::Decimal128(10, 2), true)];
    let item = Field::new("element", DataType::Decimal128(38, 0), false);
    let columns = DataType::Struct(
        vec![
            Field::new("id", DataType::Int64, false),
            Field::new("small", DataType::Int8, true),
            Field::new("day", DataType::Date32, false),
            Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
            Field::new("local", DataType::Timestamp(TimeUnit::Microsecond, None), false),
            Field::new("inner", DataType::Struct(inner.into()), false),
            Field::new("many", DataType::List(Arc::new(item)), false),
        ]
        .into(),
    );
    let schema = Schema::of(&columns, false).unwrap();
    let found: Json = serde_json::from_str(schema.text()).unwrap();
    let fixed = |space: &str, size: u8, precision: u8, scale: u8| {
        json!({"type": "fixed", "name": "fixed", "namespace": space, "size": size,
            "logicalType": "decimal", "precision": precision, "scale": scale})
    };
    let micros = json!({"type": "long", "logicalType": "timestamp-micros"});
    let price = fixed("topLevelRecord.inner.price", 5, 10, 2);
    let many = fixed("topLevelRecord.many", 16, 38, 0);
    let expected = json!({
        "type": "record", "name": "topLevelRecord", "namespace": "", "fields": [
            {"name": "id", "type": "long"},
            {"name": "small", "type": ["int", "null"]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "at", "type": [micros, "null"]},
            {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
            {"name": "inner", "type": {
                "type": "record", "name": "inner", "namespace": "topLevelRecord", "fields": [
                    {"name": "price", "type": [price, "null"]}
                ]}},
            {"name": "many", "type": {"type": "array", "items": many}},
        ]
    });
    assert_eq!(found, expected);
    // The schema means the same columns again, but that Avro has no integers below 32 bits.
    let DataType::Struct(fields) = columns else { panic!("a struct") };
    let mut fields = fields.to_vec();
    fields[1] = Arc::new(Field::new("small", DataType::Int32, true));
    assert_eq!(schema.data_type(0).unwrap(), (DataType::Struct(fields.into()), false));
    let apache = apache_avro::Schema::parse_str(schema.text()).unwrap();
    assert!(matches!(apache, apache_avro::Schema::Record(_)));
    let odd = DataType::Struct(vec![Field::new("a b", DataType::Int32, true)].into());
    assert!(Schema::of(&odd, false).unwrap_err().to_string().contains("`a b` is no Avro name"));
    assert!(Schema::of(&DataType::UInt8, false).is_err());
}

#[test]
fn a_schema_for_a_registry_has_nulls_as_defaults() {
    let place = vec![Field::new("x", DataType::Int32, true)];
    let columns = ArrowSchema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("place", DataType::Struct(place.into()), true),
    ]);
    let schema = Schema::of_columns(&columns, "orders").unwrap();
    let written: serde_json::Value = serde_json::from_str(schema.text()).unwrap();
    let expected = serde_json::json!({
        "type": "record", "name": "orders", "namespace": "", "fields": [
            {"name": "id", "type": "long"},
            {"name": "place", "default": null, "type": ["null", {
                "type": "record", "name": "place", "namespace": "orders", "fields": [
                    {"name": "x", "type": ["null", "int"], "default": null},
                ],
            }]},
        ],
    });
    assert_eq!(written, expected);
    apache_avro::Schema::parse_str(schema.text()).unwrap();
    assert!(Encoder::of_columns(&columns, Some(&schema)).is_ok());
}

#[test]
fn a_union_has_one_value() {
    let schema = field_of(r#"["null", "string", "int"]"#);
    let members: Vec<(Arc<Field>, ArrayRef)> = vec![
        (
            Arc::new(Field::new("member0", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![None, Some("a"), Some("b")])),
        ),
        (
            Arc::new(Field::new("member1", DataType::Int32, true)),
            Arc::new(Int32Array::from(vec![Some(1), None, Some(2)])),
        ),
    ];
    let rows = batch(vec![("f", Arc::new(StructArray::from(members)))]);
    let encoder = Encoder::of_columns(&rows.schema(), Some(&schema)).unwrap();
    assert_eq!(encoder.encode_batch(&rows.slice(0, 2), &[]).unwrap().value(1), b"\x02\x02a");
    let error = encoder.encode_batch(&rows, &[]).unwrap_err().to_string();
    assert!(error.contains("row 2: more than one member"), "{error}");
}

#[test]
fn rows_become_records_with_a_prefix() {
    let rows = batch(vec![
        ("id", Arc::new(Int64Array::from(vec![Some(1), None]))),
        ("name", Arc::new(StringArray::from(vec![None, Some("é")]))),
    ]);
    let encoder = Encoder::of_columns(&rows.schema(), None).unwrap();
    let records = encoder.encode_batch(&rows, &[9, 8]).unwrap();
    assert_eq!(records.value(0), [vec![9, 8], long(0), long(1), long(1)].concat());
    assert_eq!(records.value(1), [vec![9, 8], long(1), long(0), text("é")].concat());
    let (mut decoder, plan) = reading(encoder.schema(), encoder.schema()).unwrap();
    decoder.append(&plan, &records.value(1)[2..]).unwrap();
    assert_eq!(super::rows(&decoder.finish()), [json!({"id": null, "name": "é"})]);
}

#[test]
fn a_schemas_fields_are_matched_by_name() {
    let schema = record_of(
        r#"{"name": "extra", "type": ["null", "int"]}, {"name": "B", "type": "string"},
           {"name": "a", "type": ["int", "null"]}"#,
    );
    let rows = batch(vec![
        ("a", Arc::new(Int32Array::from(vec![Some(5), Some(6)]))),
        ("b", Arc::new(StringArray::from(vec![Some("x"), None]))),
    ]);
    let encoder = Encoder::of_columns(&rows.schema(), Some(&schema)).unwrap();
    let records = encoder.encode_batch(&rows.slice(0, 1), &[]).unwrap();
    assert_eq!(records.value(0), [long(0), text("x"), long(0), long(5)].concat());
    let error = encoder.encode_batch(&rows, &[]).unwrap_err().to_string();
    assert_eq!(error, "column `b`, row 1: null, but the schema's field cannot be null");
    let only = field_of(r#""int""#);
    assert!(refusal(&rows, &only).contains("column `a` has no field in the schema"));
    let more = record_of(
        r#"{"name": "a", "type": "int"}, {"name": "b", "type": "string"},
           {"name": "c", "type": "int"}"#,
    );
    assert!(refusal(&rows, &more).contains("field `c` of the schema cannot be null"));
}

#[test]
fn types_that_spark_does_not_convert_are_refused() {
    let ints = batch(vec![("f", Arc::new(Int32Array::from(vec![1])))]);
    for kind in [r#""long""#, r#""double""#, r#""string""#, r#"["int", "long"]"#] {
        let error = refusal(&ints, &field_of(kind));
        assert!(error.starts_with("column `f`: INT cannot be written as"), "{error}");
    }
    let longs = batch(vec![("f", Arc::new(Int64Array::from(vec![7])))]);
    let encoder = Encoder::of_columns(&longs.schema(), Some(&field_of(r#"["int", "long"]"#)));
    let records = encoder.unwrap().encode_batch(&longs, &[]).unwrap();
    assert_eq!(records.value(0), [long(1), long(7)].concat());
    let encoder = Encoder::of_columns(&longs.schema(), Some(&field_of(r#""long""#))).unwrap();
    assert!(matches!(encoder.encode_batch(&ints, &[]), Err(EncodeError::Type { .. })));
}

#[test]
fn symbols_and_sizes_are_checked() {
    let texts = batch(vec![("f", Arc::new(StringArray::from(vec!["B", "Z"])))]);
    let schema = field_of(r#"{"type": "enum", "name": "E", "symbols": ["A", "B"]}"#);
    let encoder = Encoder::of_columns(&texts.schema(), Some(&schema)).unwrap();
    assert_eq!(encoder.encode_batch(&texts.slice(0, 1), &[]).unwrap().value(0), long(1));
    let error = encoder.encode_batch(&texts, &[]).unwrap_err().to_string();
    assert_eq!(error, "column `f`, row 1: `Z` is no symbol of the enum, which has A, B");
    let bytes = batch(vec![("f", Arc::new(BinaryArray::from(vec![&b"ab"[..], b"abc"])))]);
    let schema = field_of(r#"{"type": "fixed", "name": "F", "size": 2}"#);
    let encoder = Encoder::of_columns(&bytes.schema(), Some(&schema)).unwrap();
    let error = encoder.encode_batch(&bytes, &[]).unwrap_err().to_string();
    assert_eq!(error, "column `f`, row 1: 3 bytes, but the fixed has 2");
}

#[test]
fn decimals_are_read_by_another_implementation() {
    let values = [0, 1, -1, 127, 128, -128, -129, 99_999, -99_999];
    let array = Decimal128Array::from(values.to_vec()).with_precision_and_scale(5, 2).unwrap();
    let rows = batch(vec![("f", Arc::new(array))]);
    for kind in [
        r#"{"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}"#,
        r#"{"type": "fixed", "name": "F", "size": 3,
            "logicalType": "decimal", "precision": 5, "scale": 2}"#,
        r#"{"type": "fixed", "name": "F", "size": 20,
            "logicalType": "decimal", "precision": 5, "scale": 2}"#,
    ] {
        let schema = field_of(kind);
        let encoder = Encoder::of_columns(&rows.schema(), Some(&schema)).unwrap();
        let records = encoder.encode_batch(&rows, &[]).unwrap();
        let apache = apache_avro::Schema::parse_str(schema.text()).unwrap();
        let (mut decoder, plan) = reading(&schema, &schema).unwrap();
        for (at, value) in values.iter().enumerate() {
            let mut record = records.value(at);
            let read = apache_avro::from_avro_datum(&apache, &mut record, None).unwrap();
            let Value::Record(fields) = read else { panic!("a record") };
            let Value::Decimal(decimal) = &fields[0].1 else { panic!("a decimal") };
            let bytes: Vec<u8> = decimal.try_into().unwrap();
            assert_eq!(super::super::cursor::unscaled(&bytes), Some(*value));
            decoder.append(&plan, records.value(at)).unwrap();
        }
        let expected = values.iter().map(|value| json!({"f": value.to_string()}));
        assert_eq!(super::rows(&decoder.finish()), expected.collect::<Vec<_>>());
    }
    let other = r#"{"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}"#;
    assert!(refusal(&rows, &field_of(other)).contains("cannot be written as bytes (decimal(6,2))"));
}

#[test]
fn timestamps_are_rounded_down_to_milliseconds() {
    let array = arrow::array::TimestampMicrosecondArray::from(vec![1999, -1]).with_timezone("UTC");
    let rows = batch(vec![("f", Arc::new(array))]);
    for (kind, expected) in [
        (r#"{"type": "long", "logicalType": "timestamp-millis"}"#, [1, -1]),
        (r#""long""#, [1, -1]),
        (r#"{"type": "long", "logicalType": "timestamp-micros"}"#, [1999, -1]),
    ] {
        let encoder = Encoder::of_columns(&rows.schema(), Some(&field_of(kind))).unwrap();
        let records = encoder.encode_batch(&rows, &[]).unwrap();
        assert_eq!([records.value(0), records.value(1)], [long(expected[0]), long(expected[1])]);
    }
    let local = field_of(r#"{"type": "long", "logicalType": "local-timestamp-micros"}"#);
    assert!(refusal(&rows, &local).contains("cannot be written as long (local-timestamp-micros)"));
}

#[test]
fn times_are_not_written_in_units_that_no_column_has() {
    let array = arrow::array::TimestampMicrosecondArray::from(vec![1_000_000]);
    let times = batch(vec![("f", Arc::new(array.with_timezone("UTC")))]);
    let numbers = batch(vec![("f", Arc::new(Int64Array::from(vec![7])))]);
    for (name, counts) in [
        ("timestamp-nanos", "nanoseconds since 1970"),
        ("local-timestamp-nanos", "nanoseconds since 1970"),
        ("time-micros", "microseconds since midnight"),
    ] {
        let kind = format!(r#"{{"type": "long", "logicalType": "{name}"}}"#);
        for kind in [kind.clone(), format!(r#"["null", {kind}]"#)] {
            let schema = field_of(&kind);
            let error = refusal(&times, &schema);
            assert!(error.contains(&format!("TIMESTAMP cannot be written as long ({name})")));
            assert!(error.ends_with(counts), "{error}");
            // The number itself is written, and read as one.
            let encoder = Encoder::of_columns(&numbers.schema(), Some(&schema)).unwrap();
            let records = encoder.encode_batch(&numbers, &[]).unwrap();
            assert_eq!(read(&schema, &schema, records.value(0)), json!({"f": 7}));
        }
    }
    let days = batch(vec![("f", Arc::new(arrow::array::Date32Array::from(vec![1])))]);
    let millis = field_of(r#"{"type": "int", "logicalType": "time-millis"}"#);
    assert!(refusal(&days, &millis).contains("milliseconds since midnight"));
    // A logical type of another type is none.
    let ignored = field_of(r#"{"type": "long", "logicalType": "time-millis"}"#);
    assert!(Encoder::of_columns(&times.schema(), Some(&ignored)).is_ok());
}

#[test]
fn a_null_row_is_null_and_slices_keep_their_rows() {
    let ids: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let field = Arc::new(Field::new("id", DataType::Int32, false));
    let nulls = vec![true, false, true].into();
    let structs = StructArray::new(vec![field].into(), vec![ids], Some(nulls));
    let encoder = Encoder::new(structs.data_type(), true, None).unwrap();
    assert!(encoder.schema().text().starts_with('['));
    let array: ArrayRef = Arc::new(structs.slice(1, 2));
    let records = encoder.encode(&array, &[7]).unwrap();
    assert!(records.is_null(0));
    assert_eq!(records.value(1), [vec![7], long(0), long(3)].concat());
}
