//! The program with a stand-in for Lambda's runtime API.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use millstream_testkit::wait;

/// The program, which ends with this.
struct Function(Child);

impl Drop for Function {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The next connection, which has to come soon.
fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("it listens");
    let (stream, _) = wait::until("a connection", wait::SOON, || listener.accept().ok());
    stream.set_nonblocking(false).expect("it is open");
    stream.set_read_timeout(Some(wait::SOON)).expect("it is open");
    stream
}

/// The next request: its first line, and its body. It is answered with `answer`.
fn served(listener: &TcpListener, answer: &str) -> (String, String) {
    let stream = accepted(listener);
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).expect("a request");
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).expect("a header") > 2 {
        let line = std::mem::take(&mut line).to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let stream: &mut TcpStream = reader.get_mut();
    stream.write_all(answer.as_bytes()).expect("it reads");
    (first.trim().to_owned(), String::from_utf8(body).expect("it is text"))
}

fn event(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nLambda-Runtime-Aws-Request-Id: id-7\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn events_are_asked_for_and_answered_one_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream-runner"));
    command.env("AWS_LAMBDA_RUNTIME_API", address).env("MILLSTREAM_TOKEN", "secret");
    command.stderr(Stdio::null());
    let _function = Function(command.spawn().expect("it can start"));
    let accepted = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
    let wrong = r#"{"task": "AAAA", "authorization": "Bearer secreT"}"#;
    let cut = r#"{"task": "AAAA", "authorization": "Bearer secret"}"#;
    for (asked, says) in
        [(wrong, "the token is missing or wrong"), (cut, "3 bytes of 4"), ("[]", "NoTask")]
    {
        let (next, _) = served(&listener, &event(asked));
        assert_eq!(next, "GET /2018-06-01/runtime/invocation/next HTTP/1.1");
        let (answered, body) = served(&listener, accepted);
        assert_eq!(answered, "POST /2018-06-01/runtime/invocation/id-7/error HTTP/1.1");
        assert!(body.contains(says), "{body}");
        assert!(body.contains("errorType") && body.contains("errorMessage"), "{body}");
    }
}

#[test]
fn elsewhere_it_ends_and_says_why() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream-runner"));
    let ended = command.env_remove("AWS_LAMBDA_RUNTIME_API").output().expect("it can start");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("AWS_LAMBDA_RUNTIME_API"), "{said}");
}
