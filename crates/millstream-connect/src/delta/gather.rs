//! Micro-batches on their way into a table.
//!
//! ```text
//! publish ──▶ gatherer ──▶ writers (a thread each): encode, put files ──▶ committer: one entry
//!               │ every commit interval: "finish your files"                 │
//!               └──────────────────── the micro-batches that are in them ────┘──▶ acknowledged
//! ```
//!
//! While the committer waits for the store, the writers are already encoding what goes into the
//! next commit. Commits are made in order, one after the other. What comes after a pause is
//! committed at once: the interval is how far commits are apart at least.
//!
//! A small stream is written by one writer, into one file a commit; only what is more than
//! [`SPREAD_BYTES`] is spread over the cores.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use millstream_engine::sink::{BatchId, Failure, Kind, Reached};
use millstream_lake::data_file::{DataFile, FileWriter, WritePlan};
use millstream_lake::error::TableError;
use millstream_lake::maintenance::LiveTable;
use millstream_lake::table::Append;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::{Env, Thread};
use tokio::sync::{mpsc, oneshot};

use super::sink::note;

/// What is written by one writer before others join in, for each commit.
const SPREAD_BYTES: usize = 8 << 20;
/// Pieces of work waiting for a writer: enough to keep it busy, few enough to hold back a source
/// that is faster than the cores.
const WAITING_MAX: usize = 4;

/// A micro-batch for the table.
pub(super) struct Work {
    pub(super) batch_id: BatchId,
    pub(super) rows: Vec<RecordBatch>,
    pub(super) reached: Reached,
    /// Told when it is published: microseconds since the epoch.
    pub(super) done: oneshot::Sender<Result<i64, Failure>>,
}

/// What the gatherer is told.
pub(super) enum Message {
    /// A micro-batch.
    Work(Work),
    /// No more will come for now: commit at once.
    Flush,
}

/// The threads between a sink and its table. Dropping it publishes what was gathered, and waits.
pub(super) struct Gather {
    sender: Option<mpsc::Sender<Message>>,
    /// The gatherer; it holds the others, and ends after them.
    _thread: Thread,
}

/// What the threads work with.
pub(super) struct Settings {
    pub(super) table: Arc<LiveTable>,
    pub(super) plan: WritePlan,
    /// The query's id.
    pub(super) application: String,
    pub(super) commit_interval: Duration,
    pub(super) writers: usize,
    pub(super) env: Env,
}

impl Gather {
    pub(super) fn start(settings: Settings) -> Self {
        let (sender, messages) = mpsc::channel(WAITING_MAX);
        let env = settings.env.clone();
        let thread = env.thread("delta-gather", move || Gatherer::new(settings, messages).run());
        Self { sender: Some(sender), _thread: thread }
    }

    /// Hands something over; waits while the writers are behind. False if the threads have ended,
    /// after a failure that an acknowledgement has told.
    pub(super) async fn send(&self, message: Message) -> bool {
        let sender = self.sender.as_ref().expect("it is there until the drop");
        sender.send(message).await.is_ok()
    }

    /// Waits until a micro-batch would be taken at once.
    pub(super) async fn ready(&self) {
        let sender = self.sender.as_ref().expect("it is there until the drop");
        // A failure is told by the next publish.
        let _ = sender.reserve().await;
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        // The gatherer ends when nobody can send any more; the thread is joined after this.
        self.sender = None;
    }
}

struct Gatherer {
    settings: Settings,
    messages: mpsc::Receiver<Message>,
    writers: Vec<Writer>,
    commits: Option<mpsc::Sender<Commit>>,
    committer: Option<Thread>,
    /// Gathered since the last commit.
    waiting: Vec<Waiting>,
    reached: Reached,
    /// Bytes of rows given out since the last commit.
    bytes: usize,
    next_writer: usize,
    /// When the next commit is due, on the monotonic clock; `None` while nothing is gathered.
    due: Option<Duration>,
    /// When the last commit was begun: what comes after a pause does not wait for the next.
    committed: Option<Duration>,
}

/// A micro-batch whose rows are with the writers.
struct Waiting {
    batch_id: BatchId,
    done: oneshot::Sender<Result<i64, Failure>>,
}

/// Everything that goes into one commit.
struct Commit {
    files: Vec<oneshot::Receiver<Result<Vec<DataFile>, TableError>>>,
    micro_batches: Vec<Waiting>,
    reached: Reached,
}

impl Gatherer {
    fn new(settings: Settings, messages: mpsc::Receiver<Message>) -> Self {
        let (commits, to_commit) = mpsc::channel(1);
        let committer = Committer {
            table: Arc::clone(&settings.table),
            application: settings.application.clone(),
            prepared_by: settings.plan.version(),
            env: settings.env.clone(),
        };
        let thread = settings.env.thread("delta-commit", move || committer.run(to_commit));
        Self {
            settings,
            messages,
            writers: Vec::new(),
            commits: Some(commits),
            committer: Some(thread),
            waiting: Vec::new(),
            reached: Reached::default(),
            bytes: 0,
            next_writer: 0,
            due: None,
            committed: None,
        }
    }

    fn run(mut self) {
        while let Some(next) = self.next() {
            let goes_on = match next {
                Next::Message(Message::Work(work)) => self.take(work),
                Next::Message(Message::Flush) | Next::Due => self.commit(),
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
        let env = self.settings.env.clone();
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
            self.bytes += rows.get_array_memory_size();
            let writer = self.writer();
            if !self.writers[writer].send(Order::Rows(rows)) {
                return false;
            }
        }
        self.waiting.push(Waiting { batch_id: work.batch_id, done: work.done });
        self.reached = work.reached;
        let now = self.settings.env.monotonic();
        let next = self.committed.map_or(now, |last| last + self.settings.commit_interval);
        let due = *self.due.get_or_insert(next.max(now));
        if due <= now { self.commit() } else { true }
    }

    fn writer(&mut self) -> usize {
        let spread = (self.bytes / SPREAD_BYTES).min(self.settings.writers - 1);
        // One large record batch may be worth several at once.
        while self.writers.len() <= spread {
            self.writers.push(Writer::start(&self.settings));
        }
        self.next_writer = if self.next_writer < spread { self.next_writer + 1 } else { 0 };
        self.next_writer
    }

    /// Has all files finished, and their commit made. False once the committer has failed.
    fn commit(&mut self) -> bool {
        self.due = None;
        self.bytes = 0;
        if self.waiting.is_empty() {
            return true;
        }
        self.committed = Some(self.settings.env.monotonic());
        crash_points::reached(Step::BeforeBegin);
        let files = self.writers.iter().map(|writer| {
            let (done, files) = oneshot::channel();
            // A writer that has ended drops `done`, and the committer finds its files lost.
            writer.send(Order::Finish(done));
            files
        });
        let commit = Commit {
            files: files.collect(),
            micro_batches: std::mem::take(&mut self.waiting),
            reached: self.reached.clone(),
        };
        let commits = self.commits.as_ref().expect("it is there until the end");
        commits.blocking_send(commit).is_ok()
    }
}

enum Next {
    Message(Message),
    Due,
}

/// What a writer is told.
enum Order {
    Rows(RecordBatch),
    Finish(oneshot::Sender<Result<Vec<DataFile>, TableError>>),
}

struct Writer {
    orders: Option<mpsc::Sender<Order>>,
    thread: Option<Thread>,
}

impl Writer {
    fn start(settings: &Settings) -> Self {
        let (orders, mut to_do) = mpsc::channel(WAITING_MAX);
        let mut files = FileWriter::new(settings.plan.clone(), settings.table.table().store());
        files.steer(settings.table.steering());
        let work = move || {
            let mut failed: Option<TableError> = None;
            while let Some(order) = to_do.blocking_recv() {
                match order {
                    Order::Rows(rows) if failed.is_none() => failed = files.write(&rows).err(),
                    Order::Rows(_) => {}
                    Order::Finish(done) => {
                        let finished = failed.take().map_or_else(|| files.finish(), Err);
                        // Nobody asks any more if the commit before has failed.
                        let _ = done.send(finished);
                    }
                }
            }
            files.abandon();
        };
        let thread = settings.env.thread("delta-write", work);
        Self { orders: Some(orders), thread: Some(thread) }
    }

    fn send(&self, order: Order) -> bool {
        let orders = self.orders.as_ref().expect("it is there until the drop");
        orders.blocking_send(order).is_ok()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.orders = None;
        self.thread = None;
    }
}

struct Committer {
    table: Arc<LiveTable>,
    application: String,
    prepared_by: u64,
    env: Env,
}

impl Committer {
    /// Makes one commit after the other, until one fails.
    fn run(self, mut commits: mpsc::Receiver<Commit>) {
        while let Some(mut commit) = commits.blocking_recv() {
            let micro_batches = std::mem::take(&mut commit.micro_batches);
            let last = micro_batches.last().map(|waiting| waiting.batch_id);
            match self.publish(commit, last.expect("no commit is without micro-batches")) {
                Ok(()) => {
                    let now = self.env.now_us();
                    for waiting in micro_batches {
                        // The driver may have stopped listening after another failure.
                        let _ = waiting.done.send(Ok(now));
                    }
                }
                Err(failure) => {
                    let mut failure = Some(failure);
                    for waiting in micro_batches {
                        let failure = failure.take().unwrap_or_else(with_the_first);
                        let _ = waiting.done.send(Err(failure));
                    }
                    return;
                }
            }
        }
    }

    fn publish(&self, commit: Commit, batch_id: BatchId) -> Result<(), Failure> {
        let mut files = Vec::new();
        for written in commit.files {
            let lost = || Failure::new(Kind::Bug, "a writer of the table has ended too early");
            files.extend(written.blocking_recv().map_err(|_| lost())??);
        }
        crash_points::reached(Step::AfterProduce);
        let append = Append {
            application: &self.application,
            version: i64::try_from(batch_id.0).expect("batch ids are counted from 0"),
            files: &files,
            prepared_by: self.prepared_by,
            note: &note(batch_id, &commit.reached),
        };
        crash_points::reached(Step::BeforeCommit);
        let appended = self.table.append(&append)?;
        crash_points::reached(Step::AfterCommit);
        let Some(appended) = appended else { return Err(is_taken(batch_id)) };
        let (version, conflicts) = (appended.version, appended.conflicts);
        tracing::debug!(version, conflicts, files = files.len(), "committed");
        Ok(())
    }
}

/// The table had a commit for this micro-batch or a later one: what is in it is not ours.
fn is_taken(batch_id: BatchId) -> Failure {
    let problem = format!(
        "the table has a commit for micro-batch {batch_id} of this query already, which this \
         process did not make: two processes run one checkpoint. This one stops"
    );
    Failure::new(Kind::Fenced, problem)
}

fn with_the_first() -> Failure {
    Failure::new(Kind::Retry, "the commit that this micro-batch was part of has failed")
}
