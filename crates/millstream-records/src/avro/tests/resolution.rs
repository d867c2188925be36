//! Schema resolution, rule by rule.

use super::*;

fn refused(writer: &Schema, reader: &Schema) -> String {
    match reading(writer, reader) {
        Ok(_) => panic!("resolved"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn primitives_are_promoted() {
    let double = |value: f64| json!(value.to_bits());
    let float = |value: f32| json!(value.to_bits());
    for (from, to, bytes, expected) in [
        ("int", "long", long(-5), json!(-5)),
        ("int", "float", long(7), float(7.0)),
        ("int", "double", long(7), double(7.0)),
        ("long", "float", long(1 << 40), float((1u64 << 40) as f32)),
        ("long", "double", long(-1), double(-1.0)),
        ("float", "double", 0.5f32.to_le_bytes().to_vec(), double(0.5)),
        ("string", "bytes", text("ab"), json!("6162")),
        ("bytes", "string", text("ab"), json!("ab")),
    ] {
        let (writer, reader) = (field_of(&format!("\"{from}\"")), field_of(&format!("\"{to}\"")));
        assert_eq!(read(&writer, &reader, &bytes), json!({"f": expected}), "{from} to {to}");
        let error = match from {
            "string" | "bytes" => continue,
            _ => refused(&reader, &writer),
        };
        let expected =
            format!("field `f`: the writer's {to} cannot be read as the reader's {from}");
        assert_eq!(error, expected);
    }
}

#[test]
fn fields_are_matched_by_name_and_alias_and_have_defaults() {
    let writer = record_of(
        r#"{"name": "gone", "type": {"type": "array", "items": "string"}},
           {"name": "old", "type": "int"}, {"name": "same", "type": "string"}"#,
    );
    let reader = record_of(
        r#"{"name": "same", "type": "string"},
           {"name": "new", "aliases": ["older", "old"], "type": "long"},
           {"name": "number", "type": "int", "default": 42},
           {"name": "maybe", "type": ["null", "int"], "default": null},
           {"name": "second", "type": ["null", "int"], "default": 3},
           {"name": "list", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
           {"name": "map", "type": {"type": "map", "values": "string"}, "default": {"k": "v"}},
           {"name": "raw", "type": "bytes", "default": "\u0001\u00ff"},
           {"name": "float", "type": "float", "default": 1.5},
           {"name": "nested", "default": {"a": true}, "type": {"type": "record", "name": "N",
               "fields": [{"name": "a", "type": "boolean"},
                          {"name": "b", "type": "string", "default": "x"}]}}"#,
    );
    let record = [long(2), text("p"), text("q"), long(0), long(9), text("s")].concat();
    let expected = json!({
        "same": "s", "new": 9, "number": 42, "maybe": null, "second": 3, "list": [1, 2],
        "map": {"k": "v"}, "raw": "01ff", "float": 1.5f32.to_bits(),
        "nested": {"a": true, "b": "x"},
    });
    assert_eq!(read(&writer, &reader, &record), expected);
}

#[test]
fn a_missing_default_and_a_wrong_one_are_errors() {
    let writer = record_of("");
    let error = refused(&writer, &field_of(r#""int""#));
    assert!(error.starts_with("field `f`: the writer has no such field"), "{error}");
    let wrong = record_of(r#"{"name": "f", "type": "int", "default": "x"}"#);
    let error = refused(&writer, &wrong);
    assert!(error.starts_with(r#"field `f`: the reader schema's default is no int: "x""#));
    // A default that contains itself.
    let endless = r#"{"type": "record", "name": "R", "fields": [
        {"name": "r", "type": "R", "default": {}}, {"name": "v", "type": "int", "default": 1}]}"#;
    let endless = parse(endless);
    let layout = Layout::new(&endless.columns(2).unwrap(), &[0, 1]).unwrap();
    let target = Target::Reader { schema: &endless, recursion: 2 };
    let error = Plan::new(&writer, target, &layout).err().unwrap().to_string();
    assert_eq!(error, "field `r`: the reader schema's default is no record R: {}");
}

#[test]
fn enums_are_read_by_symbol() {
    let writer = field_of(r#"{"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}"#);
    let with = field_of(r#"{"type": "enum", "name": "E", "symbols": ["C", "B"], "default": "B"}"#);
    let without = field_of(r#"{"type": "enum", "name": "E", "symbols": ["C", "B"]}"#);
    assert_eq!(read(&writer, &with, &long(0)), json!({"f": "B"}));
    assert_eq!(read(&writer, &with, &long(2)), json!({"f": "C"}));
    let (mut decoder, plan) = reading(&writer, &without).unwrap();
    let error = decoder.append(&plan, &long(0)).unwrap_err().to_string();
    assert!(error.contains("symbol 0 of the writer's enum is none of the reader's"), "{error}");
    let error = decoder.append(&plan, &long(3)).unwrap_err().to_string();
    assert!(error.contains("symbol 3 of an enum of 3"), "{error}");
    let other = field_of(r#"{"type": "enum", "name": "Z", "symbols": ["A"]}"#);
    assert!(refused(&writer, &other).contains("enum E cannot be read as the reader's enum Z"));
    let renamed = field_of(r#"{"type": "enum", "name": "Z", "aliases": ["E"], "symbols": ["A"]}"#);
    assert_eq!(read(&writer, &renamed, &long(0)), json!({"f": "A"}));
}

#[test]
fn fixed_sizes_must_be_the_same() {
    let two = field_of(r#"{"type": "fixed", "name": "F", "size": 2}"#);
    let three = field_of(r#"{"type": "fixed", "name": "F", "size": 3}"#);
    assert!(refused(&two, &three).contains("fixed F of 2 bytes cannot be read"));
    assert_eq!(read(&two, &two, &[1, 2]), json!({"f": "0102"}));
}

#[test]
fn unions_on_either_side() {
    let nullable = field_of(r#"["null", "long"]"#);
    let plain = field_of(r#""int""#);
    assert_eq!(read(&plain, &nullable, &long(3)), json!({"f": 3}));
    let ints = field_of(r#"["int", "null"]"#);
    assert_eq!(read(&ints, &nullable, &[long(0), long(3)].concat()), json!({"f": 3}));
    assert_eq!(read(&ints, &nullable, &long(1)), json!({"f": null}));
    // The reader cannot take null: only such records are malformed.
    let (mut decoder, plan) = reading(&ints, &plain).unwrap();
    decoder.append(&plan, &[long(0), long(3)].concat()).unwrap();
    let error = decoder.append(&plan, &long(1)).unwrap_err().to_string();
    assert!(error.contains("the writer's null cannot be read as the reader's int"), "{error}");
    assert_eq!(rows(&decoder.finish()), [json!({"f": 3})]);
    // No branch fits at all.
    let texts = field_of(r#"["null", "string"]"#);
    assert!(refused(&texts, &nullable).contains("string cannot be read as the reader's"));
}

#[test]
fn a_complex_union_is_a_struct_of_members() {
    let union = field_of(
        r#"["null", "string", "long", {"type": "record", "name": "P", "fields": [
            {"name": "x", "type": "int"}]}]"#,
    );
    let members = |a: Json, b: Json, c: Json| json!({"member0": a, "member1": b, "member2": c});
    for (record, expected) in [
        (long(0), Json::Null),
        ([long(1), text("s")].concat(), members(json!("s"), Json::Null, Json::Null)),
        ([long(2), long(5)].concat(), members(Json::Null, json!(5), Json::Null)),
        ([long(3), long(6)].concat(), members(Json::Null, Json::Null, json!({"x": 6}))),
    ] {
        assert_eq!(read(&union, &union, &record), json!({"f": expected}));
    }
    // The very type is preferred to a promotion that comes first.
    let reader = field_of(r#"["double", "string", "int"]"#);
    let expected = members(Json::Null, Json::Null, json!(5));
    assert_eq!(read(&field_of(r#""int""#), &reader, &long(5)), json!({"f": expected}));
    let expected = members(json!(5f64.to_bits()), Json::Null, Json::Null);
    assert_eq!(read(&field_of(r#""long""#), &reader, &long(5)), json!({"f": expected}));
}

#[test]
fn wide_unions_are_numbers() {
    let wide = field_of(r#"["int", "null", "long"]"#);
    assert_eq!(read(&wide, &wide, &[long(0), long(1)].concat()), json!({"f": 1}));
    assert_eq!(read(&wide, &wide, &[long(2), long(1 << 40)].concat()), json!({"f": 1u64 << 40}));
    assert_eq!(read(&wide, &wide, &long(1)), json!({"f": null}));
    let floats = field_of(r#"["float", "double"]"#);
    let record = [long(0), 0.5f32.to_le_bytes().to_vec()].concat();
    assert_eq!(read(&floats, &floats, &record), json!({"f": 0.5f64.to_bits()}));
}

#[test]
fn timestamps_are_microseconds_whatever_their_unit() {
    let millis = field_of(r#"{"type": "long", "logicalType": "timestamp-millis"}"#);
    let micros = field_of(r#"{"type": "long", "logicalType": "timestamp-micros"}"#);
    assert_eq!(read(&millis, &millis, &long(-7)), json!({"f": -7000}));
    assert_eq!(read(&millis, &micros, &long(-7)), json!({"f": -7000}));
    assert_eq!(read(&micros, &millis, &long(-7)), json!({"f": -7}));
    assert_eq!(read(&field_of(r#""int""#), &millis, &long(7)), json!({"f": 7000}));
    let (mut decoder, plan) = reading(&millis, &millis).unwrap();
    let error = decoder.append(&plan, &long(i64::MAX)).unwrap_err().to_string();
    assert!(error.contains("does not fit TIMESTAMP, at byte 0 in field `f`"), "{error}");
}

#[test]
fn decimals_keep_their_scale() {
    let decimal = |precision: u8, scale: u8| {
        field_of(&format!(
            r#"{{"type": "bytes", "logicalType": "decimal", "precision": {precision},
                "scale": {scale}}}"#
        ))
    };
    let record = [long(2), vec![0xff, 0x00]].concat();
    assert_eq!(read(&decimal(4, 2), &decimal(4, 2), &record), json!({"f": "-256"}));
    assert_eq!(read(&decimal(4, 2), &decimal(9, 2), &record), json!({"f": "-256"}));
    assert!(refused(&decimal(4, 2), &decimal(4, 1)).contains("decimal(4, 2) does not fit"));
    assert!(refused(&decimal(4, 2), &decimal(3, 2)).contains("does not fit"));
    let (mut decoder, plan) = reading(&decimal(2, 2), &decimal(2, 2)).unwrap();
    let error = decoder.append(&plan, &record).unwrap_err().to_string();
    assert!(error.contains("a decimal of more than 2 digits"), "{error}");
    assert!(decoder.append(&plan, &long(0)).unwrap_err().to_string().contains("of no bytes"));
    assert!(decoder.append(&plan, &[long(20), vec![1; 20]].concat()).is_err());
}

#[test]
fn records_in_records_and_a_recursive_reader() {
    let tree = parse(
        r#"{"type": "record", "name": "T", "fields": [{"name": "v", "type": "int"},
            {"name": "next", "type": ["null", "T"], "default": null}]}"#,
    );
    let columns = tree.columns(2).unwrap();
    let mut decoder = Decoder::new(&columns, &[0, 1]).unwrap();
    let target = Target::Reader { schema: &tree, recursion: 2 };
    let plan = Plan::new(&tree, target, decoder.layout()).unwrap();
    let deep = [long(1), long(1), long(2), long(1), long(3), long(0)].concat();
    decoder.append(&plan, &deep).unwrap();
    assert_eq!(rows(&decoder.finish()), [json!({"v": 1, "next": {"v": 2}})]);
    // What is dropped is still skipped value by value, and not without end.
    let endless = [long(1), long(1)].concat().repeat(10_000);
    let error = decoder.append(&plan, &endless).unwrap_err().to_string();
    assert!(error.contains("nested more than 500 levels"), "{error}");
    assert!(error.contains("in field `next.next`"), "{error}");
}

#[test]
fn a_plan_is_for_the_readers_columns_only() {
    let (ints, longs) = (field_of(r#""int""#), field_of(r#""long""#));
    let mut decoder = Decoder::new(&ints.columns(0).unwrap(), &[0]).unwrap();
    let target = Target::Reader { schema: &longs, recursion: 0 };
    let error = Plan::new(&ints, target, decoder.layout()).err().unwrap().to_string();
    assert!(error.contains("no column `f` Int64 NOT NULL"), "{error}");
    let (_, foreign) = reading(&ints, &ints).unwrap();
    assert!(matches!(decoder.append(&foreign, &long(1)), Err(RecordError::ForeignPlan)));
}

#[test]
fn a_schema_that_is_no_record_is_one_column() {
    let schema = parse(r#"["null", {"type": "array", "items": "int"}]"#);
    let record = [long(1), long(2), long(7), long(8), long(0)].concat();
    assert_eq!(read(&schema, &schema, &record), json!({"value": [7, 8]}));
    assert_eq!(read(&schema, &schema, &long(0)), json!({"value": null}));
}

#[test]
fn only_projected_columns_are_decoded() {
    let schema = record_of(
        r#"{"name": "a", "type": "int"}, {"name": "b", "type": "string"},
           {"name": "c", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
           {"name": "d", "type": "boolean"}"#,
    );
    let columns = schema.columns(0).unwrap();
    // The map's block says how many bytes it has, so that they are not looked at.
    let record = [long(1), text("x"), long(-1), long(3), vec![0xff; 3], long(0), vec![1]].concat();
    for (projection, expected) in
        [(&[3, 0][..], json!({"d": true, "a": 1})), (&[1], json!({"b": "x"})), (&[], json!({}))]
    {
        let mut decoder = Decoder::new(&columns, projection).unwrap();
        let target = Target::Reader { schema: &schema, recursion: 0 };
        let plan = Plan::new(&schema, target, decoder.layout()).unwrap();
        decoder.append(&plan, &record).unwrap();
        assert!(decoder.append(&plan, &record[..3]).is_err());
        assert_eq!(decoder.rows(), 1);
        assert_eq!(rows(&decoder.finish()), [expected]);
    }
    assert!(Decoder::new(&columns, &[4]).is_err());
    assert!(Decoder::new(&columns, &[1, 1]).is_err());
}
