//! The process of Java that says what Kafka's classes make of something: questions and answers are
//! lines of JSON, see `tests/kafka/WireConformance.java`.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use millstream_testkit::{cache, kafka, process};
use parking_lot::Mutex;
use serde_json::Value;

/// It compiles its program by itself, for which a runtime alone is not enough.
const REMEDY: &str = "install a JDK, 17 or newer: apt-get install openjdk-17-jdk-headless";

/// So much of a question is shown where Kafka refuses it.
const QUESTION_MAX: usize = 1_000;

struct Java {
    /// It ends with this process.
    _process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The answer to a question. The process ends with this one.
///
/// # Panics
/// Java is missing, with what to install; or Kafka's classes refuse what they are given.
pub fn ask(question: &Value) -> Value {
    static JAVA: OnceLock<Mutex<Java>> = OnceLock::new();
    let answer = JAVA.get_or_init(|| Mutex::new(start())).lock().ask(question);
    let answer = answer.unwrap_or_else(|error| {
        panic!("Java does not answer ({error}); what it prints says why. If it cannot compile, {REMEDY}")
    });
    if let Some(trace) = answer["error"].as_str() {
        let question: String = question.to_string().chars().take(QUESTION_MAX).collect();
        panic!("Kafka refuses {question}: {trace}");
    }
    answer
}

fn start() -> Java {
    let pom = include_str!("../../../../../../tests/kafka/pom.xml");
    let jars = cache::jars(&format!("kafka-{}", kafka::VERSION), pom).unwrap();
    let mut java = Command::new("java");
    java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(jars.join("*"));
    java.arg(cache::repository().join("tests/kafka/WireConformance.java"));
    java.stdin(Stdio::piped()).stdout(Stdio::piped());
    let started = process::spawn(java);
    let mut child =
        started.unwrap_or_else(|error| panic!("Java cannot be started ({error}); {REMEDY}"));
    let questions = child.stdin.take().expect("standard input is a pipe");
    let answers = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
    Java { _process: child, questions, answers }
}

impl Java {
    fn ask(&mut self, question: &Value) -> io::Result<Value> {
        self.questions.write_all(format!("{question}\n").as_bytes())?;
        self.questions.flush()?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }
}
