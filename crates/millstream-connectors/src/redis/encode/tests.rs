use std::path::Path;

use arrow::array::Int64Array;
use arrow::datatypes::{Field, Schema};
use millstream_engine::api::connector::Table;
use millstream_engine::api::options::Options;

use super::*;

fn encoder(rows: &RecordBatch, options: &[(&str, &str)]) -> Encoder {
    let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let table = Table { name: "t".to_owned(), columns: None, options: Options::new(options) };
    let options = SinkOptions::parse(&table, &rows.schema(), Path::new("")).unwrap();
    Encoder::new(Arc::new(options), rows.schema())
}

fn texts(columns: &[(&str, &[Option<&str>])]) -> RecordBatch {
    let fields = columns.iter().map(|(name, _)| Field::new(*name, DataType::Utf8, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let column = |values: &[Option<&str>]| -> ArrayRef {
        Arc::new(values.iter().copied().collect::<StringArray>())
    };
    let columns = columns.iter().map(|(_, values)| column(values)).collect();
    RecordBatch::try_new(schema, columns).unwrap()
}

fn pieces(encoder: &Encoder, rows: &RecordBatch) -> Vec<PieceBuilder> {
    let mut pieces = Vec::new();
    encoder.encode(rows, &mut pieces).unwrap();
    pieces
}

#[test]
fn a_piece_has_the_layout_that_scripts_read() {
    let rows = texts(&[("k", &[Some("x")]), ("a", &[None]), ("b", &[Some("y")])]);
    let encoder = encoder(&rows, &[("key.column", "k"), ("ttl", "9")]);
    let piece = pieces(&encoder, &rows).pop().expect("there is one").finish();
    let text = |text: &str| [&[0xdb, 0, 0, 0, text.len() as u8], text.as_bytes()].concat();
    let expected = [
        &[0x95][..],
        &text("hash"),
        &[0xce, 0, 0, 0, 9, 0xce, 0, 0, 0, 3, 0xdd, 0, 0, 0, 2],
        &text("a"),
        &text("b"),
        &[0xdd, 0, 0, 0, 3],
        &text("t:x"),
        &[0xc2],
        &text("y"),
    ];
    assert_eq!(piece, expected.concat());
}

#[test]
fn keys_of_several_columns_are_different_where_the_columns_are() {
    let rows = texts(&[
        ("a", &[Some("a:b"), Some("a"), Some("a\\")]),
        ("b", &[Some("c"), Some("b:c"), Some(":")]),
        ("v", &[None, None, None]),
    ]);
    let encoder = encoder(&rows, &[("key.column", "a,b")]);
    let cells = encoder.cells(&rows).unwrap();
    let key = |row| {
        let mut key = Vec::new();
        encoder.key(&cells, row, &mut key).unwrap();
        String::from_utf8(key).unwrap()
    };
    assert_eq!([key(0), key(1), key(2)], ["t:a\\:b:c", "t:a:b\\:c", "t:a\\\\:\\:"]);
}

#[test]
fn pieces_are_bounded_and_joined() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2_500));
    let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let encoder = encoder(&rows, &[("model", "list")]);
    let made = pieces(&encoder, &rows);
    assert_eq!(made.iter().map(|piece| piece.rows).collect::<Vec<_>>(), [1_000, 1_000, 500]);

    let mut first = pieces(&encoder, &rows.slice(0, 400)).remove(0);
    let more = pieces(&encoder, &rows.slice(400, 600)).remove(0);
    assert!(first.append(more).is_ok());
    let whole = pieces(&encoder, &rows.slice(0, 1_000)).remove(0);
    let too_many = pieces(&encoder, &rows.slice(0, 1)).remove(0);
    assert!(first.append(too_many).is_err());
    assert_eq!(first.finish(), whole.finish(), "as if they had come together");
}

#[test]
fn rows_without_a_key_or_a_value_are_refused_by_name() {
    let rows = texts(&[("k", &[Some("x"), None]), ("v", &[Some("y"), Some("z")])]);
    let refused = |rows: &RecordBatch, options: &[(&str, &str)]| {
        let failure = encoder(rows, options).encode(rows, &mut Vec::new()).unwrap_err();
        let refused = failure.downcast::<RefusedRow>().unwrap();
        assert!(refused.is_among(rows) && !refused.is_among(&rows.slice(0, 1)));
        refused.to_string()
    };
    assert_eq!(refused(&rows, &[("key.column", "k")]), "a row of 't' has no key: k is NULL");
    let rows = texts(&[("v", &[Some("y"), None])]);
    let text = refused(&rows, &[("model", "set")]);
    assert_eq!(text, "a row of 't' has no value: v is NULL, which a set cannot hold");
}
