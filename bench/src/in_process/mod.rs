//! The engine without a broker: messages are made in memory beforehand, in the engine's own
//! process, and handed over as bytes that the engine decodes.
//!
//! The process is one of its own all the same, [`child`], so that it begins as any other and its
//! processor time is counted from where the messages are there. Its memory has the messages, too.

pub mod child;
pub mod source;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use millstream_store::env::Env;
use millstream_testkit::program::{self, Usage};
use serde::Deserialize;

use crate::engine::EngineOptions;
use crate::error::Error;
use crate::system;
use crate::throughput::Took;

/// What stands behind `USING` in a pipeline.
pub const CONNECTOR: &str = "in_process";

/// Where a benchmark's messages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputKind {
    /// A topic.
    Kafka,
    /// Memory of the engine's process: no broker and no client.
    InProcess,
}

/// Messages for a run in process.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    /// How many.
    pub messages: u64,
    /// Pieces that the engine decodes in parallel.
    pub partitions: i32,
    /// Windows that their times are spread over.
    pub windows: u32,
    /// Different ids; `None` for all.
    pub keys: Option<u64>,
    /// Bytes of a [numbered](crate::numbered) record, which has a key, too; `None` for the JSON of
    /// other benchmarks.
    pub size: Option<usize>,
}

/// What a run tells: a line on standard output.
#[derive(Debug, Deserialize, serde::Serialize)]
struct ChildOutcome {
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
    rows_out: u64,
}

/// Runs a pipeline over `input`. Gives what it took, and the rows that the sink got.
pub fn run(
    pipeline: &str,
    input: &Input,
    options: &EngineOptions,
    directory: &Path,
) -> Result<(Took, u64), Error> {
    let file = system::write(directory, "pipeline.sql", pipeline)?;
    let mut command = system::this_program()?;
    command.args(["in-process", "--pipeline"]).arg(&file);
    command.arg("--checkpoint").arg(directory.join("checkpoint"));
    command.args(["--messages", &input.messages.to_string()]);
    command.args(["--partitions", &input.partitions.to_string()]);
    command.args(["--windows", &input.windows.to_string()]);
    if let Some(keys) = input.keys {
        command.args(["--keys", &keys.to_string()]);
    }
    if let Some(size) = input.size {
        command.args(["--size", &size.to_string()]);
    }
    for (key, value) in &options.set {
        command.args(["--set", &format!("{key}={value}")]);
    }
    outcome_of("running the engine in process", command)
}

/// Runs a program that measures itself, and tells a [`ChildOutcome`].
pub fn outcome_of(what: &'static str, command: Command) -> Result<(Took, u64), Error> {
    let output = program::output(what, command, "")?;
    let outcome: ChildOutcome = serde_json::from_str(output.trim())
        .map_err(|error| Error::InProcess { problem: format!("it told {output:?}: {error}") })?;
    let ChildOutcome { seconds, cpu_seconds, peak_rss_mb, rows_out } = outcome;
    let elapsed = Duration::from_secs_f64(seconds);
    Ok((Took { elapsed, usage: Usage { cpu_seconds, peak_rss_mb } }, rows_out))
}

/// A run that measures itself, from where its messages are there.
pub struct Measuring<'a> {
    env: &'a Env,
    began: Duration,
    before: Usage,
}

impl<'a> Measuring<'a> {
    /// Begins now.
    pub fn start(env: &'a Env) -> Self {
        Self { env, began: env.monotonic(), before: program::own_usage() }
    }

    /// Ends now: prints what a sink that got `rows_out` took.
    pub fn tell(self, rows_out: u64) {
        let (elapsed, after) = (self.env.monotonic() - self.began, program::own_usage());
        let outcome = ChildOutcome {
            seconds: elapsed.as_secs_f64(),
            cpu_seconds: after.cpu_seconds - self.before.cpu_seconds,
            peak_rss_mb: after.peak_rss_mb,
            rows_out,
        };
        println!("{}", serde_json::to_string(&outcome).expect("outcomes are plain values"));
    }
}
