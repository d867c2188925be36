//! The thread that watches the cluster: partitions that appear or disappear, brokers that no
//! longer accept the credentials, and commits to the consumer group. It asks about once a second,
//! through a client of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_store::env::{Env, Thread};
use millstream_store::offset::SourceOffset;
use parking_lot::{Condvar, Mutex};

use super::orders::Orders;
use super::read_ahead::ReadAhead;
use crate::client::cluster::Cluster;
use crate::client::subscription::Subscription;
use crate::error::{DataLoss, SourceError};
use crate::offsets::{PartitionId, PerPartition, parse_source_offset};

/// How often partitions are asked for, and offsets committed at most.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long one look may take; the next one is soon.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// A partition is gone if this many looks in a row do not find it: a broker that starts up may
/// not know all topics for a moment.
const LOOKS_UNTIL_GONE: u32 = 3;
/// The credentials count as refused if this many looks in a row say so. A running client keeps the
/// password that it was made with, so after a change of password the flow has to be restarted.
const LOOKS_UNTIL_REFUSED: u32 = 3;
/// How long the last commit may take.
const LAST_COMMIT_PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait before the group is asked again whether it has the last commit.
const LAST_COMMIT_PAUSE: Duration = Duration::from_millis(20);

/// The running watcher. Dropping it commits what is outstanding and ends the thread.
pub struct PartitionWatch {
    shared: Arc<Shared>,
    thread: Option<Thread>,
}

#[derive(Default)]
struct Shared {
    wishes: Mutex<Wishes>,
    changed: Condvar,
}

#[derive(Default)]
struct Wishes {
    stop: bool,
    commit: Option<SourceOffset>,
}

/// What the watcher works on.
pub struct WatchInputs {
    /// The brokers.
    pub cluster: Arc<Cluster>,
    /// Which partitions are wanted.
    pub subscription: Subscription,
    /// Whether missing records end the query.
    pub fail_on_data_loss: bool,
    /// Where partitions are added and removed.
    pub buffer: Arc<ReadAhead>,
    /// Orders to the reader of the partitions.
    pub orders: Arc<Orders>,
    /// Whether any broker answers.
    pub brokers: ContactWith,
    /// Whether every partition has a leader that answers.
    pub leaders: ContactWith,
}

impl PartitionWatch {
    /// Begins to watch.
    pub fn start(inputs: WatchInputs, env: &Env) -> Self {
        let shared = Arc::new(Shared::default());
        let (own, clock) = (shared.clone(), env.clone());
        let mut watching = Watching { inputs, env: clock, absent: BTreeMap::new(), refusals: 0 };
        let thread = env.thread("kafka-watch", move || watching.run(&own));
        Self { shared, thread: Some(thread) }
    }

    /// Commits `end` to the group within a second or so. Does not wait.
    pub fn commit(&self, end: &SourceOffset) {
        self.shared.wishes.lock().commit = Some(end.clone());
    }
}

impl Drop for PartitionWatch {
    fn drop(&mut self) {
        self.shared.wishes.lock().stop = true;
        self.shared.changed.notify_one();
        drop(self.thread.take());
    }
}

struct Watching {
    inputs: WatchInputs,
    env: Env,
    /// Partitions not found lately, and how often in a row.
    absent: BTreeMap<PartitionId, u32>,
    /// How many of the last looks in a row were refused.
    refusals: u32,
}

impl Watching {
    fn run(&mut self, shared: &Shared) {
        loop {
            let (commit, stop) = {
                let mut wishes = shared.wishes.lock();
                if !wishes.stop {
                    shared.changed.wait_for(&mut wishes, INTERVAL);
                }
                (wishes.commit.take(), wishes.stop)
            };
            let commit = commit.and_then(|end| parse_source_offset(&end).ok());
            if let Some(positions) = &commit {
                self.inputs.cluster.commit(positions);
            }
            if stop {
                if let Some(positions) = &commit {
                    self.await_commit(positions);
                }
                return;
            }
            self.look();
            self.inputs.cluster.serve_events();
        }
    }

    /// Waits until the group has what was committed last, since librdkafka would drop it with the
    /// client. It answers questions in order and says nothing of a commit, so it is asked.
    fn await_commit(&self, positions: &PerPartition) {
        let cluster = &self.inputs.cluster;
        let end = self.env.monotonic() + LAST_COMMIT_PATIENCE;
        loop {
            let patience = end.saturating_sub(self.env.monotonic());
            let answer = cluster.is_committed(positions, patience);
            cluster.serve_events();
            match answer {
                Ok(true) => return,
                // The commit may be waiting for the group's coordinator still.
                Ok(false) if !patience.is_zero() => std::thread::sleep(LAST_COMMIT_PAUSE),
                Ok(false) => return tracing::warn!("the consumer group may lack the last offsets"),
                // librdkafka has said why the commit failed, or that no broker answers.
                Err(error) => return tracing::debug!("the last commit: {error}"),
            }
        }
    }

    fn look(&mut self) {
        let WatchInputs { cluster, subscription, buffer, brokers, leaders, .. } = &self.inputs;
        let asked_ms = self.env.now_ms();
        let answer = cluster.partitions(subscription, LOOK_PATIENCE);
        match &answer {
            Err(SourceError::Unreachable { .. }) => brokers.unanswered(asked_ms),
            // A refusal is an answer.
            _ => brokers.answered(),
        }
        let now = match answer {
            Ok(now) => now,
            Err(error @ SourceError::Refused { .. }) => {
                self.refusals += 1;
                if self.refusals == LOOKS_UNTIL_REFUSED {
                    buffer.fail(error.into());
                }
                return;
            }
            // Without an answer nothing is known about the partitions.
            Err(_) => return,
        };
        self.refusals = 0;
        let led = now.led.values().cloned().collect();
        if now.leaderless == 0 && cluster.leaders_answer(led, LOOK_PATIENCE) {
            leaders.answered();
        } else {
            leaders.unanswered(asked_ms);
        }
        let known: BTreeSet<PartitionId> = buffer.taken().into_keys().collect();
        let new: BTreeSet<PartitionId> = now.found.difference(&known).cloned().collect();
        if !new.is_empty() && !buffer.has_fixed_end() {
            self.add(&new);
        }
        self.absent.retain(|id, _| !now.found.contains(id) && known.contains(id));
        for id in known.difference(&now.found) {
            *self.absent.entry(id.clone()).or_default() += 1;
        }
        let gone: Vec<PartitionId> = self
            .absent
            .iter()
            .filter(|(_, looks)| **looks >= LOOKS_UNTIL_GONE)
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.absent.remove(&id);
            self.remove(&id);
        }
    }

    fn add(&self, new: &BTreeSet<PartitionId>) {
        let WatchInputs { cluster, buffer, orders, fail_on_data_loss, .. } = &self.inputs;
        // If the offsets cannot be read now, the next look in a second tries again.
        let Ok(earliest) = cluster.earliest(new) else { return };
        for (id, earliest) in earliest {
            if earliest > 0 {
                let loss = DataLoss::NewPartitionTruncated { id: id.clone(), earliest };
                if *fail_on_data_loss {
                    buffer.fail(SourceError::DataLoss { loss }.into());
                    return;
                }
                tracing::warn!("{loss}");
            }
            tracing::info!(partition = %id, offset = earliest, "reading a new Kafka partition");
            buffer.add(id.clone(), earliest);
            orders.start(id, earliest);
        }
    }

    fn remove(&self, id: &PartitionId) {
        let WatchInputs { buffer, orders, fail_on_data_loss, .. } = &self.inputs;
        let Some(position) = buffer.taken().get(id).copied() else { return };
        let loss = DataLoss::Gone { id: id.clone(), position };
        if *fail_on_data_loss {
            buffer.fail(SourceError::DataLoss { loss }.into());
            return;
        }
        tracing::warn!("{loss}; continuing without it");
        orders.stop(id.clone());
        buffer.remove(id);
    }
}
