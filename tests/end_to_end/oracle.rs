//! What foreign engines make of a Delta table: `tests/lake/oracle.py`, which says what can be
//! asked.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{cache, process};

/// An answer may be that of Spark over a large table on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(240);

/// The process that asks the engines.
pub struct Oracle {
    _child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    directory: TempDir,
}

/// The engines that need no Java; shared by all tests, one question at a time.
pub fn light() -> MutexGuard<'static, Oracle> {
    static SHARED: OnceLock<Mutex<Oracle>> = OnceLock::new();
    locked(&SHARED, "deltalake,duckdb")
}

/// All engines, Spark among them; shared by all tests, one question at a time.
pub fn all() -> MutexGuard<'static, Oracle> {
    static SHARED: OnceLock<Mutex<Oracle>> = OnceLock::new();
    locked(&SHARED, "deltalake,duckdb,spark")
}

/// The engines' virtual environment.
pub fn installed() -> PathBuf {
    let installing = Command::new(cache::repository().join("tests/lake/install"))
        .stderr(Stdio::inherit())
        .output()
        .expect("tests/lake/install can start");
    assert!(installing.status.success(), "tests/lake/install failed; what it said is above");
    let directory = String::from_utf8(installing.stdout).expect("a path");
    PathBuf::from(directory.trim())
}

fn locked(shared: &'static OnceLock<Mutex<Oracle>>, engines: &str) -> MutexGuard<'static, Oracle> {
    let oracle = shared.get_or_init(|| Mutex::new(Oracle::start(engines)));
    // A test that failed while it asked has left the process as it was: it answers in order.
    oracle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Oracle {
    fn start(engines: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("millstream-oracle-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        let log = File::create(directory.path().join("log")).expect("it is writable");
        let mut python = Command::new(installed().join("bin/python"));
        python.arg(cache::repository().join("tests/lake/oracle.py"));
        python.args(["--engines", engines]).current_dir(directory.path());
        python.env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = process::spawn(python).expect("python can start");
        let requests = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, answers) = channel();
        let read = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("oracle".into());
        thread.spawn(read).expect("a thread can start");
        let oracle = Self { _child: child, requests, answers, directory };
        assert!(oracle.answer()["ready"].is_object(), "its first line says that it is ready");
        oracle
    }

    fn answer(&self) -> Value {
        let line = self.answers.recv_timeout(ANSWER_LIMIT).unwrap_or_else(|_| {
            let log = std::fs::read_to_string(self.directory.path().join("log"));
            panic!("the engines do not answer; their log:\n{}", log.unwrap_or_default())
        });
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }

    /// Asks anything; the answer may be an error.
    pub fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").expect("the oracle reads");
        self.answer()
    }

    /// Asks what must work.
    pub fn expect(&mut self, request: &Value) -> Value {
        let answer = self.ask(request);
        assert!(answer.get("error").is_none(), "{request}: {answer}");
        answer
    }

    /// What `engine` reads of all columns.
    pub fn read(&mut self, engine: &str, table: &Path) -> Value {
        self.expect(&json!({"op": "read", "engine": engine, "table": table}))
    }

    /// One row of a query in DuckDB, where `TABLE` stands for the table.
    pub fn query(&mut self, table: &Path, sql: &str) -> Value {
        let sql = sql.replace("TABLE", &format!("delta_scan('{}')", table.display()));
        self.expect(&json!({"op": "sql", "engine": "duckdb", "sql": sql}))["rows"][0].clone()
    }

    /// Reads with all `engines`, holds them against each other, and gives what they agree on.
    pub fn agreed(&mut self, engines: &[&str], table: &Path) -> Value {
        let mut answers = engines.iter().map(|engine| (engine, self.read(engine, table)));
        let (first, agreed) = answers.next().expect("an engine");
        for (engine, answer) in answers {
            for fact in ["rows", "hash"] {
                let (ours, theirs) = (&agreed[fact], &answer[fact]);
                assert_eq!(ours, theirs, "{fact} of {first} and {engine}: {agreed}, {answer}");
            }
        }
        agreed
    }
}
