//! Directories as sinks: whole files only, each micro-batch once, whatever was interrupted.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::TimestampMicrosecondArray;
use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use millstream_engine::connector::Table;
use millstream_engine::sink::{BatchId, Delivery, Kind, Output, Reached, Sink};

use crate::support::{connector, context, context_of, lines, names, sink, table};

fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_from_iter_with_nullable([("n", column, true)]).unwrap()
}

fn output(batch_id: u64, partitions: Vec<RecordBatch>) -> Output {
    let partitions = partitions.into_iter().map(|rows| vec![rows]).collect();
    Output { batch_id: BatchId(batch_id), partitions, reached: Reached::default() }
}

async fn publish(sink: &mut Box<dyn Sink>, output: Output) {
    sink.publish(output).await.unwrap().accepted().await.unwrap();
}

fn out_table() -> Table {
    table(None, &[("path", "out")])
}

async fn opened(base: &Path) -> (Box<dyn Sink>, Option<BatchId>) {
    let mut sink = sink("json", &out_table(), &numbers(0..0).schema(), base);
    let last = sink.open().await.unwrap().map(|published| published.batch_id);
    (sink, last)
}

/// All rows that a reader of the directory finds.
async fn rows(name: &str, table: &Table, schema: SchemaRef, base: &Path) -> Vec<String> {
    let table = Table { columns: Some(schema), ..table.clone() };
    let found = connector(name, base).static_table(&table, &context(base)).unwrap().unwrap();
    let mut rows = lines(&found.read().await.unwrap());
    rows.sort();
    rows
}

async fn numbers_in(base: &Path) -> Vec<String> {
    rows("json", &out_table(), numbers(0..0).schema(), base).await
}

fn part(batch_id: u64, partition: u64) -> String {
    format!("part-{batch_id:020}-{partition:05}.json")
}

#[tokio::test]
async fn every_format_is_read_back_as_it_was_written() {
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a,\"b\"\\", ""]));
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
    let times: ArrayRef = Arc::new(
        TimestampMicrosecondArray::from(vec![Some(1_767_225_600_250_000), None])
            .with_timezone("UTC"),
    );
    let many = [("i", ids, true), ("s", texts, true), ("b", flags, true), ("t", times, true)];
    let many = RecordBatch::try_from_iter_with_nullable(many).unwrap();
    let one = many.project(&[1]).unwrap();
    for (name, rows_in, options) in [
        ("json", &many, vec![]),
        ("parquet", &many, vec![]),
        ("csv", &many, vec![("header", "true"), ("nullValue", "NULL"), ("sep", "\\t")]),
        ("text", &one, vec![]),
    ] {
        let base = tempfile::tempdir().unwrap();
        let mut options = options;
        options.push(("path", "out"));
        let table = table(None, &options);
        let mut sink = sink(name, &table, &rows_in.schema(), base.path());
        assert_eq!(sink.open().await.unwrap(), None);
        publish(&mut sink, output(0, vec![rows_in.clone()])).await;
        let mut wanted = lines(std::slice::from_ref(rows_in));
        wanted.sort();
        assert_eq!(rows(name, &table, rows_in.schema(), base.path()).await, wanted, "{name}");
    }
}

#[tokio::test]
async fn a_micro_batch_is_a_file_per_partition_with_rows_and_a_manifest_entry() {
    let base = tempfile::tempdir().unwrap();
    let (mut sink, last) = opened(base.path()).await;
    assert_eq!((last, sink.delivery()), (None, Delivery::IdempotentById));
    publish(&mut sink, output(0, vec![numbers(0..2), numbers(0..0), numbers(2..3)])).await;
    publish(&mut sink, output(1, vec![])).await;
    let out = base.path().join("out");
    assert_eq!(names(&out), ["_millstream", "_spark_metadata", &part(0, 0), &part(0, 2)]);
    assert_eq!(fs::read_to_string(out.join(part(0, 0))).unwrap(), "{\"n\":0}\n{\"n\":1}\n");
    assert_eq!(names(&out.join("_spark_metadata")), ["0", "1"]);
    let entry = fs::read_to_string(out.join("_spark_metadata/0")).unwrap();
    let line = entry.lines().nth(2).unwrap();
    let start = format!(
        "{{\"path\":\"file://{}/{}\",\"size\":8,\"isDir\":false,\"modificationTime\":",
        out.display(),
        part(0, 2)
    );
    assert!(line.starts_with(&start), "{line}");
    let end = ",\"blockReplication\":1,\"blockSize\":33554432,\"action\":\"add\"}";
    assert!(line.ends_with(end), "{line}");
    assert_eq!(fs::read_to_string(out.join("_spark_metadata/1")).unwrap(), "v1");
}

#[tokio::test]
async fn a_repeated_micro_batch_is_ignored() {
    let base = tempfile::tempdir().unwrap();
    let (mut sink, _) = opened(base.path()).await;
    publish(&mut sink, output(0, vec![numbers(0..2)])).await;
    publish(&mut sink, output(0, vec![numbers(0..2), numbers(0..2)])).await;
    assert_eq!(numbers_in(base.path()).await, ["0", "1"]);
    let (mut again, last) = opened(base.path()).await;
    assert_eq!(last, Some(BatchId(0)));
    publish(&mut again, output(0, vec![numbers(0..2)])).await;
    publish(&mut again, output(1, vec![numbers(2..3)])).await;
    assert_eq!(numbers_in(base.path()).await, ["0", "1", "2"]);
}

#[tokio::test]
async fn what_a_crash_left_of_a_micro_batch_is_replaced_by_its_replay() {
    let base = tempfile::tempdir().unwrap();
    let out = base.path().join("out");
    let (mut sink, _) = opened(base.path()).await;
    publish(&mut sink, output(0, vec![numbers(0..2)])).await;
    drop(sink);
    // The first attempt at 1 renamed two files, had a third half-written, and its entry not linked.
    fs::write(out.join(part(1, 0)), "{\"n\":2}\n").unwrap();
    fs::write(out.join(part(1, 5)), "{\"n\":99}\n").unwrap();
    fs::write(out.join(format!(".{}", part(1, 6))), "{\"n\":").unwrap();
    fs::write(out.join("_spark_metadata/.millstream-1"), "v1").unwrap();
    fs::write(out.join("part-of-somebody-else.json"), "").unwrap();

    let (mut sink, last) = opened(base.path()).await;
    assert_eq!(last, Some(BatchId(0)));
    assert_eq!(numbers_in(base.path()).await, ["0", "1"]);
    assert!(out.join("part-of-somebody-else.json").exists());
    assert_eq!(names(&out.join("_spark_metadata")), ["0"]);
    publish(&mut sink, output(1, vec![numbers(2..4)])).await;
    assert_eq!(numbers_in(base.path()).await, ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn an_attempt_that_failed_leaves_nothing_behind() {
    let base = tempfile::tempdir().unwrap();
    let out = base.path().join("out");
    let (mut sink, _) = opened(base.path()).await;
    // A directory in the way of the second partition.
    let in_the_way = out.join(part(0, 1));
    fs::create_dir(&in_the_way).unwrap();
    fs::write(in_the_way.join("x"), "").unwrap();
    let error = sink.publish(output(0, vec![numbers(0..1), numbers(1..2)])).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains(&part(0, 1)), "{error}");
    fs::remove_dir_all(&in_the_way).unwrap();
    publish(&mut sink, output(0, vec![numbers(0..1)])).await;
    assert_eq!(numbers_in(base.path()).await, ["0"]);
}

#[tokio::test]
async fn every_tenth_entry_repeats_all_before_it() {
    let base = tempfile::tempdir().unwrap();
    let manifest = base.path().join("out/_spark_metadata");
    let (mut sink, _) = opened(base.path()).await;
    for batch_id in 0..12 {
        let number = i64::try_from(batch_id).unwrap();
        publish(&mut sink, output(batch_id, vec![numbers(number..number + 1)])).await;
    }
    let entries = names(&manifest);
    assert!(entries.contains(&"9.compact".to_owned()) && !entries.contains(&"9".to_owned()));
    let compact = fs::read_to_string(manifest.join("9.compact")).unwrap();
    assert_eq!(compact.lines().count(), 11);
    for (batch_id, line) in compact.lines().skip(1).enumerate() {
        assert!(line.contains(&part(batch_id as u64, 0)), "{line}");
    }
    let (mut sink, last) = opened(base.path()).await;
    assert_eq!(last, Some(BatchId(11)));
    // The query went on elsewhere for a while: the manifest stays without gaps.
    publish(&mut sink, output(33, vec![numbers(33..34)])).await;
    let entries = names(&manifest);
    for entry in ["12", "18", "19.compact"] {
        assert!(!entries.contains(&entry.to_owned()), "{entry} is not needed");
    }
    let compact = fs::read_to_string(manifest.join("29.compact")).unwrap();
    assert_eq!(compact.lines().count(), 13);
    for entry in ["30", "31", "32", "33"] {
        assert!(entries.contains(&entry.to_owned()), "{entry} is missing");
    }
}

#[tokio::test]
async fn a_directory_belongs_to_one_query() {
    let base = tempfile::tempdir().unwrap();
    let schema = numbers(0..0).schema();
    let other = || {
        let context = context_of(base.path(), "22222222-2222-4222-8222-222222222222");
        connector("json", base.path()).sink(&out_table(), &schema, &context).unwrap()
    };
    // Nothing was published yet: the first attempt may have had another checkpoint.
    other().open().await.unwrap();
    let (mut sink, _) = opened(base.path()).await;
    publish(&mut sink, output(0, vec![numbers(0..1)])).await;
    let error = other().open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("was written by the query 11111111-"), "{error}");
}

#[tokio::test]
async fn a_second_writer_is_fenced() {
    let base = tempfile::tempdir().unwrap();
    let (mut first, _) = opened(base.path()).await;
    let (mut second, _) = opened(base.path()).await;
    publish(&mut first, output(0, vec![numbers(0..1)])).await;
    let error = second.publish(output(0, vec![numbers(0..1)])).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Fenced);
}

#[tokio::test]
async fn a_path_that_is_no_directory_is_named() {
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("out"), "").unwrap();
    let mut sink = sink("json", &out_table(), &numbers(0..0).schema(), base.path());
    let error = sink.open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("/out/_spark_metadata cannot be written"), "{error}");
}
