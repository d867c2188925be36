//! The harness's own tests: what the other tests stand on, without the binary.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::bad_input::{Shortage, SmallDisk};
use crate::delta_merge::MERGE_STEPS;
use crate::files_exactly_once::FILES_STEPS;
use crate::kafka::{self, Broker};
use crate::millstream::{CRASH_AT, Pipeline};
use crate::redis_sink::STAGED_STEPS;
use crate::refused_messages::REFUSED_STEPS;
use crate::spark::{Relay, Spark};
use crate::topics::{Record, sorted_values};
use crate::{cache, delta, delta_compaction, live, oracle, process, program, wait};

#[test]
fn records_come_back_as_they_went() {
    let broker = kafka::shared();
    let topics = broker.topics();
    topics.create("harness_records", 2);
    let first = Record::of("one").key("k").to(1).at_ms(1_700_000_000_123).header("h", b"\x01");
    topics.produce("harness_records", [first, Record::of("two").to(0)]);

    let received = topics.read("harness_records");
    assert_eq!(sorted_values(&received), ["one", "two"]);
    let one = received.iter().find(|record| record.partition == 1).expect("it is there");
    assert_eq!(one.key.as_deref(), Some("k"));
    assert_eq!(one.timestamp_ms, Some(1_700_000_000_123));
    assert_eq!(one.headers, [("h".to_owned(), Some(b"\x01".to_vec()))]);
    assert_eq!(topics.written("harness_records"), 2);

    topics.grow("harness_records", 3);
    assert_eq!(topics.ends("harness_records").len(), 3);
    topics.delete_before("harness_records", 1, 1);
    assert_eq!(sorted_values(&topics.read("harness_records")), ["two"]);
    topics.delete("harness_records");
    assert!(topics.ends("harness_records").is_empty());
}

#[test]
fn a_broker_keeps_its_records_when_it_is_killed_and_restarted() {
    let broker = Broker::start();
    broker.topics().create("kept", 1);
    broker.topics().produce_values("kept", ["a", "b"]);
    broker.kill();
    broker.restart();
    assert_eq!(sorted_values(&broker.topics().read("kept")), ["a", "b"]);
    broker.stop();
    broker.restart();
    assert_eq!(broker.topics().written("kept"), 2);
}

#[test]
fn a_child_outlives_the_thread_that_asked_for_it() {
    let start = || {
        let mut command = Command::new("sleep");
        command.arg("60").stdout(Stdio::null());
        process::spawn(command).expect("sleep can start")
    };
    let mut child = std::thread::scope(|scope| scope.spawn(start).join().expect("no panic"));
    wait::pause(std::time::Duration::from_millis(200));
    assert!(child.try_wait().expect("it is ours").is_none(), "it died with the thread");
    process::interrupt(&child);
    assert!(!child.wait().expect("it is ours").success());
}

#[test]
fn permissions_count_where_a_test_asks_for_it() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "x").expect("it is writable");
    crate::bad_input::forbid(&secret);
    let mut command = Command::new("cat");
    command.arg(&secret).stdout(Stdio::null()).stderr(Stdio::null());
    process::respect_permissions(&mut command);
    let mut child = process::spawn(command).expect("cat can start");
    assert!(!child.wait().expect("it is ours").success(), "the file could be read");
}

#[test]
fn aborted_records_take_offsets_and_are_not_read() {
    let topics = kafka::shared().topics();
    topics.create("harness_aborts", 1);
    topics.produce_values("harness_aborts", ["kept"]);
    topics.produce_and_abort("harness_aborts", &["aborted"]);
    assert_eq!(topics.ends("harness_aborts"), [(0, 3)].into());
    assert_eq!(sorted_values(&topics.read("harness_aborts")), ["kept"]);
    topics.delete("harness_aborts");
    topics.create("harness_aborts", 1);
    assert_eq!(topics.written("harness_aborts"), 0);
}

/// Writes 200 kB to `path` with a command of its own; true if that works.
fn can_write(path: &Path, limit: impl FnOnce(&mut Command)) -> bool {
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=100k", "count=2"]).arg(format!("of={}", path.display()));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    limit(&mut command);
    process::spawn(command).expect("dd can start").wait().expect("it is ours").success()
}

#[test]
fn disks_and_files_can_be_made_small() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let file = directory.path().join("file");
    assert!(can_write(&file, |_| ()));
    assert!(!can_write(&file, |command| process::limit_file_size(command, 64 * 1024)));

    // Where the environment says that nothing can be mounted, no test mounts anything.
    if !Shortage::all(1).iter().any(|shortage| matches!(shortage, Shortage::Disk)) {
        return;
    }
    let disk = SmallDisk::mount(directory.path().join("disk"));
    let first = directory.path().join("disk/first");
    assert!(can_write(&first, |_| ()));
    let second = directory.path().join("disk/second");
    assert!(!can_write(&second, |_| ()));
    disk.grow();
    assert!(can_write(&second, |_| ()));
    drop(disk);
    assert!(!first.exists(), "it is unmounted");
}

#[test]
fn the_engines_that_judge_tables_agree_and_see_each_difference() {
    let mut python = Command::new(oracle::installed().join("bin/python"));
    python.arg(cache::repository().join("tests/lake/selftest.py"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    program::run("checking tests/lake/oracle.py", python, "").unwrap();
}

#[test]
fn spark_relays_and_leaves_a_checkpoint_in_the_form_we_check() {
    let broker = kafka::shared();
    let topics = broker.topics();
    topics.create("harness_spark_in", 2);
    topics.create("harness_spark_out", 1);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let checkpoint = crate::checkpoint::Checkpoint::at(directory.path().join("checkpoint"));
    let mut spark = Spark::start(&Relay {
        servers: &broker.address(),
        topic_in: "harness_spark_in",
        topic_out: "harness_spark_out",
        checkpoint: checkpoint.directory(),
        offsets_per_trigger: 3,
    });
    topics.produce("harness_spark_in", (0..4).map(|n| Record::of(n.to_string()).to(n % 2)));
    spark.run_available();
    assert_eq!(checkpoint.latest("commits"), 1, "three records at a time");
    spark.start_query();
    topics.produce("harness_spark_in", (4..6).map(|n| Record::of(n.to_string()).to(n % 2)));
    topics.wait_for("harness_spark_out", 6, wait::SOON);
    spark.stop_query();

    checkpoint.assert_well_formed(1);
    let end = checkpoint.kafka_end(checkpoint.latest("commits"), "harness_spark_in");
    assert_eq!(end, topics.ends("harness_spark_in"));
    assert_eq!(checkpoint.kafka_start("harness_spark_in").into_values().sum::<i64>(), 0);
    let values = sorted_values(&topics.read("harness_spark_out"));
    assert_eq!(values, (0..6).map(|n| format!("{n}|spark")).collect::<Vec<_>>());
}

#[test]
fn every_crash_point_is_among_those_that_tests_crash_at() {
    let pipeline = Pipeline::new(
        "CREATE TABLE ticks USING rate;\nCREATE TABLE target USING noop;\n\
         INSERT INTO target SELECT value FROM STREAM ticks;\n",
    );
    let mut command = pipeline.command(&[]);
    // What does not exist is answered by the names of all.
    command.env(CRASH_AT, "?");
    let said = pipeline.spawn(command).wait(wait::SOON).stderr;
    let (_, names) = said.split_once("with STEP one of ").expect("it lists them");
    let mut names: Vec<&str> = names.lines().next().unwrap_or_default().split(", ").collect();
    let of_tests = [&live::STEPS[..], &live::STATE_STEPS, &delta::STEPS, &FILES_STEPS];
    let of_others = [&STAGED_STEPS[..], &delta_compaction::STEPS, &MERGE_STEPS, &REFUSED_STEPS];
    let mut tested: Vec<&str> = [of_tests.concat(), of_others.concat()].concat();
    // Their tests are there only with the feature, and the names always.
    let of_bigquery = ["progress-claimed", "streams-half-flushed", "streams-flushed"];
    let of_pubsub = ["before-journal", "after-journal", "after-acknowledge", "journal-superseded"];
    tested.extend(of_bigquery);
    tested.extend(of_pubsub);
    #[cfg(feature = "gcp")]
    {
        use crate::{bigquery, pubsub};
        assert!(of_bigquery.iter().all(|step| bigquery::STEPS.contains(step)));
        assert!(of_pubsub.iter().all(|step| pubsub::STEPS.contains(step)));
    }
    for list in [&mut names, &mut tested] {
        list.sort_unstable();
        list.dedup();
    }
    assert_eq!(names, tested);
}
