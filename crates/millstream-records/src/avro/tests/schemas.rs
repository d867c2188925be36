//! Schema texts, and which columns they become.

use super::*;

fn columns_of(kind: &str) -> String {
    match field_of(kind).columns(0) {
        Ok(columns) => {
            let field = columns.field(0);
            format!("{}{}", field.data_type(), if field.is_nullable() { "?" } else { "" })
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_type_becomes_sparks() {
    let local = "Timestamp(µs)";
    let utc = r#"Timestamp(µs, "UTC")"#;
    for (kind, expected) in [
        (r#""boolean""#, "Boolean"),
        (r#""int""#, "Int32"),
        (r#"{"type": "int", "logicalType": "date"}"#, "Date32"),
        (r#"{"type": "int", "logicalType": "time-millis"}"#, "Int32"),
        (r#""long""#, "Int64"),
        (r#"{"type": "long", "logicalType": "time-micros"}"#, "Int64"),
        (r#"{"type": "long", "logicalType": "timestamp-nanos"}"#, "Int64"),
        (r#"{"type": "long", "logicalType": "date"}"#, "Int64"),
        (r#"{"type": "long", "logicalType": "timestamp-millis"}"#, utc),
        (r#"{"type": "long", "logicalType": "timestamp-micros"}"#, utc),
        (r#"{"type": "long", "logicalType": "local-timestamp-millis"}"#, local),
        (r#"{"type": "long", "logicalType": "local-timestamp-micros"}"#, local),
        (r#""float""#, "Float32"),
        (r#""double""#, "Float64"),
        (r#""string""#, "Utf8"),
        (r#"{"type": "string", "logicalType": "uuid"}"#, "Utf8"),
        (r#"{"type": "enum", "name": "E", "symbols": ["A"]}"#, "Utf8"),
        (r#""bytes""#, "Binary"),
        (r#"{"type": "fixed", "name": "F", "size": 3}"#, "Binary"),
        (
            r#"{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}"#,
            "Decimal128(10, 2)",
        ),
        (
            r#"{"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal",
                "precision": 4}"#,
            "Decimal128(4, 0)",
        ),
        // Two bytes hold no five digits, so that the logical type is ignored.
        (
            r#"{"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal",
                "precision": 5}"#,
            "Binary",
        ),
        (r#"{"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}"#, "Binary"),
        (r#"["null", "int"]"#, "Int32?"),
        (r#"["int", "null"]"#, "Int32?"),
        (r#"["int"]"#, "Int32"),
        (r#"["long", "int"]"#, "Int64"),
        (r#"["int", "null", "long"]"#, "Int64?"),
        (r#"["float", "double"]"#, "Float64"),
    ] {
        assert_eq!(columns_of(kind), expected, "{kind}");
    }
}

#[test]
fn nested_types_become_sparks() {
    for (kind, expected) in [
        (r#"{"type": "array", "items": ["null", "int"]}"#, r#"List(Int32, field: 'element')"#),
        (r#"{"type": "map", "values": "int"}"#, "non-null"),
    ] {
        let (data_type, _) = parse(kind).data_type(0).unwrap();
        assert!(format!("{data_type}").contains(expected), "{data_type} is not {expected}");
    }
    let (union, nullable) = parse(r#"["string", "null", "int", "boolean"]"#).data_type(0).unwrap();
    let DataType::Struct(members) = union else { panic!("a struct") };
    let members: Vec<_> =
        members.iter().map(|m| (m.name().as_str(), m.data_type(), m.is_nullable())).collect();
    let expected = [
        ("member0", &DataType::Utf8, true),
        ("member1", &DataType::Int32, true),
        ("member2", &DataType::Boolean, true),
    ];
    assert_eq!((members.as_slice(), nullable), (&expected[..], true));
    let (map, _) = parse(r#"{"type": "map", "values": "int"}"#).data_type(0).unwrap();
    let DataType::Map(entries, false) = map else { panic!("a map") };
    let DataType::Struct(fields) = entries.data_type() else { panic!("a struct") };
    assert_eq!((entries.name().as_str(), fields[0].name().as_str()), ("entries", "key"));
    assert!(!fields[0].is_nullable() && !fields[1].is_nullable() && !entries.is_nullable());
}

#[test]
fn what_has_no_column_says_so() {
    let huge = r#"{"type": "bytes", "logicalType": "decimal", "precision": 39}"#;
    assert!(columns_of(huge).contains("$.fields[0].type: a decimal of precision 39"));
    assert!(columns_of(r#""null""#).contains("type null has no column type"));
    assert!(columns_of(r#"["null"]"#).contains("type null has no column type"));
}

const TREE: &str = r#"{"type": "record", "name": "a.Node", "fields": [
    {"name": "value", "type": "int"},
    {"name": "next", "type": ["null", "Node"]},
    {"name": "all", "type": {"type": "array", "items": "a.Node"}}]}"#;

#[test]
fn a_recursive_type_needs_a_limit_and_is_cut_there() {
    let tree = parse(TREE);
    let error = tree.columns(0).unwrap_err().to_string();
    assert!(error.contains("$.fields[1].type[1]: type `a.Node` is recursive"), "{error}");
    assert!(error.contains("recursiveFieldMaxDepth"));
    let names = |data_type: &DataType| match data_type {
        DataType::Struct(fields) => fields.iter().map(|f| f.name().clone()).collect::<Vec<_>>(),
        other => panic!("{other}"),
    };
    // As in Spark: 1 drops every recursive field.
    assert_eq!(names(&tree.data_type(1).unwrap().0), ["value"]);
    let (two, _) = tree.data_type(2).unwrap();
    assert_eq!(names(&two), ["value", "next", "all"]);
    let DataType::Struct(fields) = two else { panic!() };
    assert_eq!(names(fields[1].data_type()), ["value"]);
    assert!(tree.data_type(16).is_err());
    assert!(tree.data_type(12).is_ok());
    // Two uses at each of fifteen levels are 2^15 records, three times as many columns.
    assert!(matches!(tree.data_type(15).unwrap_err().problem, SchemaProblem::TooLarge(_)));
}

#[test]
fn schemas_that_expand_without_end_are_refused() {
    let mut text = r#"{"type": "record", "name": "R0", "fields": []}"#.to_owned();
    let mut references = vec![text.clone()];
    for at in 1..40 {
        text = format!(
            r#"{{"type": "record", "name": "R{at}", "fields": [
                {{"name": "a", "type": "R{0}"}}, {{"name": "b", "type": "R{0}"}}]}}"#,
            at - 1
        );
        references.push(text.clone());
    }
    references.pop();
    let references: Vec<&str> = references.iter().map(String::as_str).collect();
    let wide = Schema::parse(&text, &references).unwrap();
    assert!(matches!(wide.columns(0).unwrap_err().problem, SchemaProblem::TooLarge(_)));

    let chain: Vec<String> = (1..100_000)
        .map(|at| {
            format!(
                r#"{{"type": "record", "name": "R{at}", "fields": [
                    {{"name": "a", "type": "R{}"}}]}}"#,
                at - 1
            )
        })
        .collect();
    let mut references: Vec<&str> = chain.iter().map(String::as_str).collect();
    references.push(r#"{"type": "record", "name": "R0", "fields": []}"#);
    let deep = Schema::parse(r#""R99999""#, &references).unwrap();
    assert!(matches!(deep.columns(0).unwrap_err().problem, SchemaProblem::TooDeep(_)));
    // Skipping it needs no depth to compile, and runs into a limit of its own.
    let columns = ArrowSchema::empty();
    let mut decoder = Decoder::new(&columns, &[]).unwrap();
    let plan = Plan::new(&deep, Target::Declared, decoder.layout()).unwrap();
    let error = decoder.append(&plan, &[]).unwrap_err().to_string();
    assert!(error.contains("nested more than 500 levels"), "{error}");
}

#[test]
fn json_nested_too_deep_is_an_error() {
    let text = r#"{"type": "array", "items": "#.repeat(100_000);
    assert!(matches!(Schema::parse(&text, &[]).unwrap_err().problem, SchemaProblem::Json(_)));
    let text = "[".repeat(100_000);
    assert!(Schema::parse(&text, &[]).is_err());
}

#[test]
fn names_are_found_by_namespace_in_any_order() {
    let main = r#"{"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "to", "type": "Address"},
        {"name": "kind", "type": "other.Kind"},
        {"name": "again", "type": {"type": "array", "items": "shop.Address"}},
        {"name": "plain", "type": "Plain"}]}"#;
    let address = r#"{"type": "record", "name": "shop.Address", "fields": [
        {"name": "kind", "type": "other.Kind"}]}"#;
    let kind = r#"{"type": "enum", "name": "Kind", "namespace": "other", "symbols": ["A", "B"]}"#;
    let plain = r#"{"type": "fixed", "name": "Plain", "size": 2}"#;
    let schema = Schema::parse(main, &[address, plain, kind]).unwrap();
    assert_eq!(schema.text(), main);
    let record = [long(1), long(0), long(0), vec![7, 8]].concat();
    let expected = json!({"to": {"kind": "B"}, "kind": "A", "again": [], "plain": "0708"});
    assert_eq!(read(&schema, &schema, &record), expected);

    let error = Schema::parse(main, &[address, plain]).unwrap_err().to_string();
    let expected = "reference 1: $.fields[0].type: type `other.Kind` is not defined";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn errors_say_where() {
    for (text, expected) in [
        ("{", "at $: not JSON"),
        ("7", "at $: a schema is a string, an object or an array, not 7"),
        (r#"{"name": "x"}"#, "at $: `type` must be"),
        (r#"{"type": "array"}"#, "at $: `items` must be a schema"),
        (r#"{"type": "record", "name": "R"}"#, "at $: `fields` must be"),
        (r#"{"type": "record", "fields": []}"#, "at $: `name` must be a string"),
        (r#"{"type": "record", "name": "1R", "fields": []}"#, "at $.name: `1R` is no Avro name"),
        (r#"{"type": "fixed", "name": "F", "size": -1}"#, "at $.size: a fixed has a size"),
        (r#"{"type": "enum", "name": "E", "symbols": ["A", "A"]}"#, "at $.symbols: `A` occurs"),
        (r#"{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}"#, "default `B`"),
        (r#"["int", "int"]"#, "at $: a union may not contain int twice"),
        (r#"["int", ["null"]]"#, "at $: a union may not contain another union"),
        (r#""Missing""#, "at $: type `Missing` is not defined"),
        (
            r#"[{"type": "fixed", "name": "F", "size": 1},
                {"type": "fixed", "name": "F", "size": 2}]"#,
            "at $[1]: type `F` is defined twice",
        ),
        (
            r#"{"type": "record", "name": "R", "fields": [
                {"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}"#,
            "at $.fields[1]: `a` occurs twice",
        ),
        (
            r#"{"type": "record", "name": "R", "fields": [
                {"name": "a", "type": {"type": "map", "values": {"type": "wat"}}}]}"#,
            "at $.fields[0].type.values.type: type `wat` is not defined",
        ),
    ] {
        let error = Schema::parse(text, &[]).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
