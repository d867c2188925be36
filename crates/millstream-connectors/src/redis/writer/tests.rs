//! Micro-batches against a server made for testing, which answers each script as a test says.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use arrow::array::{Int64Array, RecordBatch};
use millstream_engine::api::connector::Table;
use millstream_engine::api::contact::Contacts;
use millstream_engine::api::options::Options;
use parking_lot::Mutex;

use super::*;

/// Answers to the next decisions, and the scripts that were called.
#[derive(Default)]
struct Asked {
    decisions: VecDeque<&'static str>,
    scripts: Vec<&'static str>,
}

/// A server whose decisions are answered in order.
struct FakeServer {
    port: u16,
    asked: Arc<Mutex<Asked>>,
}

impl FakeServer {
    fn start(decisions: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let decisions = decisions.iter().copied().collect();
        let asked = Arc::new(Mutex::new(Asked { decisions, scripts: Vec::new() }));
        let of_thread = Arc::clone(&asked);
        let serve = move || {
            let (connection, _) = listener.accept().unwrap();
            serve(connection, &Scripts::new(), &of_thread);
        };
        // It ends with the connection.
        std::mem::forget(Env::real().thread("redis", serve));
        Self { port, asked }
    }

    /// A writer of lists, and rows of more than one piece.
    fn writer(&self) -> (Writer, Work) {
        let port = self.port.to_string();
        let options = [("host", "127.0.0.1"), ("port", &port), ("model", "list")];
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let table = Table { name: "t".to_owned(), columns: None, options: Options::new(options) };
        let values = Arc::new(Int64Array::from_iter_values(0..1_500));
        let rows = RecordBatch::try_from_iter([("value", values as _)]).unwrap();
        let options = SinkOptions::parse(&table, &rows.schema(), Path::new("")).unwrap();
        let (options, env) = (Arc::new(options), Env::real());
        let encoder = Encoder::new(Arc::clone(&options), rows.schema());
        let mut pieces = Vec::new();
        encoder.encode(&rows, &mut pieces).unwrap();
        assert_eq!(pieces.len(), 2);
        let contact = Contacts::untold(env.clone()).with("Redis".to_owned());
        let link = Link::new(options.server.clone(), env.clone(), contact, PATIENCE).unwrap();
        let writing = Writing {
            options,
            encoder,
            keys: Keys::new("t", "q"),
            flow: "flow".to_owned(),
            is_once: false,
            remembered: None,
            acknowledged: Acknowledged::none(),
            env,
        };
        let work = Work { batch_id: BatchId(8), end_offsets: EndOffsets::default(), pieces };
        (Writer::new(writing, link), work)
    }
}

fn serve(connection: TcpStream, scripts: &Scripts, asked: &Mutex<Asked>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut connection = connection;
    while let Some(command) = command(&mut reader) {
        let answer = match &*command[0] {
            "INFO" => "$0\r\n\r\n".to_owned(),
            "HGET" => "$-1\r\n".to_owned(),
            "EVALSHA" => list(&answer_to(&command[1], scripts, asked)),
            _ => "+OK\r\n".to_owned(),
        };
        connection.write_all(answer.as_bytes()).unwrap();
    }
}

fn answer_to(hash: &str, scripts: &Scripts, asked: &Mutex<Asked>) -> Vec<&'static str> {
    let mut asked = asked.lock();
    if hash == scripts.claim.get_hash() {
        return vec!["ok", "1-token", "7", "", ""];
    }
    let (name, answer) = if hash == scripts.commit.get_hash() {
        ("commit", asked.decisions.pop_front().expect("one was not expected"))
    } else if hash == scripts.apply.get_hash() {
        ("apply", "done")
    } else {
        ("stage", "ok")
    };
    asked.scripts.push(name);
    vec![answer]
}

fn list(parts: &[&str]) -> String {
    let parts = parts.iter().map(|part| format!("${}\r\n{part}\r\n", part.len()));
    let parts: Vec<String> = parts.collect();
    format!("*{}\r\n{}", parts.len(), parts.concat())
}

/// The next command, as texts; `None` at the end of the connection.
fn command(reader: &mut BufReader<TcpStream>) -> Option<Vec<String>> {
    let count = number(reader)?;
    let mut parts = Vec::new();
    for _ in 0..count {
        // Each part ends a line.
        let mut bytes = vec![0; number(reader)? + 2];
        reader.read_exact(&mut bytes).ok()?;
        parts.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
    }
    Some(parts)
}

/// The number in the next line, behind a sign of its own.
fn number(reader: &mut BufReader<TcpStream>) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    line[1..].trim().parse().ok()
}

#[tokio::test]
async fn what_a_replica_that_took_over_has_not_applied_is_applied_before_it_counts() {
    let scripts = |decisions: &'static [&'static str]| async move {
        let server = FakeServer::start(decisions);
        let (mut writer, work) = server.writer();
        writer.open().await.unwrap();
        server.asked.lock().scripts.clear();
        writer.write(work).await.unwrap();
        std::mem::take(&mut server.asked.lock().scripts)
    };
    let once = ["stage", "stage", "commit", "apply", "commit"];
    assert_eq!(scripts(&["ok", "done"]).await, once);
    // It has all pieces and not the decision; or the decision, and the last piece is not applied.
    for unapplied in [&["ok", "ok", "done", "done"], &["ok", "unapplied", "done", "done"]] {
        assert_eq!(scripts(unapplied).await, [&once[..], &["apply"], &once].concat());
    }
}
