use std::io::{BufRead as _, Read as _, Write as _};

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, DictionaryArray, Int32Array, RecordBatch,
    StringViewArray,
};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use millstream_engine::api::options::Options;

use super::*;

const AVRO: &str = r#"{"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}]}"#;
const PROTO: &str = "syntax = 'proto3'; message R { int32 id = 1; string name = 2; }";

/// A record of [`AVRO`].
fn avro(id: u8, name: &str) -> Vec<u8> {
    [&[id << 1, 2, (name.len() << 1) as u8][..], name.as_bytes()].concat()
}

/// A record of [`PROTO`].
fn protobuf(id: u8, name: &str) -> Vec<u8> {
    [&[8, id, 18, name.len() as u8][..], name.as_bytes()].concat()
}

fn parse(
    kind: SchemaKind,
    columns: Option<Vec<Field>>,
    entries: &[(&str, &str)],
) -> Result<SchemaFormat, OptionError> {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let options = Options::new(entries);
    let part = Part { options: &options, name: "value", subject: Some("t-value".to_owned()) };
    let columns = columns.map(|fields| Arc::new(Schema::new(fields)));
    let malformed = Malformed::parse(&options)?;
    let registries = Registries::new(std::path::Path::new("."));
    SchemaFormat::parse(kind, &part, columns.as_ref(), malformed, &registries)
}

fn values(records: &[Option<Vec<u8>>]) -> BinaryArray {
    records.iter().map(Option::as_deref).collect()
}

#[test]
fn columns_come_from_the_schema_or_are_declared() {
    for (kind, text, record) in [
        (SchemaKind::Avro, AVRO, avro(7, "ann")),
        (SchemaKind::Protobuf, PROTO, protobuf(7, "ann")),
    ] {
        let derived = parse(kind, None, &[("value.schema", text)]).unwrap();
        let names: Vec<_> = derived.schema().fields().iter().map(|field| field.name()).collect();
        assert_eq!(names, ["id", "name"]);
        let decoded = derived.decoder(&[1]).decode(&values(&[Some(record.clone())])).unwrap();
        assert_eq!(decoded.rows.column(0).as_string::<i32>().value(0), "ann");

        let wider = vec![
            Field::new("absent", DataType::Utf8, true),
            Field::new("ID", DataType::Int64, true),
        ];
        let declared = parse(kind, Some(wider), &[("value.schema", text)]).unwrap();
        let decoded = declared.decoder(&[0, 1]).decode(&values(&[Some(record)])).unwrap();
        assert!(decoded.rows.column(0).is_null(0));
        assert_eq!(decoded.rows.column(1).as_primitive::<Int64Type>().value(0), 7);

        let other = vec![Field::new("name", DataType::Int64, true)];
        let refused = parse(kind, Some(other), &[("value.schema", text)]).unwrap_err();
        let problem = refused.problem;
        assert!(problem.contains("name") && problem.contains("BIGINT"), "{problem}");
    }
}

#[test]
fn malformed_records_follow_the_mode() {
    for (kind, text, good, bad) in [
        (SchemaKind::Avro, AVRO, avro(7, "ann"), vec![14, 2, 60]),
        (SchemaKind::Protobuf, PROTO, protobuf(7, "ann"), vec![8, 7, 18, 60]),
    ] {
        let records = values(&[Some(good.clone()), Some(bad.clone()), None, Some(good)]);
        let columns = || Some(vec![Field::new("id", DataType::Int32, false)]);
        let decode = |mode: &str| {
            let options = [("value.schema", text), ("mode", mode)];
            let mut decoder = parse(kind, columns(), &options).unwrap().decoder(&[0]);
            let decoded = decoder.decode(&records);
            let again = decoder.decode(&values(&[Some(vec![])])).map(|decoded| decoded.malformed);
            assert!(again.is_err() || again.unwrap() < 2, "nothing is left of the first time");
            decoded
        };
        let ids = |decoded: &crate::Decoded| -> Vec<Option<i32>> {
            decoded.rows.column(0).as_primitive::<Int32Type>().iter().collect()
        };
        let permissive = decode("PERMISSIVE").unwrap();
        assert_eq!(ids(&permissive), [Some(7), None, None, Some(7)], "{kind:?}");
        assert_eq!(permissive.malformed, 1);
        let dropped = decode("DROPMALFORMED").unwrap();
        assert_eq!((ids(&dropped), dropped.malformed), (vec![Some(7); 2], 2), "{kind:?}");
        let Err(NotDecoded::Malformed(record)) = decode("FAILFAST") else { panic!("it fails") };
        assert!(record.row == 1 && record.problem.contains("deadLetter"), "{record:?}");
        let options = [("value.schema", text), ("deadLetter", "letters")];
        let mut rejected = Vec::new();
        let mut decoder = parse(kind, columns(), &options).unwrap().decoder(&[0]);
        let mut reject = |row, problem: String| rejected.push((row, problem));
        let decoded = decoder.decode_apart(&records, &mut reject).unwrap();
        assert_eq!(ids(&decoded), [Some(7); 2]);
        let rows: Vec<_> = rejected.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows, [1, 2], "{rejected:?}");
    }
}

#[test]
fn records_of_json_schema_have_a_frame_or_none() {
    let columns = || Some(vec![Field::new("id", DataType::Int32, true)]);
    let registry = [("schema.registry.url", "http://127.0.0.1:1")];
    let format = parse(SchemaKind::Json, columns(), &registry).unwrap();
    let framed = [&[0, 0, 0, 0, 9][..], br#"{"id": 5}"#].concat();
    let records = [Some(framed), Some(br#"{"id": 6}"#.to_vec()), None, Some(vec![0, 1])];
    let decoded = format.decoder(&[0]).decode(&values(&records)).unwrap();
    let ids: Vec<_> = decoded.rows.column(0).as_primitive::<Int32Type>().iter().collect();
    assert_eq!((ids, decoded.malformed), (vec![Some(5), Some(6), None, None], 1));
    let missing = parse(SchemaKind::Json, columns(), &[]).unwrap_err();
    assert!(missing.problem.contains("schema.registry.url"), "{missing}");
}

#[test]
fn what_is_wrong_with_options_is_said() {
    let url = ("schema.registry.url", "http://127.0.0.1:1");
    let id = || Some(vec![Field::new("id", DataType::Int32, true)]);
    let corrupt = Some(vec![Field::new("_corrupt_record", DataType::Utf8, true)]);
    for (columns, options, wanted) in [
        (id(), &[][..], "schema.registry.url"),
        (id(), &[("value.schema", "{")], "not JSON"),
        (id(), &[("value.schema", AVRO), ("value.schema.file", "x")], "as a text and as a file"),
        (id(), &[("value.schema.file", "nowhere.avsc")], "nowhere.avsc"),
        (id(), &[url, ("value.schema", AVRO)], "as well"),
        (corrupt, &[("value.schema", AVRO)], "deadLetter"),
        (id(), &[("schema.registry.url", "ftp://x")], "schema registry"),
        (id(), &[url, ("schema.registry.basic.auth.user.info", "ann")], "user:password"),
        (id(), &[url, ("schema.registry.ssl.key.location", "k")], "certificate"),
        (None, &[url, ("value.subject.version", "newest")], "a number or latest"),
        (None, &[url], "does not answer"),
    ] {
        let error = parse(SchemaKind::Avro, columns, options).unwrap_err();
        assert!(error.to_string().contains(wanted), "{options:?}: {error}");
    }
}

#[test]
fn a_registry_that_is_away_or_wrong_is_no_fault_of_a_record() {
    let columns = Some(vec![Field::new("id", DataType::Int32, true)]);
    let options = [("schema.registry.url", "http://127.0.0.1:1")];
    let format = parse(SchemaKind::Avro, columns, &options).unwrap();
    let unframed = format.decoder(&[0]).decode(&values(&[Some(vec![7; 9])])).unwrap();
    assert_eq!(unframed.malformed, 1);
    let framed = [&[0, 0, 0, 0, 1][..], &avro(1, "x")].concat();
    let Err(NotDecoded::Failed(failure)) = format.decoder(&[0]).decode(&values(&[Some(framed)]))
    else {
        panic!("nobody answers")
    };
    assert_eq!(failure.kind(), millstream_engine::api::source::Kind::Retry);
}

/// Rows as queries may give them: text as a view and in a dictionary.
fn rows(names: &[Option<&str>]) -> RecordBatch {
    let ids: Int32Array = (0..names.len() as i32).map(|id| id + 7).collect();
    let kinds: DictionaryArray<Int32Type> = names.iter().map(|_| Some("A")).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(ids)),
        ("name", Arc::new(StringViewArray::from(names.to_vec()))),
        ("kind", Arc::new(kinds)),
    ];
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn encoder(
    kind: SchemaKind,
    columns: &Schema,
    entries: &[(&str, &str)],
) -> Result<SchemaEncoder, OptionError> {
    encoder_beside(kind, columns, Vec::new(), entries)
}

fn encoder_beside(
    kind: SchemaKind,
    columns: &Schema,
    elsewhere: Vec<Elsewhere>,
    entries: &[(&str, &str)],
) -> Result<SchemaEncoder, OptionError> {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let options = Options::new(entries);
    let part = Part { options: &options, name: "value", subject: Some("t-value".to_owned()) };
    let registries = Registries::new(std::path::Path::new("."));
    SchemaEncoder::parse(kind, &part, columns, elsewhere, &registries)
}

const WRITTEN: [(SchemaKind, &str); 3] = [
    (
        SchemaKind::Avro,
        r#"{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"},
            {"name": "name", "type": "string"}, {"name": "kind", "type":
            {"type": "enum", "name": "k", "symbols": ["A", "B"]}}]}"#,
    ),
    (
        SchemaKind::Protobuf,
        "syntax = 'proto3'; message R { int32 id = 1; string name = 2; K kind = 3; } \
         enum K { NONE = 0; A = 1; }",
    ),
    (
        SchemaKind::Json,
        r#"{"type": "object", "required": ["id", "name"], "properties": {"id": {"type": "integer"},
            "name": {"type": "string"}, "kind": {"enum": ["A", "B"]}}}"#,
    ),
];

#[test]
fn rows_are_written_by_the_schema_of_the_options() {
    for (kind, text) in WRITTEN {
        let good = rows(&[Some("ann"), Some("bo")]);
        let encoder = encoder(kind, &good.schema(), &[("value.schema", text)]).unwrap();
        let records = encoder.encode(&good).unwrap();
        let (second, expected) = match kind {
            SchemaKind::Avro => (records.value(1), &b"\x10\x04bo\0"[..]),
            SchemaKind::Protobuf => (records.value(1), &b"\x08\x08\x12\x02bo\x18\x01"[..]),
            SchemaKind::Json => (records.value(1), &br#"{"id":8,"name":"bo","kind":"A"}"#[..]),
        };
        assert_eq!(second, expected, "{kind:?}");

        let bad = rows(&[Some("ann"), None]);
        let refused = encoder.encode(&bad).unwrap_err().to_string();
        assert!(refused.contains("name") && refused.contains("null"), "{refused}");
        assert!(refused.contains(r#"{"id":8,"kind":"A"}"#), "{refused}");
    }
}

#[test]
fn columns_that_a_schema_has_no_place_for_are_named() {
    for (kind, text) in WRITTEN {
        let refuse = |fields: Vec<Field>| {
            let columns = Schema::new(fields);
            let refused = encoder(kind, &columns, &[("value.schema", text)]).unwrap_err();
            format!("{} {}", refused.problem, refused.help.unwrap_or_default())
        };
        let id = || Field::new("id", DataType::Int32, true);
        let name = || Field::new("name", DataType::Utf8, true);
        let wrong = refuse(vec![id(), Field::new("name", DataType::Int64, true)]);
        assert!(wrong.contains("name") && wrong.contains("BIGINT"), "{wrong}");
        assert!(refuse(vec![id(), name(), name()]).contains("called name"));
        assert!(refuse(vec![id(), Field::new("name", DataType::Null, true)]).contains("CAST(NULL"));
        assert!(refuse(vec![]).contains("no column"));
    }
}

#[test]
fn a_registry_that_is_away_refuses_no_table_before_it_is_opened() {
    let columns = rows(&[]).schema();
    let url = ("schema.registry.url", "http://127.0.0.1:1");
    for kind in [SchemaKind::Avro, SchemaKind::Protobuf, SchemaKind::Json] {
        for options in [vec![url], vec![url, ("use.latest.version", "true")]] {
            let encoder = encoder(kind, &columns, &options).unwrap();
            assert_eq!(encoder.check(), Ok(()));
            let refused = encoder.encode(&rows(&[Some("a")])).unwrap_err();
            assert!(matches!(refused, NotEncoded::Rows { .. }));
        }
        let refused = encoder(kind, &columns, &[]).unwrap_err();
        assert!(refused.problem.contains("schema.registry.url"), "{refused:?}");
        let alone = encoder(kind, &columns, &[("value.subject", "x")]).unwrap_err();
        assert_eq!(alone.key.as_deref(), Some("value.subject"));
    }
}

/// The URL of a registry whose subjects have one schema, and which takes all others.
#[allow(clippy::disallowed_methods, reason = "it answers until the tests end")]
fn registry(kind: &str, schema: &str) -> String {
    let latest = serde_json::json!({
        "subject": "t-value", "id": 7, "version": 1, "schemaType": kind, "schema": schema,
    });
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = std::io::BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            reader.read_line(&mut line).unwrap();
            loop {
                let mut header = String::new();
                reader.read_line(&mut header).unwrap();
                let Some((name, value)) = header.split_once(':') else { break };
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().unwrap();
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let (status, body) = match line.split(' ').collect::<Vec<_>>()[..] {
                ["GET", path, _] if path.contains("serialized") => {
                    (422, serde_json::json!({"error_code": 42201, "message": "as text only"}))
                }
                ["GET", ..] => (200, latest.clone()),
                ["POST", "/subjects/t-value/versions", _] => (200, serde_json::json!({"id": 8})),
                ["POST", path, _] if path.starts_with("/compatibility") => {
                    (200, serde_json::json!({"is_compatible": true}))
                }
                _ => (404, serde_json::json!({"error_code": 40401, "message": "not there"})),
            };
            let (body, length) = (body.to_string(), body.to_string().len());
            let head = format!(
                "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\n\
                 Content-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            reader.into_inner().write_all((head + &body).as_bytes()).unwrap();
        }
    });
    url
}

/// What the check of a table says, and then its opening.
fn opened(encoder: &SchemaEncoder) -> Result<(), String> {
    let (checked, opened) = (encoder.check(), encoder.open());
    assert_eq!(checked.is_ok(), opened.is_ok(), "{checked:?} {opened:?}");
    opened.map_err(|failure| failure.to_string())
}

#[test]
fn columns_that_change_places_are_refused_where_their_order_numbers_them() {
    let latest = "syntax = 'proto3'; message t { int32 id = 1; string name = 2; string kind = 3; }";
    let url = registry("PROTOBUF", latest);
    let open = |columns: &Schema, more: &[(&str, &str)]| {
        let options = [&[("schema.registry.url", url.as_str())][..], more].concat();
        opened(&encoder(SchemaKind::Protobuf, columns, &options).unwrap())
    };
    let all = rows(&[]).schema();
    open(&all, &[]).unwrap();
    open(&all.project(&[0, 1]).unwrap(), &[]).unwrap();
    let swapped = all.project(&[1, 0, 2]).unwrap();
    let refused = open(&swapped, &[]).unwrap_err();
    for wanted in [
        "the subject 't-value': the field name would be number 1, and was 2",
        "keep the order of columns and add new ones at the end",
        "'use.latest.version'",
        "'value.subject'",
    ] {
        assert!(refused.contains(wanted), "{refused}");
    }
    open(&swapped, &[("use.latest.version", "true")]).unwrap();
    // A schema that is given numbers its fields itself.
    let given = "syntax = 'proto3'; message t { string name = 2; int32 id = 1; string kind = 3; }";
    open(&swapped, &[("value.schema", given)]).unwrap();
}

#[test]
fn fields_called_as_columns_that_are_elsewhere_are_refused() {
    let schema = r#"{"properties": {"id": {}, "name": {}, "kind": {}, "partition": {}}}"#;
    let url = registry("JSON", schema);
    let elsewhere = || Elsewhere {
        name: "partition".to_owned(),
        what: "says where a record goes",
        remedy: "leave the column out",
    };
    let options = [("schema.registry.url", url.as_str()), ("use.latest.version", "true")];
    let open = |elsewhere| {
        let columns = rows(&[]).schema();
        opened(&encoder_beside(SchemaKind::Json, &columns, elsewhere, &options).unwrap())
    };
    open(Vec::new()).unwrap();
    let refused = open(vec![elsewhere()]).unwrap_err();
    let wanted = "the field partition of the schema cannot be written, as a column of this name \
                  says where a record goes; leave the column out";
    assert!(refused.ends_with(wanted), "{refused}");
}

#[test]
fn an_imported_message_is_not_written() {
    let text = "syntax = 'proto3'; import 'google/protobuf/timestamp.proto'; \
                message M { google.protobuf.Timestamp t = 1; }";
    let columns = Schema::new(vec![Field::new("seconds", DataType::Int64, false)]);
    let message = ("value.message", "google.protobuf.Timestamp");
    let refused = encoder(SchemaKind::Protobuf, &columns, &[("value.schema", text), message]);
    let problem = refused.unwrap_err().problem;
    assert!(problem.contains("which the schema imports"), "{problem}");
}

#[test]
fn remedies_name_the_options_of_the_part() {
    let text = String::new;
    for part in ["key", "value"] {
        for failure in [
            WriteFailure::Incompatible { part, subject: text(), messages: Vec::new() },
            WriteFailure::Renumbered { part, subject: text(), problem: text() },
            WriteFailure::Missing { part, missing: text() },
        ] {
            let failure = failure.to_string();
            assert!(failure.contains(&format!("'{part}.subject'")), "{failure}");
        }
    }
}
