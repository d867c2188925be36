use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use millstream_engine::api::options::Options;
use millstream_engine::api::source::{Kind, Split};

use super::*;
use crate::source::chunk::ChunkBuilder;
use crate::source::split::KafkaSplit;

fn rows_of(table: &Table, include_headers: bool) -> Result<Rows, OptionError> {
    Rows::from_table(table, include_headers, Some("t"), &Registries::new(Path::new(".")))
}

fn table(columns: Option<Vec<Field>>, options: &[(&str, &str)]) -> Table {
    let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Table {
        name: "t".to_owned(),
        columns: columns.map(|fields| Arc::new(Schema::new(fields))),
        options: Options::new(options),
    }
}

fn columns() -> Vec<Field> {
    vec![
        Field::new("id", DataType::Int32, false),
        Field::new("_corrupt_record", DataType::Utf8, true),
        Field::new("x", DataType::Float64, true),
    ]
}

fn chunk(values: &[Option<&str>]) -> Chunk {
    let mut builder = ChunkBuilder::new(true);
    for (offset, value) in (100..).zip(values) {
        builder.push(Some(b"k"), value.map(str::as_bytes), offset, 1_500, 0);
        builder.push_header("h", None);
        builder.end_headers();
    }
    builder.finish(0)
}

fn read(
    table: &Table,
    projection: &[usize],
    values: &[Option<&str>],
) -> Result<(RecordBatch, u64), Failure> {
    let rows = Arc::new(rows_of(table, true).expect("the table is right"));
    let id = PartitionId::new("in", 3);
    let split = KafkaSplit { id, chunks: vec![chunk(values)], rows: rows.clone() };
    let batch = Box::new(split).read(projection).next().expect("one record batch")?;
    let expected = rows.schema.project(projection).unwrap();
    assert_eq!(*batch.schema(), expected);
    Ok((batch, rows.malformed.load(Ordering::Relaxed)))
}

#[test]
fn spark_s_columns() {
    let (batch, _) =
        read(&table(None, &[]), &[7, 5, 4, 3, 2, 1, 0, 6], &[Some("v"), None]).unwrap();
    let schema = batch.schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let expected =
        ["headers", "timestamp", "offset", "partition", "topic", "value", "key", "timestampType"];
    assert_eq!(names, expected);
    assert_eq!(batch.column(0).as_list::<i32>().value_length(0), 1);
    assert_eq!(batch.column(1).as_primitive::<TimestampMicrosecondType>().value(1), 1_500_000);
    assert_eq!(batch.column(2).as_primitive::<Int64Type>().values(), &[100, 101]);
    assert_eq!(batch.column(3).as_primitive::<Int32Type>().values(), &[3, 3]);
    assert_eq!(batch.column(4).as_string::<i32>().value(1), "in");
    assert!(batch.column(5).is_null(1));
}

#[test]
fn rows_without_columns_are_counted() {
    let (batch, _) = read(&table(None, &[]), &[], &[Some("v"), None]).unwrap();
    assert_eq!((batch.num_columns(), batch.num_rows()), (0, 2));
}

const JSON: [Option<&str>; 3] = [Some(r#"{"id":1,"x":0.5}"#), Some("{oops"), Some(r#"{"id":3}"#)];
const CSV: [Option<&str>; 3] = [Some("1,0.5"), Some("oops"), Some("3,")];

fn check_modes(format: &str, values: &[Option<&str>]) {
    let with = |mode| table(Some(columns()), &[("value.format", format), ("mode", mode)]);
    let (batch, malformed) = read(&with("permissive"), &[2, 1, 0], values).unwrap();
    assert_eq!((batch.num_rows(), malformed), (3, 1), "{format}");
    assert_eq!(batch.column(0).as_primitive::<Float64Type>().value(0), 0.5);
    assert_eq!(batch.column(1).as_string::<i32>().value(1), values[1].unwrap());
    assert!(batch.column(1).is_null(0) && batch.column(2).is_null(1));
    let (batch, malformed) = read(&with("DROPMALFORMED"), &[0], values).unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int32Type>().values(), &[1, 3], "{format}");
    assert_eq!(malformed, 1);
    let failure = read(&with("failfast"), &[0], values).unwrap_err();
    assert_eq!(failure.kind(), Kind::Data);
    assert!(failure.to_string().contains("topic in, partition 3, offset 101"), "{failure}");
}

#[test]
fn malformed_json_follows_the_mode() {
    check_modes("json", &JSON);
}

#[test]
fn malformed_csv_follows_the_mode() {
    check_modes("csv", &CSV);
}

#[test]
fn csv_options() {
    let fields =
        vec![Field::new("a", DataType::Utf8, true), Field::new("b", DataType::Int64, true)];
    let options = [("value.format", "csv"), ("sep", "\\t"), ("nullValue", "-")];
    let values = [Some("x\t1"), Some("-\t2"), None, Some("\"a\tb\"\t3")];
    let (batch, malformed) =
        read(&table(Some(fields.clone()), &options), &[0, 1], &values).unwrap();
    let texts: Vec<Option<&str>> = batch.column(0).as_string::<i32>().iter().collect();
    assert_eq!(texts, [Some("x"), None, None, Some("a\tb")]);
    assert_eq!(malformed, 0);
    let wrong = table(Some(fields), &[("value.format", "csv"), ("sep", "--")]);
    assert_eq!(rows_of(&wrong, false).unwrap_err().key.as_deref(), Some("sep"));
}

#[test]
fn raw_values() {
    let text =
        table(Some(vec![Field::new("line", DataType::Utf8, true)]), &[("value.format", "RAW")]);
    let (batch, _) = read(&text, &[0], &[Some("a"), None]).unwrap();
    assert_eq!(batch.column(0).as_string::<i32>().value(0), "a");
    let two = table(Some(columns()), &[("value.format", "raw")]);
    assert!(rows_of(&two, false).is_err());
}

#[test]
fn odd_declarations_are_refused() {
    let no_columns = table(None, &[("value.format", "json")]);
    assert_eq!(rows_of(&no_columns, false).unwrap_err().key.as_deref(), Some("value.format"));
    let avro = table(Some(columns()), &[("value.format", "avro")]);
    let error = rows_of(&avro, false).unwrap_err();
    assert!(error.problem.contains("schema.registry.url"), "{error}");
    let other = table(Some(columns()), &[("value.format", "yaml")]);
    assert!(rows_of(&other, false).unwrap_err().problem.contains("protobuf"));
    let stray = table(Some(columns()), &[("value.schema", "{}")]);
    assert_eq!(rows_of(&stray, false).unwrap_err().key.as_deref(), Some("value.schema"));
    let mode = table(Some(columns()), &[("mode", "lenient")]);
    assert_eq!(rows_of(&mode, false).unwrap_err().key.as_deref(), Some("mode"));
}

#[test]
fn malformed_records_are_letters_whatever_the_format() {
    for (format, good, bad) in [("json", "{\"id\":1,\"x\":2}", "{\"id\":"), ("csv", "1,2", "x,2")] {
        let options = [("value.format", format), ("mode", "FAILFAST"), ("deadLetter", "bad")];
        let rows = rows_of(&table(Some(columns()), &options), false).unwrap();
        let values = [Some(good), Some(bad), Some(good)];
        let (id, chunks) = (PartitionId::new("in", 3), vec![chunk(&values)]);
        let split = Box::new(KafkaSplit { id, chunks, rows: Arc::new(rows) });
        let mut letters = Vec::new();
        let batches = split.read_with_letters(&[0, 2], &mut letters).unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 2, "{format}");
        let [letter] = &letters[..] else { panic!("{format}: {letters:?}") };
        let place = letter.place.as_ref().map(ToString::to_string);
        assert_eq!(place.as_deref(), Some("in[3]@101"));
        assert_eq!(letter.payload.as_deref(), Some(bad.as_bytes()));
        assert_eq!(letter.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(letter.attributes, [("h".to_owned(), None)]);
        assert_eq!(letter.record_time_us, Some(1_500_000));
        assert!(!letter.error.is_empty(), "{format}");
    }
}

/// The letters among `values` of a table with the columns [`columns`], and how many rows there are.
fn apart(format: &str, values: &[Option<&str>]) -> (Vec<Letter>, usize) {
    let options = [("value.format", format), ("deadLetter", "bad")];
    let rows = rows_of(&table(Some(columns()), &options), false).unwrap();
    let (id, chunks) = (PartitionId::new("in", 3), vec![chunk(values)]);
    let split = Box::new(KafkaSplit { id, chunks, rows: Arc::new(rows) });
    let mut letters = Vec::new();
    let batches = split.read_with_letters(&[0, 1, 2], &mut letters).unwrap();
    (letters, batches.iter().map(RecordBatch::num_rows).sum())
}

#[test]
fn a_null_in_a_column_declared_not_null_is_malformed_whatever_the_format() {
    let json = [Some("{\"id\":1}"), Some("{\"x\":2}"), None, Some("{\"id\":null}")];
    for (format, values) in [("json", json), ("csv", [Some("1,"), Some(",2"), None, Some(",")])] {
        let (letters, rows) = apart(format, &values);
        assert_eq!((letters.len(), rows), (3, 1), "{format}: {letters:?}");
        assert!(letters.iter().all(|letter| letter.error.contains("id")), "{letters:?}");
        assert_eq!(letters[1].payload, None, "{format}");
    }
}

#[test]
fn what_is_wrong_with_csv_is_said_without_the_record() {
    let long = "y".repeat(10_000);
    let values = [format!("{long},1"), format!("1,2,{long}"), format!("1,{long}")];
    let (letters, _) = apart("csv", &values.each_ref().map(|value| Some(value.as_str())));
    let errors: Vec<&str> = letters.iter().map(|letter| letter.error.as_str()).collect();
    assert!(errors.iter().all(|error| error.len() < 200), "{errors:?}");
    assert!(errors[0].ends_with("yyy...' is no INT for column id"), "{errors:?}");
    assert_eq!(errors[1], "the record has 3 values for 2 columns");
    assert!(errors[2].ends_with("is no DOUBLE for column x"), "{errors:?}");
}

#[test]
fn tables_without_malformed_records_have_no_letters() {
    let text = vec![Field::new("v", DataType::Utf8, true)];
    for (columns, options) in [
        (None, vec![("deadLetter", "bad")]),
        (Some(text), vec![("deadLetter", "bad"), ("value.format", "raw")]),
    ] {
        let refused = rows_of(&table(columns, &options), false).unwrap_err();
        assert_eq!(refused.key.as_deref(), Some("deadLetter"));
    }
}
