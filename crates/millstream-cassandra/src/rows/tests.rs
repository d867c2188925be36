use std::sync::Arc;

use arrow::array::{BooleanArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use millstream_engine::api::sink::{BatchId, EndOffsets};

use super::*;
use crate::table::TargetColumn;
use crate::types::Encoding;

/// A table of `id` (the key), `a`, `b`, and the column `gone` of the query.
fn encoder(ignores_nulls: bool) -> Encoder {
    let column = |source, name: &str, cast, encoding| TargetColumn {
        source,
        name: name.to_owned(),
        cast,
        encoding,
    };
    let target = Target {
        columns: vec![
            column(0, "id", DataType::Utf8, Encoding::Text),
            column(1, "a", DataType::Int64, Encoding::BigInt),
            column(2, "b", DataType::Int64, Encoding::BigInt),
        ],
        partition_columns: 1,
        key_columns: 1,
        delete: Some(3),
        insert: String::new(),
        remove: String::new(),
    };
    Encoder { table: "k.t".to_owned(), target, ignores_nulls }
}

type Line = (Option<&'static str>, Option<i64>, Option<i64>, bool);

fn output(lines: &[Line]) -> Output {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Utf8, true),
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Int64, true),
        Field::new("gone", DataType::Boolean, true),
    ]);
    let ids = StringArray::from(lines.iter().map(|line| line.0).collect::<Vec<_>>());
    let a = Int64Array::from(lines.iter().map(|line| line.1).collect::<Vec<_>>());
    let b = Int64Array::from(lines.iter().map(|line| line.2).collect::<Vec<_>>());
    let gone = BooleanArray::from(lines.iter().map(|line| line.3).collect::<Vec<_>>());
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(a), Arc::new(b), Arc::new(gone)];
    let rows = RecordBatch::try_new(Arc::new(schema), columns).expect("they are rows");
    let end_offsets = EndOffsets::default();
    Output { batch_id: BatchId(0), partitions: vec![vec![rows]], end_offsets }
}

/// What is sent: the key, whether it is removed, and the values that are written.
fn sent(ignores_nulls: bool, lines: &[Line]) -> Vec<String> {
    let rows = encoder(ignores_nulls).rows(&output(lines)).expect("they can be written");
    let shown = |row: &Row| {
        let mut parts: Vec<String> = Row::cells(&row.cells)
            .map(|cell| match cell.value {
                Value::Unset => "-".to_owned(),
                Value::Null => "NULL".to_owned(),
                Value::Bytes(bytes) => match <[u8; 8]>::try_from(bytes) {
                    Ok(number) => i64::from_be_bytes(number).to_string(),
                    Err(_) => String::from_utf8_lossy(bytes).into_owned(),
                },
            })
            .collect();
        if row.removes {
            parts.insert(0, "removed".to_owned());
        }
        parts.join(" ")
    };
    rows.iter().map(shown).collect()
}

#[test]
fn of_rows_with_one_key_the_last_counts() {
    let lines = [
        (Some("x"), Some(1), Some(9), false),
        (Some("y"), Some(2), None, false),
        (Some("x"), Some(3), None, false),
    ];
    assert_eq!(sent(false, &lines), ["x 3 NULL", "y 2 NULL"]);
    // A NULL that is ignored leaves what an earlier row has written.
    assert_eq!(sent(true, &lines), ["x 3 9", "y 2 -"]);
}

#[test]
fn deletions_count_in_their_order() {
    let write = |a| (Some("x"), Some(a), None, false);
    let delete = (Some("x"), None, None, true);
    assert_eq!(sent(false, &[write(1), delete]), ["removed x"]);
    // What is written behind a deletion does not bring back columns that were there before.
    assert_eq!(sent(false, &[write(1), delete, write(2)]), ["removed x 2 NULL"]);
    assert_eq!(sent(true, &[write(1), delete, write(2)]), ["removed x 2 -"]);
    let later = (Some("x"), None, Some(7), false);
    assert_eq!(sent(true, &[delete, write(2), later]), ["removed x 2 7"]);
    assert_eq!(sent(true, &[delete, write(2), delete]), ["removed x"]);
}

#[test]
fn a_row_without_a_key_is_refused() {
    let refused = |id| {
        let rows = encoder(false).rows(&output(&[(id, Some(1), None, false)]));
        rows.expect_err("it has no key").to_string()
    };
    assert!(refused(None).contains("id is NULL"), "{}", refused(None));
    assert!(refused(Some("")).contains("a key of 0 bytes"), "{}", refused(Some("")));
    let long: &str = Box::leak("x".repeat(70_000).into_boxed_str());
    assert!(refused(Some(long)).contains("a key of 70000 bytes"));
}
