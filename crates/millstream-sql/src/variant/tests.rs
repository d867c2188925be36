//! What JSON becomes and how it is written again, and that no bytes do harm.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, StructArray};
use arrow::datatypes::DataType;
use proptest::prelude::*;

use super::path::{Step, find};
use super::schema::Schema;
use super::*;
use crate::types::variant;

/// The names and the bytes of a value of JSON.
fn made(json: &str) -> (Vec<u8>, Vec<u8>) {
    let mut builder = Builder::default();
    parse(json, &mut builder).unwrap_or_else(|error| panic!("{json}: {error}"));
    let (metadata, value) = builder.finish().expect("it is short");
    (metadata.to_vec(), value.to_vec())
}

fn shown(metadata: &[u8], value: &[u8]) -> Result<String, VariantError> {
    let mut text = String::new();
    to_json(Variant::new(metadata, value)?, &mut text)?;
    Ok(text)
}

fn again(json: &str) -> String {
    let (metadata, value) = made(json);
    shown(&metadata, &value).expect("it was made here")
}

fn refused(json: &str) -> VariantError {
    parse(json, &mut Builder::default()).expect_err(json)
}

fn schema(json: &str) -> Schema {
    let (metadata, value) = made(json);
    let value = Variant::new(&metadata, &value).expect("it was made here");
    Schema::of(value).expect("it was made here")
}

#[test]
fn json_comes_back_with_its_keys_in_order() {
    for (json, wanted) in [
        (r#"{ "b": [1, null, true], "a": {} }"#, r#"{"a":{},"b":[1,null,true]}"#),
        ("12345.678", "12345.678"),
        ("1.0", "1"),
        ("-0.50", "-0.5"),
        ("1e3", "1000.0"),
        ("1E-7", "1.0E-7"),
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("123456789012345678901234567890123456789", "1.2345678901234568E38"),
        (r#""a\u0041\n\ud83d\ude00\/""#, "\"aA\\n\u{1f600}/\""),
        ("[]", "[]"),
        ("1 x", "1"),
    ] {
        assert_eq!(again(json), wanted, "{json}");
    }
}

#[test]
fn long_texts_and_wide_objects_come_back() {
    let text = format!("\"{}\"", "x".repeat(70_000));
    assert_eq!(again(&text), text);
    let fields: Vec<String> = (1_000..1_400).map(|at| format!("\"k{at}\":{at}")).collect();
    let object = format!("{{{}}}", fields.join(","));
    assert_eq!(again(&object), object);
    let array = format!("[{}]", vec!["70000"; 20_000].join(","));
    assert_eq!(again(&array), array);
}

/// Bytes as Spark writes them for `{"b":"x","a":1.5}`.
#[test]
fn the_encoding_is_sparks() {
    let (metadata, value) = made(r#"{"b":"x","a":1.5}"#);
    assert_eq!(metadata, [1, 2, 0, 1, 2, b'b', b'a']);
    let head = [0b10, 2, 1, 0, 2, 0, 8];
    let items = [0b101, b'x', 8 << 2, 1, 15, 0, 0, 0];
    assert_eq!(value, [&head[..], &items[..]].concat());
}

#[test]
fn what_is_no_json_is_refused() {
    let wrong = [
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\"}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "1x",
        "tru",
        "truex",
        "NaN",
        "\"a",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\t\"",
        "'a'",
        "1,2",
        "-",
    ];
    for json in wrong {
        assert!(matches!(refused(json), VariantError::NoJson(_)), "{json}");
    }
    let twice = r#"[{"a":1,"b":2,"a":3}]"#;
    assert_eq!(refused(twice), VariantError::DuplicateKey("a".to_owned()));
    assert!(matches!(refused(&"1".repeat(1_001)), VariantError::NoJson(_)));
}

#[test]
fn values_are_nested_to_a_depth() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(again(&nested(1_000)), nested(1_000));
    assert_eq!(refused(&nested(1_001)), VariantError::TooDeep);
    assert_eq!(refused(&"{\"a\":".repeat(100_000)), VariantError::TooDeep);
}

#[test]
fn paths_are_sparks() {
    let key = |key: &str| Step::Key(key.to_owned());
    for (path, wanted) in [
        ("$", vec![]),
        ("$.a.b c[0]", vec![key("a"), key("b c"), Step::Index(0)]),
        ("$['a.b'][\"c'd\"]", vec![key("a.b"), key("c'd")]),
        ("$[12].x]", vec![Step::Index(12), key("x]")]),
    ] {
        assert_eq!(path::parse(path), Some(wanted), "{path}");
    }
    for path in ["", "a", "$.", "$..a", "$[-1]", "$[a]", "$['a'", "$[2147483648]", "$a"] {
        assert_eq!(path::parse(path), None, "{path}");
    }
}

#[test]
fn a_path_leads_to_a_part_or_nowhere() {
    let (metadata, value) = made(r#"{"a": [{"b": 1}, 2], "c": null}"#);
    let value = Variant::new(&metadata, &value).expect("it was made here");
    for (path, wanted) in [
        ("$.a[0].b", Some("1")),
        ("$.a[1]", Some("2")),
        ("$.c", Some("null")),
        ("$.a[2]", None),
        ("$.a.b", None),
        ("$.c.d", None),
        ("$[0]", None),
    ] {
        let steps = path::parse(path).expect("it is a path");
        let found = find(value, &steps).expect("it was made here");
        let text = found.map(|part| {
            let mut text = String::new();
            to_json(part, &mut text).expect("it was made here");
            text
        });
        assert_eq!(text.as_deref(), wanted, "{path}");
    }
}

#[test]
fn a_copy_of_a_part_has_its_own_names_only() {
    let (metadata, value) = made(r#"{"a": {"b": [1, "x"]}, "c": {"d": 2}}"#);
    let value = Variant::new(&metadata, &value).expect("it was made here");
    let steps = path::parse("$.a").expect("it is a path");
    let part = find(value, &steps).expect("it was made here").expect("it is there");
    let mut builder = Builder::default();
    builder.variant(part).expect("it was made here");
    let (names, copy) = builder.finish().expect("it is short");
    assert_eq!(names, [1, 1, 0, 1, b'b']);
    assert_eq!(shown(names, copy).as_deref(), Ok(r#"{"b":[1,"x"]}"#));
}

#[test]
fn schemas_are_merged_as_sparks() {
    let written = |schema: &Schema| {
        let mut text = String::new();
        schema.write(&mut text);
        text
    };
    for (json, wanted) in [
        ("null", "VOID"),
        (r#"[{"b":true,"a":0}]"#, "ARRAY<OBJECT<a: BIGINT, b: BOOLEAN>>"),
        (r#"[{"a":1},{"b c":"x"}]"#, "ARRAY<OBJECT<a: BIGINT, `b c`: STRING>>"),
        ("[1, 1.5]", "ARRAY<DECIMAL(21,1)>"),
        ("[0.25, 100.5]", "ARRAY<DECIMAL(5,2)>"),
        ("[1, 1e1]", "ARRAY<DOUBLE>"),
        (r#"[1, "a"]"#, "ARRAY<VARIANT>"),
        ("[[1], [], [null]]", "ARRAY<ARRAY<BIGINT>>"),
        ("[]", "ARRAY<VOID>"),
        ("0.005", "DECIMAL(3,3)"),
    ] {
        assert_eq!(written(&schema(json)), wanted, "{json}");
    }
    for json in [r#"{"a`b": [{"c": 1.5}], "d:e": {}, "f": null}"#, "[[true]]", "\"x\""] {
        let schema = schema(json);
        assert_eq!(schema_text::read(&written(&schema)), Some(schema), "{json}");
    }
    for text in ["", "BIGINT>", "ARRAY<", "OBJECT<a BIGINT>", "OBJECT<`a: BIGINT>", "INT"] {
        assert_eq!(schema_text::read(text), None, "{text}");
    }
    let merged = schema(r#"{"a": 1, "c": 2}"#).merged(schema(r#"{"b": 1.23, "c": "x"}"#));
    assert_eq!(written(&merged), "OBJECT<a: BIGINT, b: DECIMAL(3,2), c: VARIANT>");
}

/// All that can be done with bytes that may be no value.
fn read_all(metadata: &[u8], value: &[u8]) {
    let Ok(variant) = Variant::new(metadata, value) else { return };
    let _ = to_json(variant, &mut String::new());
    let _ = Schema::of(variant);
    let _ = Builder::default().variant(variant);
    let _ = find(variant, &[Step::Key("a".to_owned()), Step::Index(0)]);
}

#[test]
fn broken_values_do_no_harm() {
    let (metadata, value) = made(r#"{"a": [1, 2.5, "text", {"b": null}], "c": [[[true]]]}"#);
    for length in 0..=value.len() {
        read_all(&metadata, &value[..length]);
    }
    for length in 0..=metadata.len() {
        read_all(&metadata[..length], &value);
    }
    for at in 0..value.len() {
        for byte in 0..=u8::MAX {
            let mut broken = value.clone();
            broken[at] = byte;
            read_all(&metadata, &broken);
        }
    }
    assert_eq!(shown(&[2, 0, 0], &[0]), Err(VariantError::Malformed));
    assert_eq!(shown(&[1, 0, 0], &[]), Err(VariantError::Malformed));
}

/// Each array has one element twice: without a bound there would be 2^60 of the innermost.
#[test]
fn parts_that_share_bytes_do_not_multiply() {
    let mut value = vec![0];
    for _ in 0..60 {
        let length = u8::try_from(value.len()).unwrap_or(u8::MAX);
        drop(value.splice(0..0, [0b11, 2, 0, 0, length]));
    }
    assert_eq!(shown(&[1, 0, 0], &value), Err(VariantError::Malformed));
    read_all(&[1, 0, 0], &value);
}

#[test]
fn a_column_gives_its_values_back() {
    let (mut builder, mut out) = (Builder::default(), VariantsBuilder::default());
    for json in [Some("[1]"), None, Some("null")] {
        match json {
            Some(json) => {
                parse(json, &mut builder).expect("it is JSON");
                out.append(&mut builder).expect("it is short");
            }
            None => out.append_null(),
        }
    }
    let column = out.finish();
    assert_eq!(*column.data_type(), variant());
    let texts = texts(&column.slice(1, 2)).expect("they were made here");
    assert_eq!(texts.iter().collect::<Vec<_>>(), [None, Some("null")]);
    assert_eq!(text_of(&column, 0), Ok(Some("[1]".to_owned())));
}

#[test]
fn a_column_without_a_value_is_malformed() {
    let DataType::Struct(fields) = variant() else { panic!("VARIANT is a STRUCT") };
    let nothing: ArrayRef = Arc::new(BinaryArray::from(vec![None::<&[u8]>]));
    let column: ArrayRef =
        Arc::new(StructArray::new(fields, vec![Arc::clone(&nothing), nothing], None));
    assert!(column.as_struct().is_valid(0));
    assert_eq!(text_of(&column, 0), Err(VariantError::Malformed));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let mut builder = Builder::default();
        if parse(&text, &mut builder).is_ok() {
            let (metadata, value) = builder.finish().expect("it is short");
            read_all(metadata, value);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(
        metadata in proptest::collection::vec(any::<u8>(), 0..64),
        value in proptest::collection::vec(any::<u8>(), 0..256),
    ) {
        read_all(&metadata, &value);
        let known = [&[1_u8, 2, 0, 1, 2, b'a', b'b'][..], &metadata].concat();
        read_all(&known, &value);
    }

    #[test]
    fn any_string_comes_back(text in any::<String>()) {
        let mut json = String::new();
        crate::values::json_text::quote(&text, &mut json);
        prop_assert_eq!(again(&json), json);
    }
}
