//! Writing at least once over Kafka's protocol, without librdkafka.
//!
//! Micro-batches queue up for a thread of their own. It takes all that wait, sends each broker one
//! request for all of its partitions, and waits for the answers; meanwhile more may gather. So how
//! much goes into a request is what has come while the one before was under way: one micro-batch
//! where the broker is quick, many where it is what everything waits for. There is no time to tune.
//!
//! The writer is idempotent: a request that is repeated after a lost connection is written once.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::contact::ContactWith;
use millstream_store::env::{Env, Thread};
use parking_lot::{Condvar, Mutex};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Notify;

use crate::brokers::Brokers;
use crate::brokers::request_error::{RequestError, as_librdkafka};
use crate::brokers::throttling::Throttling;
use crate::brokers::tries::Tries;
use crate::client::context::is_refusal;
use crate::client::delivery_reports::{Pending, explain};
use crate::error::{SinkError, SourceError};
use crate::protocol::ProducerIdentity;
use crate::protocol::error_code::ErrorCode;
use crate::sink::columns::SinkRows;
use crate::sink::exactly_once::ProtocolSettings;
use crate::sink::produce::{self, Failure, Filling, NoPartitions, ROWS, Round};
use crate::sink::record_batches::{self, Limits, Packing, PartitionBatches};

/// Bytes of rows that may wait for the thread, about, unless a piece alone has more.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Bytes that are sent together, in the same sense.
const TOGETHER_BYTES_MAX: usize = 16 << 20;
/// How long the brokers may take to create a topic.
const CREATE_PATIENCE: Duration = Duration::from_secs(5);
/// How often a new writer is asked for, for the same rows.
const WRITERS_MAX: u32 = 3;
/// A writer that has sent so many records to a partition is followed by a new one, long before its
/// numbers would begin anew.
const SEQUENCE_MAX: i32 = 1 << 30;

/// The running writer. Dropping it ends the thread, after the request under way.
pub struct ProtocolWriter {
    shared: Arc<Shared>,
    _thread: Ending,
}

/// Says the thread to end, before it is waited for.
struct Ending {
    shared: Arc<Shared>,
    thread: Option<Thread>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.queue.lock().has_ended = true;
        self.shared.changed.notify_one();
        drop(self.thread.take());
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There are rows, or the end has come.
    changed: Condvar,
    /// Rows were taken.
    space: Notify,
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.queue.lock().has_ended
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    rows: usize,
    /// Rows that the thread has taken and not written.
    taken: usize,
    /// Nothing is written any more.
    has_ended: bool,
}

/// Rows, their bytes, and the micro-batch that they belong to.
struct Job {
    rows: SinkRows,
    bytes: usize,
    pending: Arc<Pending>,
}

/// Micro-batches that are not written yet. Whatever becomes of the thread, they do not count as
/// written.
struct Unwritten(Vec<Arc<Pending>>);

impl Unwritten {
    fn are_written(mut self) {
        self.0.clear();
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.0.iter().for_each(|pending| pending.fail(SinkError::MicroBatchDropped));
    }
}

/// What the writer needs to know.
pub struct WriterContext {
    /// Its settings.
    pub settings: ProtocolSettings,
    /// How long rows may be without an answer.
    pub patience: Duration,
    /// `kafka.bootstrap.servers`.
    pub servers: String,
    /// The table.
    pub table: String,
    /// The option `topic`: where all rows go.
    pub topic: Option<Arc<str>>,
    /// Whether the brokers answer.
    pub contact: Arc<ContactWith>,
    /// Clock and chance.
    pub env: Env,
}

impl WriterContext {
    /// The brokers, not connected yet.
    pub fn brokers(&self) -> Brokers {
        let throttling = Arc::new(Throttling::new(&self.table));
        Brokers::new(self.settings.connections.clone(), throttling, self.env.clone())
    }
}

impl ProtocolWriter {
    /// Starts. A topic that is `missing` is made first. Blocks.
    ///
    /// # Errors
    /// The brokers do not make the topic.
    pub fn start(
        context: WriterContext,
        mut brokers: Brokers,
        missing: Option<&str>,
    ) -> Result<Self, SinkError> {
        if let Some(topic) = missing {
            make_topic(&mut brokers, topic, &context)?;
        }
        let (shared, env) = (Arc::new(Shared::default()), context.env.clone());
        let writing = Writing {
            context,
            brokers,
            shared: Arc::clone(&shared),
            writer: None,
            sequences: HashMap::new(),
        };
        let thread = Some(env.thread("kafka-writer", move || writing.run()));
        Ok(Self { shared: Arc::clone(&shared), _thread: Ending { shared, thread } })
    }

    /// True if so many bytes more may wait; otherwise see [`space`](Self::space).
    pub fn has_space(&self, bytes: usize) -> bool {
        let waiting = self.shared.queue.lock().bytes;
        waiting == 0 || waiting + bytes <= WAITING_BYTES_MAX
    }

    /// Hands rows over, which have about so many bytes. After a failure `pending` fails.
    pub fn put(&self, rows: SinkRows, bytes: usize, pending: &Arc<Pending>) {
        let mut queue = self.shared.queue.lock();
        if queue.has_ended {
            pending.fail(SinkError::AfterFailure);
            return;
        }
        queue.rows += rows.rows;
        queue.bytes += bytes;
        queue.jobs.push_back(Job { rows, bytes, pending: Arc::clone(pending) });
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Completes when rows were taken.
    pub async fn space(&self) {
        self.shared.space.notified().await;
    }

    /// Rows that are not written yet.
    pub fn in_flight(&self) -> usize {
        let queue = self.shared.queue.lock();
        queue.rows + queue.taken
    }
}

/// Makes a topic: the brokers do when its partitions are asked for, if they are set up so.
fn make_topic(
    brokers: &mut Brokers,
    topic: &str,
    context: &WriterContext,
) -> Result<(), SinkError> {
    let begun = context.env.monotonic();
    loop {
        let problem = match brokers.partitions(topic) {
            Ok(_) => return Ok(()),
            Err(problem) => problem,
        };
        let code = problem.code().map(as_librdkafka);
        if let Some(code) = code.filter(|code| is_refusal(*code)) {
            return Err(SinkError::Topic { topic: topic.to_owned(), code });
        }
        let waited = context.env.monotonic().saturating_sub(begun);
        if waited > CREATE_PATIENCE {
            let (topic, servers) = (topic.to_owned(), context.servers.clone());
            if problem.code().is_none() {
                let reasons = vec![problem.to_string()];
                let unreachable = SourceError::Unreachable { servers, waited, reasons };
                return Err(SinkError::Cluster(unreachable));
            }
            let missing = SourceError::NoTopic { topic, servers, option: "topic" };
            return Err(SinkError::Cluster(missing));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Writing {
    /// The thread ends, also by a panic: what waits is not written.
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.has_ended = true;
        let left: Vec<Job> = queue.jobs.drain(..).collect();
        (queue.rows, queue.bytes, queue.taken) = (0, 0, 0);
        drop(queue);
        left.iter().for_each(|job| job.pending.fail(SinkError::AfterFailure));
        self.shared.space.notify_one();
    }
}

/// The thread's own.
struct Writing {
    context: WriterContext,
    brokers: Brokers,
    shared: Arc<Shared>,
    /// Who writes, once it is known.
    writer: Option<ProducerIdentity>,
    /// How many records each partition of a topic has of the writer, those under way among them.
    sequences: HashMap<String, HashMap<i32, i32>>,
}

impl Writing {
    fn run(mut self) {
        while let Some(jobs) = self.take() {
            let (rows, pending): (Vec<_>, Vec<_>) =
                jobs.into_iter().map(|job| (job.rows, job.pending)).unzip();
            let unwritten = Unwritten(pending);
            match self.write(&rows) {
                Ok(()) => unwritten.are_written(),
                Err(error) => {
                    // What comes after it is not written, so that the order stays: the flow starts
                    // again with a new writer.
                    unwritten.0[0].fail(error);
                    return;
                }
            }
            self.shared.queue.lock().taken = 0;
        }
    }

    /// Waits for rows. `None` at the end.
    fn take(&self) -> Option<Vec<Job>> {
        let mut queue = self.shared.queue.lock();
        while queue.jobs.is_empty() || queue.has_ended {
            if queue.has_ended {
                return None;
            }
            self.shared.changed.wait(&mut queue);
        }
        let (mut jobs, mut together) = (Vec::new(), 0);
        while let Some((rows, bytes)) = queue.jobs.front().map(|job| (job.rows.rows, job.bytes))
            && (jobs.is_empty() || together + bytes <= TOGETHER_BYTES_MAX)
        {
            together += bytes;
            queue.taken += rows;
            queue.rows -= rows;
            queue.bytes -= bytes;
            jobs.extend(queue.jobs.pop_front());
        }
        drop(queue);
        self.shared.space.notify_one();
        Some(jobs)
    }

    fn write(&mut self, rows: &[SinkRows]) -> Result<(), SinkError> {
        let begun = self.context.env.monotonic();
        let mut parts = self.pack(rows, begun)?;
        let mut writers = 0;
        loop {
            let writer = self.writer(rows, begun)?;
            parts.iter_mut().for_each(|part| self.number(part));
            let limits = self.limits();
            let timestamp_ms = self.context.env.now_ms();
            let transaction = None;
            let mut filling = Filling { transaction, writer, rows, timestamp_ms, limits, parts };
            match self.fill(&mut filling, begun) {
                Ok(()) => return Ok(()),
                // What is left goes out again, under a new writer's numbers.
                Err(Failure::Step(_, problem))
                    if problem.code().is_some_and(ErrorCode::is_about_writer)
                        && writers < WRITERS_MAX =>
                {
                    tracing::debug!(table = self.context.table, %problem, "a new writer is needed");
                    writers += 1;
                    self.forget_writer();
                    parts = filling.parts;
                }
                Err(failure) => {
                    self.forget_writer();
                    return Err(match failure {
                        Failure::Row(error) => error,
                        Failure::Step(_, problem) => self.explain(rows, &problem),
                    });
                }
            }
        }
    }

    /// Gives the batches of a partition their numbers.
    fn number(&mut self, part: &mut PartitionBatches) {
        if !self.sequences.contains_key(&part.topic) {
            self.sequences.insert(part.topic.clone(), HashMap::new());
        }
        let of_topic = self.sequences.get_mut(&part.topic).expect("it is there now");
        let next = of_topic.entry(part.partition).or_default();
        part.sequence = *next;
        *next += part.records();
    }

    fn limits(&self) -> Limits {
        let ProtocolSettings { record_bytes_max, batch_bytes_max, compression, .. } =
            self.context.settings;
        Limits { record_bytes: record_bytes_max, batch_bytes: batch_bytes_max, compression }
    }

    /// Without knowing what the brokers have, its numbers are of no use any more. What is under way
    /// on its connections would come between what the next one writes.
    fn forget_writer(&mut self) {
        self.writer = None;
        self.sequences.clear();
        self.brokers.leave_rows();
    }

    /// Divides the rows among partitions, whose number the brokers are asked for first.
    fn pack(
        &mut self,
        rows: &[SinkRows],
        begun: Duration,
    ) -> Result<Vec<PartitionBatches>, SinkError> {
        let topics = record_batches::topics(rows, self.context.topic.as_deref())?;
        let WriterContext { env, contact, patience, .. } = &self.context;
        let shared = &self.shared;
        let gives_up = |problem: &RequestError| {
            let waited = env.monotonic().saturating_sub(begun);
            shared.has_ended() || waited > produce::patience_for(problem, *patience)
        };
        let found = produce::partitions(&mut self.brokers, &topics, contact, env, gives_up);
        let counts = found.map_err(|NoPartitions { topic, problem }| match problem.code() {
            Some(code) => SinkError::Topic { topic, code: as_librdkafka(code) },
            None => self.explain(rows, &problem),
        })?;
        let chance = self.context.env.random_u64();
        let packing = Packing::new(rows, self.limits(), chance, &counts);
        packing.pack(self.context.topic.as_deref())
    }

    /// The writer, asked for if there is none, or if its numbers have become large.
    fn writer(
        &mut self,
        rows: &[SinkRows],
        begun: Duration,
    ) -> Result<ProducerIdentity, SinkError> {
        if self.sequences.values().flat_map(HashMap::values).any(|next| *next >= SEQUENCE_MAX) {
            self.forget_writer();
        }
        let mut tries = Tries::new(&self.context.env);
        while self.writer.is_none() {
            if self.shared.has_ended() {
                return Err(SinkError::AfterFailure);
            }
            match self.brokers.new_producer() {
                Ok(writer) => self.writer = Some(writer),
                Err(problem)
                    if problem.may_pass() && self.waited(begun) < self.context.patience =>
                {
                    tries.failed(&problem, &self.context.contact);
                }
                Err(problem) => return Err(self.explain(rows, &problem)),
            }
        }
        Ok(self.writer.expect("it is known now"))
    }

    /// Sends what is missing until the brokers have it all.
    fn fill(&mut self, filling: &mut Filling<'_>, begun: Duration) -> Result<(), Failure> {
        let mut tries = Tries::new(&self.context.env);
        loop {
            let (mut round, left) = (Round::default(), filling.left());
            let sent = filling.send_parts(&mut self.brokers, &mut round)?;
            filling.await_parts(&mut self.brokers, sent, &mut round)?;
            if filling.is_done() {
                self.context.contact.answered();
                return Ok(());
            }
            if round.problem.is_none() && filling.left() == left {
                let what = "an answer without what was asked for";
                let lost = io::Error::new(io::ErrorKind::InvalidData, what);
                return Err(Failure::Step(ROWS, RequestError::Lost(lost)));
            }
            let Some(problem) = &round.problem else { continue };
            tries.failed(problem, &self.context.contact);
            filling.learn(&mut self.brokers, &round);
            if (self.waited(begun) > self.context.patience || self.shared.has_ended())
                && let Some(problem) = round.problem
            {
                return Err(Failure::Step(ROWS, problem));
            }
        }
    }

    fn waited(&self, begun: Duration) -> Duration {
        self.context.env.monotonic().saturating_sub(begun)
    }

    /// Why rows were not written, in the words of the first of them.
    fn explain(&self, rows: &[SinkRows], problem: &RequestError) -> SinkError {
        let code = problem.as_librdkafka();
        if problem.code().is_none() && !problem.may_pass() {
            let (servers, reason) = (self.context.servers.clone(), problem.to_string());
            return SinkError::Cluster(SourceError::Refused { servers, reason });
        }
        let code = if problem.may_pass() { RDKafkaErrorCode::MessageTimedOut } else { code };
        let row = rows.iter().find(|rows| rows.rows > 0);
        let topic = self.context.topic.as_deref();
        let topic = topic.or_else(|| row.and_then(|rows| rows.topic(0))).unwrap_or_default();
        let (key, value) = row.map_or((None, None), |rows| (rows.key(0), rows.value(0)));
        explain(topic, key, value, code, self.limits().record_bytes as u64)
    }
}

#[cfg(test)]
mod tests;
