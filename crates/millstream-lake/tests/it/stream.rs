//! A table as a stream, step by step.

use std::fs;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::Int64Type;
use millstream_lake::error::TableError;
use millstream_lake::read::TableReader;
use millstream_lake::stream::{Follower, Position, Rules, Start, StreamError, StreamTable};

use crate::foreign;
use crate::log::{
    CHANGE_FEED, Log, OTHER, SCHEMA, WIDER, add, add_with, all, metadata, remove, strict,
};
use crate::support::{World, append, create, rows};

#[test]
fn the_files_of_a_version_come_first_and_then_those_that_are_added() {
    let log = Log::new("");
    log.commit(1, &[add_with("late", 9, true, ""), add_with("b", 5, true, ""), add("a")]);
    log.commit(2, &[add("gone"), add_with("early", 1, true, "")]);
    log.commit(3, &[remove("gone", true)]);
    let first = log.open().start(Start::Snapshot).expect("a start");
    assert_eq!(first, Position::snapshot(3));
    let mut follower = log.follower(first, strict()).expect("a follower");
    let steps = all(&mut follower).expect("steps");
    assert_eq!(steps, ["3/0 early of all", "3/1 a of all", "3/2 b of all", "3/3 late of all", "4"]);
    // In the middle of the snapshot.
    let middle = Position { index: Some(1), ..first };
    let rest = log.steps(middle, strict()).expect("steps");
    assert_eq!(rest, ["3/2 b of all", "3/3 late of all", "4"]);
    log.commit(4, &[add("x"), add_with("y", 1, false, ""), add("z")]);
    log.commit(5, &[r#"{"commitInfo":{"operation":"OPTIMIZE"}}"#.to_owned(), remove("x", false)]);
    assert_eq!(all(&mut follower).expect("steps"), ["4/0 x", "4/1 z", "5", "6"]);
    let middle = Position { version: 4, index: Some(0), is_in_snapshot: false };
    assert_eq!(log.steps(middle, strict()).expect("steps"), ["4/1 z", "5", "6"]);
}

#[test]
fn a_new_stream_begins_where_it_is_told() {
    let log = Log::new("");
    for version in 1..4 {
        log.commit(version, &[add(&format!("f{version}"))]);
        let file = fs::File::options().write(true).open(log.path(version)).expect("it is there");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000 * version);
        file.set_modified(time).expect("a time");
    }
    let zero = fs::File::options().write(true).open(log.path(0)).expect("it is there");
    zero.set_modified(std::time::UNIX_EPOCH).expect("a time");
    let at = |start| log.open().start(start);
    assert_eq!(at(Start::Latest).expect("a place"), Position::before(4));
    assert_eq!(at(Start::Version(2)).expect("a place"), Position::before(2));
    assert!(matches!(
        at(Start::Version(4)),
        Err(StreamError::Table(TableError::NotReadable { newest: 3, .. }))
    ));
    for (ms, version) in [(-5, 0), (1, 1), (1_000_000, 1), (1_000_001, 2), (3_000_000, 3)] {
        assert_eq!(at(Start::Moment(ms)).expect("a place"), Position::before(version), "{ms}");
    }
    assert!(matches!(at(Start::Moment(3_000_001)), Err(StreamError::InTheFuture { .. })));
}

#[test]
fn commits_that_change_rows_are_refused_or_left_out() {
    let log = Log::new("");
    log.commit(1, &[add("a"), add("b")]);
    log.commit(2, &[remove("a", true)]);
    log.commit(3, &[add("c"), remove("b", true)]);
    log.commit(4, &[add("d")]);
    let from = Position::before(1);
    let steps = |rules| log.steps(from, rules);
    let error = steps(strict()).expect_err("a deletion");
    assert!(matches!(&error, StreamError::Deleted { version: 2, .. }), "{error}");
    assert!(error.to_string().contains("ignoreDeletes"));
    let error = steps(Rules { ignore_deletes: true, ..strict() }).expect_err("a change");
    assert!(matches!(&error, StreamError::Changed { version: 3, .. }), "{error}");
    assert!(error.to_string().contains("skipChangeCommits"));
    let skipped = steps(Rules { skip_change_commits: true, ..strict() }).expect("steps");
    assert_eq!(skipped, ["1/0 a", "1/1 b", "2", "3", "4", "4/0 d", "5"]);
    let again = steps(Rules { ignore_changes: true, ..strict() }).expect("steps");
    assert_eq!(again, ["1/0 a", "1/1 b", "2", "3", "3/0 c", "4", "4/0 d", "5"]);
}

#[test]
fn a_schema_that_grows_ends_the_stream_and_is_read_by_the_next() {
    let log = Log::new("");
    log.commit(1, &[add("a")]);
    let mut follower = log.follower(Position::before(1), strict()).expect("a follower");
    assert_eq!(all(&mut follower).expect("steps"), ["1/0 a", "2"]);
    log.commit(2, &[metadata("t", SCHEMA, r#""some.property":"x""#), add("b")]);
    assert_eq!(all(&mut follower).expect("a property is no schema"), ["2/0 b", "3"]);
    log.commit(3, &[metadata("t", WIDER, ""), add("c")]);
    let error = all(&mut follower).expect_err("another schema");
    assert!(matches!(&error, StreamError::SchemaChanged { version: 3, .. }), "{error}");
    let steps = log.steps(Position::before(1), strict()).expect("the older files are read with it");
    assert_eq!(steps, ["1/0 a", "2", "2/0 b", "3", "3/0 c", "4"]);
    log.commit(4, &[metadata("t", OTHER, "")]);
    let error = log.steps(Position::before(1), strict()).expect_err("nothing reads both");
    assert!(matches!(&error, StreamError::SchemaIncompatible { .. }), "{error}");
    let mut follower = log.follower(Position::before(5), strict()).expect("behind it");
    log.commit(5, &[add("e")]);
    assert_eq!(all(&mut follower).expect("steps"), ["5/0 e", "6"]);
}

#[test]
fn another_table_at_the_place_is_noticed() {
    let log = Log::new("");
    log.commit(1, &[add("a")]);
    let mut follower = log.follower(Position::before(1), strict()).expect("a follower");
    all(&mut follower).expect("steps");
    fs::remove_dir_all(log.world.directory.path().join("a table")).expect("it is there");
    let protocol = r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#.to_owned();
    log.commit(0, &[protocol, metadata("other", SCHEMA, "")]);
    for version in 1..4 {
        log.commit(version, &[add("quite another file")]);
    }
    let error = all(&mut follower).expect_err("it has another id");
    assert!(matches!(&error, StreamError::OtherTable { .. }), "{error}");
}

#[test]
fn versions_that_are_gone_are_lost_rows() {
    let log = Log::new("");
    for version in 1..6 {
        log.commit(version, &[add(&format!("f{version}"))]);
    }
    let table = log.open();
    fs::remove_file(log.path(3)).expect("it is there");
    let mut follower =
        Follower::new(Arc::clone(&table), Position::before(2), strict()).expect("a follower");
    assert_eq!(all(&mut follower).expect("steps"), ["2/0 f2", "3"]);
    let error = follower.look_around().expect_err("a version is missing");
    assert!(matches!(&error, StreamError::Lost { from: 3, to: 3, next: 4, .. }), "{error}");
    assert!(error.to_string().contains("failOnDataLoss"), "{error}");
    let lax = Rules { fail_on_data_loss: false, ..strict() };
    let mut follower = Follower::new(table, Position::before(3), lax).expect("a follower");
    assert_eq!(all(&mut follower).expect("steps"), ["4/0 f4", "5", "5/0 f5", "6"]);
}

#[test]
fn a_table_that_was_put_back_is_noticed() {
    let log = Log::new("");
    log.commit(1, &[add("a")]);
    let error = log.follower(Position::before(9), strict()).err().expect("no such version");
    assert!(matches!(error, StreamError::Shrunk { read: 8, newest: 1, .. }), "{error}");
    assert!(log.follower(Position::before(2), strict()).is_ok());
}

#[test]
fn damaged_commits_are_named() {
    for damage in ["", "{\"add\":{\"path\":", "[]", "{\"add\":{\"path\":\"x\"}}", "\u{0}\u{0}"] {
        let log = Log::new("");
        log.commit(1, &[add("a")]);
        let mut follower = log.follower(Position::before(1), strict()).expect("a follower");
        all(&mut follower).expect("steps");
        log.commit(2, &[add("b"), damage.to_owned()]);
        if damage.is_empty() {
            fs::write(log.path(2), "").expect("it is writable");
        }
        let error = all(&mut follower).expect_err(damage);
        assert!(error.to_string().contains("00000000000000000002.json"), "{error}");
    }
}

#[test]
fn a_commit_of_a_hundred_thousand_files_is_read_in_pieces() {
    let log = Log::new("");
    let actions: Vec<_> =
        (0..100_000).map(|file| add(&format!("a/quite/long/path/of/file/{file:08}"))).collect();
    log.commit(1, &actions);
    log.commit(2, &[add("last")]);
    let mut follower = log.follower(Position::before(1), strict()).expect("a follower");
    let steps = all(&mut follower).expect("steps");
    assert_eq!(steps.len(), 100_000 + 1 + 2);
    assert_eq!(steps[99_999], "1/99999 a/quite/long/path/of/file/00099999");
    let middle = Position { version: 1, index: Some(99_998), is_in_snapshot: false };
    assert_eq!(log.steps(middle, strict()).expect("steps")[1..], ["2", "2/0 last", "3"]);
    // All of them as files of a version.
    let start = Position { index: Some(99_997), ..Position::snapshot(2) };
    let steps = log.steps(start, strict()).expect("steps");
    assert_eq!(steps.len(), 4, "{steps:?}");
}

#[test]
fn changes_are_those_of_the_files_that_hold_them_or_of_all_files() {
    let log = Log::new(CHANGE_FEED);
    log.commit(1, &[add("a"), add("b")]);
    let cdc =
        r#"{"cdc":{"path":"_change_data/c","partitionValues":{},"size":7,"dataChange":false}}"#;
    log.commit(2, &[add("c"), remove("a", true), cdc.to_owned()]);
    log.commit(3, &[remove("b", true), add("d"), add_with("e", 1, false, "")]);
    let vector = r#","deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":1}"#;
    log.commit(4, &[remove("d", true), add_with("d", 1, true, vector), add("f")]);
    let merge = r#"{"commitInfo":{"operation":"MERGE","operationMetrics":{"numTargetRowsInserted":"0","numTargetRowsUpdated":"0","numTargetRowsDeleted":"0"}}}"#;
    log.commit(5, &[merge.to_owned(), remove("f", true), add("g")]);
    let table = Arc::new(StreamTable::open(&log.world.store(), true).expect("it has changes"));
    let names: Vec<_> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["id", "_change_type", "_commit_version", "_commit_timestamp"]);
    let mut follower =
        Follower::new(Arc::clone(&table), Position::before(1), strict()).expect("a follower");
    let steps = all(&mut follower).expect("steps");
    let expected = [
        "1/0 a",
        "1/1 b",
        "2",
        "2/0 ~_change_data/c",
        "3",
        "3/0 -b",
        "3/1 d",
        "4",
        "4/1 -d",
        "4/2 f",
        "5",
        "6",
    ];
    assert_eq!(steps, expected);
    // Where Spark stops behind the files of changes.
    let behind = Position { version: 2, index: Some(0), is_in_snapshot: false };
    let mut follower = Follower::new(table, behind, strict()).expect("a follower");
    assert_eq!(all(&mut follower).expect("steps")[..2], ["3", "3/0 -b"]);
    log.commit(6, &[metadata("t", SCHEMA, "")]);
    let error = all(&mut follower).expect_err("changes are not recorded any more");
    assert!(matches!(error, StreamError::NoChangeFeed { version: 6, .. }), "{error}");
    assert!(matches!(
        StreamTable::open(&log.world.store(), true),
        Err(StreamError::NoChangeFeed { .. })
    ));
}

/// All rows of the files that `follower` gives, in their columns.
fn rows_of(table: &Arc<StreamTable>, from: Position, columns: &[usize]) -> RecordBatch {
    let scan = table.scan(columns).expect("a scan");
    let mut follower = Follower::new(Arc::clone(table), from, strict()).expect("a follower");
    let mut read = Vec::new();
    while let Some(step) = follower.next_step().expect("a step") {
        let Some(file) = step.file else { continue };
        let before: usize = read.iter().map(RecordBatch::num_rows).sum();
        read.extend(scan.rows(&file).map(|rows| rows.expect("rows")));
        let after: usize = read.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(scan.count(&file).expect("a number"), (after - before) as u64);
    }
    let schema = read.first().expect("rows").schema();
    concat_batches(&schema, &read).expect("one schema")
}

#[test]
fn rows_are_those_that_were_appended() {
    let world = World::new();
    let table = create(&world.store(), &["name".to_owned()]);
    for version in 0..3 {
        append(&table, "q", version, &rows(version * 10, 10)).expect("an append");
    }
    let stream = Arc::new(StreamTable::open(&world.store(), false).expect("a table"));
    for from in [Position::snapshot(3), Position::before(1)] {
        let read = rows_of(&stream, from, &[1, 0]);
        let mut ids: Vec<i64> = read.column(1).as_primitive::<Int64Type>().values().to_vec();
        for row in 0..read.num_rows() {
            let name = format!("name {}", read.column(1).as_primitive::<Int64Type>().value(row));
            assert_eq!(read.column(0).as_string::<i32>().value(row), name);
        }
        ids.sort_unstable();
        assert_eq!(ids, (0..30).collect::<Vec<_>>());
        assert_eq!(rows_of(&stream, from, &[1]).num_rows(), 30, "a partition column alone");
        assert_eq!(rows_of(&stream, from, &[]).num_rows(), 30, "no column");
    }
}

#[test]
fn a_foreign_table_with_mapped_columns_and_deletion_vectors_is_read_as_at_rest() {
    let world = foreign::world();
    let store = world.store();
    let at_rest = TableReader::open(&store).expect("a table");
    let rows: Vec<_> =
        at_rest.read(None, None).expect("a read").map(|rows| rows.unwrap()).collect();
    let at_rest = concat_batches(&rows[0].schema(), &rows).expect("one schema");
    let stream = Arc::new(StreamTable::open(&store, false).expect("a table"));
    assert_eq!(stream.schema(), &at_rest.schema());
    let columns: Vec<usize> = (0..stream.schema().fields().len()).collect();
    let read = rows_of(&stream, Position::snapshot(stream.version()), &columns);
    let sorted = |rows: &RecordBatch| {
        let options = arrow::util::display::FormatOptions::default().with_null("NULL");
        let columns: Vec<_> = rows
            .columns()
            .iter()
            .map(|column| arrow::util::display::ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect();
        let mut lines: Vec<Vec<String>> = (0..rows.num_rows()).map(row).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&read), sorted(&at_rest));
}
