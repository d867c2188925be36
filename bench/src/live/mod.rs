//! Live input: messages come at a fixed rate while the engine runs.
//!
//! A record is due at a moment that was set before the run, and carries it as its time; latency
//! counts from there, so the way into the topic is part of it, and a stall of whatever kind shows
//! in every record that was due meanwhile. When it was published the engine tells
//! ([`progress`](crate::progress)).

pub mod plan;

use std::path::Path;
use std::time::Duration;

use millstream_testkit::program::Usage;
use rdkafka::producer::BaseRecord;
use serde::Serialize;

use crate::clock::Clock;
use crate::engine::{self, Telling};
use crate::error::Error;
use crate::messages::Messages;
use crate::progress::Told;
use crate::quantiles::{Latencies, Quantiles};
use crate::report;
use crate::sender::Sender;
use crate::system;
use crate::testbed::TestBed;
use plan::Plan;

/// A program that starts on a busy machine.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// After the last record was sent, how long nothing may be published before it counts as lost.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// From the first records out to the measurement.
const SETTLE_US: i64 = 500_000;

/// Flags of live runs.
#[derive(Clone, Debug, clap::Args)]
pub struct LiveFlags {
    /// Live: messages a second
    #[arg(long, default_value_t = 20_000)]
    pub rate: u64,
    /// Live: seconds measured in each round
    #[arg(long, default_value_t = 20)]
    pub seconds: u64,
    /// Live: seconds at the same rate before that
    #[arg(long, default_value_t = 5)]
    pub warmup: u64,
    /// Live: how long a Delta table gathers rows for a commit; part of the latency of whatever is
    /// in it
    #[arg(long, default_value = "1s", value_name = "INTERVAL")]
    pub commit_interval: String,
}

impl LiveFlags {
    /// An error that names the flag if there can be no such run.
    pub fn check(&self) -> Result<(), Error> {
        if self.rate == 0 || self.seconds == 0 {
            let problem = "--rate and --seconds must be at least 1".to_owned();
            return Err(Error::Flags { problem });
        }
        Ok(())
    }
}

/// What is run.
pub struct Live<'a> {
    /// Where.
    pub testbed: &'a TestBed,
    /// How much.
    pub flags: &'a LiveFlags,
    /// The topic, which is empty.
    pub topic: &'a str,
    /// Its partitions.
    pub partitions: i32,
    /// Different ids of the messages; `None` for all that they can have.
    pub keys: Option<u64>,
    /// Rounds with the same number send at the same moments.
    pub round: u32,
    /// Given the time of the last record, the time of one more for each partition, and the
    /// watermark that has to follow: what closes the last windows. Milliseconds since the epoch.
    pub closing: Option<&'a dyn Fn(i64) -> Closing>,
}

/// The end of a live run with windows.
#[derive(Clone, Copy, Debug)]
pub struct Closing {
    /// The time of the last record of each partition.
    pub time_ms: i64,
    /// The watermark that shows that all windows before it are closed.
    pub watermark_ms: i64,
}

/// What a run gave.
pub struct Ran {
    /// What was sent, and when.
    pub plan: Plan,
    /// What the engine told.
    pub told: Vec<Told>,
    /// How late the generator was; part of every latency.
    late: Quantiles,
    /// What the engine used from the first record to the last.
    usage: Usage,
    /// How long that was.
    elapsed: Duration,
    /// Each second, microseconds since the epoch, the memory that the engine had in RAM, in MB.
    pub resident: Vec<(i64, f64)>,
}

/// The part of a result line that is the same for all live runs.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    rate: u64,
    seconds: u64,
    partitions: usize,
    engine_options: Vec<String>,
    micro_batches: usize,
    generator_late_p50_ms: f64,
    generator_late_p99_ms: f64,
    /// Cores that the engine kept busy, warm-up included.
    cores_busy: f64,
    peak_rss_mb: f64,
}

impl Live<'_> {
    /// Runs the engine on `pipeline`. `each` hears of every message: its id, and its time in
    /// milliseconds since the epoch; those that only close windows are left out.
    pub fn run(
        &self,
        pipeline: &str,
        directory: &Path,
        mut each: impl FnMut(u64, i64),
    ) -> Result<Ran, Error> {
        let testbed = self.testbed;
        let (env, brokers) = (&testbed.env, testbed.broker.address.as_str());
        let clock = Clock::new(env);
        let sender = Sender::new(env, &clock, brokers, self.topic, self.flags.rate)?;
        let mut feed = Feed { sender, messages: Messages::new(self.keys) };
        let mut engine = engine::start_telling(env, &clock, pipeline, &testbed.options, directory)?;
        let now_ms = clock.now_us() / 1_000;
        for partition in 0..self.partitions {
            each(feed.send(partition, now_ms)?, now_ms);
        }
        feed.sender.flush()?;
        let firsts = vec![1; self.plan(0).partitions];
        self.wait(&mut engine, READY_LIMIT, |told| is_there(told, &firsts))?;

        let plan = self.plan(clock.now_us() + SETTLE_US);
        feed.sender.wait_until(plan.start_us);
        let (began, before) = (env.monotonic(), engine.process.usage());
        let mut resident = Vec::new();
        let mut second = |engine: &mut Telling| {
            resident.push((clock.now_us(), engine.process.resident_mb()));
            Ok(engine.process.check()?)
        };
        let late = self.send(&plan, &mut feed, &clock, &mut each, || second(&mut engine))?;
        let (elapsed, after) = (env.monotonic() - began, engine.process.usage());
        let ended = self.close(&plan, &mut feed)?;
        self.wait(&mut engine, SILENCE_MAX, |told| ended.is_reached(told))?;
        self.stop(engine).map(|told| {
            let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
            Ran { plan, told, late, usage: Usage { cpu_seconds, ..after }, elapsed, resident }
        })
    }

    fn plan(&self, start_us: i64) -> Plan {
        let LiveFlags { rate, warmup, seconds, .. } = *self.flags;
        let partitions = usize::try_from(self.partitions).expect("it is at least 1");
        let seed = rate << 16 | u64::from(self.round);
        Plan { start_us, rate, warmup, seconds, partitions, seed }
    }

    fn send(
        &self,
        plan: &Plan,
        feed: &mut Feed,
        clock: &Clock,
        each: &mut impl FnMut(u64, i64),
        mut each_second: impl FnMut() -> Result<(), Error>,
    ) -> Result<Quantiles, Error> {
        let mut late = Latencies::new();
        for due in plan.schedule() {
            let (partition, _) = plan.place(due.number);
            let partition = i32::try_from(partition).expect("partitions are few");
            feed.sender.wait_until(due.due_us);
            let time_ms = due.due_us / 1_000;
            each(feed.send(partition, time_ms)?, time_ms);
            late.add(clock.now_us() - due.due_us);
            if due.number % self.flags.rate == 0 {
                each_second()?;
            }
        }
        feed.sender.flush()?;
        Ok(late.quantiles())
    }

    /// Sends what closes the last windows.
    fn close(&self, plan: &Plan, feed: &mut Feed) -> Result<Ended, Error> {
        let last = plan.schedule().last().map_or(plan.start_us, |due| due.due_us);
        let closing = self.closing.map(|closing| closing(last / 1_000));
        let mut ended = Ended { ends: plan.ends(), watermark_ms: None };
        if let Some(Closing { time_ms, watermark_ms }) = closing {
            for partition in 0..self.partitions {
                feed.send(partition, time_ms)?;
            }
            feed.sender.flush()?;
            ended.ends.iter_mut().for_each(|end| *end += 1);
            ended.watermark_ms = Some(watermark_ms);
        }
        Ok(ended)
    }

    /// Waits until what was told is what is waited for. Errors if nothing is told for `limit`.
    fn wait(
        &self,
        engine: &mut Telling,
        limit: Duration,
        is_there: impl Fn(&[Told]) -> bool,
    ) -> Result<(), Error> {
        let env = &self.testbed.env;
        let mut last = (0, env.monotonic());
        loop {
            let (lines, is_there) = engine.progress.look(|told| (told.len(), is_there(told)));
            if is_there {
                return Ok(());
            }
            engine.process.check()?;
            if lines != last.0 {
                last = (lines, env.monotonic());
            } else if env.monotonic() - last.1 > limit {
                return Err(system::behind(&engine.process, limit));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn stop(&self, mut engine: Telling) -> Result<Vec<Told>, Error> {
        system::stop(&mut engine.process)?;
        engine.progress.finish()
    }
}

impl Load {
    /// The most memory that the engine had in RAM, in million bytes.
    pub fn peak_rss_mb(&self) -> f64 {
        self.peak_rss_mb
    }
}

impl Ran {
    /// For the result line.
    pub fn load(&self, engine_options: &[String]) -> Load {
        Load {
            rate: self.plan.rate,
            seconds: self.plan.seconds,
            partitions: self.plan.partitions,
            engine_options: engine_options.to_vec(),
            micro_batches: self.told.len(),
            generator_late_p50_ms: self.late.p50_ms,
            generator_late_p99_ms: self.late.p99_ms,
            cores_busy: report::rounded(self.usage.cpu_seconds / self.elapsed.as_secs_f64(), 2),
            peak_rss_mb: report::rounded(self.usage.peak_rss_mb, 1),
        }
    }
}

/// Makes messages and sends them.
struct Feed {
    sender: Sender,
    messages: Messages,
}

impl Feed {
    /// Sends the next message; gives its id.
    fn send(&mut self, partition: i32, time_ms: i64) -> Result<u64, Error> {
        let message = self.messages.make()?;
        let record = BaseRecord::<(), [u8]>::to(self.sender.topic()).payload(message.bytes);
        self.sender.send(record.partition(partition).timestamp(time_ms))?;
        Ok(message.id)
    }
}

/// Where a run ends.
struct Ended {
    ends: Vec<i64>,
    watermark_ms: Option<i64>,
}

impl Ended {
    fn is_reached(&self, told: &[Told]) -> bool {
        let watermark = told.last().and_then(|told| told.watermark_ms);
        is_there(told, &self.ends) && self.watermark_ms.is_none_or(|at| watermark >= Some(at))
    }
}

/// Whether all of `ends` is published.
fn is_there(told: &[Told], ends: &[i64]) -> bool {
    told.last().is_some_and(|told| {
        told.ends.len() == ends.len() && told.ends.iter().zip(ends).all(|(at, end)| at >= end)
    })
}
