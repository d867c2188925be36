//! The two threads that fill and end transactions, and the clients that go round between them.
//!
//! A client that has ended its transaction goes to the end of the queue of idle ones, so each
//! rests for as long as possible. After the first failure nothing is committed any more: what is
//! filled already is aborted, and everything fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use millstream_engine::sink::{BatchId, Failure};
use millstream_store::env::{Env, Thread};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::super::error::SinkError;
use super::super::sink_columns::SinkRows;

/// One transactional id, which fills and ends one transaction at a time.
pub trait Transactor: Send {
    /// Begins a transaction and fills it; returns when the brokers have all of it.
    fn fill(&mut self, work: &Work) -> Result<(), SinkError>;

    /// Makes the transaction visible.
    fn commit(&mut self) -> Result<(), SinkError>;

    /// Drops what is in the transaction, as far as the brokers let us: otherwise they do it after
    /// the transaction's time, or when the next instance starts.
    fn abort(&mut self);
}

/// A micro-batch to publish.
pub struct Work {
    /// Its number.
    pub batch_id: BatchId,
    /// Its rows; there is at least one.
    pub rows: Vec<SinkRows>,
    /// The record of progress, in pieces.
    pub record: Vec<String>,
    /// Given back when the next micro-batch may come.
    pub permit: OwnedSemaphorePermit,
    /// Told when it was published, microseconds since the epoch, or why it is not.
    pub done: oneshot::Sender<Result<i64, Failure>>,
}

/// The threads. Dropped, they end what they have in hand.
pub struct Rotation {
    // Dropped before the threads, which end when there is no more sender.
    work: Option<Sender<Work>>,
    threads: Option<[Thread; 2]>,
}

/// A filled transaction, and who waits for it.
struct Filled {
    client: Box<dyn Transactor>,
    done: oneshot::Sender<Result<i64, Failure>>,
}

impl Rotation {
    /// Starts to publish with `clients` in turn.
    pub fn start(env: &Env, clients: Vec<Box<dyn Transactor>>) -> Self {
        let (work, inbox) = channel::<Work>();
        let (filled, to_end) = channel();
        let (idle, rested) = channel();
        for client in clients {
            idle.send(client).expect("the receiver is here");
        }
        let failed = Arc::new(AtomicBool::new(false));
        let filling = Filling { inbox, rested, filled, failed: failed.clone() };
        let ending = Ending { to_end, idle, failed, env: env.clone() };
        let threads = [
            env.thread("kafka-fill", move || filling.run()),
            env.thread("kafka-commit", move || ending.run()),
        ];
        Self { work: Some(work), threads: Some(threads) }
    }

    /// Hands a micro-batch over. A rotation that has ended fails it.
    pub fn publish(&self, work: Work) {
        let sender = self.work.as_ref().expect("it is there until the end");
        if let Err(refused) = sender.send(work) {
            fail(refused.0.done, SinkError::AfterFailure);
        }
    }
}

impl Drop for Rotation {
    fn drop(&mut self) {
        drop(self.work.take());
        drop(self.threads.take());
    }
}

fn fail(done: oneshot::Sender<Result<i64, Failure>>, error: SinkError) {
    // Nobody waits any more if the driver has given up.
    let _ = done.send(Err(error.into()));
}

struct Filling {
    inbox: Receiver<Work>,
    rested: Receiver<Box<dyn Transactor>>,
    filled: Sender<Filled>,
    failed: Arc<AtomicBool>,
}

impl Filling {
    fn run(self) {
        while let Ok(work) = self.inbox.recv() {
            if self.failed.load(Ordering::Acquire) {
                fail(work.done, SinkError::AfterFailure);
                continue;
            }
            let Ok(mut client) = self.rested.recv() else { return };
            match client.fill(&work) {
                Ok(()) => {
                    let Work { permit, done, .. } = work;
                    // Its thread ends after this one.
                    let _ = self.filled.send(Filled { client, done });
                    drop(permit);
                }
                Err(error) => {
                    self.failed.store(true, Ordering::Release);
                    client.abort();
                    fail(work.done, error);
                }
            }
        }
    }
}

struct Ending {
    to_end: Receiver<Filled>,
    idle: Sender<Box<dyn Transactor>>,
    failed: Arc<AtomicBool>,
    env: Env,
}

impl Ending {
    fn run(self) {
        // One that failed to fill does not keep those before it from being committed.
        let mut failed = false;
        while let Ok(Filled { mut client, done }) = self.to_end.recv() {
            if failed {
                client.abort();
                fail(done, SinkError::AfterFailure);
                continue;
            }
            match client.commit() {
                // Nobody waits any more if the driver has given up.
                Ok(()) => drop(done.send(Ok(self.env.now_us()))),
                Err(error) => {
                    failed = true;
                    self.failed.store(true, Ordering::Release);
                    client.abort();
                    fail(done, error);
                }
            }
            // The other thread may have ended.
            let _ = self.idle.send(client);
        }
    }
}
