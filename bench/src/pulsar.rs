//! `millstream-bench pulsar`: the Pulsar sink beside a bare client that writes the same rows, one
//! micro-batch at a time.
//!
//! Rows are due at fixed moments: those of the engine's `rate` source, or of the client's own
//! schedule of the same rate. Each becomes a message with the moment at which it was due, and a
//! meter reads the topic. The client is Pulsar's own for Java: it takes all rows that are due,
//! sends them, waits until they are stored, and takes the next; exactly once, all of them are one
//! transaction. Both ways of delivery are measured, client and engine in turns, on one server.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::{Env, Thread};
use millstream_testkit::program::Process;
use millstream_testkit::pulsar::{self, Pulsar};
use millstream_testkit::wait;
use parking_lot::Mutex;

use crate::beside_client::{Line, Round, Setup, Tally, Used, Writer};
use crate::clock::Clock;
use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::report::Report;
use crate::system;
use crate::work_directory::WorkDirectory;

const NAME: &str = "pulsar";
const CLIENT: &str = include_str!("../peers/PulsarClient.java");
/// How long the first message may take: starting two processes.
const START_MAX: Duration = Duration::from_secs(60);
/// Between two looks at processes and messages.
const LOOK: Duration = Duration::from_millis(20);

/// Flags of `millstream-bench pulsar`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second; several rates are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    rate: Vec<u64>,
    /// Seconds measured in each run
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds at the same rate before that, from the first message on
    #[arg(long, default_value_t = 10)]
    warmup: u64,
    /// Runs of each at each rate
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    engine_option: Vec<String>,
}

/// Runs the whole benchmark. True if every row was there once.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    let setup = flags.setup();
    setup.check()?;
    let work = WorkDirectory::create()?;
    let directory = work.subdirectory("client")?;
    let bench = Bench {
        env,
        clock: Clock::new(env),
        flags,
        options: EngineOptions::parse(&flags.engine_option)?,
        client: system::write(&directory, "PulsarClient.java", CLIENT)?,
        work,
        server: Pulsar::start(),
    };
    let deliveries = [Some("exactly-once"), Some("at-least-once")];
    setup.run(&Report::new(NAME, None), &deliveries, |round| bench.round(round))
}

impl Flags {
    fn setup(&self) -> Setup<'_> {
        let Self { rate, seconds, repeat, engine_option, .. } = self;
        Setup { rates: rate, seconds: *seconds, repeat: *repeat, engine_options: engine_option }
    }
}

struct Bench<'a> {
    env: &'a Env,
    clock: Clock,
    flags: &'a Flags,
    options: EngineOptions,
    /// The client's program.
    client: PathBuf,
    work: WorkDirectory,
    server: Pulsar,
}

impl Bench<'_> {
    fn round(&self, round: Round) -> Result<Line, Error> {
        let Round { writer, delivery, rate, number } = round;
        let delivery = delivery.unwrap_or_default();
        let topic = format!("{}-{delivery}-{rate}-{number}", writer.name());
        self.server.create(&topic, 0);
        let directory = self.work.subdirectory(&topic)?;
        let (tally, mut meter) = self.start_meter(&topic, &directory)?;
        self.wait_for(&mut meter, &tally, |metered| metered.is_ready)?;
        let mut process = self.start(writer, delivery, rate, &topic, &directory)?;
        self.wait_for(&mut process, &tally, |metered| metered.tally.next > 0)?;
        self.pause(self.flags.warmup, &mut process)?;
        let before = process.usage();
        tally.lock().tally.from_us = Some(self.clock.now_us());
        self.pause(self.flags.seconds, &mut process)?;
        let after = process.usage();
        let seen = std::mem::take(&mut *tally.lock());
        writer.stop(&mut process)?;
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        let used = Used { cpu_seconds, peak_rss_mb: after.peak_rss_mb };
        Ok(seen.tally.line(round, &self.flags.setup(), used))
    }

    fn start(
        &self,
        writer: Writer,
        delivery: &str,
        rate: u64,
        topic: &str,
        directory: &Path,
    ) -> Result<Process, Error> {
        if writer == Writer::Millstream {
            let pipeline = pipeline(rate, &self.server.url(), topic, delivery, &self.options);
            return engine::start(&pipeline, &self.options, directory);
        }
        let mut command = self.client();
        command.args(["write", topic, &rate.to_string(), delivery]);
        Ok(Process::start("the client", command, &directory.join("client.log"))?)
    }

    fn start_meter(&self, topic: &str, directory: &Path) -> Result<(Metered, Process), Error> {
        let mut command = self.client();
        command.args(["meter", topic]);
        let log = directory.join("meter.log");
        let (process, output) = Process::start_piped("the meter", command, &log)?;
        let tally: Arc<Mutex<Seen>> = Arc::default();
        let theirs = Arc::clone(&tally);
        let thread = self.env.thread("bench-meter", move || read(output, &theirs));
        Ok((Metered { tally, _thread: thread }, process))
    }

    fn client(&self) -> Command {
        let mut client = pulsar::source_launch(&self.client);
        client.arg(self.server.url());
        client
    }

    fn wait_for(
        &self,
        process: &mut Process,
        tally: &Metered,
        is_there: impl Fn(&Seen) -> bool,
    ) -> Result<(), Error> {
        let begun_us = self.clock.now_us();
        while !is_there(&tally.lock()) {
            wait::pause(LOOK);
            process.check()?;
            let waited_us = self.clock.now_us() - begun_us;
            if waited_us > i64::try_from(START_MAX.as_micros()).expect("a minute") {
                return Err(system::behind(process, START_MAX));
            }
        }
        Ok(())
    }

    fn pause(&self, seconds: u64, process: &mut Process) -> Result<(), Error> {
        wait::pause(Duration::from_secs(seconds));
        Ok(process.check()?)
    }
}

/// What a meter has seen, and the thread that reads what it prints. The thread ends with the meter,
/// which has to be dropped first.
struct Metered {
    tally: Arc<Mutex<Seen>>,
    _thread: Thread,
}

impl Metered {
    fn lock(&self) -> parking_lot::MutexGuard<'_, Seen> {
        self.tally.lock()
    }
}

/// What a meter has printed.
#[derive(Default)]
struct Seen {
    is_ready: bool,
    tally: Tally,
}

/// Adds what the meter prints: `NUMBER DUE RECEIVED`, and besides what its client logs.
fn read(output: ChildStdout, seen: &Mutex<Seen>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line == "ready" {
            seen.lock().is_ready = true;
        }
        let mut numbers = line.split(' ').map(str::parse::<i64>);
        if let (Some(Ok(number)), Some(Ok(due_us)), Some(Ok(received_us)), None) =
            (numbers.next(), numbers.next(), numbers.next(), numbers.next())
        {
            seen.lock().tally.add(number.cast_unsigned(), due_us, received_us);
        }
    }
}

/// Rows of the rate source as messages.
fn pipeline(rate: u64, url: &str, topic: &str, delivery: &str, options: &EngineOptions) -> String {
    let rate = rate.to_string();
    let sink = [("service.url", url), ("topic", topic), ("delivery", delivery)];
    format!(
        "CREATE TABLE input USING rate OPTIONS ({});\n\
         CREATE TABLE output USING pulsar OPTIONS ({});\n\
         CREATE FLOW messages AS INSERT INTO output\n\
         SELECT concat_ws(' ', value, unix_micros(timestamp)) AS value FROM STREAM input;\n",
        sql_options(&[("rowsPerSecond", &rate)], &options.source),
        sql_options(&sink, &[]),
    )
}
