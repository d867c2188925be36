//! A schema registry on loopback: franz-go's fake (srfake) behind a front that refuses, fails and
//! counts.
//!
//! It is the Go program in `tests/registry`, built once. Schemas are registered by whoever tests,
//! with the protocol.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::certificates::Files;
use crate::{cache, process, program};

const SOURCE: [(&str, &str); 3] = [
    ("main.go", include_str!("../../tests/registry/main.go")),
    ("go.mod", include_str!("../../tests/registry/go.mod")),
    ("go.sum", include_str!("../../tests/registry/go.sum")),
];

/// What a registry asks of its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guards<'a> {
    /// A user and a password.
    pub login: Option<(&'a str, &'a str)>,
    /// TLS, with the server's certificate.
    pub tls: Option<&'a Files>,
    /// With TLS: a certificate of this authority.
    pub client_authority: Option<&'a Path>,
}

/// A running server; it ends with this. For tests: an error is a panic.
pub struct Registry {
    child: Child,
    url: String,
    control: String,
}

impl Registry {
    /// Starts a registry that anybody may use, without schemas.
    pub fn start() -> Self {
        Self::guarded(Guards::default())
    }

    /// Starts a registry that asks for something, without schemas.
    pub fn guarded(guards: Guards<'_>) -> Self {
        let mut command = Command::new(server());
        if let Some((user, password)) = guards.login {
            command.args(["--user", user, "--password", password]);
        }
        if let Some(files) = guards.tls {
            command.arg("--cert").arg(&files.cert).arg("--key").arg(&files.key);
        }
        if let Some(authority) = guards.client_authority {
            command.arg("--client-ca").arg(authority);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = process::spawn(command).expect("the server can start");
        let output = child.stdout.take().expect("it was asked for");
        let mut lines = BufReader::new(output).lines();
        let mut line = || lines.next().expect("it prints its addresses").expect("they are text");
        let (url, control) = (line(), line());
        Self { child, url, control }
    }

    /// Its URL, `http://HOST:PORT` or `https://HOST:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Lets the next `count` requests be answered with the status `status`.
    pub fn fail(&self, status: u16, count: u32) {
        self.post(&format!("/control/fault?status={status}&count={count}"));
    }

    /// Lets the next `count` requests take so many milliseconds longer.
    pub fn delay(&self, milliseconds: u32, count: u32) {
        self.post(&format!("/control/fault?status=0&count={count}&delayMs={milliseconds}"));
    }

    /// Closes the connections of the next `count` requests without an answer.
    pub fn drop_connections(&self, count: u32) {
        self.post(&format!("/control/drop?count={count}"));
    }

    /// Whether schemas of `subject` are incompatible with those before. The name is one that needs
    /// no encoding in a URL.
    pub fn refuse(&self, subject: &str, refuses: bool) {
        let mode = if refuses { "refuse" } else { "allow" };
        self.post(&format!("/control/compatibility?subject={subject}&mode={mode}"));
    }

    /// How often it was asked what, as in `GET /schemas/ids/{id}` or
    /// `POST /subjects/{subject}/versions`.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let answer = self.request("GET", "/control/counts");
        serde_json::from_str(&answer).expect("it is an object of numbers")
    }

    /// One of [`counts`](Self::counts); zero where it was never asked.
    pub fn count(&self, what: &str) -> u64 {
        self.counts().get(what).copied().unwrap_or(0)
    }

    /// Lets it stand still.
    pub fn pause(&self) {
        process::pause(&self.child);
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        process::go_on(&self.child);
    }

    fn post(&self, path: &str) {
        self.request("POST", path);
    }

    fn request(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.control).expect("the server listens");
        let head = format!("{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-length: 0\r\n");
        write!(stream, "{head}\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("it speaks HTTP");
        assert!(head.contains(" 200 "), "{path}: {answer}");
        body.to_owned()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server's program.
fn server() -> PathBuf {
    let recipe = SOURCE.map(|(_, text)| text).concat();
    let directory = cache::prepared("registry-server", &recipe, |directory| {
        for (name, text) in SOURCE {
            let path = directory.join(name);
            fs::write(&path, text).map_err(crate::error::Error::file("write", &path))?;
        }
        let mut go = Command::new("go");
        go.args(["build", "-o", "server", "."]).current_dir(directory);
        let remedy = "install Go 1.26 (https://go.dev/dl); Debian's package may be older";
        program::run("building a schema registry with Go", go, remedy)
    });
    directory.unwrap_or_else(|error| panic!("{error}")).join("server")
}
