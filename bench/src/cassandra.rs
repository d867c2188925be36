//! `millstream-bench cassandra`: the Cassandra sink beside the bare driver, which writes the same
//! rows, one batch at a time.
//!
//! Rows are due at fixed moments: those of the engine's `rate` source, or of the client's own
//! schedule of the same rate. Each becomes a row of a table. The client takes all rows that are
//! due, writes each with a request, waits for the answers, and takes the next. The engine writes
//! each micro-batch after its intent and its write time are durable. A row has been received when
//! the last answer of its batch has come. Client and engine both tell that of themselves. Each is a
//! process of its own, in turns.
//!
//! What every round wrote is counted: each row must be there.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use futures::future::try_join_all;
use millstream_store::env::Env;
use millstream_testkit::cassandra::Cassandra;
use millstream_testkit::program::Process;
use millstream_testkit::wait;
use scylla::client::session_builder::SessionBuilder;

use crate::beside_client::{Line, Round, Setup, Tally, Used, Writer, due_us, micros};
use crate::clock::Clock;
use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::report::Report;
use crate::system;
use crate::work_directory::WorkDirectory;

const NAME: &str = "cassandra";
/// How long the first row may take: starting a process.
const START_MAX: Duration = Duration::from_secs(60);
/// How long rows are written behind those that are measured.
const BEHIND: Duration = Duration::from_secs(2);
/// Rows of one of the client's batches.
const BATCH_MAX: u64 = 1_000;

/// Flags of `millstream-bench cassandra`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000")]
    rate: Vec<u64>,
    /// Seconds measured in each run
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds at the same rate before that, from the first row on: connections, Java's compiler
    #[arg(long, default_value_t = 5)]
    warmup: u64,
    /// Runs of each at each rate
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
}

/// Flags of the bare client's process.
#[derive(Debug, clap::Args)]
pub struct ClientFlags {
    /// Port of the server
    #[arg(long)]
    port: u16,
    /// The table, with its keyspace
    #[arg(long)]
    table: String,
    /// Rows a second
    #[arg(long)]
    rate: u64,
    /// Rows in all
    #[arg(long)]
    rows: u64,
}

/// Runs the whole benchmark. True if every row was there once.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    let setup = flags.setup();
    setup.check()?;
    let bench = Bench {
        env,
        clock: Clock::new(env),
        flags,
        options: EngineOptions::parse(&flags.engine_option)?,
        server: Cassandra::start(),
        work: WorkDirectory::create()?,
    };
    bench.server.create_keyspace("bench");
    setup.run(&Report::new(NAME, None), &[None], |round| bench.round(round))
}

impl Flags {
    fn setup(&self) -> Setup<'_> {
        let Self { rate, seconds, repeat, engine_option, .. } = self;
        Setup { rates: rate, seconds: *seconds, repeat: *repeat, engine_options: engine_option }
    }
}

/// Rows up to the end of a batch, from the first, and when they were received.
type Received = (u64, i64);

struct Bench<'a> {
    env: &'a Env,
    clock: Clock,
    flags: &'a Flags,
    options: EngineOptions,
    server: Cassandra,
    work: WorkDirectory,
}

impl Bench<'_> {
    fn round(&self, round: Round) -> Result<Line, Error> {
        let Round { writer, rate, number, .. } = round;
        let table = format!("{}_{rate}_{number}", writer.name());
        let columns = "(id bigint PRIMARY KEY, due bigint)";
        self.server.ask(&format!("CREATE TABLE bench.{table} {columns}"));
        let directory = self.work.subdirectory(&table)?;
        let written = match writer {
            Writer::Client => self.client(rate, &table, &directory)?,
            Writer::Millstream => self.engine(rate, &table, &directory)?,
        };
        let mut tally = Tally::default();
        tally.from_us = Some(written.from_us);
        let until_us = written.from_us + micros(Duration::from_secs(self.flags.seconds));
        for &(rows, received_us) in &written.received {
            for row in tally.next..rows {
                let due_us = written.begun_us + due_us(row, rate);
                if due_us >= until_us {
                    tally.from_us = None;
                }
                tally.add(row, due_us, received_us);
            }
        }
        let all = self.server.ask(&format!("SELECT id FROM bench.{table}"));
        let told = all.iter().filter_map(|row| row[0].as_u64()).filter(|id| *id < tally.next);
        tally.lacks(tally.next - told.count() as u64);
        let due = |row: &u64| written.begun_us + due_us(*row, rate) < until_us;
        // Time enough has passed for these, too.
        tally.lacks((tally.next..).take_while(due).count() as u64);
        Ok(tally.line(round, &self.flags.setup(), written.used))
    }

    fn engine(&self, rate: u64, table: &str, directory: &Path) -> Result<Written, Error> {
        let pipeline = pipeline(rate, self.server.port(), table, &self.options);
        let (env, clock) = (self.env, &self.clock);
        let mut engine = engine::start_telling(env, clock, &pipeline, &self.options, directory)?;
        let waits_until_us = self.clock.now_us() + micros(START_MAX);
        while engine.progress.look(|told| told.iter().all(|told| told.rows_out == 0)) {
            engine.process.check()?;
            if self.clock.now_us() > waits_until_us {
                return Err(system::behind(&engine.process, START_MAX));
            }
            wait::pause(Duration::from_millis(10));
        }
        let (from_us, used) = self.measured(&engine.process);
        system::stop(&mut engine.process)?;
        let mut rows = 0;
        let told = engine.progress.finish()?;
        let begun_us = created_us(directory)?;
        let received = told.iter().map(|told| {
            // That of its first row.
            let received_us = begun_us + due_us(rows, rate) + told.latency_us;
            rows += told.rows_out;
            (rows, received_us)
        });
        Ok(Written { begun_us, from_us, received: received.collect(), used })
    }

    fn client(&self, rate: u64, table: &str, directory: &Path) -> Result<Written, Error> {
        let rows = rate * (self.flags.warmup + self.flags.seconds + BEHIND.as_secs());
        let mut command = system::this_program()?;
        command.args(["cassandra-client", "--port", &self.server.port().to_string()]);
        command.args(["--table", &format!("bench.{table}"), "--rate", &rate.to_string()]);
        command.args(["--rows", &rows.to_string()]);
        let log = directory.join("client.log");
        let (process, mut output) = Process::start_piped("the client", command, &log)?;
        // It says when it begins, and the rest at its end.
        let mut begun_us = [0; 8];
        let failed = || Error::Fill { problem: format!("the client: {}", process.log_tail()) };
        output.read_exact(&mut begun_us).map_err(|_| failed())?;
        let (from_us, used) = self.measured(&process);
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).map_err(|_| failed())?;
        let received: Vec<Received> = numbers(&rest).collect();
        if received.last().is_none_or(|(written, _)| *written != rows) {
            return Err(failed());
        }
        Ok(Written { begun_us: i64::from_le_bytes(begun_us), from_us, received, used })
    }

    /// Lets the warm-up and what is measured pass, and some time in which the last rows of that are
    /// written. Gives when the latter began.
    fn measured(&self, process: &Process) -> (i64, Used) {
        wait::pause(Duration::from_secs(self.flags.warmup));
        let (from_us, before) = (self.clock.now_us(), process.usage());
        wait::pause(Duration::from_secs(self.flags.seconds));
        let after = process.usage();
        wait::pause(BEHIND);
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        (from_us, Used { cpu_seconds, peak_rss_mb: after.peak_rss_mb })
    }
}

/// What a process has written.
struct Written {
    /// When row 0 was due, microseconds since the epoch.
    begun_us: i64,
    /// Rows that are due from then on count.
    from_us: i64,
    received: Vec<Received>,
    used: Used,
}

/// When row 0 of the `rate` source was due: its checkpoint keeps it.
fn created_us(directory: &Path) -> Result<i64, Error> {
    let file = directory.join("checkpoint/sources/0/0");
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    let created_ms = text.lines().nth(1).and_then(|ms| ms.trim().parse::<i64>().ok());
    let problem = || format!("{} has no time of creation: {text:?}", file.display());
    created_ms.map(|ms| ms * 1_000).ok_or_else(|| Error::Fill { problem: problem() })
}

/// Pairs of numbers of eight bytes.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = Received> {
    let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let pairs = bytes.chunks_exact(16);
    pairs.map(move |pair| (number(&pair[..8]).unsigned_abs(), number(&pair[8..])))
}

/// The bare client: writes rows that are due, one batch after the other. Its output is when the
/// first is due and, for each batch, the rows up to its end and when it was acknowledged.
pub fn run_client(env: &Env, flags: &ClientFlags) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Fill { problem: error.to_string() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    let clock = Clock::new(env);
    let mut acknowledged: Vec<u8> = Vec::new();
    runtime.block_on(async {
        let node = format!("127.0.0.1:{}", flags.port);
        let session = SessionBuilder::new().known_node(node).build().await;
        let session = session.map_err(|error| failed(&error))?;
        let text = format!("INSERT INTO {} (id, due) VALUES (?, ?)", flags.table);
        let insert = session.prepare(text).await.map_err(|error| failed(&error))?;
        let begun_us = clock.now_us();
        let mut output = std::io::stdout();
        let told = output.write_all(&begun_us.to_le_bytes()).and_then(|()| output.flush());
        told.map_err(|error| failed(&error))?;
        let mut written = 0;
        while written < flags.rows {
            let now_us = clock.now_us();
            let due = |row: &u64| begun_us + due_us(*row, flags.rate) <= now_us;
            let batch = (written..flags.rows).take_while(due).take(BATCH_MAX as usize);
            let rows = batch.map(|row| (row.cast_signed(), begun_us + due_us(row, flags.rate)));
            let writes: Vec<_> = rows.map(|row| session.execute_unpaged(&insert, row)).collect();
            if writes.is_empty() {
                let wait_us = begun_us + due_us(written, flags.rate) - now_us;
                std::thread::sleep(Duration::from_micros(wait_us.unsigned_abs()));
                continue;
            }
            written += writes.len() as u64;
            try_join_all(writes).await.map_err(|error| failed(&error))?;
            acknowledged.extend(written.to_le_bytes());
            acknowledged.extend(clock.now_us().to_le_bytes());
        }
        output
            .write_all(&acknowledged)
            .and_then(|()| output.flush())
            .map_err(|error| failed(&error))
    })
}

/// Rows of the rate source as rows of the table.
fn pipeline(rate: u64, port: u16, table: &str, options: &EngineOptions) -> String {
    let (rate, port) = (rate.to_string(), port.to_string());
    let sink = [
        ("spark.cassandra.connection.host", "127.0.0.1"),
        ("spark.cassandra.connection.port", &*port),
        ("keyspace", "bench"),
        ("table", table),
    ];
    format!(
        "CREATE TABLE input USING rate OPTIONS ({});\n\
         CREATE TABLE output USING cassandra OPTIONS ({});\n\
         CREATE FLOW measure AS INSERT INTO output\n\
         SELECT value AS id, unix_micros(timestamp) AS due FROM STREAM input;\n",
        sql_options(&[("rowsPerSecond", &rate)], &options.source),
        sql_options(&sink, &[]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_has_written_is_read_back() {
        let mut bytes = Vec::new();
        for (rows, received_us) in [(3_u64, 70_i64), (9, 80)] {
            bytes.extend(rows.to_le_bytes());
            bytes.extend(received_us.to_le_bytes());
        }
        assert_eq!(numbers(&bytes).collect::<Vec<_>>(), [(3, 70), (9, 80)]);
    }
}
