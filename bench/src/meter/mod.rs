//! The meter: reads what comes out and says what is missing, what came twice and how late it was.
//!
//! [`Tally`] is the arithmetic, without a broker; [`Meter`] the thread that feeds it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use millstream_store::env::{Env, Thread};
use parking_lot::Mutex;
use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::clock::Clock;
use crate::error::Error;
use crate::payload::{self, Payload};
use crate::quantiles::{Latencies, Quantiles};
use crate::{offsets, settings};

/// How often the meter looks up when nothing comes.
const POLL: Duration = Duration::from_millis(20);

/// What was received so far.
pub struct Tally {
    seen: Vec<u64>,
    distinct: u64,
    duplicated: u64,
    foreign: u64,
    measured_from_us: i64,
    latencies: Latencies,
    first_us: i64,
    last_us: i64,
}

/// What a run shows, once it has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Records sent that never came out, warm-up included.
    pub missing: u64,
    /// Receipts beyond the first of a record, warm-up included.
    pub duplicated: u64,
    /// Receipts that the generator did not send.
    pub foreign: u64,
    /// Records that latency was measured on: those due after the warm-up, each once.
    pub records: u64,
    /// Receipt minus due time.
    pub latency: Quantiles,
    /// Measured records over the time from the first receipt to the last.
    pub throughput_rows_per_s: f64,
}

impl Tally {
    /// Expects `records` records; those due before `measured_from_us` are warm-up.
    pub fn new(records: u64, measured_from_us: i64) -> Self {
        let words = usize::try_from(records.div_ceil(64)).expect("a run fits in memory");
        Self {
            seen: vec![0; words],
            distinct: 0,
            duplicated: 0,
            foreign: 0,
            measured_from_us,
            latencies: Latencies::new(),
            first_us: i64::MAX,
            last_us: i64::MIN,
        }
    }

    /// Takes in one record. A repeat is counted and its latency is not: the reader had the record
    /// already.
    pub fn receive(&mut self, due_us: i64, number: u64, now_us: i64) {
        let word = usize::try_from(number / 64).ok().and_then(|word| self.seen.get_mut(word));
        let Some(word) = word else {
            self.foreign += 1;
            return;
        };
        let bit = 1 << (number % 64);
        if *word & bit != 0 {
            self.duplicated += 1;
            return;
        }
        *word |= bit;
        self.distinct += 1;
        if due_us >= self.measured_from_us {
            self.latencies.add(now_us - due_us);
            self.first_us = self.first_us.min(now_us);
            self.last_us = self.last_us.max(now_us);
        }
    }

    /// Takes in a record that is not one of ours.
    pub fn receive_foreign(&mut self) {
        self.foreign += 1;
    }

    /// How many different records were received.
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// The result, given how many records were sent.
    pub fn measured(&self, sent: u64) -> Measured {
        let records = self.latencies.count();
        let span_us = self.last_us.saturating_sub(self.first_us).max(1);
        Measured {
            missing: sent.saturating_sub(self.distinct),
            duplicated: self.duplicated,
            foreign: self.foreign,
            records,
            latency: self.latencies.quantiles(),
            throughput_rows_per_s: records.saturating_sub(1) as f64 * 1e6 / span_us as f64,
        }
    }
}

/// A thread that reads a topic from its beginning.
pub struct Meter {
    shared: Arc<Shared>,
    result: Receiver<Result<(), Error>>,
    _thread: Thread,
}

struct Shared {
    stop: AtomicBool,
    distinct: AtomicU64,
    probed: Mutex<BTreeSet<i32>>,
    tally: Mutex<Option<Tally>>,
}

impl Meter {
    /// Starts reading `topic`. Probes count from now on, records once [`Meter::expect`] was called.
    pub fn start(
        env: &Env,
        clock: &Clock,
        brokers: &str,
        topic: &str,
        partitions: i32,
    ) -> Result<Self, Error> {
        let consumer: BaseConsumer = settings::meter(brokers)
            .create()
            .map_err(Error::kafka("starting the meter's consumer"))?;
        let all = offsets::beginnings(topic, partitions);
        consumer.assign(&all).map_err(Error::kafka(format!("reading {topic}")))?;
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            distinct: AtomicU64::new(0),
            probed: Mutex::new(BTreeSet::new()),
            tally: Mutex::new(None),
        });
        let (report, result) = channel();
        let (theirs, clock) = (Arc::clone(&shared), clock.clone());
        let thread = env.thread("bench-meter", move || {
            // The receiver is gone only when the run has failed already.
            let _ = report.send(read(&consumer, &clock, &theirs));
        });
        Ok(Self { shared, result, _thread: thread })
    }

    /// Which partitions' probes have come through.
    pub fn probed(&self) -> BTreeSet<i32> {
        self.shared.probed.lock().clone()
    }

    /// Begins a measurement. Call it before the first record is sent.
    pub fn expect(&self, tally: Tally) {
        *self.shared.tally.lock() = Some(tally);
    }

    /// How many different records have come.
    pub fn distinct(&self) -> u64 {
        self.shared.distinct.load(Ordering::Relaxed)
    }

    /// Ends the reading and gives the result.
    pub fn finish(self, sent: u64) -> Result<Measured, Error> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.result.recv().expect("the meter reports before it ends")?;
        let tally = self.shared.tally.lock().take();
        Ok(tally.expect("a measurement was begun").measured(sent))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn read(consumer: &BaseConsumer, clock: &Clock, shared: &Shared) -> Result<(), Error> {
    while !shared.stop.load(Ordering::Relaxed) {
        let Some(first) = consumer.poll(POLL) else { continue };
        let mut tally = shared.tally.lock();
        let mut next = Some(first);
        // One lock for all that is there, and the clock read for each.
        while let Some(message) = next {
            let message = message.map_err(Error::kafka("reading the output topic"))?;
            take(message.payload(), clock.now_us(), tally.as_mut(), shared);
            // Told for each: behind a long backlog there is always a next one.
            let distinct = tally.as_ref().map_or(0, Tally::distinct);
            shared.distinct.store(distinct, Ordering::Relaxed);
            next = consumer.poll(Duration::ZERO);
        }
    }
    Ok(())
}

fn take(value: Option<&[u8]>, now_us: i64, tally: Option<&mut Tally>, shared: &Shared) {
    match (value.and_then(payload::decode), tally) {
        (Some(Payload::Probe { partition }), _) => {
            shared.probed.lock().insert(partition);
        }
        (Some(Payload::Record { due_us, number }), Some(tally)) => {
            tally.receive(due_us, number, now_us);
        }
        (None, Some(tally)) => tally.receive_foreign(),
        // Before the measurement nothing is sent but probes, so nothing else can be ours.
        (_, None) => {}
    }
}

#[cfg(test)]
mod tests;
