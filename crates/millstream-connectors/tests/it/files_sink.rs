//! Directories as sinks: whole files only, each micro-batch once, whatever was interrupted.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::TimestampMicrosecondArray;
use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::Table;
use millstream_engine::api::sink::{
    BatchId, Delivery, EndOffsets, Kind, Output, Published, Sink, SourceOffset,
};

use crate::support::{connector, context, context_of, lines, names, sink, table};

fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_from_iter_with_nullable([("n", column, true)]).unwrap()
}

fn output(batch_id: u64, partitions: Vec<RecordBatch>) -> Output {
    let partitions = partitions.into_iter().map(|rows| vec![rows]).collect();
    Output { batch_id: BatchId(batch_id), partitions, end_offsets: EndOffsets::default() }
}

async fn publish(sink: &mut Box<dyn Sink>, output: Output) {
    sink.publish(output).await.unwrap().accepted().await.unwrap();
}

fn out_table() -> Table {
    out_table_with(&[("commitInterval", "0")])
}

fn out_table_with(options: &[(&str, &str)]) -> Table {
    table(None, &[&[("path", "out")], options].concat())
}

async fn opened(base: &Path) -> (Box<dyn Sink>, Option<BatchId>) {
    opened_with(base, &[("commitInterval", "0")]).await
}

async fn opened_with(base: &Path, options: &[(&str, &str)]) -> (Box<dyn Sink>, Option<BatchId>) {
    let mut sink = sink("json", &out_table_with(options), &numbers(0..0).schema(), base);
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
    rows("json", &table(None, &[("path", "out")]), numbers(0..0).schema(), base).await
}

/// Names of data files, without the part that tells one process from another.
fn parts(base: &Path) -> Vec<String> {
    let names = names(&base.join("out")).into_iter().filter(|name| name.starts_with("part-"));
    names.map(|name| name.rsplit_once('-').unwrap().0.to_owned()).collect()
}

fn part(commit: u64, place: u64) -> String {
    format!("part-{commit:020}-{place:05}")
}

fn legacy_part(batch_id: u64, partition: u64) -> String {
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
async fn a_commit_is_a_file_and_an_entry_of_the_manifest() {
    let base = tempfile::tempdir().unwrap();
    let (mut sink, last) = opened(base.path()).await;
    assert_eq!((last, sink.delivery()), (None, Delivery::Transactional));
    publish(&mut sink, output(0, vec![numbers(0..2), numbers(0..0), numbers(2..3)])).await;
    publish(&mut sink, output(1, vec![])).await;
    publish(&mut sink, output(2, vec![numbers(0..0)])).await;
    publish(&mut sink, output(3, vec![numbers(3..4)])).await;
    let out = base.path().join("out");
    assert_eq!(parts(base.path()), [part(0, 0), part(1, 0)]);
    let first = names(&out).into_iter().find(|name| name.starts_with("part-")).unwrap();
    let text = fs::read_to_string(out.join(&first)).unwrap();
    assert_eq!(text, "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n");
    assert_eq!(names(&out.join("_spark_metadata")), ["0", "1"], "none for what is empty");
    assert_eq!(names(&out.join("_millstream/commits")), ["1"], "the last one");
    let entry = fs::read_to_string(out.join("_spark_metadata/0")).unwrap();
    let line = entry.strip_prefix("v1\n").unwrap();
    let start = format!(
        "{{\"path\":\"file://{}/{first}\",\"size\":24,\"isDir\":false,\"modificationTime\":",
        out.display(),
    );
    assert!(line.starts_with(&start), "{line}");
    let end = ",\"blockReplication\":1,\"blockSize\":33554432,\"action\":\"add\"}";
    assert!(line.ends_with(end), "{line}");
}

#[tokio::test]
async fn micro_batches_are_gathered_into_a_commit() {
    let base = tempfile::tempdir().unwrap();
    let (mut sink, _) = opened_with(base.path(), &[("commitInterval", "1 hour")]).await;
    publish(&mut sink, output(0, vec![numbers(0..1)])).await;
    let mut waiting = Vec::new();
    for batch_id in 1..=5 {
        let rows = numbers(batch_id..batch_id + 1);
        waiting.push(sink.publish(output(batch_id as u64, vec![rows])).await.unwrap());
    }
    assert_eq!(numbers_in(base.path()).await, ["0"], "what comes after a pause is out at once");
    sink.flush().await;
    for acknowledgement in waiting {
        acknowledgement.accepted().await.unwrap();
    }
    assert_eq!(parts(base.path()), [part(0, 0), part(1, 0)]);
    assert_eq!(numbers_in(base.path()).await, ["0", "1", "2", "3", "4", "5"]);
    sink.publish(output(6, vec![numbers(6..7)])).await.unwrap();
    sink.close().await.unwrap();
    assert_eq!(numbers_in(base.path()).await.len(), 7, "what is gathered is not lost by a close");
    assert_eq!(opened(base.path()).await.1, Some(BatchId(6)));
}

#[tokio::test]
async fn a_file_that_has_reached_its_size_is_closed() {
    let base = tempfile::tempdir().unwrap();
    let options = [("commitInterval", "1 hour"), ("targetFileSize", "1k")];
    let (mut sink, _) = opened_with(base.path(), &options).await;
    let rows: Vec<RecordBatch> = (0..10).map(|n| numbers(n * 50..(n + 1) * 50)).collect();
    publish(&mut sink, output(0, rows)).await;
    let sizes: Vec<u64> = names(&base.path().join("out"))
        .iter()
        .filter(|name| name.starts_with("part-"))
        .map(|name| fs::metadata(base.path().join("out").join(name)).unwrap().len())
        .collect();
    assert!(sizes.len() >= 3 && sizes.iter().all(|size| *size < 2_048), "{sizes:?}");
    assert_eq!(names(&base.path().join("out/_spark_metadata")), ["0"]);
    assert_eq!(numbers_in(base.path()).await.len(), 500);
}

#[tokio::test]
async fn the_last_commit_says_where_the_query_stands() {
    let base = tempfile::tempdir().unwrap();
    let (mut sink, _) = opened(base.path()).await;
    let ends = vec![Some(SourceOffset::new("{\"logOffset\":3}".to_owned())), None];
    let end_offsets = EndOffsets { ends, batch_time_ms: 1_767_225_600_000 };
    let output = Output { end_offsets: end_offsets.clone(), ..output(41, vec![numbers(0..2)]) };
    publish(&mut sink, output).await;
    drop(sink);
    let mut again = sink_of(base.path());
    let published = again.open().await.unwrap();
    assert_eq!(
        published,
        Some(Published { batch_id: BatchId(41), end_offsets: Some(end_offsets) })
    );
}

fn sink_of(base: &Path) -> Box<dyn Sink> {
    sink("json", &out_table(), &numbers(0..0).schema(), base)
}

/// Each state that a crash can leave of the second commit.
#[tokio::test]
async fn a_commit_that_a_crash_cut_off_is_finished_or_never_was() {
    for (cut, is_made) in
        [("before-record", false), ("unnamed", true), ("half-named", true), ("unlisted", true)]
    {
        let base = tempfile::tempdir().unwrap();
        let out = base.path().join("out");
        let options = [("commitInterval", "0"), ("targetFileSize", "1")];
        let (mut sink, _) = opened_with(base.path(), &options).await;
        publish(&mut sink, output(0, vec![numbers(0..2)])).await;
        publish(&mut sink, output(1, vec![numbers(2..3), numbers(3..4)])).await;
        drop(sink);
        let record = out.join("_millstream/commits/1");
        let text = fs::read_to_string(&record).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        fs::remove_file(out.join("_spark_metadata/1")).unwrap();
        fs::write(out.join("_spark_metadata/.millstream-1-0badcafe"), "v1").unwrap();
        let files = json["files"].as_array().unwrap();
        assert_eq!(files.len(), 2);
        let unnamed = match cut {
            "unlisted" => 0,
            "half-named" => 1,
            _ => 2,
        };
        for file in files.iter().rev().take(unnamed) {
            let name = |key: &str| out.join(file[key].as_str().unwrap());
            fs::rename(name("name"), name("written")).unwrap();
        }
        if cut == "before-record" {
            fs::remove_file(&record).unwrap();
            let earlier = text.replace("\"entry\":1", "\"entry\":0");
            fs::write(out.join("_millstream/commits/0"), earlier.replace(":1,", ":0,")).unwrap();
        }
        let (mut sink, last) = opened(base.path()).await;
        assert_eq!(last, Some(BatchId(u64::from(is_made))), "{cut}");
        let expected = if is_made { vec!["0", "1", "2", "3"] } else { vec!["0", "1"] };
        assert_eq!(numbers_in(base.path()).await, expected, "{cut}");
        let entries: &[&str] = if is_made { &["0", "1"] } else { &["0"] };
        assert_eq!(names(&out.join("_spark_metadata")), entries, "{cut}");
        let hidden = |name: &String| name.starts_with('.');
        assert!(!names(&out).iter().any(hidden), "{cut}: {:?}", names(&out));
        publish(&mut sink, output(2, vec![numbers(4..5)])).await;
        assert_eq!(numbers_in(base.path()).await.last().unwrap(), "4");
    }
}

#[tokio::test]
async fn a_record_that_a_crash_left_beside_the_last_one_goes() {
    let base = tempfile::tempdir().unwrap();
    let commits = base.path().join("out/_millstream/commits");
    let (mut sink, _) = opened(base.path()).await;
    publish(&mut sink, output(0, vec![numbers(0..2)])).await;
    let first = fs::read(commits.join("0")).unwrap();
    publish(&mut sink, output(1, vec![numbers(2..3)])).await;
    drop(sink);
    fs::write(commits.join("0"), first).unwrap();
    assert_eq!(opened(base.path()).await.1, Some(BatchId(1)));
    assert_eq!(names(&commits), ["1"]);
}

/// As earlier versions left it: entries and files are numbered by micro-batch, nothing is deleted.
#[tokio::test]
async fn a_directory_of_an_earlier_version_goes_on() {
    let base = tempfile::tempdir().unwrap();
    let out = base.path().join("out");
    fs::create_dir_all(out.join("_spark_metadata")).unwrap();
    fs::create_dir_all(out.join("_millstream")).unwrap();
    let query_id = "11111111-1111-4111-8111-111111111111";
    fs::write(out.join("_millstream/query_id"), query_id).unwrap();
    let line = |batch_id: u64| {
        let path = out.join(legacy_part(batch_id, 0));
        format!(
            "\n{{\"path\":\"file://{}\",\"size\":8,\"isDir\":false,\"modificationTime\":1,\
             \"blockReplication\":1,\"blockSize\":33554432,\"action\":\"add\"}}",
            path.display()
        )
    };
    for batch_id in 0..=12 {
        fs::write(out.join(legacy_part(batch_id, 0)), format!("{{\"n\":{batch_id}}}\n")).unwrap();
        let (name, lines) = match batch_id {
            9 => ("9.compact".to_owned(), (0..=9).map(line).collect()),
            _ => (batch_id.to_string(), line(batch_id)),
        };
        if batch_id < 12 {
            fs::write(out.join("_spark_metadata").join(name), format!("v1{lines}")).unwrap();
        }
    }
    fs::write(out.join(format!(".{}", legacy_part(12, 1))), "{").unwrap();
    fs::write(out.join("part-of-somebody-else.txt"), "").unwrap();

    let (mut sink, last) = opened(base.path()).await;
    assert_eq!(last, Some(BatchId(11)), "micro-batch 12 has a file and no entry");
    assert!(!out.join(legacy_part(12, 0)).exists());
    assert!(out.join("part-of-somebody-else.txt").exists());
    fs::remove_file(out.join("part-of-somebody-else.txt")).unwrap();
    publish(&mut sink, output(12, vec![numbers(12..13)])).await;
    publish(&mut sink, output(13, vec![numbers(13..14)])).await;
    assert_eq!(numbers_in(base.path()).await.len(), 14);
    let entries = names(&out.join("_spark_metadata"));
    assert!(entries.contains(&"12".to_owned()) && entries.contains(&"13".to_owned()));
    drop(sink);
    assert_eq!(opened(base.path()).await.1, Some(BatchId(13)));
}

#[tokio::test]
async fn entries_that_are_superseded_go() {
    let base = tempfile::tempdir().unwrap();
    let manifest = base.path().join("out/_spark_metadata");
    let keep = [
        ("commitInterval", "0"),
        ("fileSink.log.deletion", "false"),
        ("fileSink.log.cleanupDelay", "0s"),
    ];
    let (mut sink, _) = opened_with(base.path(), &keep).await;
    for batch_id in 0..25 {
        let number = i64::try_from(batch_id).unwrap();
        publish(&mut sink, output(batch_id, vec![numbers(number..number + 1)])).await;
    }
    drop(sink);
    assert_eq!(names(&manifest).len(), 25);
    let compact = fs::read_to_string(manifest.join("19.compact")).unwrap();
    assert_eq!(compact.lines().count(), 21, "it repeats all before it");

    let delay = |delay| [("commitInterval", "0"), ("fileSink.log.cleanupDelay", delay)];
    let (mut sink, _) = opened_with(base.path(), &delay("1 hour")).await;
    publish(&mut sink, output(25, vec![numbers(25..26)])).await;
    assert_eq!(names(&manifest).len(), 26, "they are too young");
    drop(sink);
    let (mut sink, _) = opened_with(base.path(), &delay("0s")).await;
    publish(&mut sink, output(26, vec![numbers(26..27)])).await;
    let expected =
        ["19.compact", "20", "21", "22", "23", "24", "25", "26", "9.compact"].map(str::to_owned);
    assert_eq!(names(&manifest), expected);
    assert_eq!(numbers_in(base.path()).await.len(), 27, "data files stay");
}

#[tokio::test]
async fn the_manifest_forgets_files_past_their_retention() {
    let base = tempfile::tempdir().unwrap();
    let manifest = base.path().join("out/_spark_metadata");
    let options =
        [("commitInterval", "0"), ("retention", "1h"), ("fileSink.log.compactInterval", "3")];
    let (mut sink, _) = opened_with(base.path(), &options).await;
    publish(&mut sink, output(0, vec![numbers(0..1)])).await;
    publish(&mut sink, output(1, vec![numbers(1..2)])).await;
    let text = fs::read_to_string(manifest.join("0")).unwrap();
    let (before, after) = text.split_once("\"modificationTime\":").unwrap();
    let after = after.split_once(',').unwrap().1;
    let old = format!("{before}\"modificationTime\":1767225600000,{after}");
    fs::write(manifest.join("0"), old).unwrap();
    publish(&mut sink, output(2, vec![numbers(2..3)])).await;
    let compact = fs::read_to_string(manifest.join("2.compact")).unwrap();
    assert_eq!(compact.lines().count(), 3, "{compact}");
    assert!(!compact.contains(&part(0, 0)), "{compact}");
    assert_eq!(numbers_in(base.path()).await.len(), 3, "data files are not for us to delete");
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
    drop(sink);
    let error = other().open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("was written by the query 11111111-"), "{error}");
}

#[tokio::test]
async fn a_directory_that_lost_its_record_still_belongs_to_its_query() {
    let base = tempfile::tempdir().unwrap();
    let own = base.path().join("out/_millstream");
    let (mut sink, _) = opened(base.path()).await;
    publish(&mut sink, output(0, vec![numbers(0..1)])).await;
    drop(sink);
    fs::remove_file(own.join("commits/0")).unwrap();
    let context = context_of(base.path(), "22222222-2222-4222-8222-222222222222");
    let schema = numbers(0..0).schema();
    let mut other = connector("json", base.path()).sink(&out_table(), &schema, &context).unwrap();
    assert_eq!(other.open().await.unwrap_err().kind(), Kind::Config);
    assert!(fs::read_to_string(own.join("query_id")).unwrap().starts_with("11111111-"));
}

#[tokio::test]
async fn an_entry_of_another_program_leaves_its_number_without_a_record() {
    for entry in ["1", "1.compact"] {
        let base = tempfile::tempdir().unwrap();
        let out = base.path().join("out");
        let (mut sink, _) = opened(base.path()).await;
        publish(&mut sink, output(0, vec![numbers(0..1)])).await;
        fs::write(out.join("_spark_metadata").join(entry), "v1").unwrap();
        let acknowledgement = sink.publish(output(1, vec![numbers(1..2)])).await.unwrap();
        assert_eq!(acknowledgement.accepted().await.unwrap_err().kind(), Kind::Fenced, "{entry}");
        assert_eq!(names(&out.join("_millstream/commits")), ["0"], "{entry}");
    }
}

#[tokio::test]
async fn pieces_of_a_micro_batch_that_does_not_come_leave_no_files() {
    let base = tempfile::tempdir().unwrap();
    let (mut sink, _) = opened(base.path()).await;
    publish(&mut sink, output(0, vec![numbers(0..1)])).await;
    sink.piece_writer().unwrap().write(0, numbers(1..5)).await.unwrap();
    sink.close().await.unwrap();
    drop(sink);
    let names = names(&base.path().join("out"));
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
    assert_eq!(numbers_in(base.path()).await, ["0"]);
}

#[tokio::test]
async fn a_query_that_runs_once_adds_to_what_is_there() {
    let base = tempfile::tempdir().unwrap();
    let schema = numbers(0..0).schema();
    for run in 0..2 {
        let context = context_of(base.path(), "");
        let mut sink =
            connector("json", base.path()).sink(&out_table(), &schema, &context).unwrap();
        assert_eq!(sink.open().await.unwrap(), None);
        publish(&mut sink, output(0, vec![numbers(run..run + 1)])).await;
    }
    assert_eq!(numbers_in(base.path()).await, ["0", "1"]);
}

#[tokio::test]
async fn a_second_writer_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let (first, _) = opened(base.path()).await;
    let error = sink_of(base.path()).open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Fenced);
    assert!(error.to_string().contains("another flow writes to the same directory"), "{error}");
    drop(first);
    opened(base.path()).await;
}

/// Where there are no locks: the record decides, and the loser leaves nothing that is seen.
#[tokio::test]
async fn a_second_writer_without_locks_is_fenced() {
    let base = tempfile::tempdir().unwrap();
    let out = base.path().join("out");
    let (mut first, _) = opened(base.path()).await;
    publish(&mut first, output(0, vec![numbers(0..1)])).await;
    fs::write(out.join("_millstream/commits/1"), "that of another process").unwrap();
    let acknowledgement = first.publish(output(1, vec![numbers(1..2)])).await.unwrap();
    let error = acknowledgement.accepted().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Fenced);
    assert_eq!(numbers_in(base.path()).await, ["0"]);
    drop(first);
    let error = sink_of(base.path()).open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("commits/1 is not a record of a commit"), "{error}");
}

#[tokio::test]
async fn a_lost_record_is_missed() {
    let base = tempfile::tempdir().unwrap();
    let (mut sink, _) = opened(base.path()).await;
    publish(&mut sink, output(5, vec![numbers(0..1)])).await;
    drop(sink);
    fs::remove_dir_all(base.path().join("out/_millstream")).unwrap();
    let error = sink_of(base.path()).open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("its last record is missing"), "{error}");
}

#[tokio::test]
async fn a_manifest_that_others_wrote_to_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let manifest = base.path().join("out/_spark_metadata");
    let (mut sink, _) = opened(base.path()).await;
    publish(&mut sink, output(0, vec![numbers(0..1)])).await;
    drop(sink);
    for (names, words) in [
        (vec!["1"], "goes up to 1, and this query's last commit is 0"),
        (vec!["3"], "is damaged: 1 is missing"),
        (vec!["9223372036854775807"], "is damaged: 9223372036854775807 is no number"),
    ] {
        for name in &names {
            fs::write(manifest.join(name), "v1").unwrap();
        }
        let error = sink_of(base.path()).open().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Data);
        assert!(error.to_string().contains(words), "{error}");
        for name in &names {
            fs::remove_file(manifest.join(name)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_path_that_is_no_directory_is_named() {
    let base = tempfile::tempdir().unwrap();
    fs::write(base.path().join("out"), "").unwrap();
    let error = sink_of(base.path()).open().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("/out/_millstream/commits cannot be written"), "{error}");
}
