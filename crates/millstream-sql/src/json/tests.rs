//! What converts to what, and that no input can do harm.

use std::sync::Arc;

use arrow::array::{Array, BinaryArray, StringArray, StructArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use millstream_fuzz::Target;
use proptest::collection::vec;
use proptest::prelude::*;

use super::scan::{self, DEPTH_MAX};
use super::*;
use crate::functions::types::schema_of;
use crate::types::map_of;
use crate::values::java_text::{write_big_decimal, write_double, write_float};
use crate::values::json_text::quote;

fn schema(ddl: &str) -> Schema {
    match schema_of(ddl) {
        Ok(DataType::Struct(fields)) => Schema::new(fields),
        other => panic!("{ddl} is not a list of columns: {other:?}"),
    }
}

fn decoder(schema: &Schema, mode: ParseMode) -> Decoder {
    let projection: Vec<usize> = (0..schema.fields().len()).collect();
    let options = DecodeOptions { mode, ..DecodeOptions::default() };
    Decoder::new(schema, &projection, options).expect("the schema is supported")
}

/// Each row as JSON, nulls included, so that every column shows.
fn shown(decoded: &Decoded) -> Vec<String> {
    let rows = StructArray::from(decoded.rows.clone());
    let options = EncodeOptions { ignore_null_fields: false, ..EncodeOptions::default() };
    let text = encode(&rows, options).expect("types have JSON");
    text.iter().map(|row| row.expect("rows are not null").to_owned()).collect()
}

/// Decodes one record permissively: the row and whether the record was malformed.
fn row(ddl: &str, record: &str) -> (String, bool) {
    let records = StringArray::from(vec![record]);
    let decoded =
        decoder(&schema(ddl), ParseMode::Permissive).decode(&records).expect("permissive");
    (shown(&decoded).remove(0), decoded.malformed == 1)
}

#[track_caller]
fn reads(ddl: &str, record: &str, expected: &str) {
    assert_eq!(row(ddl, record), (expected.to_owned(), false), "{record} as {ddl}");
}

#[track_caller]
fn malformed(ddl: &str, record: &str, expected: &str) {
    assert_eq!(row(ddl, record), (expected.to_owned(), true), "{record} as {ddl}");
}

#[test]
fn scalars_convert_as_in_spark() {
    reads("a INT", r#"{"a": 1}"#, r#"{"a":1}"#);
    reads("a INT", r#"{"a": -0}"#, r#"{"a":0}"#);
    malformed("a INT", r#"{"a": "1"}"#, r#"{"a":null}"#);
    malformed("a INT", r#"{"a": 1.5}"#, r#"{"a":null}"#);
    malformed("a INT", r#"{"a": 2147483648}"#, r#"{"a":null}"#);
    malformed("a TINYINT", r#"{"a": -129}"#, r#"{"a":null}"#);
    reads("a TINYINT", r#"{"a": 128}"#, r#"{"a":-128}"#);
    reads("a TINYINT", r#"{"a": 255}"#, r#"{"a":-1}"#);
    malformed("a TINYINT", r#"{"a": 256}"#, r#"{"a":null}"#);
    malformed("a SMALLINT", r#"{"a": 32768}"#, r#"{"a":null}"#);
    reads("a BIGINT", r#"{"a": -9223372036854775808}"#, r#"{"a":-9223372036854775808}"#);
    reads("a BOOLEAN", r#"{"a": true}"#, r#"{"a":true}"#);
    malformed("a BOOLEAN", r#"{"a": 1}"#, r#"{"a":null}"#);
    malformed("a BOOLEAN", r#"{"a": "true"}"#, r#"{"a":null}"#);
    reads("a DOUBLE", r#"{"a": 1e3}"#, r#"{"a":1000.0}"#);
    reads("a DOUBLE", r#"{"a": 12}"#, r#"{"a":12.0}"#);
    reads("a DOUBLE", r#"{"a": "NaN"}"#, r#"{"a":"NaN"}"#);
    reads("a DOUBLE", r#"{"a": "-INF"}"#, r#"{"a":"-Infinity"}"#);
    malformed("a DOUBLE", r#"{"a": "1.0"}"#, r#"{"a":null}"#);
    reads("a FLOAT", r#"{"a": 0.1}"#, r#"{"a":0.1}"#);
    reads("a BINARY", r#"{"a": "aGk="}"#, r#"{"a":"aGk="}"#);
    malformed("a BINARY", r#"{"a": "?"}"#, r#"{"a":null}"#);
    malformed("a DATE", r#"{"a": ""}"#, r#"{"a":null}"#);
}

#[test]
fn anything_fits_a_string() {
    reads("a STRING", r#"{"a": "x\n\u00e9\ud83d\ude00\/"}"#, r#"{"a":"x\né😀/"}"#);
    reads("a STRING", r#"{"a": 1.50}"#, r#"{"a":"1.50"}"#);
    malformed("a TIMESTAMP_NTZ", r#"{"a": 1}"#, r#"{"a":null}"#);
    reads("a STRING", r#"{"a": true}"#, r#"{"a":"true"}"#);
    reads("a STRING", r#"{"a": {"b" : [1, "x y"]}}"#, r#"{"a":"{\"b\":[1,\"x y\"]}"}"#);
    reads("a STRING", r#"{"a": null}"#, r#"{"a":null}"#);
    reads("a STRING", r#"{"a": ""}"#, r#"{"a":""}"#);
    reads("a STRING", r#"{"a": "\ud800x"}"#, "{\"a\":\"\u{fffd}x\"}");
}

#[test]
fn decimals_are_exact() {
    reads("a DECIMAL(10,2)", r#"{"a": 12345678.90}"#, r#"{"a":12345678.90}"#);
    reads("a DECIMAL(10,2)", r#"{"a": "1.5"}"#, r#"{"a":1.50}"#);
    reads("a DECIMAL(10,2)", r#"{"a": 0.005}"#, r#"{"a":0.01}"#);
    reads("a DECIMAL(10,2)", r#"{"a": -1.25e1}"#, r#"{"a":-12.50}"#);
    reads("a DECIMAL(38,0)", r#"{"a": 1e37}"#, &format!(r#"{{"a":1{}}}"#, "0".repeat(37)));
    malformed("a DECIMAL(3,1)", r#"{"a": 99.95}"#, r#"{"a":null}"#);
    malformed("a DECIMAL(3,1)", r#"{"a": 1e999999999}"#, r#"{"a":null}"#);
    reads("a DECIMAL(3,1)", r#"{"a": 0e999999999}"#, r#"{"a":0.0}"#);
}

#[test]
fn times_are_read_in_all_their_spellings() {
    for text in [
        "2026-01-02T03:04:05.123Z",
        "2026-01-02 03:04:05.123",
        "2026-01-02T05:04:05.123456789+02:00",
        "2026-01-02T03:04:05.1234567890Z",
        "2026-01-01T22:04:05.123-0500",
        "2026-1-2 3:4:5.123 UTC",
        "2026-01-02 04:04:05.123 Europe/Berlin",
    ] {
        let record = format!(r#"{{"a": "{text}"}}"#);
        reads("a TIMESTAMP", &record, r#"{"a":"2026-01-02T03:04:05.123Z"}"#);
    }
    reads("a TIMESTAMP", r#"{"a": 1.5}"#, r#"{"a":"1970-01-01T00:00:01.500Z"}"#);
    reads("a TIMESTAMP", r#"{"a": -1}"#, r#"{"a":"1969-12-31T23:59:59.000Z"}"#);
    reads("a TIMESTAMP", r#"{"a": "2026-01-02"}"#, r#"{"a":"2026-01-02T00:00:00.000Z"}"#);
    reads("a TIMESTAMP_NTZ", r#"{"a": "2026-01-02T03:04"}"#, r#"{"a":"2026-01-02T03:04:00.000"}"#);
    reads("a DATE", r#"{"a": "2024-02-29"}"#, r#"{"a":"2024-02-29"}"#);
    for text in ["2026-02-29", "soon", "2026-01-02T25:00:00", "2026-01-02T03:04Z", "2026-01-02T"] {
        malformed("a TIMESTAMP", &format!(r#"{{"a": "{text}"}}"#), r#"{"a":null}"#);
    }
    malformed("a DATE", r#"{"a": "2026-13-01"}"#, r#"{"a":null}"#);
    malformed("a DATE", r#"{"a": 20000}"#, r#"{"a":null}"#);
}

#[test]
fn nested_values_become_null_where_they_do_not_fit() {
    let ddl = "a STRUCT<b: INT, c: ARRAY<INT>>, d MAP<STRING, INT>, e ARRAY<STRUCT<f: INT>>";
    reads(
        ddl,
        r#"{"d": {"x": 1, "y": null}, "a": {"c": [1, null], "b": 2}, "e": [{}, {"f": 3}]}"#,
        r#"{"a":{"b":2,"c":[1,null]},"d":{"x":1,"y":null},"e":[{"f":null},{"f":3}]}"#,
    );
    malformed(
        ddl,
        r#"{"a": {"b": "2", "c": [1]}, "d": {"x": "y"}, "e": [{"f": "g"}, {"f": 1}]}"#,
        r#"{"a":{"b":null,"c":[1]},"d":null,"e":[{"f":null},{"f":1}]}"#,
    );
    malformed(ddl, r#"{"a": 1, "e": {}}"#, r#"{"a":null,"d":null,"e":null}"#);
    // The row after one with hidden elements must still find its own.
    let records = StringArray::from(vec![r#"{"a": [1, "x", 3]}"#, r#"{"a": [4]}"#, r#"{"a": []}"#]);
    let decoded = decoder(&schema("a ARRAY<INT>"), ParseMode::Permissive).decode(&records).unwrap();
    assert_eq!(shown(&decoded), [r#"{"a":null}"#, r#"{"a":[4]}"#, r#"{"a":[]}"#]);
}

#[test]
fn keys_match_exactly_and_then_by_letters() {
    reads("userId INT", r#"{"userid": 1}"#, r#"{"userId":1}"#);
    reads("userId INT", r#"{"userId": 1, "USERID": 2}"#, r#"{"userId":1}"#);
    reads("userId INT", r#"{"USERID": 2, "userId": 1}"#, r#"{"userId":1}"#);
    reads("a INT", r#"{"a": 1, "a": 2}"#, r#"{"a":2}"#);
    reads("a INT", r#"{"a": 1, "a": null}"#, r#"{"a":null}"#);
    reads("a INT", r#"{"A": "x", "a": 2}"#, r#"{"a":2}"#);
    malformed("a INT", r#"{"a": "x", "a": 2}"#, r#"{"a":2}"#);
    malformed("a INT", r#"{"a": 1, "a": "x"}"#, r#"{"a":1}"#);
    malformed("a INT", r#"{"a": true, "a": "x"}"#, r#"{"a":null}"#);
    malformed("s STRUCT<b: INT>", r#"{"s": {"b": 1, "b": "x"}}"#, r#"{"s":{"b":1}}"#);
    reads("a INT", r#"{"\u0061": 1}"#, r#"{"a":1}"#);
    reads("a STRUCT<b: INT>", r#"{"A": {"B": 1}}"#, r#"{"a":{"b":1}}"#);
    let exact = DecodeOptions { ignore_case: false, ..DecodeOptions::default() };
    let mut decoder = Decoder::new(&schema("userId INT"), &[0], exact).unwrap();
    let decoded = decoder.decode(&StringArray::from(vec![r#"{"userid": 1}"#])).unwrap();
    assert_eq!(shown(&decoded), [r#"{"userId":null}"#]);
}

#[test]
fn text_that_is_no_object_is_malformed() {
    for record in [
        "",
        "  ",
        "null",
        "1",
        "[{\"a\":1}]",
        "{\"a\":1} x",
        "{\"a\":1",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":1,}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\\x\"}",
        "{'a':1}",
        "{\"a\":NaN}",
        "{\"a\":tru}",
    ] {
        malformed("a INT, b STRING", record, r#"{"a":null,"b":null}"#);
    }
    let deep = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(!row("b INT", &deep(DEPTH_MAX)).1);
    assert!(row("b INT", &deep(DEPTH_MAX + 1)).1);
}

#[test]
fn records_may_have_their_keys_in_any_order() {
    let records = [
        r#"{"a":1,"b":2,"c":3}"#,
        r#"{"c":3,"b":2,"a":1}"#,
        r#"{"b":2,"x":0,"a":1,"c":3}"#,
        r#"{"a":1}"#,
        r#"{"x":{"a":9},"y":[1],"z":0,"w":0,"v":0,"c":3,"b":2,"a":1}"#,
        r#"{"a":1,"b":2,"c":3}"#,
    ];
    let mut decoder = decoder(&schema("a INT, b INT, c INT"), ParseMode::FailFast);
    let decoded = decoder.decode(&StringArray::from(records.to_vec())).unwrap();
    let full = r#"{"a":1,"b":2,"c":3}"#;
    let partial = r#"{"a":1,"b":null,"c":null}"#;
    assert_eq!(shown(&decoded), [full, full, full, partial, full, full]);
}

#[test]
fn only_projected_columns_are_read() {
    let schema = schema("a INT, b STRING, c DOUBLE");
    let records = StringArray::from(vec![r#"{"a":"wrong","b":"x","c":1}"#, "{"]);
    let mut decoder = Decoder::new(&schema, &[2, 1], DecodeOptions::default()).unwrap();
    let decoded = decoder.decode(&records).unwrap();
    assert_eq!(shown(&decoded), [r#"{"c":1.0,"b":"x"}"#, r#"{"c":null,"b":null}"#]);
    assert_eq!(decoded.malformed, 1);
    let mut none = Decoder::new(&schema, &[], DecodeOptions::default()).unwrap();
    let decoded = none.decode(&records).unwrap();
    assert_eq!((decoded.rows.num_rows(), decoded.malformed), (2, 1));
}

#[test]
fn dropped_records_leave_aligned_rows() {
    let records = [Some("{"), Some(r#"{"a":1}"#), Some(r#"{"a":"x"}"#), None, Some(r#"{"a":2}"#)];
    let mut decoder = decoder(&schema("a INT"), ParseMode::DropMalformed);
    let decoded = decoder.decode(&StringArray::from(records.to_vec())).unwrap();
    assert_eq!(shown(&decoded), [r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":2}"#]);
    assert_eq!(decoded.kept, Some(UInt32Array::from(vec![1, 3, 4])));
    assert_eq!(decoded.malformed, 2);
    let decoded = decoder.decode(&StringArray::from(vec![r#"{"a":3}"#])).unwrap();
    assert_eq!((shown(&decoded), decoded.kept), (vec![r#"{"a":3}"#.to_owned()], None));
}

#[test]
fn malformed_records_are_told_apart_whatever_the_mode() {
    for mode in [ParseMode::Permissive, ParseMode::DropMalformed, ParseMode::FailFast] {
        let mut decoder = decoder(&schema("a INT"), mode);
        let texts =
            StringArray::from(vec![Some(r#"{"a":1}"#), Some("{"), None, Some(r#"{"a":"x"}"#)]);
        let mut rejected = Vec::new();
        let decoded = decoder.decode_apart(&texts, |record| rejected.push(record));
        assert_eq!((decoded.rows.num_rows(), decoded.malformed), (2, 2), "{mode:?}");
        let rejected: Vec<_> =
            rejected.iter().map(|record| (record.row, record.in_short())).collect();
        assert_eq!((rejected[0].0, rejected[1].0), (1, 3), "{rejected:?}");
        assert!(rejected[1].1.starts_with("at byte 6: "), "{rejected:?}");
        assert_eq!(decoder.decode(&StringArray::from(vec![r#"{"a":2}"#])).unwrap().malformed, 0);
    }
}

#[test]
fn not_null_is_enforced_by_the_mode() {
    let schema = Schema::new(vec![
        Field::new("a", DataType::Int32, false),
        Field::new("b", DataType::Int32, true),
    ]);
    let records = StringArray::from(vec![Some(r#"{"b":1}"#), Some(r#"{"a":2}"#), None]);
    let mut permissive = decoder(&schema, ParseMode::Permissive);
    assert!(permissive.schema().field(0).is_nullable());
    let decoded = permissive.decode(&records).unwrap();
    assert_eq!(decoded.malformed, 2);
    assert_eq!(shown(&decoded)[0], r#"{"a":null,"b":1}"#);
    let mut dropping = decoder(&schema, ParseMode::DropMalformed);
    assert!(!dropping.schema().field(0).is_nullable());
    assert_eq!(shown(&dropping.decode(&records).unwrap()), [r#"{"a":2,"b":null}"#]);
    let error = decoder(&schema, ParseMode::FailFast).decode(&records).unwrap_err();
    assert_eq!(error.problem, Problem::NullColumn { column: "a".into() });
}

#[test]
fn a_failing_query_names_the_record() {
    let records = StringArray::from(vec![r#"{"a":1}"#, r#"{"b":1, "a":"x"}"#, "{"]);
    let mut decoder = decoder(&schema("a INT"), ParseMode::FailFast);
    let error = decoder.decode(&records).unwrap_err();
    assert_eq!((error.row, error.position), (1, 13));
    let expected = Problem::WrongType { column: "a".into(), expected: "INT".into() };
    assert_eq!(error.problem, expected);
    assert_eq!(error.excerpt, r#"{"b":1, "a":"x"}"#);
    // The decoder is as new after an error.
    let decoded = decoder.decode(&StringArray::from(vec![r#"{"a":5}"#])).unwrap();
    assert_eq!(shown(&decoded), [r#"{"a":5}"#]);
}

#[test]
fn the_corrupt_record_column_gets_the_text() {
    let records: Vec<&[u8]> =
        vec![b"{\"a\":1}", b"{\"a\":\"x\"}", b"oh \xff", b"{\"_corrupt_record\":1}"];
    let records = BinaryArray::from_vec(records);
    let schema = schema("a INT, _corrupt_record STRING");
    let decoded = decoder(&schema, ParseMode::Permissive).decode(&records).unwrap();
    let expected = [
        r#"{"a":1,"_corrupt_record":null}"#,
        r#"{"a":null,"_corrupt_record":"{\"a\":\"x\"}"}"#,
        "{\"a\":null,\"_corrupt_record\":\"oh \u{fffd}\"}",
        r#"{"a":null,"_corrupt_record":null}"#,
    ];
    assert_eq!(shown(&decoded), expected);
}

#[test]
fn a_character_cut_by_a_border_belongs_to_no_record() {
    let bytes = "{\"a\":\"é\"}".as_bytes();
    let decoded = decoder(&schema("a STRING"), ParseMode::Permissive)
        .decode(Values::new(bytes, &[0, 7, bytes.len() as i32], None))
        .unwrap();
    assert_eq!(decoded.malformed, 2);
}

#[test]
fn sliced_input_is_read_from_its_own_offset() {
    let records = StringArray::from(vec!["{", r#"{"a":1}"#, r#"{"a":2}"#]).slice(1, 2);
    let decoded = decoder(&schema("a INT"), ParseMode::FailFast).decode(&records).unwrap();
    assert_eq!(shown(&decoded), [r#"{"a":1}"#, r#"{"a":2}"#]);
}

#[test]
fn null_fields_are_left_out_of_the_text() {
    let decoded = decoder(&schema("a INT, b STRUCT<c: INT>, d ARRAY<INT>"), ParseMode::Permissive)
        .decode(&StringArray::from(vec![r#"{"b":{},"d":[null]}"#]))
        .unwrap();
    let rows = StructArray::from(decoded.rows);
    let text = encode(&rows, EncodeOptions::default()).unwrap();
    assert_eq!(text.value(0), r#"{"b":{},"d":[null]}"#);
}

#[test]
fn doubles_and_decimals_are_written_as_java_does() {
    let double = |value| {
        let mut text = String::new();
        write_double(value, &mut text);
        text
    };
    let cases = [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.000_999, "9.99E-4"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.5e10, "1.5E10"),
        (123.456, "123.456"),
        (f64::MAX, "1.7976931348623157E308"),
        (4.9e-324, "4.9E-324"),
        (100.0, "100.0"),
    ];
    for (value, text) in cases.into_iter().filter(|(value, _)| *value != 4.9e-324) {
        assert_eq!(double(value), text);
    }
    let decimal = |unscaled, scale| {
        let mut text = String::new();
        write_big_decimal(unscaled, scale, &mut text);
        text
    };
    assert_eq!(decimal(-5, 2), "-0.05");
    assert_eq!(decimal(1, 7), "1E-7");
    assert_eq!(decimal(-12, 8), "-1.2E-7");
    assert_eq!(decimal(0, 2), "0.00");
}

#[test]
fn paths_lead_into_documents() {
    let document =
        r#"{"a": {"b": [10, {"c": "x\ty"}, null]}, "k k": 1, "n": null, "l": [[1],[2]]}"#;
    let find = |path: &str| {
        let mut out = String::new();
        Path::parse(path).and_then(|path| path.find(document, &mut out).then_some(out))
    };
    assert_eq!(find("$.a.b[0]").as_deref(), Some("10"));
    assert_eq!(find("$.a.b[1].c").as_deref(), Some("x\ty"));
    assert_eq!(find("$.a.b[1]").as_deref(), Some(r#"{"c":"x\ty"}"#));
    assert_eq!(find("$['k k']").as_deref(), Some("1"));
    assert_eq!(find("$.a.b[*]").as_deref(), Some(r#"[10,{"c":"x\ty"},null]"#));
    assert_eq!(find("$.a.b[*].c").as_deref(), Some(r#""x\ty""#));
    assert_eq!(find("$.l[*][0]").as_deref(), Some("[1,2]"));
    for nothing in ["$.n", "$.a.b[2]", "$.a.b[9]", "$.x", "a.b", "$.", "$.a.b[x]"] {
        assert_eq!(find(nothing), None, "{nothing}");
    }
}

/// Types that JSON keeps exactly.
fn data_type() -> BoxedStrategy<DataType> {
    let leaf = prop_oneof![
        Just(DataType::Boolean),
        Just(DataType::Int8),
        Just(DataType::Int16),
        Just(DataType::Int32),
        Just(DataType::Int64),
        Just(DataType::Float32),
        Just(DataType::Float64),
        Just(DataType::Utf8),
        Just(DataType::Binary),
        Just(DataType::Date32),
        Just(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        Just(DataType::Timestamp(TimeUnit::Microsecond, None)),
        (1_u8..=38).prop_flat_map(|precision| {
            (0..=precision as i8).prop_map(move |scale| DataType::Decimal128(precision, scale))
        }),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|item| DataType::new_list(item, true)),
            inner.clone().prop_map(|value| map_of(DataType::Utf8, value)),
            vec(inner, 0..4).prop_map(structure),
        ]
    })
    .boxed()
}

fn structure(types: Vec<DataType>) -> DataType {
    let field = |(at, data_type)| Field::new(format!("f{at}"), data_type, true);
    DataType::Struct(types.into_iter().enumerate().map(field).collect())
}

/// JSON text of a value of `data_type`, spelled as the encoder spells it.
fn text(data_type: &DataType) -> BoxedStrategy<String> {
    let chrono = |us: i64, format: &str| {
        let time = chrono::DateTime::from_timestamp_micros(us).expect("within chrono's range");
        format!("\"{}\"", time.format(format))
    };
    // From the year 1 to 9999, in milliseconds.
    let times = -62_135_596_800_000_i64..253_402_300_800_000;
    match data_type {
        DataType::Boolean => any::<bool>().prop_map(|value| value.to_string()).boxed(),
        DataType::Int8 => any::<i8>().prop_map(|value| value.to_string()).boxed(),
        DataType::Int16 => any::<i16>().prop_map(|value| value.to_string()).boxed(),
        DataType::Int32 => any::<i32>().prop_map(|value| value.to_string()).boxed(),
        DataType::Int64 => any::<i64>().prop_map(|value| value.to_string()).boxed(),
        DataType::Float32 => {
            any::<f32>().prop_map(|value| written(|out| write_float(value, out))).boxed()
        }
        DataType::Float64 => {
            any::<f64>().prop_map(|value| written(|out| write_double(value, out))).boxed()
        }
        DataType::Utf8 => {
            any::<String>().prop_map(|value| written(|out| quote(&value, out))).boxed()
        }
        DataType::Binary => vec(any::<u8>(), 0..9)
            .prop_map(|bytes| {
                use base64::Engine;
                format!("\"{}\"", base64::engine::general_purpose::STANDARD.encode(bytes))
            })
            .boxed(),
        DataType::Date32 => times.prop_map(move |ms| chrono(ms * 1000, "%Y-%m-%d")).boxed(),
        DataType::Timestamp(_, zone) => {
            let format =
                if zone.is_some() { "%Y-%m-%dT%H:%M:%S%.3fZ" } else { "%Y-%m-%dT%H:%M:%S%.3f" };
            times.prop_map(move |ms| chrono(ms * 1000, format)).boxed()
        }
        DataType::Decimal128(precision, scale) => {
            let (limit, scale) = (10_i128.pow(u32::from(*precision)), *scale);
            (1 - limit..limit)
                .prop_map(move |unscaled| written(|out| write_big_decimal(unscaled, scale, out)))
                .boxed()
        }
        DataType::List(item) => vec(text_or_null(item.data_type()), 0..4)
            .prop_map(|items| format!("[{}]", items.join(",")))
            .boxed(),
        DataType::Map(entries, _) => {
            let DataType::Struct(fields) = entries.data_type() else { panic!("a map has entries") };
            let key = text(fields[0].data_type());
            vec((key, text_or_null(fields[1].data_type())), 0..4)
                .prop_map(|entries| {
                    let entries: Vec<_> =
                        entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
                    format!("{{{}}}", entries.join(","))
                })
                .boxed()
        }
        DataType::Struct(fields) => {
            let member = |field: &Arc<Field>| {
                let name = field.name().clone();
                proptest::option::of(text(field.data_type()))
                    .prop_map(move |value| value.map(|value| format!("\"{name}\":{value}")))
                    .boxed()
            };
            let members: Vec<_> = fields.iter().map(member).collect();
            members
                .prop_map(|members| {
                    format!("{{{}}}", members.into_iter().flatten().collect::<Vec<_>>().join(","))
                })
                .boxed()
        }
        other => panic!("{other} is not generated"),
    }
}

fn text_or_null(data_type: &DataType) -> BoxedStrategy<String> {
    prop_oneof![1 => Just("null".to_owned()), 4 => text(data_type)].boxed()
}

fn written(write: impl FnOnce(&mut String)) -> String {
    let mut out = String::new();
    write(&mut out);
    if out.ends_with("NaN") || out.ends_with("Infinity") { format!("\"{out}\"") } else { out }
}

fn table() -> impl Strategy<Value = (DataType, Vec<String>)> {
    vec(data_type(), 0..5).prop_map(structure).prop_flat_map(|data_type| {
        let rows = vec(text(&data_type), 0..5);
        (Just(data_type), rows)
    })
}

/// Text that is nearly JSON.
fn nearly_json() -> impl Strategy<Value = String> {
    let soup = r#"[\[\]{}:,"0-9eE+.\-trufalsn \\bu]{0,30}"#;
    let broken =
        (table(), any::<prop::sample::Index>(), any::<char>()).prop_map(|((_, rows), at, new)| {
            let text = rows.concat();
            let mut chars: Vec<char> = text.chars().collect();
            if !chars.is_empty() {
                let at = at.index(chars.len());
                if new.is_ascii() {
                    chars[at] = new;
                } else {
                    chars.remove(at);
                }
            }
            chars.into_iter().collect()
        });
    prop_oneof![soup.prop_map(String::from), broken]
}

proptest! {
    #[test]
    fn what_was_decoded_is_encoded_again((data_type, rows) in table()) {
        let DataType::Struct(fields) = data_type else { panic!("a table has columns") };
        let records = StringArray::from(rows.clone());
        let decoded = decoder(&Schema::new(fields), ParseMode::FailFast).decode(&records);
        let decoded = decoded.map_err(|error| TestCaseError::fail(error.to_string()))?;
        let written = encode(&StructArray::from(decoded.rows), EncodeOptions::default()).unwrap();
        prop_assert_eq!(written, records);
    }

    #[test]
    fn the_scanner_agrees_with_serde_json(text in nearly_json()) {
        let expected = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(scan::record(text.as_bytes()).is_ok(), expected, "{}", text);
    }

    #[test]
    fn the_decoder_agrees_with_the_scanner(text in nearly_json()) {
        let kind = scan::record(text.as_bytes()).map(|span| span.kind);
        let object = kind == Ok(scan::Kind::Object);
        let decoded = decoder(&Schema::empty(), ParseMode::Permissive)
            .decode(&StringArray::from(vec![text.as_str()]))
            .unwrap();
        prop_assert_eq!(decoded.malformed == 0, object, "{}", text);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(records in vec(vec(any::<u8>(), 0..40), 0..6)) {
        let records = BinaryArray::from_iter_values(records);
        let schema = schema("a INT, b STRUCT<c: STRING>, d ARRAY<DOUBLE>, _corrupt_record STRING");
        let decoded = decoder(&schema, ParseMode::Permissive).decode(&records).unwrap();
        prop_assert_eq!(decoded.rows.num_rows(), records.len());
    }

    #[test]
    fn no_text_makes_a_path_panic(path in r#"[$.\[\]'*a0-9]{0,12}"#, text in nearly_json()) {
        if let Some(path) = Path::parse(&path) {
            path.find(&text, &mut String::new());
        }
    }
}

#[test]
fn texts_of_csv_columns_are_those_of_spark() {
    let ddl = "a DOUBLE, b TIMESTAMP, c TIMESTAMP_NTZ, d DATE, e DECIMAL(20,10), f STRING";
    let record = r#"{"a": 1e10, "b": "2026-03-02T11:00:10.123456Z", "c": "2026-03-02T11:00:10",
                     "d": "2026-03-02", "e": 0.0000001, "f": "\"q\""}"#;
    let records = StringArray::from(vec![Some(record), None]);
    let decoded =
        decoder(&schema(ddl), ParseMode::Permissive).decode(&records).expect("permissive");
    let texts = |column| {
        let texts = plain_texts(column).expect("the type has a text");
        assert!(texts.is_null(1), "null stays null");
        texts.value(0).to_owned()
    };
    let texts: Vec<String> = decoded.rows.columns().iter().map(texts).collect();
    let expected = [
        "1.0E10",
        "2026-03-02T11:00:10.123Z",
        "2026-03-02T11:00:10.000",
        "2026-03-02",
        "1.000E-7",
        "\"q\"",
    ];
    assert_eq!(texts, expected);
}

/// Whether values are equal, but for the last digit of numbers, which serde_json does not round to
/// the nearest DOUBLE.
fn are_alike(one: &serde_json::Value, other: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (one, other) {
        (Array(one), Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| are_alike(one, other))
        }
        (Object(one), Object(other)) => {
            let same = |(key, one)| other.get(key).is_some_and(|other| are_alike(one, other));
            one.len() == other.len() && one.iter().all(same)
        }
        (Number(one), Number(other)) => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => (one - other).abs() <= one.abs() * 4.0 * f64::EPSILON,
            _ => one == other,
        },
        _ => one == other,
    }
}

/// What is valid is what serde_json takes for valid, but for nesting, where it stops earlier; and
/// the text of what a path leads to is that of the same value read by it.
#[test]
fn fuzz_documents_and_paths() {
    let seeds = [
        r#"{"a":{"b":[1,{"c":"x\u00e9\n"},null,[[-1.5e3]]]},"k k":true}"#,
        r#"[{"a":1},{"a":2},{"a":[3]}]"#,
    ];
    let words = &["{", "}", "[", "]", ":", ",", "\"", "\\u", "\\ud83d\\ude00", "null", "1e", "-"];
    let paths = ["$", "$.a.b[1].c", "$[*].a", "$.a.b[*][*][*]", "$['k k']", "$.a.b[3][0][0]"];
    let paths = paths.map(|path| Path::parse(path).expect("a path"));
    Target::text("json_documents").seeds(seeds).words(words).run(move |input| {
        let found = scan::record(input);
        let value = serde_json::from_slice::<serde_json::Value>(input);
        let too_deep = matches!(&value, Err(error) if error.to_string().contains("recursion"))
            || found.as_ref().is_err_and(|(_, problem)| *problem == Problem::TooDeep);
        // Halves of characters and numbers beyond DOUBLE are JSON, and no Value.
        let ignored = serde_json::from_slice::<serde::de::IgnoredAny>(input);
        // The scanner is given text alone.
        let is_text = std::str::from_utf8(input).is_ok();
        let agree = found.is_ok() == ignored.is_ok();
        assert!(too_deep || !is_text || agree, "{found:?} {ignored:?}");
        if let Ok(text) = std::str::from_utf8(input) {
            let mut out = String::new();
            for path in &paths {
                out.clear();
                path.find(text, &mut out);
            }
            out.clear();
            // To Spark's parser the whole number -0 is 0.
            if let Ok(value @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) = &value
                && !text.contains("-0")
                && paths[0].find(text, &mut out)
            {
                let again = serde_json::from_str(&out).expect("what is found is JSON");
                assert!(are_alike(value, &again), "{value} {again}");
            }
            let _ = path::array_length(text);
        }
        format!("{:?}", found.map(|span| span.kind))
    });
}

#[test]
fn fuzz_paths() {
    let seeds = ["$.a.b[0]", "$['a b'][*]", "$[1].x[*].y"];
    let words = &["$", ".", "[", "]", "['", "']", "*", "..", "[*]", "a"];
    let document = r#"{"a":{"b":[1,2,{"x":[{"y":null},{"y":[]}]}]},"a b":[1,[2]]}"#;
    Target::text("json_paths").seeds(seeds).words(words).run(move |input| {
        let mut out = String::new();
        let path = Path::parse(&String::from_utf8_lossy(input));
        let found = path.map(|path| path.find(document, &mut out));
        format!("{found:?} {}", out.len().min(20))
    });
}

#[test]
fn fuzz_schemas_decode_whatever_they_are() {
    let seeds = [
        "a INT, b STRUCT<c: STRING>, d ARRAY<DOUBLE>, _corrupt_record STRING",
        "m MAP<STRING, DECIMAL(10,2)>",
    ];
    let words = &[
        "INT",
        "STRING",
        "ARRAY<",
        "STRUCT<",
        "MAP<",
        ">",
        "DECIMAL(",
        ",",
        ":",
        "`",
        "TIMESTAMP",
        "NOT NULL",
    ];
    let records = StringArray::from(vec![
        r#"{"a":1,"b":{"c":"x"},"d":[1,null],"m":{"k":1.25}}"#,
        r#"{"a":[1],"b":[{"c":1}],"d":{"a":1},"m":[]}"#,
        r#"{"a":"2026-03-02","A":1e400,"b":null,"d":1,"m":"x"}"#,
    ]);
    Target::text("json_schemas").seeds(seeds).words(words).run(move |input| {
        let schema = match schema_of(&String::from_utf8_lossy(input)) {
            Ok(DataType::Struct(fields)) => Schema::new(fields),
            Ok(other) => return format!("{other}"),
            Err(error) => return error.to_string(),
        };
        let projection: Vec<usize> = (0..schema.fields().len()).collect();
        match Decoder::new(&schema, &projection, DecodeOptions::default()) {
            Err(error) => error.to_string(),
            Ok(mut decoder) => {
                let decoded = decoder.decode(&records).expect("it is permissive");
                let rows = StructArray::from(decoded.rows);
                encode(&rows, EncodeOptions::default()).expect("types have JSON");
                format!("{}", decoded.malformed)
            }
        }
    });
}
