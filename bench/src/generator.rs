//! The generator of rounds from topic to topic: records that say when they were due.

use std::sync::atomic::{AtomicBool, Ordering};

use millstream_store::env::Env;
use rdkafka::producer::BaseRecord;

use crate::clock::Clock;
use crate::error::Error;
use crate::payload::{self, Payload};
use crate::quantiles::{Latencies, Quantiles};
use crate::schedule::Schedule;
use crate::sender::Sender;

/// Different keys; many, so that every partition gets its share.
pub const KEYS: u64 = 1_024;

/// Sends records to one topic.
pub struct Generator {
    clock: Clock,
    size: usize,
    sender: Sender,
}

/// What the generator did.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Records handed to the client.
    pub records: u64,
    /// How long after it was due a record was handed over. This is contained in every latency: it
    /// is the measuring side's own part, and that of a machine that is too busy.
    pub late: Quantiles,
}

impl Generator {
    /// A generator of records of `size` bytes.
    pub fn new(
        env: &Env,
        clock: &Clock,
        brokers: &str,
        topic: &str,
        rate: u64,
        size: usize,
    ) -> Result<Self, Error> {
        let sender = Sender::new(env, clock, brokers, topic, rate)?;
        Ok(Self { clock: clock.clone(), size, sender })
    }

    /// Sends a probe to each of `partitions`.
    pub fn probe(&self, partitions: impl IntoIterator<Item = i32>) -> Result<(), Error> {
        let mut value = Vec::with_capacity(self.size);
        for partition in partitions {
            payload::encode(Payload::Probe { partition }, self.size, &mut value);
            let key = format!("probe-{partition}");
            let record = BaseRecord::to(self.sender.topic()).key(key.as_str());
            self.sender.send(record.payload(value.as_slice()).partition(partition))?;
        }
        self.sender.poll();
        Ok(())
    }

    /// Sends the whole schedule, unless told to give up, and waits until the broker has it all.
    pub fn run(&self, schedule: Schedule, give_up: &AtomicBool) -> Result<Sent, Error> {
        let mut late = Latencies::new();
        let mut value = Vec::with_capacity(self.size);
        let mut records = 0;
        for due in schedule.take_while(|_| !give_up.load(Ordering::Relaxed)) {
            self.sender.wait_until(due.due_us);
            let payload = Payload::Record { due_us: due.due_us, number: due.number };
            payload::encode(payload, self.size, &mut value);
            let key = (due.number % KEYS).to_string();
            let record = BaseRecord::to(self.sender.topic()).key(key.as_str());
            self.sender.send(record.payload(value.as_slice()))?;
            late.add(self.clock.now_us() - due.due_us);
            records += 1;
        }
        self.sender.flush()?;
        Ok(Sent { records, late: late.quantiles() })
    }
}
