//! A Pub/Sub on loopback: Google's own fake behind a front that refuses what the service refuses.
//!
//! It is the Go program in `tests/pubsub`, built once. What there is of messages is asked of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{cache, process, program};

const SOURCE: [(&str, &str); 3] = [
    ("main.go", include_str!("../../tests/pubsub/main.go")),
    ("go.mod", include_str!("../../tests/pubsub/go.mod")),
    ("go.sum", include_str!("../../tests/pubsub/go.sum")),
];

/// A running server; it ends with this. For tests: an error is a panic.
pub struct Pubsub {
    child: Child,
    grpc: String,
    http: String,
}

impl Pubsub {
    /// Starts a server, which has no topics yet.
    pub fn start() -> Self {
        let mut command = Command::new(server());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process::spawn(command).expect("the server can start");
        let output = child.stdout.take().expect("it was asked for");
        let mut lines = BufReader::new(output).lines();
        let mut line = || lines.next().expect("it prints its addresses").expect("they are text");
        let (grpc, http) = (line(), line());
        Self { child, grpc, http }
    }

    /// What clients connect to, `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.grpc
    }

    /// Creates the topic `projects/p/topics/NAME` and a subscription of the same name; `more` are
    /// its properties, `&ordering=1` or `&exactlyOnce=1`.
    pub fn create(&self, name: &str, more: &str) {
        let topic = topic(name);
        let subscription = format!("projects/p/subscriptions/{name}");
        self.post(&format!("/create?topic={topic}&subscription={subscription}{more}"), "");
    }

    /// Publishes a message for each line; `more` is `&key=K` or `&attribute=NAME`.
    pub fn publish(&self, name: &str, lines: &[String], more: &str) {
        self.post(&format!("/publish?topic={}{more}", topic(name)), &lines.join("\n"));
    }

    /// Lets streams of any subscription get so many messages, as fast as they take them: `lines` in
    /// turn.
    pub fn flood(&self, messages: u64, lines: &[String]) {
        self.post(&format!("/flood?messages={messages}"), &lines.join("\n"));
    }

    /// Deletes the subscription `name`.
    pub fn delete(&self, name: &str) {
        self.post(&format!("/delete?subscription=projects/p/subscriptions/{name}"), "");
    }

    /// Lets the deadlines of so many seconds pass.
    pub fn advance(&self, seconds: u32) {
        self.post(&format!("/advance?seconds={seconds}"), "");
    }

    /// Lets the next `count` calls of a kind fail; `tests/pubsub/main.go` has the kinds.
    pub fn fail(&self, kind: &str, count: u32) {
        self.post(&format!("/fault?kind={kind}&count={count}"), "");
    }

    /// What the server counts: `published`, `acked`, `unacked`, `deliveries` and others.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let answer = self.request("GET", "/state", "");
        let object = answer.trim().trim_matches(['{', '}']);
        let count = |pair: &str| {
            let (name, count) = pair.split_once(':').expect("it is an object of numbers");
            let name = name.trim().trim_matches('"').to_owned();
            (name, count.trim().parse().expect("it is a number"))
        };
        object.split(',').map(count).collect()
    }

    /// One of [`counts`](Self::counts); zero where it was never counted.
    pub fn count(&self, name: &str) -> u64 {
        self.counts().get(name).copied().unwrap_or(0)
    }

    /// Lets it stand still.
    pub fn pause(&self) {
        process::pause(&self.child);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        process::go_on(&self.child);
    }

    fn post(&self, path: &str, body: &str) {
        self.request("POST", path, body);
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("the server listens");
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-length: {length}\r\n");
        write!(stream, "{head}\r\n{body}").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("it speaks HTTP");
        assert!(head.contains(" 200 "), "{path}: {answer}");
        body.to_owned()
    }
}

impl Drop for Pubsub {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn topic(name: &str) -> String {
    format!("projects/p/topics/{name}")
}

/// The server's program.
fn server() -> PathBuf {
    let recipe = SOURCE.map(|(_, text)| text).concat();
    let directory = cache::prepared("pubsub-server", &recipe, |directory| {
        for (name, text) in SOURCE {
            let path = directory.join(name);
            fs::write(&path, text).map_err(crate::error::Error::file("write", &path))?;
        }
        let mut go = Command::new("go");
        go.args(["build", "-o", "server", "."]).current_dir(directory);
        let remedy = "install Go 1.26 (https://go.dev/dl); Debian's package may be older";
        program::run("building a Pub/Sub server with Go", go, remedy)
    });
    directory.unwrap_or_else(|error| panic!("{error}")).join("server")
}
