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

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, RecordBatch, StringArray};
    use millstream_engine::api::sink::SourceOffset;
    use parking_lot::Mutex;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::sink::columns::SinkColumns;

    /// What the brokers were asked for, by number of the last micro-batch of a transaction.
    #[derive(Default)]
    struct Brokers {
        filled: Mutex<Vec<(u64, EndOffsets)>>,
        committed: Mutex<Vec<u64>>,
        aborted: Mutex<Vec<u64>>,
        /// The commit of this one fails.
        fails: Option<u64>,
    }

    struct Scripted {
        brokers: Arc<Brokers>,
        /// Held while no transaction may be filled.
        gate: Arc<Mutex<()>>,
        open: u64,
    }

    impl Transactor for Scripted {
        fn fill(&mut self, content: &Content) -> Result<(), SinkError> {
            self.open = content.batch_id.0;
            self.brokers.filled.lock().push((self.open, content.end_offsets.clone()));
            drop(self.gate.lock());
            Ok(())
        }

        fn commit(&mut self) -> Result<(), SinkError> {
            if self.brokers.fails == Some(self.open) {
                // By then the next one is filled.
                while self.brokers.filled.lock().len() < 2 {
                    std::thread::yield_now();
                }
                return Err(SinkError::TransactionDropped);
            }
            self.brokers.committed.lock().push(self.open);
            Ok(())
        }

        fn abort(&mut self) {
            self.brokers.aborted.lock().push(self.open);
        }
    }

    #[test]
    fn a_transaction_of_several_micro_batches_has_the_rows_of_all() {
        let content = |id, values: &[&str]| {
            let values: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
            let rows = RecordBatch::try_from_iter([("value", values)]).unwrap();
            let rows = SinkColumns::find(&rows.schema(), true).unwrap().of(&rows).unwrap();
            Content { batch_id: BatchId(id), rows: vec![rows], end_offsets: end_offsets(id) }
        };
        let mut all = content(3, &["a", "b"]);
        all.append(content(4, &["c"]));
        assert_eq!((all.batch_id, all.row_count()), (BatchId(4), 3));
        assert_eq!(all.end_offsets, end_offsets(4));
    }

    type Done = oneshot::Receiver<Result<i64, Failure>>;

    fn end_offsets(id: u64) -> EndOffsets {
        let ends = vec![Some(SourceOffset::new(id.to_string()))];
        EndOffsets { ends, batch_time_ms: 0 }
    }

    fn publish(rotation: &Rotation, id: u64) -> Done {
        let (batch_id, rows) = (BatchId(id), Vec::new());
        let content = Content { batch_id, rows, end_offsets: end_offsets(id) };
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("there is one");
        let (done, published) = oneshot::channel();
        rotation.publish(Work { content, permit, done });
        published
    }

    fn rotation(brokers: &Arc<Brokers>, gate: &Arc<Mutex<()>>, clients: usize) -> Rotation {
        let client = |_| {
            let (brokers, gate) = (Arc::clone(brokers), Arc::clone(gate));
            Box::new(Scripted { brokers, gate, open: 0 }) as Box<dyn Transactor>
        };
        Rotation::start(&Env::real(), (0..clients).map(client).collect())
    }

    #[tokio::test]
    async fn micro_batches_that_wait_share_a_transaction_that_stands_where_the_last_does() {
        let (brokers, gate) = (Arc::new(Brokers::default()), Arc::new(Mutex::new(())));
        let rotation = rotation(&brokers, &gate, 2);
        let closed = gate.lock();
        let first = publish(&rotation, 0);
        while brokers.filled.lock().is_empty() {
            std::thread::yield_now();
        }
        let waiting = [publish(&rotation, 1), publish(&rotation, 2), publish(&rotation, 3)];
        drop(closed);
        for published in std::iter::once(first).chain(waiting) {
            assert!(published.await.expect("it is acknowledged").is_ok());
        }
        assert_eq!(*brokers.filled.lock(), [(0, end_offsets(0)), (3, end_offsets(3))]);
        assert_eq!(*brokers.committed.lock(), [0, 3]);
    }

    #[tokio::test]
    async fn nothing_is_committed_after_a_commit_that_failed() {
        let brokers = Arc::new(Brokers { fails: Some(0), ..Brokers::default() });
        let rotation = rotation(&brokers, &Arc::default(), 2);
        let first = publish(&rotation, 0);
        while brokers.filled.lock().is_empty() {
            std::thread::yield_now();
        }
        for published in [first, publish(&rotation, 1)] {
            assert!(published.await.expect("it is answered").is_err());
        }
        assert!(publish(&rotation, 2).await.expect("it is answered").is_err());
        drop(rotation);
        assert_eq!(*brokers.committed.lock(), [0; 0]);
        assert_eq!(*brokers.aborted.lock(), [0, 1]);
    }
}
