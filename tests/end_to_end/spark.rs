//! A real Apache Spark that runs one query, `tests/spark/relay.py`, on command.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;

use crate::{cache, process};

/// A command may run a query over thousands of records on a busy machine.
const COMMAND_LIMIT: Duration = Duration::from_secs(180);

/// What the query reads and writes.
pub struct Relay<'a> {
    pub servers: &'a str,
    pub topic_in: &'a str,
    pub topic_out: &'a str,
    pub checkpoint: &'a Path,
    pub offsets_per_trigger: u32,
}

/// A Spark session; ended when dropped.
pub struct Spark {
    child: Child,
    commands: Option<ChildStdin>,
    answers: Receiver<String>,
    directory: TempDir,
}

impl Spark {
    /// Starts a session for `relay` and waits until it is ready.
    pub fn start(relay: &Relay<'_>) -> Self {
        let directory = tempfile::Builder::new().prefix("millstream-spark-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        let log = File::create(directory.path().join("log")).expect("it is writable");
        let jars = cache::jars("spark-jars-4.2.0", include_str!("../spark/pom.xml")).unwrap();
        let mut python = Command::new(python());
        python.arg(cache::repository().join("tests/spark/relay.py")).arg(jars);
        python.args([relay.servers, relay.topic_in, relay.topic_out]).arg(relay.checkpoint);
        python.arg(relay.offsets_per_trigger.to_string()).current_dir(directory.path());
        python.env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = process::spawn(python).expect("python can start");
        let stdout = child.stdout.take().expect("it is piped");
        let commands = child.stdin.take();
        let spark = Self { child, commands, answers: read_answers(stdout), directory };
        spark.expect_answer("session");
        spark
    }

    /// Runs the query with `availableNow` to its end.
    pub fn run_available(&mut self) {
        self.command("available");
    }

    /// Starts the query back-to-back.
    pub fn start_query(&mut self) {
        self.command("start");
    }

    /// Starts the query back-to-back, with entries in the logs for its first micro-batch only.
    pub fn start_async_query(&mut self) {
        self.command("start_async");
    }

    /// Lets the query finish what is there, and stops it.
    pub fn stop_query(&mut self) {
        self.command("stop");
    }

    fn command(&mut self, command: &str) {
        let commands = self.commands.as_mut().expect("standard input is open until the end");
        writeln!(commands, "{command}").unwrap_or_else(|error| self.fail(&error.to_string()));
        self.expect_answer(command);
    }

    fn expect_answer(&self, command: &str) {
        let expected = format!("ok {command}");
        match self.answers.recv_timeout(COMMAND_LIMIT) {
            Ok(answer) if answer == expected => {}
            Ok(answer) => self.fail(&answer),
            Err(error) => self.fail(&format!("no answer to {command}: {error}")),
        }
    }

    fn fail(&self, reason: &str) -> ! {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        panic!("Spark: {reason}\n{log}");
    }
}

impl Drop for Spark {
    fn drop(&mut self) {
        // The JVM behind Python ends when its standard input does, so killing Python is enough.
        self.commands = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_answers(stdout: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (answer, answers) = channel();
    let read = move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let is_answer = |line: &String| line.starts_with("ok ") || line.starts_with("failed ");
        for line in lines.filter(is_answer) {
            if answer.send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("spark".into()).spawn(read).expect("a thread can start");
    answers
}

/// The Python of a virtual environment that has PySpark.
pub fn python() -> PathBuf {
    let requirements = include_str!("../spark/requirements.txt");
    let environment = cache::python("pyspark-4.2.0", requirements).unwrap();
    environment.join("bin/python")
}
