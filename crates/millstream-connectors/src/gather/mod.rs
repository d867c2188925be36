//! Micro-batches on their way into a table or a directory, many to a commit.
//!
//! ```text
//! publish ──▶ gatherer ──▶ writers (a thread each): encode, put files ──▶ committer: one commit
//!               │ every commit interval: "finish your files"                 │
//!               └──────────────────── the micro-batches that are in them ────┘──▶ acknowledged
//! ```
//!
//! While the committer waits for the store, the writers are already encoding what goes into the
//! next commit. Commits are made in order, one after the other. What comes after a pause is
//! committed at once: the interval is how far commits are apart at least, but for a little
//! ([`Lead`]): who asks for a second wants to see rows within a second. Where a commit costs more
//! than a few bytes, one that would be small may wait a little longer ([`Pacing::patience`]).
//!
//! A small stream is written by one writer, into one file a commit; only what is more than
//! [`SPREAD_BYTES`] is spread over the cores.
//!
//! The result of a batch query comes in pieces. The writers encode them as they do micro-batches,
//! and the commit is made of all pieces together, when the result is published. Pieces without a
//! publish after them are abandoned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_engine::api::sink::{
    Acknowledgement, BatchId, Classified, EndOffsets, Failure, Kind, Output,
};
use millstream_store::crash_points::{self, Step};
use millstream_store::env::{Env, Thread};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

/// What is written by one writer before others join in, for each commit.
const SPREAD_BYTES: usize = 8 << 20;
/// Pieces of work waiting for a writer: enough to keep it busy, few enough to hold back a source
/// that is faster than the cores.
const WAITING_MAX: usize = 4;
/// Micro-batches in one commit are at least this share of the interval apart: what is gathered for
/// a second need not be taken in pieces of a millisecond.
const MICRO_BATCHES_A_COMMIT: u32 = 64;
/// Nor do they have to be further apart than this: a source's buffers are only so large.
const SPACING: Duration = Duration::from_millis(20);
/// But there are no more of them in a commit than this: each is remembered until then.
const MICRO_BATCHES_A_COMMIT_MAX: u32 = 8_192;

/// Why a micro-batch was not published, where its own commit does not say it.
#[derive(Debug, Error)]
enum CommitError {
    /// It was handed over after a commit had failed.
    #[error("the sink's commits have ended with a failure")]
    Ended,
    /// It was in one commit with others; the first of them has the reason.
    #[error("the commit that this micro-batch was part of has failed")]
    Failed,
    /// A thread that encodes its rows is gone.
    #[error("a writer of the sink has ended too early")]
    WriterEnded,
}

impl Classified for CommitError {
    fn kind(&self) -> Kind {
        match self {
            Self::Ended | Self::Failed => Kind::Retry,
            Self::WriterEnded => Kind::Bug,
        }
    }
}

/// Where commits go.
pub(crate) trait Destination: Send + Sync + 'static {
    /// What a writer has finished.
    type File: Send + 'static;
    /// Encodes rows.
    type Writer: RowWriter<File = Self::File>;

    /// What its threads are called: the gatherer, a writer, the committer.
    const THREADS: [&'static str; 3];
    /// Whether the order of rows counts. Then one writer gets all of them.
    const IS_ORDERED: bool = false;

    /// Another writer.
    fn writer(&self) -> Self::Writer;

    /// Makes `files` visible in one step, as everything up to and with micro-batch `batch_id`,
    /// which takes the query to `end_offsets`. Called by one thread.
    fn publish(
        &self,
        files: Vec<Self::File>,
        batch_id: BatchId,
        end_offsets: &EndOffsets,
    ) -> Result<(), Failure>;
}

/// Encodes rows as they come, into files that nobody sees yet.
pub(crate) trait RowWriter: Send + 'static {
    /// A file.
    type File;

    /// Encodes `rows`.
    fn write(&mut self, rows: &RecordBatch) -> Result<(), Failure>;

    /// Bytes encoded since the last [`Self::finish`], about.
    fn bytes(&self) -> u64;

    /// Closes the files that were begun.
    fn finish(&mut self) -> Result<Vec<Self::File>, Failure>;

    /// Gives up what was begun.
    fn abandon(&mut self);
}

/// When there is a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pacing {
    /// Commits are at least so far apart; zero for a commit per micro-batch.
    pub(crate) interval: Duration,
    /// Commits that would be small wait longer.
    pub(crate) patience: Option<Patience>,
}

/// How long a small commit waits for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// From this size on, in bytes, it does not.
    pub(crate) bytes: u64,
    /// From the commit before.
    pub(crate) interval: Duration,
}

impl Pacing {
    /// The longest that a micro-batch waits for its commit.
    fn longest(&self) -> Duration {
        self.patience.map_or(self.interval, |patience| patience.interval.max(self.interval))
    }

    /// How far micro-batches are apart at least.
    fn spacing(&self) -> Duration {
        let interval = self.longest();
        (interval / MICRO_BATCHES_A_COMMIT).min(SPACING).max(interval / MICRO_BATCHES_A_COMMIT_MAX)
    }

    /// How many micro-batches may be under way; `None` where there is a commit for each.
    pub(crate) fn micro_batches_in_flight_max(&self) -> Option<usize> {
        let interval = self.longest().as_micros();
        let gathered = interval / self.spacing().as_micros().max(1);
        // Twice: one commit is under way while the next is gathered.
        usize::try_from(gathered * 2).ok().filter(|_| interval > 0)
    }
}

/// How long before the end of an interval a commit begins, so that its rows are there at the end.
///
/// It is twice what commits take, since one may take longer than usual and somebody has yet to
/// read them, and the time between two micro-batches: rows that come after the last one before a
/// commit wait for that, too. But it is at most a tenth of the interval, so that a slow store is
/// not given many more commits than were asked for.
#[derive(Clone, Default)]
struct Lead {
    /// What commits take, microseconds: the newest counts an eighth.
    commit_us: Arc<AtomicU64>,
}

impl Lead {
    fn has_taken(&self, time: Duration) {
        let newest = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let before = self.commit_us.load(Ordering::Relaxed);
        let usual = if before == 0 { newest } else { before - before / 8 + newest / 8 };
        self.commit_us.store(usual, Ordering::Relaxed);
    }

    /// Before the end of `interval`, where micro-batches are `spacing` apart.
    fn within(&self, interval: Duration, spacing: Duration) -> Duration {
        let usual = Duration::from_micros(self.commit_us.load(Ordering::Relaxed));
        (usual.saturating_mul(2) + spacing).min(interval / 10)
    }
}

/// A micro-batch on its way.
struct Work {
    batch_id: BatchId,
    rows: Vec<RecordBatch>,
    end_offsets: EndOffsets,
    /// Told when it is published: microseconds since the epoch.
    done: oneshot::Sender<Result<i64, Failure>>,
}

/// A message to the gatherer.
enum Message {
    /// A micro-batch.
    Work(Work),
    /// Rows of the next micro-batch, before it is published.
    Piece(RecordBatch),
    /// No more will come for now: commit at once.
    Flush,
}

/// The threads between a sink and its destination. Dropping it publishes what was gathered, and
/// waits.
pub(crate) struct Gather {
    sender: Option<mpsc::Sender<Message>>,
    pacing: Pacing,
    env: Env,
    /// When the last micro-batch was taken, on the monotonic clock.
    last: Option<Duration>,
    /// Whether rows were written since the last publish.
    has_pieces: bool,
    /// Whether a writer has failed.
    has_failed: Arc<AtomicBool>,
    /// The gatherer; it holds the others, and ends after them.
    _thread: Thread,
}

impl Gather {
    /// Starts the threads; writers are started as they are needed.
    pub(crate) fn start<D: Destination>(destination: Arc<D>, pacing: Pacing, env: &Env) -> Self {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let (clock, has_failed) = (env.clone(), Arc::new(AtomicBool::new(false)));
        let failed = Arc::clone(&has_failed);
        let gather = move || Gatherer::new(destination, pacing, clock, messages, failed).run();
        let thread = env.thread(D::THREADS[0], gather);
        let (sender, env) = (Some(sender), env.clone());
        let (last, has_pieces) = (None, false);
        Self { sender, pacing, env, last, has_pieces, has_failed, _thread: thread }
    }

    fn sender(&self) -> &mpsc::Sender<Message> {
        self.sender.as_ref().expect("it is there until the drop")
    }

    /// Waits until it is time for another micro-batch, and it would be taken at once.
    pub(crate) async fn ready(&mut self) {
        if let Some(last) = self.last {
            let next = last + self.pacing.spacing();
            self.env.sleep(next.saturating_sub(self.env.monotonic())).await;
        }
        // The next publish reports a failure.
        let _ = self.sender().reserve().await;
        self.last = Some(self.env.monotonic());
    }

    /// Hands rows of the next micro-batch over, to be encoded; waits while the writers are behind.
    ///
    /// Errors: the failure of a writer, once one has failed with pieces before.
    pub(crate) async fn write(&mut self, rows: RecordBatch) -> Result<(), Failure> {
        if self.has_failed.load(Ordering::Relaxed) {
            // The commit cannot be made, and says why.
            let (batch_id, end_offsets) = (BatchId(0), EndOffsets::default());
            let output = Output { batch_id, partitions: Vec::new(), end_offsets };
            let acknowledgement = self.publish(output).await;
            self.flush().await;
            acknowledgement.accepted().await?;
        }
        if rows.num_rows() > 0 {
            self.has_pieces = true;
            // It fails only after a failure that the acknowledgement of the publish reports.
            let _ = self.sender().send(Message::Piece(rows)).await;
        }
        Ok(())
    }

    /// Hands a micro-batch over; waits while the writers are behind. One without rows counts as
    /// published at once, unless pieces of it were written.
    pub(crate) async fn publish(&mut self, output: Output) -> Acknowledgement {
        let Output { batch_id, partitions, end_offsets } = output;
        let rows = partitions.into_iter().flatten().filter(|rows| rows.num_rows() > 0);
        let rows: Vec<_> = rows.collect();
        if rows.is_empty() && !std::mem::take(&mut self.has_pieces) {
            return Acknowledgement::Done;
        }
        let (done, published) = oneshot::channel();
        // If it is not taken, `done` is dropped and the acknowledgement says so.
        let _ = self.sender().send(Message::Work(Work { batch_id, rows, end_offsets, done })).await;
        Acknowledgement::Later(Box::pin(async move {
            published.await.unwrap_or_else(|_| Err(CommitError::Ended.into()))
        }))
    }

    /// Has everything committed that was handed over.
    pub(crate) async fn flush(&self) {
        // It fails only after a failure that an acknowledgement has reported.
        let _ = self.sender().send(Message::Flush).await;
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        // The gatherer ends when nobody can send any more; the thread is joined after this.
        self.sender = None;
    }
}

struct Gatherer<D: Destination> {
    destination: Arc<D>,
    pacing: Pacing,
    env: Env,
    messages: mpsc::Receiver<Message>,
    writers: Vec<Writer<D>>,
    writers_max: usize,
    /// Whether one of them has failed.
    has_failed: Arc<AtomicBool>,
    commits: Option<mpsc::Sender<Commit<D>>>,
    committer: Option<Thread>,
    /// Gathered since the last commit.
    waiting: Vec<Waiting>,
    end_offsets: EndOffsets,
    /// Bytes of rows given out since the last commit.
    bytes: usize,
    next_writer: usize,
    /// When the next commit is due, on the monotonic clock; `None` while nothing is gathered.
    due: Option<Duration>,
    /// When the last commit was begun: what comes after a pause does not wait for the next.
    committed: Option<Duration>,
    lead: Lead,
}

/// A micro-batch whose rows are with the writers.
struct Waiting {
    batch_id: BatchId,
    done: oneshot::Sender<Result<i64, Failure>>,
}

/// Everything that goes into one commit.
struct Commit<D: Destination> {
    /// When it was begun, on the monotonic clock.
    begun: Duration,
    files: Vec<oneshot::Receiver<Result<Vec<D::File>, Failure>>>,
    micro_batches: Vec<Waiting>,
    end_offsets: EndOffsets,
}

impl<D: Destination> Gatherer<D> {
    fn new(
        destination: Arc<D>,
        pacing: Pacing,
        env: Env,
        messages: mpsc::Receiver<Message>,
        has_failed: Arc<AtomicBool>,
    ) -> Self {
        let (commits, to_commit) = mpsc::channel(1);
        let (clock, lead) = (env.clone(), Lead::default());
        let committer =
            Committer { destination: Arc::clone(&destination), env: clock, lead: lead.clone() };
        let thread = env.thread(D::THREADS[2], move || committer.run(to_commit));
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            destination,
            pacing,
            env,
            messages,
            writers: Vec::new(),
            has_failed,
            writers_max: if D::IS_ORDERED { 1 } else { cores() },
            commits: Some(commits),
            committer: Some(thread),
            waiting: Vec::new(),
            end_offsets: EndOffsets::default(),
            bytes: 0,
            next_writer: 0,
            due: None,
            committed: None,
            lead,
        }
    }

    fn run(mut self) {
        while let Some(next) = self.next() {
            let goes_on = match next {
                Next::Message(Message::Work(work)) => self.take(work),
                Next::Message(Message::Piece(rows)) => self.give_out(rows),
                Next::Message(Message::Flush) => self.commit(),
                Next::Due => self.commit_unless_small(),
            };
            if !goes_on {
                return;
            }
        }
        self.commit();
        self.commits = None;
        self.committer = None;
    }

    fn next(&mut self) -> Option<Next> {
        let env = self.env.clone();
        let Some(due) = self.due else {
            return self.messages.blocking_recv().map(Next::Message);
        };
        let left = due.saturating_sub(env.monotonic());
        let messages = &mut self.messages;
        env.block_on_cores(async {
            tokio::select! {
                biased;
                () = env.sleep(left) => Some(Next::Due),
                message = messages.recv() => message.map(Next::Message),
            }
        })
    }

    /// Gives a micro-batch's rows out. False once the committer has failed.
    fn take(&mut self, work: Work) -> bool {
        for rows in work.rows {
            if !self.give_out(rows) {
                return false;
            }
        }
        self.waiting.push(Waiting { batch_id: work.batch_id, done: work.done });
        self.end_offsets = work.end_offsets;
        let now = self.env.monotonic();
        let interval = self.pacing.interval;
        let lead = self.lead.within(interval, self.pacing.spacing());
        let next = self.committed.map_or(now, |last| last + interval - lead);
        let due = *self.due.get_or_insert(next.max(now));
        if due <= now { self.commit_unless_small() } else { true }
    }

    /// Gives rows to a writer. False if that has ended.
    fn give_out(&mut self, rows: RecordBatch) -> bool {
        self.bytes += rows.get_array_memory_size();
        let writer = self.writer();
        self.writers[writer].send(Order::Rows(rows))
    }

    fn writer(&mut self) -> usize {
        let spread = (self.bytes / SPREAD_BYTES).min(self.writers_max - 1);
        // One large record batch may be worth several at once.
        while self.writers.len() <= spread {
            let has_failed = Arc::clone(&self.has_failed);
            self.writers.push(Writer::start(&*self.destination, has_failed, &self.env));
        }
        self.next_writer = if self.next_writer < spread { self.next_writer + 1 } else { 0 };
        self.next_writer
    }

    /// What is due is committed, or waits some more. False once the committer has failed.
    fn commit_unless_small(&mut self) -> bool {
        let (now, last) = (self.env.monotonic(), self.committed);
        let Some((patience, last)) = self.pacing.patience.zip(last) else { return self.commit() };
        let bytes: u64 = self.writers.iter().map(Writer::bytes).sum();
        let latest = last + patience.interval;
        if bytes >= patience.bytes || now >= latest {
            return self.commit();
        }
        self.due = Some((now + self.pacing.interval).min(latest));
        true
    }

    /// Has all files finished, and their commit made. False once the committer has failed.
    fn commit(&mut self) -> bool {
        self.due = None;
        self.bytes = 0;
        if self.waiting.is_empty() {
            return true;
        }
        let begun = self.env.monotonic();
        self.committed = Some(begun);
        crash_points::reached(Step::BeforeBegin);
        let files = self.writers.iter().map(|writer| {
            let (done, files) = oneshot::channel();
            // A writer that has ended drops `done`, and the committer finds its files lost.
            writer.send(Order::Finish(done));
            files
        });
        let commit = Commit {
            begun,
            files: files.collect(),
            micro_batches: std::mem::take(&mut self.waiting),
            end_offsets: self.end_offsets.clone(),
        };
        let commits = self.commits.as_ref().expect("it is there until the end");
        commits.blocking_send(commit).is_ok()
    }
}

enum Next {
    Message(Message),
    Due,
}

/// A message to a writer.
enum Order<D: Destination> {
    Rows(RecordBatch),
    Finish(oneshot::Sender<Result<Vec<D::File>, Failure>>),
}

struct Writer<D: Destination> {
    orders: Option<mpsc::Sender<Order<D>>>,
    /// What it has encoded for the next commit.
    bytes: Arc<AtomicU64>,
    thread: Option<Thread>,
}

impl<D: Destination> Writer<D> {
    fn start(destination: &D, has_failed: Arc<AtomicBool>, env: &Env) -> Self {
        let (orders, mut to_do) = mpsc::channel(WAITING_MAX);
        let mut files = destination.writer();
        let bytes = Arc::new(AtomicU64::new(0));
        let encoded = Arc::clone(&bytes);
        let work = move || {
            let mut failed: Option<Failure> = None;
            while let Some(order) = to_do.blocking_recv() {
                match order {
                    Order::Rows(rows) if failed.is_none() => {
                        failed = files.write(&rows).err();
                        has_failed.fetch_or(failed.is_some(), Ordering::Relaxed);
                        encoded.store(files.bytes(), Ordering::Relaxed);
                    }
                    Order::Rows(_) => {}
                    Order::Finish(done) => {
                        let finished = failed.take().map_or_else(|| files.finish(), Err);
                        encoded.store(0, Ordering::Relaxed);
                        // Nobody asks any more if the commit before has failed.
                        let _ = done.send(finished);
                    }
                }
            }
            files.abandon();
        };
        let thread = env.thread(D::THREADS[1], work);
        Self { orders: Some(orders), bytes, thread: Some(thread) }
    }

    fn send(&self, order: Order<D>) -> bool {
        let orders = self.orders.as_ref().expect("it is there until the drop");
        orders.blocking_send(order).is_ok()
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl<D: Destination> Drop for Writer<D> {
    fn drop(&mut self) {
        self.orders = None;
        self.thread = None;
    }
}

struct Committer<D: Destination> {
    destination: Arc<D>,
    env: Env,
    lead: Lead,
}

impl<D: Destination> Committer<D> {
    /// Makes one commit after the other, until one fails.
    fn run(self, mut commits: mpsc::Receiver<Commit<D>>) {
        while let Some(mut commit) = commits.blocking_recv() {
            let micro_batches = std::mem::take(&mut commit.micro_batches);
            let begun = commit.begun;
            let last = micro_batches.last().map(|waiting| waiting.batch_id);
            match self.publish(commit, last.expect("no commit is without micro-batches")) {
                Ok(()) => {
                    let now = self.env.now_us();
                    self.lead.has_taken(self.env.monotonic().saturating_sub(begun));
                    for waiting in micro_batches {
                        // The driver may have stopped listening after another failure.
                        let _ = waiting.done.send(Ok(now));
                    }
                }
                Err(failure) => {
                    let mut failure = Some(failure);
                    for waiting in micro_batches {
                        let failure = failure.take().unwrap_or_else(|| CommitError::Failed.into());
                        let _ = waiting.done.send(Err(failure));
                    }
                    return;
                }
            }
        }
    }

    fn publish(&self, commit: Commit<D>, batch_id: BatchId) -> Result<(), Failure> {
        let mut files = Vec::new();
        for written in commit.files {
            files.extend(written.blocking_recv().map_err(|_| CommitError::WriterEnded)??);
        }
        crash_points::reached(Step::AfterProduce);
        self.destination.publish(files, batch_id, &commit.end_offsets)
    }
}

#[cfg(test)]
mod tests;
