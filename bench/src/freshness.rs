//! `millstream-bench freshness`: how long a record takes from the moment it is due until a query
//! counts it.
//!
//! Records go to a topic at a fixed rate, a flow writes them into a Delta table, and beside it a
//! shell counts the rows of the table over and over, as an analyst's dashboard does. The topic has
//! one partition, so that a count of N has the first N records in it. The first answer that has a
//! record in it says when the record was counted; the way into the topic, the table's commit
//! interval and the query itself are part of that.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use millstream_store::env::{Env, Thread};
use serde::Serialize;

use crate::clock::Clock;
use crate::error::Error;
use crate::live::plan::Plan;
use crate::live::{Live, LiveFlags, Load};
use crate::quantiles::{Latencies, OfStage};
use crate::report::{Report, median, rounded};
use crate::system;
use crate::testbed::{TestBed, TopicFlags};

/// Between an answer and the next question.
const PAUSE: Duration = Duration::from_millis(20);

/// A query whose answer shows that the one before has ended, with an answer or without, and what
/// it answers.
const END: &str = "SELECT 'ended' AS end;\n";
const ENDED: &str = "ended";

/// Flags of `millstream-bench freshness`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    #[command(flatten)]
    topic: TopicFlags,
    #[command(flatten)]
    live: LiveFlags,
}

/// An answer: how many rows were counted, and when, in microseconds since the epoch.
#[derive(Clone, Copy, Debug)]
struct Counted {
    rows: u64,
    at_us: i64,
    took_us: i64,
}

/// One result line.
#[derive(Clone, Debug, Serialize)]
struct Line {
    round: u32,
    #[serde(flatten)]
    load: Load,
    commit_interval: String,
    records: u64,
    /// From the moment a record was due until a query had counted it.
    #[serde(flatten)]
    latency: OfStage,
    queries: usize,
    query_p50_ms: f64,
    /// Records that no answer had.
    missing: u64,
}

/// Runs all rounds. True if every record was counted.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    flags.live.check()?;
    let testbed = TestBed::open(env, "freshness", &flags.topic)?;
    let report = Report::new("freshness", Some(&testbed.broker));
    eprintln!(
        "{} messages/s; the table commits every {}",
        flags.live.rate, flags.live.commit_interval
    );
    let mut all_counted = true;
    for round in 1..=flags.topic.repeat {
        let line = measure(&testbed, flags, round)?;
        report.line("round", &line)?;
        let OfStage { p50_ms, p95_ms, p99_ms, max_ms } = line.latency;
        eprintln!(
            "round {round}: p50 {p50_ms:.0}, p95 {p95_ms:.0}, p99 {p99_ms:.0}, max {max_ms:.0} ms; \
             {} queries, p50 {:.1} ms; {} missing",
            line.queries, line.query_p50_ms, line.missing
        );
        all_counted &= line.missing == 0;
    }
    Ok(all_counted)
}

fn measure(testbed: &TestBed, flags: &Flags, round: u32) -> Result<Line, Error> {
    testbed.with_live_topic(&round.to_string(), 1, |topic| {
        testbed.with_directory(&format!("round-{round}"), |directory| {
            let table = directory.join("table");
            let live = Live {
                testbed,
                flags: &flags.live,
                topic,
                partitions: 1,
                keys: None,
                round,
                closing: None,
            };
            let asker = Asking::start(&testbed.env, &table)?;
            let pipeline = pipeline(&testbed.source(topic), &table, &flags.live.commit_interval);
            let ran = live.run(&pipeline, directory, |_, _| ())?;
            let counted = asker.end();
            let (latencies, missing) = latencies(&ran.plan, &counted);
            Ok(Line {
                round,
                load: ran.load(&flags.topic.engine_option),
                commit_interval: flags.live.commit_interval.clone(),
                records: latencies.count(),
                latency: latencies.of_stage(),
                queries: counted.len(),
                query_p50_ms: rounded(median(counted.iter().map(|it| it.took_us as f64 / 1e3)), 1),
                missing,
            })
        })
    })
}

fn pipeline(source: &str, table: &Path, commit_interval: &str) -> String {
    format!(
        "CREATE TABLE input (logStreamId STRING, message STRING) USING {source};\n\
         CREATE TABLE output USING delta OPTIONS ('path' = '{}', \
         'commitInterval' = '{commit_interval}');\n\
         INSERT INTO output SELECT logStreamId, message FROM STREAM input;\n",
        table.display()
    )
}

/// By record behind the warm-up, from its moment to the first answer that counts it; and how many
/// no answer counts. Ahead of the records there is one that showed that the topic was read.
fn latencies(plan: &Plan, counted: &[Counted]) -> (Latencies, u64) {
    let (mut latencies, mut missing) = (Latencies::new(), 0);
    let mut answers = counted.iter().peekable();
    let measured_from = plan.start_us + i64::try_from(plan.warmup * 1_000_000).unwrap_or(i64::MAX);
    for due in plan.schedule().filter(|due| due.due_us >= measured_from) {
        while answers.peek().is_some_and(|answer| answer.rows < due.number + 2) {
            answers.next();
        }
        match answers.peek() {
            Some(answer) => latencies.add(answer.at_us - due.due_us),
            None => missing += 1,
        }
    }
    (latencies, missing)
}

/// A shell that counts, on a thread.
struct Asking {
    is_over: Arc<AtomicBool>,
    answers: Receiver<Counted>,
    _thread: Thread,
}

impl Asking {
    fn start(env: &Env, table: &Path) -> Result<Self, Error> {
        let mut shell = Shell::start()?;
        let question = format!("SELECT count(*) AS n FROM delta.`{}`;\n{END}", table.display());
        let (clock, is_over) = (Clock::new(env), Arc::new(AtomicBool::new(false)));
        let (sender, answers) = channel();
        let over = Arc::clone(&is_over);
        let first_commit = table.join("_delta_log/00000000000000000000.json");
        let thread = env.thread("asker", move || {
            let mut was_over = false;
            while !was_over {
                // One more question after the end, whose answer has all.
                was_over = over.load(Ordering::Relaxed);
                if first_commit.is_file() {
                    let asked = clock.now_us();
                    if let Some(rows) = shell.ask(&question) {
                        let at_us = clock.now_us();
                        let _ = sender.send(Counted { rows, at_us, took_us: at_us - asked });
                    }
                }
                std::thread::sleep(PAUSE);
            }
        });
        Ok(Self { is_over, answers, _thread: thread })
    }

    /// All answers, the last of them to a question that was asked now.
    fn end(self) -> Vec<Counted> {
        self.is_over.store(true, Ordering::Relaxed);
        self.answers.iter().collect()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // The thread is waited for.
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A process of `millstream query`, killed when dropped.
struct Shell {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Shell {
    fn start() -> Result<Self, Error> {
        let mut command = system::millstream()?;
        command.args(["query", "--format", "csv"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let path = command.get_program().to_owned();
        let mut process = command.spawn().map_err(Error::file("start", Path::new(&path)))?;
        let questions = process.stdin.take().expect("it was asked for");
        let answers = BufReader::new(process.stdout.take().expect("it was asked for"));
        Ok(Self { process, questions, answers })
    }

    /// The number that is the answer; `None` if the query has failed or the shell has ended.
    fn ask(&mut self, question: &str) -> Option<u64> {
        self.questions.write_all(question.as_bytes()).ok()?;
        self.questions.flush().ok()?;
        let (mut line, mut answer) = (String::new(), None);
        loop {
            line.clear();
            if self.answers.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim() {
                ENDED => return answer,
                other => answer = other.parse().ok().or(answer),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
