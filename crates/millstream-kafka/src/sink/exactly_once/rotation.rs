//! The two threads that fill and end transactions, and the clients that they hand to each other.
//!
//! A client that has ended its transaction goes to the end of the queue of idle ones, so each rests
//! for as long as possible. One transaction is filled while the one before it is ended, and no more
//! are under way. Micro-batches that arrive meanwhile share the next one: a row waits for no more
//! than the one transaction before it, and where brokers are the bottleneck for as long as
//! [`pacing`](super::pacing) says. After the first failure nothing is committed any more:
//! what is filled already is aborted, and everything fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use millstream_engine::api::sink::{BatchId, EndOffsets, Failure};
use millstream_store::env::{Env, Thread};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ROWS_AHEAD;
use super::pacing::Pacing;
use crate::error::SinkError;
use crate::sink::columns::SinkRows;

/// With so many rows a transaction waits for no others: while it did, those that have no room yet
/// would be kept from being computed.
const ENOUGH: usize = ROWS_AHEAD as usize / 2;

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
        let (failed, gap) = (Arc::new(AtomicBool::new(false)), Gap::default());
        let written = env.monotonic();
        let filling = Filling {
            inbox,
            rested,
            filled,
            failed: failed.clone(),
            gap: gap.clone(),
            written,
            env: env.clone(),
        };
        let ending = Ending { to_end, idle, failed, gap, env: env.clone() };
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

/// How long the next transaction waits for rows, microseconds; the thread that ends transactions
/// tells the one that fills them.
#[derive(Clone, Default)]
struct Gap(Arc<AtomicU64>);

impl Gap {
    fn set(&self, gap: Duration) {
        self.0.store(gap.as_micros() as u64, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

struct Filling {
    inbox: Receiver<Work>,
    rested: Receiver<Box<dyn Transactor>>,
    filled: SyncSender<Filled>,
    failed: Arc<AtomicBool>,
    gap: Gap,
    /// When the last transaction was filled, on the monotonic clock.
    written: Duration,
    env: Env,
}

impl Filling {
    fn run(mut self) {
        while let Ok(work) = self.inbox.recv() {
            if self.failed.load(Ordering::Acquire) {
                Waiting(vec![work.done]).fail(SinkError::AfterFailure);
                continue;
            }
            // Idle clients are awaited before the queue is read, so that micro-batches that arrive
            // meanwhile join this transaction.
            let Ok(mut client) = self.rested.recv() else { return };
            let (content, permits, waiting) = self.join_waiting(work);
            let written = client.fill(&content);
            self.written = self.env.monotonic();
            match written {
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

    /// Joins a micro-batch with those that wait behind it, and those that come while a transaction
    /// should wait for rows, into one transaction.
    fn join_waiting(&mut self, first: Work) -> (Content, Vec<OwnedSemaphorePermit>, Waiting) {
        let Work { mut content, permit, done } = first;
        let (mut permits, mut waiting) = (vec![permit], vec![done]);
        let begins = self.written + self.gap.get();
        while content.row_count() < ROWS_AHEAD as usize
            && let Some(next) = self.next(content.row_count(), begins)
        {
            content.append(next.content);
            permits.push(next.permit);
            waiting.push(next.done);
        }
        (content, permits, Waiting(waiting))
    }

    /// The next micro-batch: while there are few rows, if it comes by `time` on the monotonic
    /// clock, otherwise if it is there already.
    fn next(&self, rows: usize, time: Duration) -> Option<Work> {
        let left = time.saturating_sub(self.env.monotonic());
        match rows >= ENOUGH || left.is_zero() {
            true => self.inbox.try_recv().ok(),
            false => self.inbox.recv_timeout(left).ok(),
        }
    }
}

struct Ending {
    to_end: Receiver<Filled>,
    idle: Sender<Box<dyn Transactor>>,
    failed: Arc<AtomicBool>,
    gap: Gap,
    env: Env,
}

impl Ending {
    fn run(self) {
        let mut pacing = Pacing::default();
        // A flag of its own: the shared one may be set by a transaction that failed to fill, and
        // those before it must still be committed.
        let mut failed = false;
        while let Ok(Filled { mut client, waiting }) = self.to_end.recv() {
            if failed {
                client.abort();
                waiting.fail(SinkError::AfterFailure);
                continue;
            }
            let asked = self.env.monotonic();
            match client.commit() {
                Ok(()) => {
                    waiting.succeed(self.env.now_us());
                    let now = self.env.monotonic();
                    self.gap.set(pacing.ended(now.saturating_sub(asked), now));
                }
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
        /// Commits take so many milliseconds.
        busy_ms: AtomicU64,
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
            std::thread::sleep(Duration::from_millis(self.brokers.busy_ms.load(Ordering::Relaxed)));
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
    async fn where_brokers_are_busy_a_transaction_waits_for_more_rows() {
        let brokers = Arc::new(Brokers::default());
        let rotation = rotation(&brokers, &Arc::default(), 2);
        let (mut ids, mut shares) = (0_u64.., false);
        let mut id = || ids.next().expect("there is no last one");
        for busy_ms in [0, 15] {
            brokers.busy_ms.store(busy_ms, Ordering::Relaxed);
            for _ in 0..20 {
                let published = publish(&rotation, id()).await;
                assert!(published.expect("it is acknowledged").is_ok());
            }
        }
        // Several attempts: this machine may be busy, too.
        for _ in 0..10 {
            let first = id();
            let one = publish(&rotation, first);
            std::thread::sleep(Duration::from_millis(20));
            let other = publish(&rotation, id());
            for published in [one, other] {
                assert!(published.await.expect("it is acknowledged").is_ok());
            }
            shares |= !brokers.committed.lock().contains(&first);
        }
        assert!(shares, "{:?}", brokers.committed.lock());
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
