//! What the console sink prints, byte for byte.

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, Int64Array, ListArray,
    RecordBatch, StringArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use millstream_engine::api::options::Options;
use millstream_engine::api::sink::{BatchId, EndOffsets, Output, Sink};
use millstream_store::env::Env;
use parking_lot::Mutex;

use super::{ConsoleOptions, ConsoleSink, OutputClosed, show};

#[derive(Clone, Default)]
struct Paper {
    text: Arc<Mutex<Vec<u8>>>,
    writes: Arc<Mutex<usize>>,
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        *self.writes.lock() += 1;
        self.text.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct ClosedPipe;

impl Write for ClosedPipe {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn names(values: &[Option<&str>]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..values.len() as i64));
    let names: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
    RecordBatch::try_from_iter_with_nullable([("id", ids, true), ("name", names, true)]).unwrap()
}

fn output(batch_id: u64, partitions: Vec<Vec<RecordBatch>>) -> Output {
    Output { batch_id: BatchId(batch_id), partitions, end_offsets: EndOffsets::default() }
}

fn schema() -> SchemaRef {
    names(&[]).schema()
}

fn options(entries: &[(&str, &str)]) -> Options {
    Options::new(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())))
}

async fn printed(entries: &[(&str, &str)], outputs: Vec<Output>) -> String {
    let paper = Paper::default();
    let options = ConsoleOptions::parse(&options(entries)).unwrap();
    let mut sink = ConsoleSink::new(options, schema(), Box::new(paper.clone()), Env::real());
    sink.open().await.unwrap();
    let mut writes = 0;
    for output in outputs {
        sink.publish(output).await.unwrap().accepted().await.unwrap();
        writes = *paper.writes.lock() - writes;
        assert!(writes <= 1, "one write per micro-batch");
        writes = *paper.writes.lock();
    }
    sink.close().await.unwrap();
    String::from_utf8(paper.text.lock().clone()).unwrap()
}

#[tokio::test]
async fn micro_batches_are_printed_as_spark_prints_them() {
    let rows = names(&[Some("anna"), None, Some("a name of more than twenty characters")]);
    let text = printed(&[], vec![output(7, vec![vec![rows]])]).await;
    let wanted = "\
-------------------------------------------
Batch: 7
-------------------------------------------
+---+--------------------+
| id|                name|
+---+--------------------+
|  0|                anna|
|  1|                NULL|
|  2|a name of more th...|
+---+--------------------+

";
    assert_eq!(text, wanted);
}

#[tokio::test]
async fn whole_cells_are_left_aligned() {
    let rows = names(&[Some("a name of more than twenty characters"), Some("b")]);
    let text = printed(&[("truncate", "false")], vec![output(0, vec![vec![rows]])]).await;
    assert!(text.contains("|0  |a name of more than twenty characters|\n"), "{text}");
    assert!(text.contains("|1  |b                                    |\n"), "{text}");
}

#[tokio::test]
async fn more_rows_than_asked_for_are_counted_not_printed() {
    let rows = || vec![names(&[Some("a"), Some("b")])];
    let outputs = vec![output(0, vec![rows(), rows()])];
    let text = printed(&[("numRows", "3")], outputs).await;
    assert!(text.ends_with("|  0|   a|\n+---+----+\nonly showing top 3 rows\n\n"), "{text}");
    let text = printed(&[("numRows", "1")], vec![output(0, vec![rows()])]).await;
    assert!(text.ends_with("only showing top 1 row\n\n"), "{text}");
}

#[tokio::test]
async fn only_the_first_empty_micro_batch_is_printed() {
    let none = |batch_id| output(batch_id, vec![vec![names(&[])], vec![]]);
    let text = printed(&[], vec![none(0), none(1), output(2, vec![vec![names(&[None])]])]).await;
    assert!(text.contains(
        "Batch: 0\n-------------------------------------------\n+---+----+\n| id|name|\n"
    ));
    assert!(!text.contains("Batch: 1"));
    assert!(text.contains("Batch: 2"));
}

#[tokio::test]
async fn a_closed_pipe_is_told_from_other_errors() {
    let options = ConsoleOptions::parse(&options(&[])).unwrap();
    let mut sink = ConsoleSink::new(options, schema(), Box::new(ClosedPipe), Env::real());
    let failure = sink.publish(output(0, vec![])).await.err().unwrap();
    assert!(failure.cause().downcast_ref::<OutputClosed>().is_some(), "{failure:?}");
}

#[test]
fn values_look_as_in_spark() {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), None])]);
    let record = StructArray::from(vec![(
        Arc::new(Field::new("a", DataType::Boolean, true)),
        Arc::new(BooleanArray::from(vec![true])) as ArrayRef,
    )]);
    let floats = Float64Array::from(vec![1.5e10]);
    let narrow = Float32Array::from(vec![0.1]);
    let time = TimestampMicrosecondArray::from(vec![1_767_225_600_250_000]).with_timezone("UTC");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("list", Arc::new(list)),
        ("record", Arc::new(record)),
        ("float", Arc::new(floats)),
        ("narrow", Arc::new(narrow)),
        ("bytes", Arc::new(BinaryArray::from(vec![&b"Hi"[..]]))),
        ("time", Arc::new(time)),
        ("clock", Arc::new(Time64MicrosecondArray::from(vec![45_296_100_000]))),
        ("text", Arc::new(StringArray::from(vec!["a\n\u{1b}[31m"]))),
        ("wide", Arc::new(StringArray::from(vec!["水"]))),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let table = show(&rows.schema(), std::slice::from_ref(&rows), None).unwrap();
    let line = table.lines().nth(3).unwrap();
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let wanted = [
        "",
        "[1, NULL]",
        "{true}",
        "1.5E10",
        "0.1",
        "[48 69]",
        "2026-01-01 00:00:00.25",
        "12:34:56.1",
        "a\\n\\u{1b}[31m",
        "水",
        "",
    ];
    assert_eq!(cells, wanted);
    assert!(line.ends_with("|水  |"), "two columns wide, padded to four: {line}");
}

#[test]
fn floats_are_printed_as_java_prints_them() {
    let shown = |value: f64| {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![value]));
        let rows = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let table = show(&Schema::clone(&rows.schema()), &[rows], None).unwrap();
        table.lines().nth(3).unwrap().trim_matches('|').trim().to_owned()
    };
    let cases = [
        (1.0, "1.0"),
        (-123.25, "-123.25"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9_999_999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (f64::NAN, "NaN"),
        (-0.0, "-0.0"),
        (f64::NEG_INFINITY, "-Infinity"),
        (120.0, "120.0"),
    ];
    for (value, wanted) in cases {
        assert_eq!(shown(value), wanted);
    }
}

#[test]
fn options_are_checked() {
    let wrong = |entries| ConsoleOptions::parse(&options(entries)).unwrap_err().key.unwrap();
    assert_eq!(wrong(&[("numrows", "few")]), "numRows");
    assert_eq!(wrong(&[("truncate", "maybe")]), "truncate");
    let ten = ConsoleOptions::parse(&options(&[("truncate", "10")])).unwrap();
    assert_eq!(ten.cell_characters_max, Some(10));
}
