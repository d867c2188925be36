//! `millstream-bench planning`: how long a pipeline file takes from its text to plans.
//!
//! `millstream validate` reads the file, checks it and plans all of its flows, and asks no broker.
//! Its time is measured from outside, beside that of a start that does nothing
//! (`millstream --version`). What lies between them is the reading and planning.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use millstream_store::env::Env;
use serde::Serialize;

use crate::error::Error;
use crate::report::{self, Report};
use crate::system;
use crate::work_directory::WorkDirectory;

/// Four flows: a filter, a join of two streams, windows, and `explode`.
const FIFTY_LINES: &str = include_str!("fifty_lines.sql");

/// Flags of `millstream-bench planning`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Pipeline files that are measured as well, such as examples/*/pipeline.sql
    files: Vec<PathBuf>,
    /// How often each is validated
    #[arg(long, default_value_t = 21)]
    repeat: u32,
}

#[derive(Debug, Serialize)]
struct Summary {
    pipeline: String,
    lines: usize,
    rounds: u32,
    /// Medians, of whole processes.
    validate_ms: f64,
    start_ms: f64,
    /// The one without the other.
    planning_ms: f64,
    slowest_validate_ms: f64,
}

/// Runs the whole benchmark. Always true: nothing is counted as lost here.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.repeat == 0 {
        return Err(Error::Flags { problem: "--repeat 0: at least 1".to_owned() });
    }
    let work = WorkDirectory::create()?;
    let own = system::write(&work.subdirectory("planning")?, "fifty_lines.sql", FIFTY_LINES)?;
    let report = Report::new("planning", None);
    eprintln!("| pipeline | lines | validate ms | start ms | planning ms |\n|---|---|---|---|---|");
    for file in [own].iter().chain(&flags.files) {
        let summary = measure(env, file, flags.repeat)?;
        let Summary { pipeline, lines, validate_ms, start_ms, planning_ms, .. } = &summary;
        eprintln!("| {pipeline} | {lines} | {validate_ms} | {start_ms} | {planning_ms} |");
        report.line("summary", &summary)?;
    }
    Ok(true)
}

/// Starts of both kinds take turns, so that a slow drift of the machine meets both.
fn measure(env: &Env, file: &Path, rounds: u32) -> Result<Summary, Error> {
    let file = std::fs::canonicalize(file).map_err(Error::file("find", file))?;
    let text = std::fs::read_to_string(&file).map_err(Error::file("read", &file))?;
    let (mut validate, mut start) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mut command = system::millstream()?;
        command.arg("validate").arg(&file);
        validate.push(took_ms(env, command, &file)?);
        let mut command = system::millstream()?;
        command.arg("--version");
        start.push(took_ms(env, command, &file)?);
    }
    let slowest = validate.iter().copied().fold(0.0, f64::max);
    let (validate, start) = (report::median(validate), report::median(start));
    let named: Vec<_> = file.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    Ok(Summary {
        pipeline: named.into_iter().rev().collect::<Vec<_>>().join("/"),
        lines: text.lines().count(),
        rounds,
        validate_ms: report::rounded(validate, 1),
        start_ms: report::rounded(start, 1),
        planning_ms: report::rounded(validate - start, 1),
        slowest_validate_ms: report::rounded(slowest, 1),
    })
}

/// Runs a command in the directory of `file`, as files there are named from it.
fn took_ms(env: &Env, mut command: Command, file: &Path) -> Result<f64, Error> {
    command.current_dir(file.parent().unwrap_or(Path::new("/")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = env.monotonic();
    let status = command.status().map_err(Error::file("validate", file))?;
    let took = env.monotonic() - begin;
    if !status.success() {
        let problem = format!("{}: it is refused; see `millstream validate`", file.display());
        return Err(Error::Flags { problem });
    }
    Ok(took.as_secs_f64() * 1_000.0)
}
