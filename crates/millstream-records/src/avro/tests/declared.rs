//! Declared columns.

use std::sync::Arc;

use arrow::datatypes::{Field, TimeUnit};

use super::*;

fn one(data_type: DataType) -> ArrowSchema {
    ArrowSchema::new(vec![Field::new("f", data_type, true)])
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

#[test]
fn every_conversion_that_spark_allows() {
    let local = DataType::Timestamp(TimeUnit::Microsecond, None);
    let double = |value: f64| json!(value.to_bits());
    let decimal = r#"{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}"#;
    for (kind, data_type, bytes, expected) in [
        (r#""int""#, DataType::Int8, long(-128), json!(-128)),
        (r#""int""#, DataType::Int16, long(32767), json!(32767)),
        (r#""int""#, DataType::Int64, long(1), json!(1)),
        (r#""int""#, DataType::Float32, long(1), json!(1f32.to_bits())),
        (r#""int""#, DataType::Float64, long(1), double(1.0)),
        (r#""int""#, DataType::Date32, long(1), json!(1)),
        (r#"{"type": "int", "logicalType": "date"}"#, DataType::Int32, long(1), json!(1)),
        (r#""long""#, DataType::Float64, long(1), double(1.0)),
        (r#""long""#, utc(), long(2), json!(2000)),
        (r#""long""#, local.clone(), long(2), json!(2000)),
        (r#""long""#, DataType::Date32, long(86_400_000), json!(1)),
        (r#"{"type": "long", "logicalType": "timestamp-micros"}"#, utc(), long(2), json!(2)),
        (
            r#"{"type": "long", "logicalType": "timestamp-micros"}"#,
            DataType::Int64,
            long(2),
            json!(2),
        ),
        (
            r#"{"type": "long", "logicalType": "local-timestamp-millis"}"#,
            local,
            long(2),
            json!(2000),
        ),
        (r#""float""#, DataType::Float64, 0.5f32.to_le_bytes().to_vec(), double(0.5)),
        (
            r#"{"type": "enum", "name": "E", "symbols": ["A", "B"]}"#,
            DataType::Utf8,
            long(1),
            json!("B"),
        ),
        (decimal, DataType::Decimal128(6, 3), vec![2, 0x0a], json!("100")),
        (r#"["null", "int"]"#, DataType::Int64, [long(1), long(5)].concat(), json!(5)),
        (r#"["null", "int"]"#, DataType::Int64, long(0), json!(null)),
        (r#"["int", "long"]"#, DataType::Int64, [long(0), long(5)].concat(), json!(5)),
        (r#""null""#, DataType::Utf8, vec![], json!(null)),
    ] {
        let (mut decoder, plan) = declaring(&field_of(kind), &one(data_type.clone())).unwrap();
        decoder.append(&plan, &bytes).unwrap();
        assert_eq!(rows(&decoder.finish()), [json!({"f": expected})], "{kind} as {data_type}");
    }
}

#[test]
fn anything_else_is_refused_with_a_remedy() {
    let decimal = r#"{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}"#;
    for (kind, data_type, expected) in [
        (
            r#""int""#,
            DataType::Utf8,
            "int does not become STRING; declare the column with the field's",
        ),
        (r#""bytes""#, DataType::Utf8, "bytes does not become STRING"),
        (r#""string""#, DataType::Binary, "string does not become BINARY"),
        (r#""string""#, DataType::Int32, "string does not become INT"),
        (r#""long""#, DataType::Int32, "long does not become INT; declare BIGINT"),
        (r#""double""#, DataType::Float32, "double does not become FLOAT; declare DOUBLE"),
        (decimal, DataType::Decimal128(4, 3), "declare a DECIMAL with as many digits"),
        (decimal, DataType::Decimal128(4, 1), "declare a DECIMAL with as many digits"),
        (r#""bytes""#, DataType::Decimal128(4, 2), "declare a DECIMAL"),
        (r#"["int", "string"]"#, DataType::Utf8, "declare a STRUCT with one nullable member"),
        (r#"{"type": "long", "logicalType": "local-timestamp-micros"}"#, utc(), "TIMESTAMP_NTZ"),
        (r#"{"type": "int", "logicalType": "date"}"#, utc(), "(date) does not become TIMESTAMP"),
    ] {
        let refused = declaring(&field_of(kind), &one(data_type.clone()));
        let error = refused.err().unwrap_or_else(|| panic!("{kind} as {data_type}")).to_string();
        assert!(error.starts_with("field `f`: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_value_outside_a_small_integer_makes_its_record_malformed() {
    let (mut decoder, plan) = declaring(&field_of(r#""int""#), &one(DataType::Int8)).unwrap();
    decoder.append(&plan, &long(127)).unwrap();
    let error = decoder.append(&plan, &long(128)).unwrap_err().to_string();
    assert!(error.contains("128 does not fit TINYINT, at byte 0 in field `f`"), "{error}");
    assert_eq!(rows(&decoder.finish()), [json!({"f": 127})]);
}

#[test]
fn names_match_exactly_first_and_else_but_for_case() {
    let writer = record_of(
        r#"{"name": "ID", "type": "int"}, {"name": "id", "type": "int"},
           {"name": "Name", "type": "string"}"#,
    );
    let column = |name: &str, data_type| Field::new(name, data_type, true);
    let columns = ArrowSchema::new(vec![
        column("name", DataType::Utf8),
        column("id", DataType::Int32),
        column("missing", DataType::Int32),
    ]);
    let (mut decoder, plan) = declaring(&writer, &columns).unwrap();
    decoder.append(&plan, &[long(1), long(2), text("n")].concat()).unwrap();
    let expected = json!({"name": "n", "id": 2, "missing": null});
    assert_eq!(rows(&decoder.finish()), [expected]);
    let error = declaring(&writer, &ArrowSchema::new(vec![column("Id", DataType::Int32)]));
    let error = error.err().unwrap().to_string();
    assert!(error.contains(r#"["ID", "id"], which differ in case only"#), "{error}");
}

#[test]
fn a_name_is_one_columns_only() {
    let column = Field::new("f", DataType::Int32, true);
    let columns = ArrowSchema::new(vec![column.clone(), column]);
    for projection in [&[0, 1][..], &[0], &[1]] {
        let layout = Layout::new(&columns, projection).unwrap();
        let plan = Plan::new(&field_of(r#""int""#), Target::Declared, &layout);
        assert_eq!(plan.err().unwrap().to_string(), "field `f`: two columns have this name");
    }
    let target = Target::Reader { schema: &record_of(""), recursion: 0 };
    let layout = Layout::new(&columns, &[0]).unwrap();
    assert!(Plan::new(&record_of(""), target, &layout).is_err());
}

#[test]
fn not_null_is_kept() {
    let required = ArrowSchema::new(vec![Field::new("f", DataType::Int32, false)]);
    let error = declaring(&record_of(""), &required).err().unwrap().to_string();
    assert!(error.contains("field `f`: the column is NOT NULL but the writer has no"), "{error}");
    let (mut decoder, plan) = declaring(&field_of(r#"["int", "null"]"#), &required).unwrap();
    decoder.append(&plan, &[long(0), long(1)].concat()).unwrap();
    let error = decoder.append(&plan, &long(1)).unwrap_err().to_string();
    assert!(error.contains("null in a column that is NOT NULL"), "{error}");
    assert!(matches!(decoder.append_null(), Err(RecordError::NotNull { .. })));
    assert_eq!(decoder.finish().num_rows(), 1);
}

#[test]
fn structs_lists_and_maps_are_matched_likewise() {
    let writer = record_of(
        r#"{"name": "s", "type": ["null", {"type": "record", "name": "S", "fields": [
               {"name": "A", "type": "int"}, {"name": "b", "type": "int"}]}]},
           {"name": "l", "type": {"type": "array", "items": ["int", "null"]}},
           {"name": "m", "type": {"type": "map", "values": "S"}}"#,
    );
    let fields =
        vec![Field::new("a", DataType::Int64, true), Field::new("z", DataType::Utf8, true)];
    let inner = DataType::Struct(fields.into());
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let entries = DataType::Struct(
        vec![Field::new("k", DataType::Utf8, false), Field::new("v", inner.clone(), true)].into(),
    );
    let columns = ArrowSchema::new(vec![
        Field::new("s", inner, true),
        Field::new("l", DataType::List(item), true),
        Field::new("m", DataType::Map(Arc::new(Field::new("e", entries, false)), false), true),
    ]);
    let (mut decoder, plan) = declaring(&writer, &columns).unwrap();
    let list = [long(2), long(0), long(4), long(1), long(0)].concat();
    let map = [long(1), text("k"), long(5), long(6), long(0)].concat();
    let record = [long(1), long(1), long(2), list, map].concat();
    decoder.append(&plan, &record).unwrap();
    decoder.append(&plan, &[long(0), long(0), long(0)].concat()).unwrap();
    decoder.append_null().unwrap();
    let rows = rows(&decoder.finish());
    let first = json!({"s": {"a": 1, "z": null}, "l": [4, null], "m": {"k": {"a": 5, "z": null}}});
    assert_eq!(rows[0], first);
    assert_eq!(rows[1], json!({"s": null, "l": [], "m": {}}));
    assert_eq!(rows[2], json!({"s": null, "l": null, "m": null}));

    let wrong = Schema::parse(
        &writer.text().replace(r#""A", "type": "int""#, r#""A", "type": "string""#),
        &[],
    );
    let error = declaring(&wrong.unwrap(), &columns).err().unwrap().to_string();
    assert!(
        error.starts_with("field `s.a`: the writer's string does not become BIGINT"),
        "{error}"
    );
}

#[test]
fn a_root_that_can_be_null_or_is_no_record() {
    let root = parse(
        r#"["null", {"type": "record", "name": "R", "fields": [
        {"name": "f", "type": "int"}]}]"#,
    );
    let (mut decoder, plan) = declaring(&root, &one(DataType::Int32)).unwrap();
    decoder.append(&plan, &[long(1), long(5)].concat()).unwrap();
    decoder.append(&plan, &long(0)).unwrap();
    assert_eq!(rows(&decoder.finish()), [json!({"f": 5}), json!({"f": null})]);
    let columns = ArrowSchema::new(vec![Field::new("Value", DataType::Int64, true)]);
    let (mut decoder, plan) = declaring(&parse(r#""int""#), &columns).unwrap();
    decoder.append(&plan, &long(5)).unwrap();
    assert_eq!(rows(&decoder.finish()), [json!({"Value": 5})]);
}

#[test]
fn columns_that_cannot_be_are_refused() {
    for data_type in [
        DataType::UInt8,
        DataType::Decimal128(0, 0),
        DataType::Decimal128(39, 0),
        DataType::Decimal128(3, -1),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::List(Arc::new(Field::new("item", DataType::Null, true))),
    ] {
        assert!(Decoder::new(&one(data_type.clone()), &[0]).is_err(), "{data_type}");
    }
}
