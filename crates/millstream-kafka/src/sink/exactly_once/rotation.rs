//! The two threads that fill and end transactions, and the clients that they hand to each other.
//!
//! A client that has ended its transaction goes to the end of the queue of idle ones, so each rests
//! for as long as possible. One transaction is filled while the one before it is ended, and no more
//! are under way. Micro-batches that arrive meanwhile share the next one: a row never waits for
//! more than the one transaction before it. After the first failure nothing is committed any more:
//! what is filled already is aborted, and everything fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use millstream_engine::api::sink::{BatchId, EndOffsets, Failure};
use millstream_store::env::{Env, Thread};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ROWS_AHEAD;
use crate::error::SinkError;
use crate::sink::columns::SinkRows;

/// One transactional id, which fills and ends one transaction at a time.
pub trait Transactor: Send {
    /// Begins a transaction and fills it; returns when the brokers have all of it.
    fn fill(&mut self, content: &Content) -> Result<(), SinkError>;

    /// Makes the transaction visible.
    fn commit(&mut self) -> Result<(), SinkError>;

    /// Drops what is in the transaction, as far as the brokers let us: otherwise they do it after
    /// the transaction's time, or when the next instance starts.
    fn abort(&mut self);
}

/// What a transaction holds.
pub struct Content {
    /// The number of the micro-batch, of several the last.
    pub batch_id: BatchId,
    /// Its rows; there is at least one.
    pub rows: Vec<SinkRows>,
    /// How far the query has come with it.
    pub end_offsets: EndOffsets,
}

impl Content {
    fn row_count(&self) -> usize {
        self.rows.iter().map(|rows| rows.rows).sum()
    }

    /// Adds the micro-batch that follows.
    fn append(&mut self, next: Self) {
        self.batch_id = next.batch_id;
        self.rows.extend(next.rows);
        self.end_offsets = next.end_offsets;
    }
}

/// A micro-batch to publish.
pub struct Work {
    /// Its rows, and how far the query came with it.
    pub content: Content,
    /// Given back when more rows may come.
    pub permit: OwnedSemaphorePermit,
    /// Receives the time at which it was published, microseconds since the epoch, or the failure.
    pub done: oneshot::Sender<Result<i64, Failure>>,
}

/// The threads. Dropping this finishes the transactions that are under way.
pub struct Rotation {
    // Dropped before the threads, which end when there is no more sender.
    work: Option<Sender<Work>>,
    threads: Option<[Thread; 2]>,
}

/// A filled transaction, and who waits for it.
struct Filled {
    client: Box<dyn Transactor>,
    waiting: Waiting,
}

/// Who waits for a transaction.
struct Waiting(Vec<oneshot::Sender<Result<i64, Failure>>>);

impl Waiting {
    /// Reports when it was published. Sending fails only if the driver has given up waiting.
    fn succeed(self, now_us: i64) {
        for done in self.0 {
            let _ = done.send(Ok(now_us));
        }
    }

    /// Reports why it was not published: the reason goes to the earliest micro-batch, which the
    /// driver awaits first.
    fn fail(self, error: SinkError) {
        let mut error = Some(error);
        for done in self.0 {
            let _ = done.send(Err(error.take().unwrap_or(SinkError::AfterFailure).into()));
        }
    }
}

impl Rotation {
    /// Starts to publish with `clients` in turn.
    pub fn start(env: &Env, clients: Vec<Box<dyn Transactor>>) -> Self {
        let (work, inbox) = channel::<Work>();
        // A rendezvous: what is filled while the one before still ends would only wait there, and
        // later rows could not join it any more.
        let (filled, to_end) = sync_channel(0);
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
            Waiting(vec![refused.0.done]).fail(SinkError::AfterFailure);
        }
    }
}

impl Drop for Rotation {
    fn drop(&mut self) {
        drop(self.work.take());
        drop(self.threads.take());
    }
}

struct Filling {
    inbox: Receiver<Work>,
    rested: Receiver<Box<dyn Transactor>>,
    filled: SyncSender<Filled>,
    failed: Arc<AtomicBool>,
}

impl Filling {
    fn run(self) {
        while let Ok(work) = self.inbox.recv() {
            if self.failed.load(Ordering::Acquire) {
                Waiting(vec![work.done]).fail(SinkError::AfterFailure);
                continue;
            }
            // Idle clients are awaited before the queue is read, so that micro-batches that arrive
            // meanwhile join this transaction.
            let Ok(mut client) = self.rested.recv() else { return };
            let (content, permits, waiting) = self.join_waiting(work);
            match client.fill(&content) {
                // The receiver is there: the other thread ends after this one.
                Ok(()) => drop(self.filled.send(Filled { client, waiting })),
                Err(error) => {
                    self.failed.store(true, Ordering::Release);
                    client.abort();
                    waiting.fail(error);
                }
            }
            drop(permits);
        }
    }

    /// Joins a micro-batch with those that wait behind it into one transaction.
    fn join_waiting(&self, first: Work) -> (Content, Vec<OwnedSemaphorePermit>, Waiting) {
        let Work { mut content, permit, done } = first;
        let (mut permits, mut waiting) = (vec![permit], vec![done]);
        while content.row_count() < ROWS_AHEAD as usize
            && let Ok(next) = self.inbox.try_recv()
        {
            content.append(next.content);
            permits.push(next.permit);
            waiting.push(next.done);
        }
        (content, permits, Waiting(waiting))
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
        // A flag of its own: the shared one may be set by a transaction that failed to fill, and
        // those before it must still be committed.
        let mut failed = false;
        while let Ok(Filled { mut client, waiting }) = self.to_end.recv() {
            if failed {
                client.abort();
                waiting.fail(SinkError::AfterFailure);
                continue;
            }
            match client.commit() {
                Ok(()) => waiting.succeed(self.env.now_us()),
                Err(error) => {
                    failed = true;
                    self.failed.store(true, Ordering::Release);
                    client.abort();
                    waiting.fail(error);
                }
            }
            // The other thread may have ended.
            let _ = self.idle.send(client);
        }
    }
}
