//! An emulator of BigQuery (`bqemulator`, over DuckDB) on loopback, and Google's own client.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kafka::free_port;
use crate::{cache, process, program, wait};

const REQUIREMENTS: &str = include_str!("../../tests/bigquery/requirements.txt");
const CLIENT: &str = include_str!("../../tests/bigquery/client.py");
const EMULATOR: &str = include_str!("../../tests/bigquery/emulator.py");
const FAKE: &str = include_str!("../../tests/bigquery/fake.py");
/// Makes the extension part of the environment, where the emulator looks for it.
const EXTENSION: &str =
    "from duckdb_extensions import import_extension; import_extension('spatial')";

/// A server that is stopped when dropped. For tests: an error is a panic.
pub struct BigQuery {
    directory: TempDir,
    rest_port: u16,
    grpc_port: u16,
    child: Mutex<Child>,
    client: Mutex<Option<Client>>,
}

/// Google's client, in a process of its own.
struct Client {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl BigQuery {
    /// Starts the emulator, with nothing in it, and waits until it answers.
    pub fn start() -> Self {
        Self::start_program(|home, directory, rest, grpc| {
            let file = directory.join("emulator.py");
            fs::write(&file, EMULATOR).expect("it is writable");
            let mut command = Command::new(home.join("bin/python"));
            command.arg(file).args(["start", "--project", "p", "--log-level", "warning"]);
            command.args(["--rest-host", "127.0.0.1", "--rest-port", rest]);
            command.args(["--grpc-host", "127.0.0.1", "--grpc-port", grpc]);
            command
        })
    }

    /// Starts a fake that does what the documentation of the service says, and what a test orders
    /// with [`order`](Self::order), and waits until it answers. `settings` are arguments.
    pub fn start_fake(settings: &[&str]) -> Self {
        Self::start_program(|home, directory, rest, grpc| {
            let file = directory.join("fake.py");
            fs::write(&file, FAKE).expect("it is writable");
            let mut command = Command::new(home.join("bin/python"));
            command.arg(file).args([rest, grpc]).args(settings);
            command
        })
    }

    fn start_program(command: impl Fn(&Path, &Path, &str, &str) -> Command) -> Self {
        let home = installed();
        let directory = tempfile::Builder::new().prefix("millstream-bigquery-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        let (rest_port, grpc_port) = (free_port(), free_port());
        let (rest, grpc) = (rest_port.to_string(), grpc_port.to_string());
        let log = directory.path().join("log");
        let out = File::create(&log).expect("it is writable");
        let mut command = command(&home, directory.path(), &rest, &grpc);
        command.env("HOME", &home).current_dir(directory.path()).stdin(Stdio::null());
        command.stderr(out.try_clone().expect("a file")).stdout(out);
        let child = process::spawn(command).expect("python can start");
        let (child, client) = (Mutex::new(child), Mutex::default());
        let server = Self { directory, rest_port, grpc_port, child, client };
        wait::until_true("BigQuery's emulator to listen", wait::SOON, || {
            let ended = server.child.lock().try_wait().expect("the process is ours");
            let said = || fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "the emulator ended:\n{}", said());
            let listens = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
            listens(server.rest_port) && listens(server.grpc_port)
        });
        server
    }

    /// The URL of the REST interface.
    pub fn rest_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.rest_port)
    }

    /// The URL of the gRPC interface.
    pub fn grpc_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.grpc_port)
    }

    /// What the server has written to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Lets it stand still.
    pub fn pause(&self) {
        process::pause(&self.child.lock());
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        process::go_on(&self.child.lock());
    }

    /// Makes a dataset.
    pub fn create_dataset(&self, name: &str) {
        self.ask(&json!({"do": "dataset", "name": name}));
    }

    /// Makes the table `DATASET.TABLE`, with columns as the REST interface describes them.
    pub fn create_table(&self, name: &str, columns: &Value) {
        self.ask(&json!({"do": "table", "name": name, "columns": columns}));
    }

    /// The columns of the table `DATASET.TABLE`.
    pub fn describe(&self, name: &str) -> Value {
        self.ask(&json!({"do": "describe", "name": name}))
    }

    /// The rows of a query, each as an array.
    pub fn query(&self, sql: &str) -> Vec<Value> {
        match self.ask(&json!({"do": "query", "sql": sql})) {
            Value::Array(rows) => rows,
            other => panic!("{sql}: {other}"),
        }
    }

    /// The fake's own figures: what it was asked, and how many streams are open.
    pub fn seen(&self) -> Value {
        self.http("GET", "/seen", "")
    }

    /// Has the fake fail: `fault` is one of those in its text, after `after` calls of that kind, so
    /// many `times`.
    pub fn order(&self, fault: &str, after: u64, times: u64) {
        let order = json!({"fault": fault, "after": after, "times": times});
        self.http("POST", "/order", &order.to_string());
    }

    /// Has the fake forget all write streams, as the service does after some days.
    pub fn forget_streams(&self) {
        self.http("POST", "/forget-streams", "{}");
    }

    /// Has the fake forget the write stream that has most rows that are not visible; gives how
    /// many.
    pub fn forget_a_stream(&self) -> u64 {
        let hidden = self.http("POST", "/forget-a-stream", "{}");
        hidden.as_u64().expect("it is a number")
    }

    /// The rows of a table of the fake, each with its columns by name.
    pub fn rows(&self, table: &str) -> Vec<Value> {
        match self.http("GET", &format!("/rows/{}", resource(table)), "") {
            Value::Array(rows) => rows,
            other => panic!("{table}: {other}"),
        }
    }

    /// How many rows a table of the fake has.
    pub fn count(&self, table: &str) -> u64 {
        let count = self.http("GET", &format!("/count/{}", resource(table)), "");
        count.as_u64().expect("it is a number")
    }

    /// Makes a table in the fake, which has no datasets.
    pub fn create_fake_table(&self, name: &str, columns: &Value) {
        let resource = resource(name);
        let (parent, table) = resource.rsplit_once('/').expect("it has parts");
        let body = json!({"tableReference": {"tableId": table}, "schema": {"fields": columns}});
        self.http("POST", &format!("/bigquery/v2/{parent}"), &body.to_string());
    }

    fn http(&self, method: &str, path: &str, body: &str) -> Value {
        let address = format!("127.0.0.1:{}", self.rest_port);
        let mut stream = TcpStream::connect(&address).expect("it listens");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
        assert!(head.contains(" 200 "), "{path}: {answer}\n{}", self.log());
        serde_json::from_str(body).expect("it answers in JSON")
    }

    fn ask(&self, command: &Value) -> Value {
        let mut client = self.client.lock();
        let client = client.get_or_insert_with(|| self.start_client());
        writeln!(client.commands, "{command}").expect("the client reads");
        let mut line = String::new();
        client.answers.read_line(&mut line).expect("the client answers in text");
        let mut answer: Value = serde_json::from_str(&line).expect("the client answers in JSON");
        if let Some(error) = answer.get("error") {
            panic!("{command}: {error}\n{}", self.log());
        }
        answer["answer"].take()
    }

    fn start_client(&self) -> Client {
        let file = self.directory.path().join("client.py");
        fs::write(&file, CLIENT).expect("it is writable");
        let mut command = Command::new(installed().join("bin/python"));
        command.arg(file).arg(self.rest_url()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process::spawn(command).expect("python can start");
        let commands = child.stdin.take().expect("it is a pipe");
        let answers = BufReader::new(child.stdout.take().expect("it is a pipe"));
        Client { child, commands, answers }
    }
}

impl Drop for BigQuery {
    fn drop(&mut self) {
        // They may have ended already.
        if let Some(client) = &mut *self.client.lock() {
            let _ = client.child.kill();
            let _ = client.child.wait();
        }
        let mut child = self.child.lock();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The resource name of `DATASET.TABLE`.
fn resource(table: &str) -> String {
    let (dataset, table) = table.split_once('.').expect("it has a dataset");
    format!("projects/p/datasets/{dataset}/tables/{table}")
}

/// A virtual environment with the emulator and the client.
fn installed() -> PathBuf {
    let recipe = format!("{REQUIREMENTS}{EXTENSION}");
    let filled = cache::prepared("bigquery", &recipe, |directory| {
        cache::fill_python(directory, REQUIREMENTS)?;
        let mut python = Command::new(directory.join("bin/python"));
        python.args(["-c", EXTENSION]).env("HOME", directory);
        program::run("adding an extension to DuckDB", python, cache::PYTHON_REMEDY)
    });
    filled.unwrap()
}
