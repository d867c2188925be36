//! What goes wrong outside the program: records, files, permissions, disks, pipeline files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::files_and_static::{data_files, put, sorted_lines};
use crate::kafka;
use crate::millstream::{Finished, Pipeline, table};
use crate::process;
use crate::topics::sorted_values;
use crate::wait;

const AVAILABLE: [&str; 4] = ["--trigger", "availableNow", "--progress", "json"];

/// Takes all permissions from a file or directory.
pub fn forbid(path: &Path) {
    set_mode(path, 0o000);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// A pipeline that copies `columns` (with types) of files in `input` to JSON files in `output`.
fn from_files(format: &str, columns: &str, options: &[(&str, &str)]) -> Pipeline {
    let options = [&[("path", "input")], options].concat();
    Pipeline::new(&format!(
        "{}{}CREATE FLOW copy AS INSERT INTO target SELECT * FROM STREAM source;\n",
        table("source", columns, format, &options),
        table("target", "", "json", &[("path", "output")]),
    ))
}

/// Runs a pipeline over one file; the result and the lines of its output.
fn over(pipeline: &Pipeline, file: &str, content: &str) -> (Finished, Vec<String>) {
    put(pipeline, file, content);
    let finished = pipeline.run(&AVAILABLE).without_internals();
    (finished, sorted_lines(&pipeline.path("output")))
}

fn malformed_counted(finished: &Finished) -> u64 {
    let count = |source: &serde_json::Value| {
        let value = &source["metrics"]["rowsMalformed"];
        value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
    };
    finished.progress().iter().map(|progress| count(&progress["sources"][0])).sum()
}

const MALFORMED_JSON: &str = concat!(
    "{\"n\":1,\"s\":\"good\"}\n",
    "{\"n\":2,\"s\":\"cut off\n",
    "not json at all\n",
    "{\"n\":\"three\",\"s\":\"wrong type\"}\n",
    "{\"n\":4,\"s\":\"good\",\"more\":[1,{}]}\n",
);

#[test]
fn malformed_json_is_null_when_permissive() {
    let pipeline = from_files("json", "(n BIGINT, s STRING)", &[("mode", "PERMISSIVE")]);
    let (finished, lines) = over(&pipeline, "input/a.json", MALFORMED_JSON);
    let finished = finished.expect_success();
    // Spark keeps the fields it can read of a record with one wrong type.
    let expected =
        [r#"{"n":1,"s":"good"}"#, r#"{"n":4,"s":"good"}"#, r#"{"s":"wrong type"}"#, "{}", "{}"];
    assert_eq!(lines, expected);
    assert_eq!(malformed_counted(&finished), 3);
}

#[test]
fn a_corrupt_record_is_kept_in_its_column() {
    let corrupt = ("columnNameOfCorruptRecord", "broken");
    let options = [("mode", "permissive"), corrupt];
    let pipeline = from_files("json", "(n BIGINT, broken STRING)", &options);
    let (finished, lines) = over(&pipeline, "input/a.json", "{\"n\":1}\nnot json at all\n");
    finished.expect_success();
    assert_eq!(lines, [r#"{"broken":"not json at all"}"#, r#"{"n":1}"#]);
}

#[test]
fn malformed_json_is_dropped_and_counted() {
    let pipeline = from_files("json", "(n BIGINT, s STRING)", &[("mode", "DROPMALFORMED")]);
    let (finished, lines) = over(&pipeline, "input/a.json", MALFORMED_JSON);
    let finished = finished.expect_success();
    assert_eq!(lines, [r#"{"n":1,"s":"good"}"#, r#"{"n":4,"s":"good"}"#]);
    assert_eq!(malformed_counted(&finished), 3);
}

#[test]
fn malformed_json_stops_the_flow_when_it_is_to_fail_fast() {
    let pipeline = from_files("json", "(n BIGINT, s STRING)", &[("mode", "FAILFAST")]);
    let (finished, lines) = over(&pipeline, "input/a.json", MALFORMED_JSON);
    finished.expect_exit(1).says(&["a.json", "2", "mode", "PERMISSIVE", "DROPMALFORMED"]);
    assert!(lines.is_empty(), "a micro-batch that failed is not seen: {lines:?}");
    assert!(pipeline.checkpoint().ids("commits").is_empty());
}

#[test]
fn a_wrong_type_stops_the_flow_when_it_is_to_fail_fast() {
    let pipeline = from_files("json", "(n BIGINT, s STRING)", &[("mode", "FAILFAST")]);
    let (finished, _) = over(&pipeline, "input/a.json", "{\"n\":1}\n{\"n\":\"three\"}\n");
    finished.expect_exit(1).says(&["a.json", "three", "BIGINT"]);
}

#[test]
fn null_where_it_may_not_be_is_malformed() {
    let content = "{\"n\":1}\n{\"s\":\"no n\"}\n{\"n\":null}\n";
    let pipeline = from_files("json", "(n BIGINT NOT NULL, s STRING)", &[("mode", "FAILFAST")]);
    let (finished, lines) = over(&pipeline, "input/a.json", content);
    finished.expect_exit(1).says(&["a.json", "NOT NULL"]);
    assert!(lines.is_empty());

    let options = [("mode", "DROPMALFORMED")];
    let pipeline = from_files("json", "(n BIGINT NOT NULL, s STRING)", &options);
    let (finished, lines) = over(&pipeline, "input/a.json", content);
    assert_eq!(lines, [r#"{"n":1}"#]);
    assert_eq!(malformed_counted(&finished.expect_success()), 2);
}

const MALFORMED_CSV: &str = "n,s\n1,good\ntwo,wrong type\n3\n4,\"quoted, good\"\n";

#[test]
fn malformed_csv_in_each_mode() {
    let run = |mode: &str| {
        let options = [("mode", mode), ("header", "true")];
        let pipeline = from_files("csv", "(n BIGINT, s STRING)", &options);
        over(&pipeline, "input/a.csv", MALFORMED_CSV)
    };
    let good = [r#"{"n":1,"s":"good"}"#, r#"{"n":4,"s":"quoted, good"}"#];
    let (finished, lines) = run("DROPMALFORMED");
    finished.expect_success();
    assert_eq!(lines, good);

    let (finished, lines) = run("PERMISSIVE");
    finished.expect_success();
    assert_eq!(lines, [good[0], r#"{"n":3}"#, good[1], r#"{"s":"wrong type"}"#]);

    let (finished, lines) = run("FAILFAST");
    finished.expect_exit(1).says(&["a.csv", "3", "two"]);
    assert!(lines.is_empty());
}

#[test]
fn malformed_kafka_records_in_each_mode() {
    let broker = kafka::shared();
    let topics = broker.topics();
    topics.create("malformed_in", 1);
    topics.produce_values("malformed_in", ["{\"n\":1}", "oops", "{\"n\":3}"]);
    let run = |mode: &str| {
        let output = format!("malformed_{}", mode.to_lowercase());
        topics.create(&output, 1);
        let servers = broker.address();
        let servers = ("kafka.bootstrap.servers", servers.as_str());
        let (subscribe, earliest) =
            (("subscribe", "malformed_in"), ("startingOffsets", "earliest"));
        let source = [servers, subscribe, earliest, ("value.format", "json"), ("mode", mode)];
        let pipeline = Pipeline::new(&format!(
            "{}{}INSERT INTO target SELECT coalesce(CAST(n AS STRING), 'null') AS value \
             FROM STREAM source;\n",
            table("source", "(n BIGINT)", "kafka", &source),
            table("target", "", "kafka", &[servers, ("topic", &output)]),
        ));
        (pipeline.run(&AVAILABLE).without_internals(), sorted_values(&topics.read(&output)))
    };
    let (finished, values) = run("DROPMALFORMED");
    assert_eq!(malformed_counted(&finished.expect_success()), 1);
    assert_eq!(values, ["1", "3"]);
    let (finished, values) = run("PERMISSIVE");
    finished.expect_success();
    assert_eq!(values, ["1", "3", "null"]);
    let (finished, values) = run("FAILFAST");
    finished.expect_exit(1).says(&["malformed_in", "partition 0", "offset 1"]);
    assert!(values.is_empty());
}

/// Runs a pipeline with permission bits that count even for root.
fn run_with_permissions(pipeline: &Pipeline) -> Finished {
    let mut command = pipeline.command(&AVAILABLE);
    process::respect_permissions(&mut command);
    pipeline.spawn(command).wait(wait::SOON).without_internals()
}

#[test]
fn a_file_that_may_not_be_read_is_named() {
    let pipeline = from_files("json", "(n BIGINT)", &[]);
    put(&pipeline, "input/good.json", "{\"n\":1}\n");
    put(&pipeline, "input/secret.json", "{\"n\":2}\n");
    forbid(&pipeline.path("input/secret.json"));
    let finished = run_with_permissions(&pipeline).expect_exit(1);
    finished.says(&["secret.json", "permission"]);

    set_mode(&pipeline.path("input/secret.json"), 0o600);
    run_with_permissions(&pipeline).expect_success();
    assert_eq!(sorted_lines(&pipeline.path("output")), [r#"{"n":1}"#, r#"{"n":2}"#]);
}

#[test]
fn directories_that_may_not_be_written_or_read_are_named() {
    for (name, mode) in [("checkpoint", 0o500), ("output", 0o500), ("input", 0o000)] {
        let pipeline = from_files("json", "(n BIGINT)", &[]);
        put(&pipeline, "input/a.json", "{\"n\":1}\n");
        fs::create_dir_all(pipeline.path(name)).expect("it is writable");
        set_mode(&pipeline.path(name), mode);
        run_with_permissions(&pipeline).expect_exit(1).says(&[name, "permission"]);

        set_mode(&pipeline.path(name), 0o700);
        run_with_permissions(&pipeline).expect_success();
        assert_eq!(sorted_lines(&pipeline.path("output")), [r#"{"n":1}"#]);
    }
}

#[test]
fn a_file_that_is_not_what_it_should_be_is_named() {
    let pipeline = from_files("parquet", "(n BIGINT)", &[]);
    let (finished, _) = over(&pipeline, "input/a.parquet", "this is no Parquet file");
    finished.expect_exit(1).says(&["a.parquet", "Parquet"]);

    let pipeline = from_files("json", "(n BIGINT)", &[]);
    // A path may also be that of one file, as in Spark.
    fs::write(pipeline.path("input"), "{\"n\":1}\n").expect("it is writable");
    pipeline.run(&AVAILABLE).expect_success();
    assert_eq!(sorted_lines(&pipeline.path("output")), [r#"{"n":1}"#]);

    let pipeline = from_files("json", "(n BIGINT)", &[]);
    let finished = pipeline.run(&AVAILABLE).without_internals();
    finished.expect_exit(1).says(&["input"]);
}

/// Says that the tests run without the right to mount a file system, and so without full disks.
pub const WITHOUT_MOUNT: &str = "MILLSTREAM_WITHOUT_MOUNT";

/// Why a run finds no room for what it writes.
#[derive(Clone, Copy)]
pub enum Shortage {
    /// A directory is on a disk of 256 kB, which is full.
    Disk,
    /// No file may have more bytes.
    FileSize(u64),
}

impl Shortage {
    /// Both, each with an error of its own; without full disks only where the environment says so:
    /// else a test that did not run would look like one that passed.
    pub fn all(file_bytes_max: u64) -> Vec<Self> {
        let disk = std::env::var_os(WITHOUT_MOUNT).is_none().then_some(Self::Disk);
        disk.into_iter().chain([Self::FileSize(file_bytes_max)]).collect()
    }

    /// Makes room short for `command` in `directory`; gives the disk if there is one.
    pub fn begin(self, directory: PathBuf, command: &mut Command) -> Option<SmallDisk> {
        match self {
            Self::Disk => Some(SmallDisk::mount(directory)),
            Self::FileSize(bytes_max) => {
                process::limit_file_size(command, bytes_max);
                None
            }
        }
    }

    /// A part of the system's message.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Disk => "space",
            Self::FileSize(_) => "too large",
        }
    }
}

/// A small file system, unmounted when dropped.
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    /// Mounts 256 kB at a directory.
    ///
    /// # Panics
    /// Where mounting is not allowed.
    pub fn mount(at: PathBuf) -> Self {
        fs::create_dir_all(&at).expect("the directory is writable");
        let disk = Self { at };
        disk.mount_with("size=256k");
        disk
    }

    /// Makes it large enough for any test.
    pub fn grow(&self) {
        self.mount_with("remount,size=64m");
    }

    fn mount_with(&self, options: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(&self.at);
        let output = mount.output().expect("mount is installed");
        assert!(
            output.status.success(),
            "a small disk cannot be mounted, which takes root's rights: {}. Run the tests as \
             root, or set {WITHOUT_MOUNT}=1 to leave out what needs a full disk",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Nothing can be done about an error here; the test has its result.
        let _ = Command::new("umount").arg("--lazy").arg(&self.at).output();
    }
}

/// Half a megabyte of rows.
fn many_rows(pipeline: &Pipeline) -> Vec<String> {
    let text = "x".repeat(100);
    let rows: Vec<_> = (0..5_000).map(|n| format!("{{\"n\":{n},\"s\":\"{text}\"}}")).collect();
    put(pipeline, "input/a.json", &rows.iter().map(|row| format!("{row}\n")).collect::<String>());
    rows
}

fn assert_whole_rows(directory: &Path) {
    for path in data_files(directory) {
        let text = fs::read_to_string(&path).expect("it can be read");
        assert!(text.ends_with('\n'), "{} is half-written", path.display());
    }
}

#[test]
fn a_full_disk_stops_the_flow_and_nothing_half_written_is_seen() {
    for shortage in Shortage::all(64 * 1024) {
        let pipeline = from_files("json", "(n BIGINT, s STRING)", &[]);
        let mut rows = many_rows(&pipeline);
        let output = pipeline.path("output");
        let mut command = pipeline.command(&AVAILABLE);
        let disk = shortage.begin(output.clone(), &mut command);
        let finished = pipeline.spawn(command).wait(wait::SOON).without_internals().expect_exit(1);
        finished.says(&["output", shortage.reason()]);
        assert_whole_rows(&output);
        assert!(pipeline.checkpoint().ids("commits").is_empty());

        disk.iter().for_each(SmallDisk::grow);
        pipeline.run(&AVAILABLE).expect_success();
        rows.sort();
        assert_eq!(sorted_lines(&output), rows, "every row exactly once");
    }
}

#[test]
fn a_full_disk_under_the_checkpoint_stops_the_flow() {
    // Less than an entry of the offset log, and more than the message on standard error.
    for shortage in Shortage::all(600) {
        let options = [("maxFilesPerTrigger", "1")];
        let pipeline = from_files("json", "(n BIGINT)", &options);
        let files = 200;
        for file in 0..files {
            put(&pipeline, &format!("input/{file:03}.json"), &format!("{{\"n\":{file}}}\n"));
        }
        let mut command = pipeline.command(&AVAILABLE);
        let disk = shortage.begin(pipeline.path("checkpoint"), &mut command);
        let finished = pipeline.spawn(command).wait(wait::SOON).without_internals();
        finished.expect_exit(1).says(&["checkpoint", shortage.reason()]);

        disk.iter().for_each(SmallDisk::grow);
        pipeline.run(&AVAILABLE).expect_success();
        let mut expected: Vec<_> = (0..files).map(|n| format!("{{\"n\":{n}}}")).collect();
        expected.sort();
        assert_eq!(sorted_lines(&pipeline.path("output")), expected, "every row exactly once");
    }
}

#[test]
fn the_second_process_on_a_checkpoint_stops() {
    let rate = [("rowsPerSecond", "100")];
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO nothing SELECT value FROM STREAM clock;\n",
        table("clock", "", "rate", &rate),
        table("nothing", "", "noop", &[]),
    ));
    let checkpoint = pipeline.checkpoint();
    let mut first = pipeline.start(&[]);
    first.wait_while_running("a few commits", || checkpoint.ids("commits").len() > 3);
    let second = pipeline.start(&[]).wait(wait::SOON).without_internals();
    second.expect_exit(1).says(&["checkpoint", "another"]);

    let commits = checkpoint.latest("commits");
    first.wait_while_running("more commits", || checkpoint.latest("commits") > commits + 3);
    first.stop().expect_success();
    // The first one gone, the checkpoint is free again.
    pipeline.run(&["--for", "1 second"]).expect_success();
}

/// The pipeline file must be refused with status 2, the position and the words.
fn assert_refused(sql: &str, words: &[&str]) {
    let pipeline = Pipeline::new(sql);
    let finished = pipeline.run(&[]).without_internals().expect_exit(2);
    finished.says(words);
    assert!(!pipeline.path("checkpoint").exists(), "nothing was touched");
}

const RATE: &str = "CREATE TABLE clock USING rate;\nCREATE TABLE nothing USING noop;\n";

#[test]
fn a_wrong_pipeline_file_is_refused_with_the_place_and_a_hint() {
    let flow = |select: &str| format!("{RATE}INSERT INTO nothing\n{select};\n");
    assert_refused(
        &flow("SELECT valeu FROM STREAM clock"),
        &["pipeline.sql:4:8", "valeu", "value"],
    );
    assert_refused(&flow("SELECT value FROM STREAM clok"), &["pipeline.sql:4:26", "clok", "clock"]);
    assert_refused(&flow("SELECT value, FROM STREAM clock WHERE"), &["pipeline.sql:4:"]);
    assert_refused(
        &flow("SELECT uper(CAST(value AS STRING)) FROM STREAM clock"),
        &["pipeline.sql:4:8", "uper", "upper"],
    );
    assert_refused(
        &flow("SELECT count(*) AS n FROM STREAM clock GROUP BY value"),
        &["pipeline.sql:4:", "no GROUP BY expression is an event time", "WATERMARK ts DELAY OF"],
    );
    assert_refused(
        &flow("SELECT * FROM TUMBLE(TABLE clock, DESCRIPTOR(timestamp), INTERVAL '1' MINUTE)"),
        &["pipeline.sql:4:", "TUMBLE", "window("],
    );
}

#[test]
fn a_wrong_declaration_is_refused_with_the_place_and_a_hint() {
    assert_refused("CREATE TABLE t\nUSING rat;\n", &["pipeline.sql:2:7", "rat", "rate"]);
    assert_refused(
        "CREATE TABLE t\nUSING rate\nOPTIONS ('rowPerSecond' = '1');\n",
        &["pipeline.sql:3:10", "rowPerSecond", "rowsPerSecond"],
    );
    assert_refused(
        "CREATE TABLE t\nUSING rate\nOPTIONS ('rowsPerSecond' = 'many');\n",
        &["pipeline.sql:3:", "rowsPerSecond", "many"],
    );
    assert_refused("CREATE TABLE t (n INTT) USING json;\n", &["pipeline.sql:1:19", "INTT"]);
    assert_refused("CREATE TABLE t WITH ('a' = 'b');\n", &["pipeline.sql:1:", "OPTIONS"]);
    assert_refused("", &["pipeline.sql", "flow"]);
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    let pipeline =
        Pipeline::new(&format!("{RATE}INSERT INTO nothing SELECT value FROM STREAM clock;\n"));
    let refuse = |arguments: &[&str], words: &[&str]| {
        let finished = pipeline.spawn(pipeline.bare_command(arguments)).wait(wait::SOON);
        finished.without_internals().expect_exit(2).says(words);
    };
    refuse(&["run", "absent.sql"], &["absent.sql"]);
    refuse(&["run", "pipeline.sql", "--trigger", "sometimes"], &["sometimes", "availableNow"]);
    refuse(&["run", "pipeline.sql", "--for", "ever"], &["ever", "10"]);
    refuse(&["run", "pipeline.sql", "--set", "trigger"], &["KEY=VALUE"]);
}
