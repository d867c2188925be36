//! Directories as streams: each file once, the same again on replay, and clear errors.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, TimeUnit};
use millstream_engine::api::connector::{ReadMode, Table};
use millstream_engine::api::source::{Kind, ReadLimit, Source, SourceLog, SourceOffset};
use parquet::arrow::ArrowWriter;

use crate::support::{columns, connector, context, lines, next, read, read_columns, source, table};

/// Puts a file there as a whole, `age` seconds after the epoch.
fn put(directory: &Path, name: &str, content: impl AsRef<[u8]>, age: u64) {
    let temporary = directory.join(format!(".{name}"));
    fs::write(&temporary, content).unwrap();
    let file = fs::File::options().write(true).open(&temporary).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(age)).unwrap();
    fs::rename(temporary, directory.join(name)).unwrap();
}

fn text_table() -> Table {
    table(None, &[("path", "in"), ("pollInterval", "1ms")])
}

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("in")).unwrap();
    directory
}

async fn opened(
    name: &str,
    table: &Table,
    base_dir: &Path,
    position: Option<&SourceOffset>,
    log: &SourceLog,
) -> Box<dyn Source> {
    let mut source = source(name, table, base_dir);
    let start = source.open(position, log.clone()).await.unwrap();
    source.start(&start).await.unwrap();
    source
}

/// All rows that are there now.
async fn rows(name: &str, table: &Table, base_dir: &Path) -> Vec<String> {
    let mut source = opened(name, table, base_dir, None, &SourceLog::in_memory()).await;
    source.fix_end().await.unwrap();
    let width = source.schema().fields().len();
    let taken = source.poll(ReadLimit::AllAvailable).unwrap();
    taken.map(|taken| read(taken, width)).unwrap_or_default()
}

#[tokio::test]
async fn each_file_is_read_once_across_restarts() {
    let base = directory();
    let input = base.path().join("in");
    let log = SourceLog::in_memory();
    put(&input, "b", "two\nthree\n", 20);
    put(&input, "a", "one\n", 10);
    let mut first = opened("text", &text_table(), base.path(), None, &log).await;
    let taken = next(&mut first).await;
    let start = taken.end.clone();
    assert_eq!((start.as_str(), taken.rows), (r#"{"logOffset":0}"#, 3));
    assert_eq!(read(taken, 1), ["one", "two", "three"]);

    put(&input, "c", "four", 5);
    let taken = next(&mut first).await;
    let end = taken.end.clone();
    assert_eq!(end.as_str(), r#"{"logOffset":1}"#);
    // Found, but the process ends before it comes into a micro-batch.
    put(&input, "d", "five\n", 30);
    first.data_available().await;
    first.close().await;

    let mut second = source("text", &text_table(), base.path());
    second.open(Some(&end), log.clone()).await.unwrap();
    assert_eq!(read(second.replay(Some(&start), &end).await.unwrap(), 1), ["four"]);
    assert_eq!(read(second.replay(None, &end).await.unwrap(), 1), ["one", "two", "three", "four"]);
    second.start(&end).await.unwrap();
    let taken = next(&mut second).await;
    assert_eq!(taken.end.as_str(), r#"{"logOffset":2}"#);
    assert_eq!(read(taken, 1), ["five"]);
    put(&input, "e", "six\n", 1);
    assert_eq!(read(next(&mut second).await, 1), ["six"]);
    second.close().await;
}

#[tokio::test]
async fn the_log_is_written_before_a_file_is_offered_and_compacted() {
    let base = directory();
    let log = SourceLog::in_memory();
    let table =
        table(None, &[("path", "in"), ("pollInterval", "1ms"), ("maxFilesPerTrigger", "1")]);
    for number in 0..12 {
        put(&base.path().join("in"), &format!("{number:02}"), format!("{number}\n"), number);
    }
    let mut source = opened("text", &table, base.path(), None, &log).await;
    let mut read_before = Vec::new();
    for number in 0..12 {
        let taken = next(&mut source).await;
        assert_eq!(taken.end.as_str(), format!("{{\"logOffset\":{number}}}"));
        let name = if number == 9 { "9.compact".to_owned() } else { number.to_string() };
        assert!(log.get(&name).await.unwrap().is_some(), "{name} is durable before its offset");
        read_before.extend(read(taken, 1));
    }
    source.close().await;
    let path = base.path().join("in/00").display().to_string();
    let first = log.get("0").await.unwrap().unwrap();
    let wanted = format!("v1\n{{\"path\":\"file://{path}\",\"timestamp\":0,\"batchId\":0}}");
    assert_eq!(String::from_utf8(first).unwrap(), wanted);
    let compact = String::from_utf8(log.get("9.compact").await.unwrap().unwrap()).unwrap();
    assert_eq!(compact.lines().count(), 11);

    let end = SourceOffset::new(r#"{"logOffset":11}"#);
    let mut again = opened("text", &table, base.path(), Some(&end), &log).await;
    assert_eq!(read(again.replay(None, &end).await.unwrap(), 1), read_before);
    again.fix_end().await.unwrap();
    assert!(again.at_end());
}

#[tokio::test]
async fn a_log_that_spark_wrote_is_gone_on_with() {
    let base = directory();
    let input = base.path().join("in");
    put(&input, "b c.json", r#"{"id":1}"#, 10);
    let log = SourceLog::in_memory();
    let uri = format!("file://{}/b%20c.json", input.display());
    let entry = format!("v1\n{{\"path\":\"{uri}\",\"timestamp\":10000,\"batchId\":0}}");
    log.put_if_absent("0", entry.into_bytes()).await.unwrap();
    put(&input, "new.json", r#"{"id":2}"#, 5);

    let options = [("path", "in"), ("pollInterval", "1ms")];
    let table = table(columns(&[("id", DataType::Int64)]), &options);
    let position = SourceOffset::new(r#"{"logOffset":0}"#);
    let mut source = opened("json", &table, base.path(), Some(&position), &log).await;
    assert_eq!(read(source.replay(None, &position).await.unwrap(), 1), ["1"]);
    assert_eq!(read(next(&mut source).await, 1), ["2"]);
}

#[tokio::test]
async fn a_fixed_end_keeps_later_files_out() {
    let base = directory();
    let log = SourceLog::in_memory();
    put(&base.path().join("in"), "a", "one\n", 10);
    let mut source = opened("text", &text_table(), base.path(), None, &log).await;
    source.fix_end().await.unwrap();
    put(&base.path().join("in"), "b", "two\n", 10);
    assert!(!source.at_end());
    assert_eq!(read(next(&mut source).await, 1), ["one"]);
    assert!(source.at_end());
    source.data_available().await;
    assert!(source.poll(ReadLimit::AllAvailable).unwrap().is_none());
}

#[tokio::test]
async fn a_file_that_changes_after_it_was_found_is_an_error() {
    let base = directory();
    let input = base.path().join("in");
    put(&input, "a", "one\n", 10);
    let log = SourceLog::in_memory();
    let mut source = opened("text", &text_table(), base.path(), None, &log).await;
    let taken = next(&mut source).await;
    put(&input, "a", "one\ntwo\n", 10);
    let error = read_columns(taken, &[0]).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("in/a changed after it was found"), "{error}");
}

#[tokio::test]
async fn a_file_that_vanishes_is_an_error_unless_it_may() {
    let base = directory();
    let input = base.path().join("in");
    let mut options = vec![("path", "in"), ("pollInterval", "1ms")];
    for ignore in [false, true] {
        put(&input, "a", "one\n", 10);
        let log = SourceLog::in_memory();
        let mut source = opened("text", &table(None, &options), base.path(), None, &log).await;
        let taken = next(&mut source).await;
        fs::remove_file(input.join("a")).unwrap();
        if ignore {
            assert!(read(taken, 1).is_empty());
            assert_eq!(source.metrics()["filesSkipped"], 1);
        } else {
            let error = read_columns(taken, &[0]).unwrap_err().to_string();
            assert!(error.contains("in/a was found but is gone"), "{error}");
        }
        options.push(("ignoreMissingFiles", "true"));
    }
}

#[tokio::test]
async fn files_that_cannot_be_decoded_are_named_or_passed_over() {
    let base = directory();
    let input = base.path().join("in");
    let whole = parquet_file(&[("id", Arc::new(Int64Array::from(vec![7])))]);
    put(&input, "cut.parquet", &whole[..whole.len() - 6], 10);
    put(&input, "whole.parquet", &whole, 20);
    let mut options = vec![("path", "in"), ("pollInterval", "1ms")];
    let declared = columns(&[("id", DataType::Int64)]);
    let log = SourceLog::in_memory();
    let strict = table(declared.clone(), &options);
    let mut source = opened("parquet", &strict, base.path(), None, &log).await;
    source.data_available().await;
    let error = source.poll(ReadLimit::Configured).err().unwrap();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("in/cut.parquet is not a readable parquet file"), "{error}");
    assert!(log.list().await.unwrap().is_empty(), "the file is looked at again after a restart");

    options.push(("ignoreCorruptFiles", "true"));
    let mut source = opened("parquet", &table(declared, &options), base.path(), None, &log).await;
    assert_eq!(read(next(&mut source).await, 1), ["7"]);
    assert_eq!(source.metrics()["filesSkipped"], 1);
}

#[tokio::test]
async fn text_that_is_not_utf_8_is_an_error_with_its_line() {
    let base = directory();
    put(&base.path().join("in"), "a", b"one\n\xff\n", 10);
    let log = SourceLog::in_memory();
    let mut source = opened("text", &text_table(), base.path(), None, &log).await;
    let error = read_columns(next(&mut source).await, &[0]).unwrap_err().to_string();
    assert!(error.contains("in/a is not a readable text file: line 2 is not UTF-8"), "{error}");
}

#[tokio::test]
async fn a_missing_directory_is_found_at_the_start() {
    let base = tempfile::tempdir().unwrap();
    let error = source("text", &text_table(), base.path())
        .open(None, SourceLog::in_memory())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("/in does not exist"), "{error}");
}

#[tokio::test]
async fn offsets_that_do_not_fit_are_refused() {
    let base = directory();
    let mut source = source("text", &text_table(), base.path());
    for offset in [r#"{"rows":1}"#, "oops", "-2"] {
        let error = source.open(Some(&SourceOffset::new(offset)), SourceLog::in_memory()).await;
        assert_eq!(error.unwrap_err().kind(), Kind::Data, "{offset}");
    }
    let beyond = SourceOffset::new("3");
    let error = source.open(Some(&beyond), SourceLog::in_memory()).await.unwrap_err();
    assert!(error.to_string().contains("list of files 3 is damaged"), "{error}");
}

#[tokio::test]
async fn malformed_json_follows_the_mode() {
    let base = directory();
    let input = base.path().join("in");
    put(&input, "a.json", "{\"id\":1,\"t\":\"x\"}\n\n{\"id\":\"two\",\"t\":\"y\"}\n{oops\n", 10);
    let declared = columns(&[
        ("id", DataType::Int64),
        ("t", DataType::Utf8),
        ("_corrupt_record", DataType::Utf8),
    ]);
    let with = |mode: &str| table(declared.clone(), &[("path", "in"), ("mode", mode)]);
    let permissive = rows("json", &with("PERMISSIVE"), base.path()).await;
    assert_eq!(permissive, ["1|x|", "|y|{\"id\":\"two\",\"t\":\"y\"}", "||{oops"]);
    assert_eq!(rows("json", &with("DROPMALFORMED"), base.path()).await, ["1|x|"]);
    let log = SourceLog::in_memory();
    let mut source = opened("json", &with("FAILFAST"), base.path(), None, &log).await;
    let taken = next(&mut source).await;
    assert_eq!(taken.rows, 3);
    let error = read_columns(taken, &[0, 1]).unwrap_err().to_string();
    assert!(error.contains("in/a.json, line 3: "), "{error}");
}

#[tokio::test]
async fn malformed_csv_follows_the_mode_and_is_counted() {
    let base = directory();
    let content = "id,at,ok\n1,2026-01-02 03:04:05.5,TRUE\n\ntwo,,false\n3\n4,2026-01-01,true,x\n";
    put(&base.path().join("in"), "a.csv", content, 10);
    let timestamp = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let fields = [
        ("id", DataType::Int32),
        ("at", timestamp),
        ("ok", DataType::Boolean),
        ("_corrupt_record", DataType::Utf8),
    ];
    let with = |mode: &str| {
        let options = [("path", "in"), ("header", "true"), ("mode", mode), ("pollInterval", "1ms")];
        table(columns(&fields), &options)
    };
    let wanted = [
        "1|2026-01-02T03:04:05.500Z|true|",
        "||false|two,,false",
        "3|||3",
        "4|2026-01-01T00:00:00Z|true|4,2026-01-01,true,x",
    ];
    let log = SourceLog::in_memory();
    let mut source = opened("csv", &with("PERMISSIVE"), base.path(), None, &log).await;
    let taken = next(&mut source).await;
    assert_eq!(taken.rows, 4);
    assert_eq!(read(taken, 4), wanted);
    assert_eq!(source.metrics()["rowsMalformed"], 3);
    assert_eq!(rows("csv", &with("DROPMALFORMED"), base.path()).await, wanted[..1]);

    let mut source =
        opened("csv", &with("FAILFAST"), base.path(), None, &SourceLog::in_memory()).await;
    let error = read_columns(next(&mut source).await, &[1]).unwrap_err().to_string();
    assert!(error.contains("in/a.csv, line 4: 'two' is no INT for column id"), "{error}");
}

#[tokio::test]
async fn only_the_columns_asked_for_are_given_in_the_order_asked_for() {
    let base = directory();
    let input = base.path().join("in");
    put(&input, "a.csv", "1,x\n2,y\n", 10);
    let declared = columns(&[("id", DataType::Int64), ("t", DataType::Utf8)]);
    let table = table(declared, &[("path", "in"), ("pollInterval", "1ms")]);
    for (projection, wanted) in [(vec![1, 0], vec!["x|1", "y|2"]), (vec![1], vec!["x", "y"])] {
        let mut source = opened("csv", &table, base.path(), None, &SourceLog::in_memory()).await;
        assert_eq!(lines(&read_columns(next(&mut source).await, &projection).unwrap()), wanted);
    }
    for name in ["csv", "text", "json"] {
        let table =
            Table { columns: table.columns.clone().filter(|_| name != "text"), ..table.clone() };
        let mut source = opened(name, &table, base.path(), None, &SourceLog::in_memory()).await;
        let rows = read_columns(next(&mut source).await, &[]).unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 2, "{name}");
    }
}

fn parquet_file(columns: &[(&str, ArrayRef)]) -> Vec<u8> {
    let rows = RecordBatch::try_from_iter(columns.iter().cloned()).unwrap();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    file
}

#[tokio::test]
async fn parquet_columns_are_found_by_name_and_widened() {
    let base = directory();
    let input = base.path().join("in");
    let ids: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    put(&input, "a", parquet_file(&[("Name", names.clone()), ("id", ids)]), 10);
    put(&input, "b", parquet_file(&[("name", names.clone())]), 20);
    let options = [("path", "in"), ("pollInterval", "1ms")];
    let fields = [("id", DataType::Int64), ("name", DataType::Utf8)];
    let wide = table(columns(&fields), &options);
    assert_eq!(rows("parquet", &wide, base.path()).await, ["1|x", "2|y", "|x", "|y"]);

    // Without columns they are those of the first file.
    let schema = connector("parquet", base.path())
        .check_source(&table(None, &options), ReadMode::Stream)
        .unwrap();
    assert_eq!(schema.field(0).name(), "Name");

    let wrong = table(columns(&[("name", DataType::Int64)]), &options);
    let mut source = opened("parquet", &wrong, base.path(), None, &SourceLog::in_memory()).await;
    let error = read_columns(next(&mut source).await, &[0]).unwrap_err().to_string();
    assert!(error.contains("column name is Utf8 in"), "{error}");
}

#[tokio::test]
async fn a_static_table_learns_its_columns_and_notices_changes() {
    let base = directory();
    let input = base.path().join("in");
    put(&input, "a", "b,a\n1,x\n", 10);
    let options = [("path", "in"), ("header", "true")];
    let csv = connector("csv", base.path());
    let static_table = csv.static_table(&table(None, &options), &context(base.path())).unwrap();
    let static_table = static_table.unwrap();
    let before = static_table.fingerprint().await.unwrap();
    assert_eq!(lines(&static_table.read().await.unwrap()), ["1|x"]);
    assert_eq!(before, static_table.fingerprint().await.unwrap());
    put(&input, "b", "b,a\n2,y\n", 5);
    assert_ne!(before, static_table.fingerprint().await.unwrap());
    assert_eq!(lines(&static_table.read().await.unwrap()), ["2|y", "1|x"]);

    let base = directory();
    put(&base.path().join("in"), "a", "{\"n\":1,\"l\":[{\"x\":null}]}\n{\"n\":2.5}\n", 10);
    let json = connector("json", base.path());
    let schema = json.check_source(&table(None, &[("path", "in")]), ReadMode::Batch).unwrap();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["l", "n"]);
    assert_eq!(*schema.field(1).data_type(), DataType::Float64);
    let static_table = json.static_table(&table(None, &[("path", "in")]), &context(base.path()));
    assert_eq!(lines(&static_table.unwrap().unwrap().read().await.unwrap()).len(), 2);

    fs::remove_file(base.path().join("in/a")).unwrap();
    let error = json.check_source(&table(None, &[("path", "in")]), ReadMode::Batch).unwrap_err();
    assert!(error.problem.contains("there is no file in 'in'"), "{error:?}");
}
