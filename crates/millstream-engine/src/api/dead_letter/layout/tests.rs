use arrow::array::{Array, AsArray};
use arrow::datatypes::Int64Type;

use super::*;

fn letter(offset: i64) -> Letter {
    let header = |value: &str| ("h".to_owned(), Some(value.as_bytes().to_vec()));
    Letter {
        payload: Some(b"{bad".to_vec()),
        payload_bytes: None,
        key: None,
        attributes: vec![header("first"), header("last")],
        error: "at byte 1: no".to_owned(),
        place: Some(Place::Record { topic: "in".into(), partition: 3, offset }),
        record_time_us: Some(1_000_000),
    }
}

fn rows(layout: &Layout) -> RecordBatch {
    let groups = [
        Group {
            source_table: Some("source".into()),
            constraint: None,
            letters: vec![letter(7), letter(8)],
        },
        Group {
            source_table: None,
            constraint: Some("c".into()),
            letters: vec![Letter::default()],
        },
    ];
    let mut rows = layout.rows(&groups, Stamp { flow: "f", found_ms: 2 });
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

#[test]
fn record_batches_end_before_their_columns_are_too_large() {
    let letter = Letter { payload: Some(vec![b'x'; 20 << 20]), ..Letter::default() };
    let group = |letters| Group { letters, ..Group::default() };
    let groups = [group(vec![letter.clone(); 4]), group(vec![Letter::default(); 10_000])];
    let layout = Layout::new(None, Form::Table).unwrap();
    let rows = layout.rows(&groups, Stamp { flow: "f", found_ms: 2 });
    let rows: Vec<_> = rows.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows, [3, 1 + ROWS_IN_RECORD_BATCH - 1, 10_001 - ROWS_IN_RECORD_BATCH]);
}

#[test]
fn a_record_that_would_be_too_large_is_cut_and_says_so() {
    let layout = Layout::new(None, Form::Record).unwrap().with_bytes_max(Some(2_000));
    let large = Letter { payload: Some(vec![b'x'; 3_000]), ..letter(7) };
    let groups = [Group { letters: vec![letter(6), large], ..Group::default() }];
    let rows = &layout.rows(&groups, Stamp { flow: "f", found_ms: 2 })[0];
    let values = rows["value"].as_binary::<i32>();
    assert_eq!(values.value(0), b"{bad");
    assert!((500..2_000).contains(&values.value(1).len()), "{}", values.value(1).len());
    let headers = rows["headers"].as_list::<i32>();
    let header = |row: usize, name: &str| {
        let headers = headers.value(row);
        let headers = headers.as_struct();
        let names: Vec<_> = headers.column(0).as_string::<i32>().iter().flatten().collect();
        let at = names.iter().position(|known| *known == name)?;
        let value = headers.column(1).as_binary::<i32>().value(at).to_vec();
        Some(String::from_utf8(value).unwrap())
    };
    assert_eq!(header(0, "millstream.payload_bytes"), None);
    assert_eq!(header(1, "millstream.payload_bytes").as_deref(), Some("3000"));
    assert!(header(1, "millstream.error").unwrap().contains("of 3000 bytes"));
}

#[test]
fn without_declared_columns_a_table_gets_all() {
    let layout = Layout::new(None, Form::Table).unwrap();
    let rows = rows(&layout);
    assert_eq!((rows.num_rows(), rows.num_columns()), (3, TABLE.len()));
    let offsets = rows["offset"].as_primitive::<Int64Type>();
    assert_eq!(offsets.iter().collect::<Vec<_>>(), [Some(7), Some(8), None]);
    assert_eq!(rows["position"].as_string::<i32>().value(1), "in[3]@8");
    assert_eq!(rows["constraint_name"].as_string::<i32>().value(2), "c");
    assert!(rows["constraint_name"].is_null(0) && rows["source_table"].is_null(2));
    let attributes = rows["attributes"].as_map();
    assert_eq!((attributes.value_length(0), attributes.value_length(2)), (1, 0));
    assert_eq!(attributes.value(0).column(1).as_string::<i32>().value(0), "last");
}

#[test]
fn declared_columns_are_filled_by_name() {
    let declared = |fields: Vec<Field>| Arc::new(Schema::new(fields));
    let declared = declared(vec![
        Field::new("Error", DataType::Utf8, true),
        Field::new("payload", DataType::Utf8, true),
        Field::new("attributes", DataType::Utf8, true),
    ]);
    let rows = rows(&Layout::new(Some(&declared), Form::Table).unwrap());
    assert_eq!(rows.schema(), declared);
    assert_eq!(rows["payload"].as_string::<i32>().value(0), "{bad");
    assert_eq!(rows["attributes"].as_string::<i32>().value(0), r#"{"h":"last"}"#);
}

#[test]
fn columns_that_cannot_be_filled_are_named() {
    let refused = |field: Field, form| {
        let declared = Arc::new(Schema::new(vec![field]));
        Layout::new(Some(&declared), form).unwrap_err()
    };
    let unknown = refused(Field::new("eror", DataType::Utf8, true), Form::Table);
    assert!(unknown.help.contains("`error`"), "{unknown:?}");
    let unfit = refused(Field::new("offset", DataType::Utf8, true), Form::Table);
    assert!(unfit.help.contains("BIGINT"), "{unfit:?}");
    let strict = refused(Field::new("key", DataType::Binary, false), Form::Table);
    assert!(strict.help.contains("NOT NULL"), "{strict:?}");
    let payload = refused(Field::new("payload", DataType::Binary, true), Form::Record);
    assert!(payload.help.contains("value"), "{payload:?}");
}

#[test]
fn a_record_keeps_its_headers_and_gets_ours() {
    let rows = rows(&Layout::new(None, Form::Record).unwrap());
    assert_eq!(rows["value"].as_binary::<i32>().value(0), b"{bad");
    let headers = rows["headers"].as_list::<i32>().value(0);
    let headers = headers.as_struct();
    let names: Vec<_> = headers.column(0).as_string::<i32>().iter().flatten().collect();
    assert_eq!(names[..2], ["h", "h"]);
    assert!(names.contains(&"millstream.position"), "{names:?}");
    let at = names.iter().position(|name| *name == "millstream.found_time").unwrap();
    let value = headers.column(1).as_binary::<i32>().value(at);
    assert_eq!(value, b"1970-01-01T00:00:00.002000Z");
}
