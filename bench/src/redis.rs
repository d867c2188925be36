//! `millstream-bench redis`: the Redis sink beside a bare client that writes the same records, one
//! batch at a time.
//!
//! Rows are due at fixed moments: those of the engine's `rate` source, or of the client's own
//! schedule of the same rate. Each becomes an entry of a stream with the moment at which it was
//! due, and a meter reads the stream. The client takes all rows that are due, adds them in one
//! pipeline, waits for the answer, and takes the next. The engine writes each micro-batch with its
//! progress by a script, exactly once. Each is a process of its own, in turns, on a server of its
//! own.

use std::path::Path;
use std::time::Duration;

use millstream_store::env::Env;
use millstream_testkit::program::Process;
use millstream_testkit::redis::Redis;
use redis::streams::StreamReadReply;
use redis::{Client, Connection, Pipeline, cmd};

use crate::beside_client::{Line, Round, Setup, Tally, Used, Writer, due_us, micros};
use crate::clock::Clock;
use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::report::Report;
use crate::system;
use crate::work_directory::WorkDirectory;

const NAME: &str = "redis";
/// The stream that is written.
const STREAM: &str = "out";
/// How long the first entry may take: starting a process.
const START_MAX: Duration = Duration::from_secs(60);
/// How long the server holds an empty answer back.
const BLOCK_MS: u64 = 100;
/// Entries of one answer.
const ENTRIES_MAX: u64 = 5_000;
/// Rows of one of the client's batches: as many as one of the sink's scripts writes.
const BATCH_MAX: u64 = 1_000;

/// Flags of `millstream-bench redis`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    rate: Vec<u64>,
    /// Seconds measured in each run
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds at the same rate before that, from the first entry on
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
    /// Rows a second
    #[arg(long)]
    rate: u64,
}

/// Runs the whole benchmark. True if every row was there once.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    let setup = flags.setup();
    setup.check()?;
    let bench = Bench {
        clock: Clock::new(env),
        flags,
        options: EngineOptions::parse(&flags.engine_option)?,
        work: WorkDirectory::create()?,
    };
    setup.run(&Report::new(NAME, None), &[None], |round| bench.round(round))
}

impl Flags {
    fn setup(&self) -> Setup<'_> {
        let Self { rate, seconds, repeat, engine_option, .. } = self;
        Setup { rates: rate, seconds: *seconds, repeat: *repeat, engine_options: engine_option }
    }
}

struct Bench<'a> {
    clock: Clock,
    flags: &'a Flags,
    options: EngineOptions,
    work: WorkDirectory,
}

impl Bench<'_> {
    fn round(&self, round: Round) -> Result<Line, Error> {
        let Round { writer, rate, number, .. } = round;
        let server = Redis::start();
        let mut connection = connect(server.port())?;
        let name = format!("{}-{rate}-{number}", writer.name());
        let directory = self.work.subdirectory(&name)?;
        let mut process = self.start(writer, rate, server.port(), &directory)?;
        let mut read = Read::default();
        let begun_us = self.clock.now_us();
        while read.tally.next == 0 {
            self.read(&mut connection, &mut read)?;
            process.check()?;
            if self.clock.now_us() - begun_us > micros(START_MAX) {
                return Err(system::behind(&process, START_MAX));
            }
        }
        let second = |seconds: u64| micros(Duration::from_secs(seconds));
        let from_us = self.clock.now_us() + second(self.flags.warmup);
        self.read_until(from_us, &mut connection, &mut read, &mut process)?;
        let before = process.usage();
        read.tally.from_us = Some(from_us);
        let until_us = from_us + second(self.flags.seconds);
        self.read_until(until_us, &mut connection, &mut read, &mut process)?;
        let after = process.usage();
        writer.stop(&mut process)?;
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        let used = Used { cpu_seconds, peak_rss_mb: after.peak_rss_mb };
        Ok(read.tally.line(round, &self.flags.setup(), used))
    }

    fn start(
        &self,
        writer: Writer,
        rate: u64,
        port: u16,
        directory: &Path,
    ) -> Result<Process, Error> {
        if writer == Writer::Millstream {
            let pipeline = pipeline(rate, port, &self.options);
            return engine::start(&pipeline, &self.options, directory);
        }
        let mut command = system::this_program()?;
        command.args(["redis-client", "--port", &port.to_string(), "--rate", &rate.to_string()]);
        Ok(Process::start("the client", command, &directory.join("client.log"))?)
    }

    fn read_until(
        &self,
        until_us: i64,
        connection: &mut Connection,
        read: &mut Read,
        process: &mut Process,
    ) -> Result<(), Error> {
        while self.clock.now_us() < until_us {
            self.read(connection, read)?;
            process.check()?;
        }
        Ok(())
    }

    /// Reads what has come, or waits some time for the first of it.
    fn read(&self, connection: &mut Connection, read: &mut Read) -> Result<(), Error> {
        let mut ask = cmd("XREAD");
        ask.arg("COUNT").arg(ENTRIES_MAX).arg("BLOCK").arg(BLOCK_MS);
        ask.arg("STREAMS").arg(STREAM).arg(&read.last_id);
        let answer: Option<StreamReadReply> = ask.query(connection).map_err(failed("reading"))?;
        let now_us = self.clock.now_us();
        for entry in answer.into_iter().flat_map(|answer| answer.keys).flat_map(|key| key.ids) {
            let (Some(due_us), Some(number)) = (entry.get("due"), entry.get("n")) else {
                let problem = format!("the entry {} is not one of those written", entry.id);
                return Err(Error::Fill { problem });
            };
            read.tally.add(number, due_us, now_us);
            read.last_id = entry.id;
        }
        Ok(())
    }
}

/// What was read of the stream.
struct Read {
    last_id: String,
    tally: Tally,
}

impl Default for Read {
    fn default() -> Self {
        Self { last_id: "0".to_owned(), tally: Tally::default() }
    }
}

/// The bare client: adds rows that are due until the process is ended.
pub fn run_client(env: &Env, flags: &ClientFlags) -> Result<(), Error> {
    let clock = Clock::new(env);
    let mut connection = connect(flags.port)?;
    let (begun_us, mut written) = (clock.now_us(), 0);
    let due_us = |number: u64| begun_us + due_us(number, flags.rate);
    loop {
        let now_us = clock.now_us();
        let mut batch = Pipeline::new();
        let first = written;
        while due_us(written) <= now_us && written - first < BATCH_MAX {
            let add = batch.cmd("XADD").arg(STREAM).arg("*");
            add.arg("due").arg(due_us(written)).arg("n").arg(written).ignore();
            written += 1;
        }
        if written > first {
            batch.query::<()>(&mut connection).map_err(failed("writing"))?;
        } else {
            let wait_us = u64::try_from(due_us(written) - now_us).unwrap_or_default();
            std::thread::sleep(Duration::from_micros(wait_us));
        }
    }
}

fn connect(port: u16) -> Result<Connection, Error> {
    let client = Client::open(format!("redis://127.0.0.1:{port}")).map_err(failed("connecting"))?;
    client.get_connection().map_err(failed("connecting"))
}

fn failed(what: &'static str) -> impl Fn(redis::RedisError) -> Error {
    move |error| Error::Fill { problem: format!("{what} to Redis, or from it: {error}") }
}

/// Rows of the rate source as entries of the stream.
fn pipeline(rate: u64, port: u16, options: &EngineOptions) -> String {
    let (rate, port) = (rate.to_string(), port.to_string());
    let sink = [("port", &*port), ("model", "stream"), ("table", STREAM)];
    format!(
        "CREATE TABLE input USING rate OPTIONS ({});\n\
         CREATE TABLE output USING redis OPTIONS ({});\n\
         CREATE FLOW entries AS INSERT INTO output\n\
         SELECT unix_micros(timestamp) AS due, value AS n FROM STREAM input;\n",
        sql_options(&[("rowsPerSecond", &rate)], &options.source),
        sql_options(&sink, &[]),
    )
}
