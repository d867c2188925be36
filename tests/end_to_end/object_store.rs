//! Delta tables in a bucket: a real S3 client over HTTP, and a server that keeps objects in memory
//! (moto). Each test has a server of its own.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::millstream::{CRASH_AT, Finished, Pipeline, Running, table};
use crate::{cache, kafka, oracle, process, wait};

const BUCKET: &str = "lake";
pub const TABLE: &str = "s3://lake/some dir/table";
const ROWS_PER_FILE: u64 = 10;

/// What says where a server is, and who asks.
pub type Settings = [(&'static str, String); 5];

/// A server on loopback.
pub struct Server {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Server {
    /// One with an empty bucket, open to everybody.
    pub fn open() -> Self {
        let server = Self::start(&[]);
        let answer = server.request("PUT", &format!("/{BUCKET}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        server
    }

    fn start(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::Builder::new().prefix("millstream-s3-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        let port = kafka::free_port();
        let log = File::create(directory.path().join("log")).expect("it is writable");
        let errors = log.try_clone().expect("a file can be shared");
        let mut command = Command::new(installed().join("bin/moto_server"));
        command.args(["-H", "127.0.0.1", "-p"]).arg(port.to_string());
        command.envs(settings.iter().copied()).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = process::spawn(command).expect("python can start");
        let server = Self { child, port, _directory: directory };
        let address = format!("127.0.0.1:{port}");
        wait::until_true("the S3 server to listen", wait::SOON, || {
            TcpStream::connect(&address).is_ok()
        });
        server
    }

    /// A request without a body; the answer's first bytes.
    fn request(&self, method: &str, path: &str) -> String {
        let address = format!("127.0.0.1:{}", self.port);
        let mut stream = TcpStream::connect(&address).expect("it listens");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n"
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in text");
        answer
    }

    /// What says where the server is, and who asks.
    pub fn settings(&self) -> Settings {
        [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "somebody".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
        ]
    }

    /// Puts a local file into the bucket.
    pub fn upload(&self, from: &Path, name: &str) {
        let script = "import boto3, os, sys; \
                      boto3.client('s3', endpoint_url=os.environ['AWS_ENDPOINT_URL']) \
                      .upload_file(sys.argv[1], sys.argv[2], sys.argv[3])";
        let mut python = Command::new(installed().join("bin/python"));
        python.args(["-c", script]).arg(from).args([BUCKET, name]).envs(self.settings());
        let output = python.output().expect("python can start");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} cannot be put into the bucket: {errors}");
    }

    /// The column `n` as delta-rs reads it, sorted.
    fn numbers(&self) -> Vec<u64> {
        let script = "import os, sys; from deltalake import DeltaTable; \
                      table = DeltaTable(sys.argv[1]).to_pyarrow_table(columns=['n']); \
                      print(*sorted(table['n'].to_pylist()), flush=True); os._exit(0)";
        let mut python = Command::new(oracle::installed().join("bin/python"));
        python.args(["-c", script, TABLE]).envs(self.settings());
        let output = python.output().expect("python can start");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "delta-rs does not read {TABLE}: {errors}");
        let numbers = String::from_utf8(output.stdout).expect("numbers");
        numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A virtual environment with the server.
fn installed() -> std::path::PathBuf {
    let requirements = include_str!("../object_store/requirements.txt");
    cache::python("object-store", requirements).unwrap()
}

/// A pipeline that makes a commit of each of its input files.
pub struct Feed {
    pipeline: Pipeline,
    files: u64,
    first: u64,
    rows_per_file: u64,
}

impl Feed {
    pub fn new(first: u64) -> Self {
        let source = [("path", "input"), ("maxFilesPerTrigger", "1")];
        let to = [
            ("path", TABLE),
            ("commitInterval", "0"),
            ("partSize", "4"),
            ("delta.checkpointInterval", "5"),
            // One test has two of them write to one table.
            ("otherQueries", "allowed"),
        ];
        let pipeline = Pipeline::new(&format!(
            "{}{}CREATE FLOW fed AS INSERT INTO target SELECT * FROM STREAM source;\n",
            table("source", "(n BIGINT)", "json", &source),
            table("target", "", "delta", &to),
        ));
        fs::create_dir(pipeline.path("input")).expect("it can be made");
        Self { pipeline, files: 0, first, rows_per_file: ROWS_PER_FILE }
    }

    pub fn put(&mut self, count: u64) {
        for file in self.files..self.files + count {
            let first = self.first + file * self.rows_per_file;
            let line = |n: u64| format!("{{\"n\":{n}}}\n");
            let lines: String = (first..first + self.rows_per_file).map(line).collect();
            let path = self.pipeline.path("input").join(format!("{file:05}.json"));
            fs::write(path, lines).expect("it is writable");
        }
        self.files += count;
    }

    fn start(&self, settings: Settings, crash_at: Option<&str>) -> Running {
        let mut command = self.pipeline.command(&["--trigger", "availableNow"]);
        command.envs(settings).envs(crash_at.map(|step| (CRASH_AT, step)));
        self.pipeline.spawn(command)
    }

    pub fn run(&self, settings: Settings) -> Finished {
        self.start(settings, None).wait(wait::SOON).without_internals()
    }

    fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.files * self.rows_per_file
    }
}

#[test]
fn a_table_in_a_bucket_has_each_row_once_wherever_it_crashes() {
    let server = Server::open();
    let mut feed = Feed::new(0);
    for step in [
        "after-produce:3",
        "before-commit:4",
        "after-commit:5",
        "checkpoint-half-published",
        "checkpoint-unhinted",
        "before-commit-entry:2",
    ] {
        feed.put(12);
        feed.start(server.settings(), Some(step)).wait(wait::SOON).expect_crash(step);
        feed.run(server.settings()).expect_success();
        assert_eq!(server.numbers(), feed.numbers().collect::<Vec<_>>(), "{step}");
    }
    let mut describe = feed.pipeline.bare_command(&["table", "describe", TABLE]);
    describe.envs(server.settings());
    feed.pipeline.spawn(describe).wait(wait::SOON).expect_success();
}

const COPIES: usize = 4;

/// Flows that read the table as a stream, side by side, on so few threads that all of them may wait
/// for the bucket at once.
fn copies() -> Pipeline {
    let path = [("path", TABLE), ("maxFilesPerTrigger", "5"), ("pollInterval", "50ms")];
    let mut text = table("lake", "", "delta", &path);
    for copy in 0..COPIES {
        let name = format!("copy{copy}");
        text += &table(&name, "", "json", &[("path", &name)]);
        text +=
            &format!("CREATE FLOW copied{copy} AS INSERT INTO {name} SELECT * FROM STREAM lake;\n");
    }
    Pipeline::new(&text)
}

fn reading(pipeline: &Pipeline, server: &Server, arguments: &[&str]) -> Running {
    let mut command = pipeline.command(arguments);
    command.envs(server.settings()).env("TOKIO_WORKER_THREADS", "2");
    pipeline.spawn(command)
}

/// The numbers in a directory of JSON files, sorted.
fn numbers_in(directory: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let files = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let mut numbers: Vec<u64> = files
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("text");
            let number = |line: &str| {
                let row: serde_json::Value = serde_json::from_str(line).expect("a row");
                row["n"].as_u64().expect("a number")
            };
            text.lines().map(number).collect::<Vec<_>>()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn flows_read_a_table_in_a_bucket_as_a_stream() {
    let server = Server::open();
    // Enough rows in a micro-batch for the plan to read files on all cores.
    let mut feed = Feed { rows_per_file: 3_000, ..Feed::new(0) };
    feed.put(20);
    feed.run(server.settings()).expect_success();
    let pipeline = copies();
    let assert_copied = |feed: &Feed| {
        for copy in 0..COPIES {
            let found = numbers_in(&pipeline.path(&format!("copy{copy}")));
            assert_eq!(found, feed.numbers().collect::<Vec<_>>(), "copy {copy}");
        }
    };
    let ended = reading(&pipeline, &server, &["--trigger", "availableNow"]).wait(wait::SOON);
    ended.without_internals().expect_success();
    assert_copied(&feed);
    // What comes while they run, and wherever they end.
    let mut running = reading(&pipeline, &server, &[]);
    for _ in 0..2 {
        feed.put(5);
        feed.run(server.settings()).expect_success();
        let all = feed.numbers().end - feed.numbers().start;
        running.wait_while_running("the rows", || {
            (0..COPIES)
                .all(|copy| numbers_in(&pipeline.path(&format!("copy{copy}"))).len() as u64 == all)
        });
    }
    running.kill();
    feed.put(5);
    feed.run(server.settings()).expect_success();
    reading(&pipeline, &server, &["--trigger", "availableNow"]).wait(wait::SOON).expect_success();
    assert_copied(&feed);
}

#[test]
fn two_of_us_append_at_once_to_a_table_in_a_bucket() {
    let server = Server::open();
    let mut feeds = [Feed::new(0), Feed::new(1_000_000)];
    feeds.iter_mut().for_each(|feed| feed.put(40));
    let running = feeds.each_ref().map(|feed| feed.start(server.settings(), None));
    for running in running {
        running.wait(wait::SOON).expect_success();
    }
    let expected = feeds.iter().flat_map(Feed::numbers).collect::<Vec<_>>();
    assert_eq!(server.numbers(), expected);
}

#[test]
fn a_bucket_that_is_denied_or_not_there_is_named() {
    let mut feed = Feed::new(0);
    feed.put(1);
    let closed = Server::start(&[("INITIAL_NO_AUTH_ACTION_COUNT", "0")]);
    feed.run(closed.settings()).expect_exit(1).says(&[
        "s3://lake/some%20dir/table",
        "privileges",
        "403",
    ]);
    drop(closed);

    let empty = Server::start(&[]);
    feed.run(empty.settings()).expect_exit(1).says(&["s3://lake/some%20dir/table", "NoSuchBucket"]);

    let answer = empty.request("PUT", &format!("/{BUCKET}"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    feed.run(empty.settings()).expect_success();
    assert_eq!(empty.numbers(), feed.numbers().collect::<Vec<_>>(), "nothing is lost by it");
}

#[test]
fn a_store_that_is_away_is_worth_another_attempt() {
    let mut feed = Feed::new(0);
    feed.put(1);
    let gone = Server::open().settings();
    feed.run(gone)
        .expect_exit(1)
        .says(&["s3://lake/some%20dir/table", "run the same command again"]);
    let server = Server::open();
    feed.run(server.settings()).expect_success();
    assert_eq!(server.numbers(), feed.numbers().collect::<Vec<_>>());
}
