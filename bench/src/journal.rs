//! `millstream-bench journal`: what it costs to make input durable before it is acknowledged.
//!
//! Records of a size are appended to a journal at a rate, on the disk of the work directory, and
//! the time is taken until each is durable. Beside it, in turns, the least that can be: the same
//! bytes appended to a file, each followed by a flush.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::journal::{Journal, Record, Settings};
use serde::Serialize;

use crate::error::Error;
use crate::quantiles::{Latencies, Quantiles};
use crate::report::{self, Report};
use crate::work_directory::WorkDirectory;

/// Flags of `millstream-bench journal`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Records a second; several are measured in turns
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000")]
    rate: Vec<u64>,
    /// Bytes of a record
    #[arg(long, default_value_t = 1_000)]
    bytes: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 3)]
    repeat: u32,
}

#[derive(Clone, Debug, Serialize)]
struct JournalLine {
    /// `journal`, or `file` for a bare file.
    what: &'static str,
    rate: u64,
    bytes: usize,
    round: u32,
    records: u64,
    /// From the append until the record is durable.
    #[serde(flatten)]
    latency: Quantiles,
    records_per_s: f64,
}

/// Runs the whole benchmark. Always true: nothing is counted as lost here.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.rate.contains(&0) || flags.seconds == 0 || flags.repeat == 0 {
        let problem = "--rate, --seconds and --repeat must be at least 1".to_owned();
        return Err(Error::Flags { problem });
    }
    let (work, report) = (WorkDirectory::create()?, Report::new("journal", None));
    for round in 1..=flags.repeat {
        for &rate in &flags.rate {
            let directory = work.subdirectory(&format!("{rate}-{round}"))?;
            let journal = env.block_on_cores(measure_journal(env, flags, rate, &directory))?;
            let file = env.block_on_cores(measure_file(env, flags, rate, &directory))?;
            for (what, latencies, took) in
                [("journal", journal.0, journal.1), ("file", file.0, file.1)]
            {
                let (records, latency) = (latencies.count(), latencies.quantiles());
                let per_s = report::rounded(records as f64 / took.as_secs_f64(), 0);
                let (bytes, records_per_s) = (flags.bytes, per_s);
                let line =
                    JournalLine { what, rate, bytes, round, records, latency, records_per_s };
                eprintln!(
                    "{what:8} {rate:7}/s  p50 {:7.3} ms  p99 {:7.3} ms  {per_s}/s",
                    latency.p50_ms, latency.p99_ms
                );
                report.line("round", &line)?;
            }
        }
    }
    Ok(true)
}

/// When the next record is due; a measurement that is late does not leave out what it missed.
fn due(number: u64, rate: u64) -> Duration {
    Duration::from_micros(number * 1_000_000 / rate)
}

fn latency_us(env: &Env, start: Duration, due: Duration) -> i64 {
    let latency = env.monotonic().saturating_sub(start + due);
    i64::try_from(latency.as_micros()).unwrap_or(i64::MAX)
}

async fn measure_journal(
    env: &Env,
    flags: &Flags,
    rate: u64,
    directory: &Path,
) -> Result<(Latencies, Duration), Error> {
    let failed = |problem: String| Error::Table { what: "the journal", problem };
    let location = directory.join("checkpoint").display().to_string();
    let checkpoint = Checkpoint::open(&location, env).await;
    let checkpoint = checkpoint.map_err(|error| failed(error.to_string()))?;
    let settings = Settings { bytes_max: u64::MAX, ..Settings::default() };
    let journal = Journal::open(&checkpoint.source_log(0), None, settings, env).await;
    let journal = journal.map_err(|error| failed(error.to_string()))?;
    let (waiting, mut appended) = tokio::sync::mpsc::unbounded_channel();
    let (start, content) = (env.monotonic(), bytes_of(flags));
    let count = rate * flags.seconds;
    let reading_env = env.clone();
    let reading = env.spawn("durable", async move {
        let mut latencies = Latencies::new();
        while let Some((due, ticket)) = appended.recv().await {
            let ticket: millstream_store::journal::Ticket = ticket;
            ticket.durable().await?;
            latencies.add(latency_us(&reading_env, start, due));
        }
        Ok::<_, millstream_store::journal::JournalError>(latencies)
    });
    for number in 0..count {
        let due = due(number, rate);
        let early = (start + due).saturating_sub(env.monotonic());
        if !early.is_zero() {
            env.sleep(early).await;
        }
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let record = Record { key: Some(key), content: content.clone().into() };
        let _ = waiting.send((due, journal.append(vec![record]).ticket));
    }
    drop(waiting);
    let latencies = reading.join().await.map_err(|error| failed(error.to_string()))?;
    let took = env.monotonic().saturating_sub(start);
    journal.close().await;
    Ok((latencies, took))
}

fn bytes_of(flags: &Flags) -> Vec<u8> {
    vec![b'x'; flags.bytes]
}

async fn measure_file(
    env: &Env,
    flags: &Flags,
    rate: u64,
    directory: &Path,
) -> Result<(Latencies, Duration), Error> {
    let (path, content) = (directory.join("file"), bytes_of(flags));
    let count = rate * flags.seconds;
    let env_of_thread = env.clone();
    let work = move || {
        let env = env_of_thread;
        let mut file = File::create(&path)?;
        let (start, mut latencies) = (env.monotonic(), Latencies::new());
        let mut number = 0;
        while number < count {
            let early = (start + due(number, rate)).saturating_sub(env.monotonic());
            env.block_on_cores(async { env.sleep(early).await });
            // All that is due by now is written at once, as a journal does.
            let first = number;
            while number < count && start + due(number, rate) <= env.monotonic() {
                file.write_all(&content)?;
                number += 1;
            }
            file.sync_data()?;
            (first..number).for_each(|one| latencies.add(latency_us(&env, start, due(one, rate))));
        }
        Ok::<_, std::io::Error>((latencies, env.monotonic().saturating_sub(start)))
    };
    let measured = env.spawn_blocking("file", work).join().await;
    measured.map_err(|error| Error::Table { what: "a file", problem: error.to_string() })
}
