//! Tables that become others while a stream of them is read, and what a stream asks of its store.

use std::fs;
use std::sync::Arc;

use millstream_lake::error::TableError;
use millstream_lake::kernel::probe::write_checkpoint;
use millstream_lake::stream::{Follower, Position, Rules, Start, StreamError, StreamTable};

use crate::log::{CHANGE_FEED, Log, SCHEMA, add, all, metadata, metadata_with, protocol, strict};
use crate::support::{World, append, create, rows};

/// A log with so many commits of a file each, and what reads it from the snapshot on.
fn read_to_the_end(versions: u64) -> (Log, Follower) {
    let log = Log::new("");
    for version in 1..=versions {
        log.commit(version, &[add(&format!("f{version}"))]);
    }
    let mut follower = log.follower(Position::snapshot(versions), strict()).expect("a follower");
    assert_eq!(all(&mut follower).expect("steps").len() as u64, versions + 1);
    (log, follower)
}

/// Another table with so many versions besides the first.
fn made_anew(log: &Log, versions: u64) {
    fs::remove_dir_all(log.directory()).expect("it is there");
    log.commit(0, &[protocol(), metadata("other", SCHEMA, "")]);
    for version in 1..=versions {
        log.commit(version, &[add(&format!("other{version}"))]);
    }
}

/// Leaves no commit before `version`, whose checkpoint stays.
fn cleaned_up(log: &Log, version: u64) {
    write_checkpoint(&log.world.store(), None).expect("a checkpoint");
    for version in 0..version {
        fs::remove_file(log.path(version)).expect("it is there");
    }
}

#[test]
fn another_table_is_noticed_behind_the_first_version() {
    for versions in [3, 2] {
        let (log, mut follower) = read_to_the_end(2);
        made_anew(&log, versions);
        let error = match versions {
            3 => all(&mut follower).expect_err("its third version is another table's"),
            _ => follower.look_around().expect_err("another table, as long as the first"),
        };
        assert!(matches!(&error, StreamError::OtherTable { .. }), "{error}");
    }
}

#[test]
fn another_table_is_noticed_before_its_rows_are_read_as_a_version() {
    let (log, _) = read_to_the_end(2);
    let table = log.open();
    let mut follower = Follower::new(table, Position::snapshot(2), strict()).expect("a follower");
    made_anew(&log, 2);
    let error = follower.next_step().expect_err("another table's files");
    assert!(matches!(&error, StreamError::OtherTable { .. }), "{error}");
}

#[test]
fn another_table_is_noticed_where_the_last_version_was_cleaned_up() {
    for versions in [3, 2] {
        let (log, _) = read_to_the_end(2);
        cleaned_up(&log, 3);
        let mut follower = log.follower(Position::before(3), strict()).expect("a follower");
        made_anew(&log, versions);
        let error = match versions {
            3 => all(&mut follower).expect_err("its third version is another table's"),
            _ => follower.look_around().expect_err("another table, as long as the first"),
        };
        assert!(matches!(&error, StreamError::OtherTable { .. }), "{error}");
    }
}

#[test]
fn a_table_that_is_put_back_while_it_is_read_is_noticed() {
    let (log, mut follower) = read_to_the_end(3);
    for version in [2, 3] {
        fs::remove_file(log.path(version)).expect("it is there");
    }
    let error = follower.look_around().expect_err("it has fewer versions");
    assert!(matches!(&error, StreamError::Shrunk { read: 3, newest: 1, .. }), "{error}");
    // Written to since, in a commit of the same size.
    log.commit(2, &[add("g2")]);
    log.commit(3, &[add("g3")]);
    log.commit(4, &[add("g4")]);
    let file = fs::File::options().write(true).open(log.path(3)).expect("it is there");
    file.set_modified(std::time::UNIX_EPOCH).expect("a time");
    let error = all(&mut follower).expect_err("the third version is another one");
    assert!(matches!(&error, StreamError::Rewritten { version: 3, .. }), "{error}");
    assert!(error.to_string().contains("checkpoint"), "{error}");
}

#[test]
fn a_copy_of_the_same_table_is_read_on() {
    let (log, mut follower) = read_to_the_end(3);
    let file = fs::File::options().write(true).open(log.path(3)).expect("it is there");
    file.set_modified(std::time::UNIX_EPOCH).expect("a time");
    follower.look_around().expect("the same commits, copied");
    log.commit(4, &[add("f4")]);
    assert_eq!(all(&mut follower).expect("steps"), ["4/0 f4", "5"]);
}

#[test]
fn a_version_that_was_expected_and_is_gone_is_not_waited_for() {
    let (log, _) = read_to_the_end(5);
    let table = log.open();
    for version in [3, 4, 5] {
        fs::remove_file(log.path(version)).expect("it is there");
    }
    let mut follower = Follower::new(table, Position::before(2), strict()).expect("a follower");
    assert_eq!(all(&mut follower).expect("steps"), ["2/0 f2", "3"]);
    let error = follower.look_around().expect_err("the table had it when it was opened");
    assert!(matches!(&error, StreamError::Shrunk { read: 5, newest: 2, .. }), "{error}");
    let mut follower = log.follower(Position::before(3), strict()).expect("a follower");
    follower.look_around().expect("it may come");
    follower.expect(4);
    let error = follower.look_around().expect_err("it was there");
    assert!(matches!(&error, StreamError::Shrunk { read: 4, newest: 2, .. }), "{error}");
}

#[test]
fn a_table_that_is_deleted_in_the_middle_of_its_first_version_is_gone() {
    let (log, _) = read_to_the_end(2);
    let middle = Position { index: Some(0), ..Position::snapshot(2) };
    let mut follower = log.follower(middle, strict()).expect("a follower");
    fs::remove_dir_all(log.directory().join("_delta_log")).expect("it is there");
    let error = follower.next_step().expect_err("nothing is there");
    assert!(matches!(&error, StreamError::SnapshotGone { version: 2, .. }), "{error}");
}

#[test]
fn a_log_that_is_only_a_checkpoint_is_read() {
    let (log, _) = read_to_the_end(2);
    cleaned_up(&log, 3);
    let table = log.open();
    assert_eq!(table.newest().expect("a version"), 2);
    assert_eq!(table.start(Start::Latest).expect("a place"), Position::before(3));
    let mut follower =
        Follower::new(Arc::clone(&table), Position::snapshot(2), strict()).expect("a follower");
    assert_eq!(all(&mut follower).expect("steps"), ["2/0 f1 of all", "2/1 f2 of all", "3"]);
    for start in [Start::Version(1), Start::Moment(0)] {
        let error = table.start(start).expect_err("no commit is there");
        assert!(matches!(&error, StreamError::NoCommits { version: 2, .. }), "{error}");
    }
    // What the second version has added is not known any more.
    let error = Follower::new(Arc::clone(&table), Position::before(2), strict()).err();
    assert!(matches!(error, Some(StreamError::Lost { from: 2, to: 2, next: 3, .. })));
    let lax = Rules { fail_on_data_loss: false, ..strict() };
    let mut follower = Follower::new(table, Position::before(2), lax).expect("a follower");
    log.commit(3, &[add("f3")]);
    assert_eq!(all(&mut follower).expect("steps"), ["3/0 f3", "4"]);
}

const MAPPED: &str = r#""delta.columnMapping.mode":"name""#;

fn column(name: &str, physical: &str) -> String {
    format!(
        r#"{{\"name\":\"{name}\",\"type\":\"long\",\"nullable\":true,\"metadata\":{{\"delta.columnMapping.id\":1,\"delta.columnMapping.physicalName\":\"{physical}\"}}}}"#
    )
}

fn schema(columns: &[String]) -> String {
    format!(r#"{{\"type\":\"struct\",\"fields\":[{}]}}"#, columns.join(","))
}

#[test]
fn a_column_that_is_dropped_or_renamed_ends_the_stream_until_it_is_started_again() {
    let (id, more) = (column("id", "p1"), column("more", "p2").replace(":1,", ":2,"));
    let both = schema(&[id.clone(), more.clone()]);
    for changed in [schema(&[id]), schema(&[column("name", "p1"), more])] {
        let log = Log::with(metadata("t", &both, MAPPED));
        log.commit(1, &[add("a")]);
        log.commit(2, &[add("b")]);
        let mut follower = log.follower(Position::before(1), strict()).expect("a follower");
        all(&mut follower).expect("steps");
        log.commit(3, &[metadata("t", &changed, MAPPED)]);
        log.commit(4, &[add("c")]);
        let error = all(&mut follower).expect_err("another schema");
        assert!(matches!(&error, StreamError::SchemaReplaced { version: 3, .. }), "{error}");
        let steps = log.steps(Position::before(3), strict()).expect("all before it was read");
        assert_eq!(steps, ["4", "4/0 c", "5"]);
        let error = log.steps(Position::before(1), strict()).expect_err("rows of before");
        let text = error.to_string();
        assert!(
            matches!(&error, StreamError::SchemaIncompatible { version: 1, changed: 3, .. }),
            "{error}"
        );
        assert!(text.contains("'startingVersion' = '3'"), "{text}");
        log.steps(Position::before(3), strict()).expect("the remedy is one");
    }
}

#[test]
fn a_file_that_is_removed_without_its_facts_is_not_given_as_deleted() {
    let remove = |facts: &str| {
        format!(r#"{{"remove":{{"path":"a","deletionTimestamp":1,"dataChange":true{facts}}}}}"#)
    };
    let step = |partitions: &str, facts: &str| {
        let log = Log::with(metadata_with("t", SCHEMA_BY_ID, CHANGE_FEED, partitions));
        log.commit(1, &[add("b"), remove(facts)]);
        let table = Arc::new(StreamTable::open(&log.world.store(), true).expect("it has changes"));
        let mut follower = Follower::new(table, Position::before(1), strict()).expect("a follower");
        all(&mut follower)
    };
    let size = r#","size":7"#;
    let whole = r#","size":7,"partitionValues":{"part":"1"}"#;
    assert_eq!(step("", size).expect("steps"), ["1/0 b", "1/1 -a", "2"]);
    assert_eq!(step("\"part\"", whole).expect("steps"), ["1/0 b", "1/1 -a", "2"]);
    for (partitions, facts) in [("", ""), ("\"part\"", size)] {
        let error = step(partitions, facts).expect_err("its facts are not there");
        assert!(matches!(&error, StreamError::SparseRemove { version: 1, next: 2, .. }), "{error}");
        assert!(error.to_string().contains("startingVersion"), "{error}");
    }
}

/// `id` and `part`.
const SCHEMA_BY_ID: &str = r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"id\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}},{\"name\":\"part\",\"type\":\"string\",\"nullable\":true,\"metadata\":{}}]}"#;

#[test]
fn a_stream_that_is_behind_asks_for_many_commits_at_a_time() {
    let log = Log::new("");
    for version in 1..=60 {
        log.commit(version, &[add(&format!("f{version}"))]);
    }
    let (store, control) = log.world.proxied();
    let table = Arc::new(StreamTable::open(&store, false).expect("a table"));
    let mut follower = Follower::new(table, Position::before(1), strict()).expect("a follower");
    control.counted();
    assert_eq!(all(&mut follower).expect("steps").len(), 120);
    let counted = control.counted();
    let gets = counted["get"];
    assert!(gets <= 60 + 30, "{counted:?}: each commit once, and now and then the last one");
    assert_eq!(counted.get("list"), None);
    // While nothing comes, a look is one request; what comes is fetched, and the last one compared.
    assert_eq!(all(&mut follower).expect("nothing"), Vec::<String>::new());
    assert_eq!(control.counted()["get"], 1);
    log.commit(61, &[add("f61")]);
    all(&mut follower).expect("a commit");
    assert_eq!(control.counted()["get"], 4, "the commit, the one before, and none behind it");
}

#[test]
fn rows_are_counted_by_the_footer_alone() {
    let world = World::new();
    let table = create(&world.store(), &[]);
    append(&table, "q", 0, &rows(0, 200_000)).expect("an append");
    let (store, control) = world.proxied();
    let stream = Arc::new(StreamTable::open(&store, false).expect("a table"));
    let mut follower =
        Follower::new(Arc::clone(&stream), Position::before(1), strict()).expect("a follower");
    let file = follower.next_step().expect("a step").expect("a step").file.expect("a file");
    assert!(file.bytes > 300_000, "{} bytes", file.bytes);
    let before = control.bytes_got();
    let count = stream.scan(&[]).expect("a scan").count(&file).expect("a number");
    assert_eq!(count, 200_000);
    let got = control.bytes_got() - before;
    assert!(got <= 64 << 10, "{got} of {} bytes", file.bytes);
}

#[test]
fn a_file_that_is_gone_is_named_when_its_rows_are_counted() {
    let (log, _) = read_to_the_end(1);
    let table = log.open();
    let mut follower =
        Follower::new(Arc::clone(&table), Position::before(1), strict()).expect("a follower");
    let file = follower.next_step().expect("a step").expect("a step").file.expect("a file");
    let error = table.scan(&[]).expect("a scan").count(&file).expect_err("only the log is there");
    assert!(matches!(&error, TableError::FileMissing { .. }), "{error}");
}
