//! Micro-batches on their way into streams, many to a commit.
//!
//! ```text
//! publish ──▶ writer: rows into messages, to one lane after the other ──▶ lanes ──▶ BigQuery
//!               │ when it is time: how far each lane is to be               │ answers
//!               └──▶ committer ◀─────────────────────────────────────────────┘
//!                      exactly once: entry in the log, FlushRows, acknowledged
//!                      at least once: acknowledged
//! ```
//!
//! While the committer waits, the writer appends what comes next to the same streams: an entry says
//! how many rows of each count.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::future::{self, FutureExt as _};
use googleapis_tonic_google_cloud_bigquery_storage_v1::google::cloud::bigquery::storage::v1;
use millstream_engine::api::refusals::{Refusal, Refusals, RefusedRows};
use millstream_engine::api::sink::{BatchId, EndOffsets, Failure, Kind, RefusedRow};
use millstream_store::crash_points::{self, Step};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use v1::write_stream::Type;

use super::aside::Aside;
use super::error::{BigQueryProblem, Unflushed};
use super::lane::{Fault, Freight, Lane, LaneMark};
use super::mapping::Mapping;
use super::message::{self, Message};
use super::progress::{self, Entry, ProgressLog, StreamRows};
use super::storage::Storage;

/// Calls for streams that are under way at a time.
const CALLS_MAX: usize = 16;
/// When nothing was committed for so long, the log records that all is visible: the service forgets
/// streams that nobody uses, and a restart should not have to ask for them.
const QUIET: Duration = Duration::from_secs(10);
/// How long streams may take to be ended with the run.
const TIDYING_UP: Duration = Duration::from_secs(5);

/// What happens with a micro-batch that is published twice.
pub(super) enum Guarantee {
    /// Rows become visible as they arrive.
    AtLeastOnce,
    /// Rows become visible once the log says so.
    ExactlyOnce(Box<ProgressLog>),
    /// The result of a query that runs once: all rows become visible in one step.
    InOneStep,
}

/// What the writer is asked.
pub(super) enum Request {
    /// Rows of the next micro-batch.
    Piece(RecordBatch, oneshot::Sender<Result<(), Failure>>),
    /// A micro-batch, and the room that it takes up while it waits.
    Publish(Work, OwnedSemaphorePermit),
    /// Nothing follows for now: commit at once.
    Flush,
}

/// A micro-batch.
pub(super) struct Work {
    pub(super) batch_id: BatchId,
    pub(super) end_offsets: EndOffsets,
    pub(super) rows: Vec<RecordBatch>,
    /// Told when it is published: microseconds since the epoch.
    pub(super) done: oneshot::Sender<Result<i64, Failure>>,
}

/// What a writer needs.
pub(super) struct Terms {
    /// The table's resource name.
    pub(super) table: String,
    pub(super) mapping: Mapping,
    /// Streams, or connections to the default stream, at most.
    pub(super) lanes_max: usize,
    /// Commits are at least so far apart; zero for as soon as possible.
    pub(super) interval: Duration,
    /// Bytes of rows and of their messages that are under way, at most.
    pub(super) bytes_max: usize,
    pub(super) trace_id: String,
    /// Where rows go that are not taken; without it they fail the query.
    pub(super) aside: Option<Arc<Aside>>,
}

/// Everything that is committed together.
struct Commit {
    marks: Vec<LaneMark>,
    /// Rows of it that cannot be sent.
    refused: Vec<Refusal>,
    oldest: Option<BatchId>,
    newest: Option<(BatchId, EndOffsets)>,
    done: Vec<oneshot::Sender<Result<i64, Failure>>>,
}

/// Takes micro-batches.
pub(super) struct Writer {
    terms: Terms,
    storage: Arc<Storage>,
    freight: Arc<Freight>,
    stream_type: Option<Type>,
    lanes: Vec<Lane>,
    next_lane: usize,
    under_way: Arc<Semaphore>,
    fault: Fault,
    commits: mpsc::Sender<Commit>,
    /// Rows that are not with a lane yet, and their bytes.
    rows: Vec<RecordBatch>,
    bytes: usize,
    /// Rows since the last commit that cannot be sent.
    refused: Vec<Refusal>,
    /// Micro-batches since the last commit.
    done: Vec<oneshot::Sender<Result<i64, Failure>>>,
    oldest: Option<BatchId>,
    newest: Option<(BatchId, EndOffsets)>,
    /// When the next commit is due, on the monotonic clock; `None` while nothing waits for it.
    due: Option<Duration>,
    committed: Option<Duration>,
}

/// Writes what comes through `requests`, until nothing more does.
pub(super) async fn run(
    terms: Terms,
    storage: Arc<Storage>,
    guarantee: Guarantee,
    requests: mpsc::UnboundedReceiver<Request>,
) {
    let stream_type = match &guarantee {
        Guarantee::AtLeastOnce => None,
        Guarantee::ExactlyOnce(_) => Some(Type::Buffered),
        Guarantee::InOneStep => Some(Type::Pending),
    };
    // At least once nothing is gained by gathering, and a round trip is not to be waited for.
    let commits_max = if stream_type.is_none() { 1_024 } else { 1 };
    let (commits, to_commit) = mpsc::channel(commits_max);
    let (env, fault) = (storage.env.clone(), Fault::default());
    let committer = Committer {
        table: terms.table.clone(),
        storage: Arc::clone(&storage),
        guarantee,
        fault: fault.clone(),
        flushed: Vec::new(),
        refusals: terms.aside.as_ref().map(|aside| aside.refusals.clone()),
    };
    let committer = env.spawn("bigquery-commit", committer.run(to_commit));
    let freight = Freight {
        schema: message::schema(&terms.mapping.sent),
        trace_id: terms.trace_id.clone(),
        table: terms.table.clone(),
        aside: terms.aside.clone(),
    };
    let under_way = Arc::new(Semaphore::new(terms.bytes_max));
    let writer = Writer {
        terms,
        storage,
        freight: Arc::new(freight),
        stream_type,
        lanes: Vec::new(),
        next_lane: 0,
        under_way,
        fault,
        commits,
        rows: Vec::new(),
        bytes: 0,
        refused: Vec::new(),
        done: Vec::new(),
        oldest: None,
        newest: None,
        due: None,
        committed: None,
    };
    writer.serve(requests).await;
    committer.join().await;
}

impl Writer {
    async fn serve(mut self, mut requests: mpsc::UnboundedReceiver<Request>) {
        let env = self.storage.env.clone();
        loop {
            let left = self.due.map(|due| due.saturating_sub(env.monotonic()));
            let fault = self.fault.clone();
            let served = tokio::select! {
                biased;
                () = fault.happened(), if !self.done.is_empty() => self.commit().await,
                () = env.sleep(left.unwrap_or_default()), if left.is_some() => self.commit().await,
                request = requests.recv() => match request {
                    Some(Request::Publish(work, room)) => {
                        drop(room);
                        self.take(work).await
                    }
                    Some(Request::Piece(rows, taken)) => self.take_piece(rows, taken).await,
                    Some(Request::Flush) => self.commit().await,
                    None => break,
                },
            };
            if let Err(failure) = served {
                return self.fail(failure);
            }
        }
        if let Err(failure) = self.commit().await {
            self.fail(failure);
        }
    }

    /// The others learn that writing has ended; the first has the reason.
    fn fail(self, failure: Failure) {
        if let Some(first) = self.done.into_iter().next() {
            let _ = first.send(Err(failure));
        }
    }

    async fn take(&mut self, work: Work) -> Result<(), Failure> {
        let Work { batch_id, end_offsets, rows, done } = work;
        self.done.push(done);
        self.oldest.get_or_insert(batch_id);
        self.newest = Some((batch_id, end_offsets));
        self.add(rows).await?;
        let now = self.storage.env.monotonic();
        let next = self.committed.map_or(now, |last| last + self.terms.interval);
        self.due.get_or_insert(next.max(now));
        Ok(())
    }

    /// Takes rows of a result, unless others of it are lost: then nobody needs to compute the rest.
    async fn take_piece(
        &mut self,
        rows: RecordBatch,
        taken: oneshot::Sender<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let result = match self.fault.has_happened() {
            true => Err(self.fault.take()),
            false => self.add(vec![rows]).await,
        };
        let goes_on = if result.is_ok() { Ok(()) } else { Err(BigQueryProblem::Ended.into()) };
        let _ = taken.send(result);
        goes_on
    }

    async fn add(&mut self, rows: Vec<RecordBatch>) -> Result<(), Failure> {
        self.bytes += rows.iter().map(message::size_of_rows).sum::<usize>();
        self.rows.extend(rows);
        if self.bytes >= message::BYTES_WANTED { self.give_out().await } else { Ok(()) }
    }

    /// Hands the rows that have gathered to the lanes; waits while too much is under way.
    async fn give_out(&mut self) -> Result<(), Failure> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        for group in message::groups(&rows) {
            let share = message::size_under_way(&group).min(self.terms.bytes_max);
            let share = u32::try_from(share.max(1)).expect("a group has some megabytes");
            let permit = Arc::clone(&self.under_way).acquire_many_owned(share).await;
            let permit = Arc::new(permit.expect("nobody closes it"));
            for message in self.messages(&group)? {
                let lane = self.lane().await?;
                self.lanes[lane].send(message, Arc::clone(&permit));
            }
        }
        Ok(())
    }

    fn messages(&mut self, group: &[RecordBatch]) -> Result<Vec<Message>, Failure> {
        let messages = message::messages(&self.terms.mapping, group);
        if let (Err(_), Some(aside)) = (&messages, &self.terms.aside) {
            let refused = &mut self.refused;
            let messages = group.iter().flat_map(|rows| aside.messages(rows.clone(), refused));
            return Ok(messages.collect());
        }
        messages.map_err(|problem| {
            let (table, mapping) = (self.terms.table.clone(), self.terms.mapping.clone());
            let problem = BigQueryProblem::Row { table, problem };
            RefusedRow::new(problem, move |rows| message::refuses(&mapping, rows)).into()
        })
    }

    /// A lane for the next message: one that has nothing to do, else another one, as long as there
    /// may be more, else the next in turn.
    async fn lane(&mut self) -> Result<usize, Failure> {
        if let Some(idle) = self.lanes.iter().position(Lane::is_idle) {
            return Ok(idle);
        }
        let lane = self.lanes.len();
        if lane == self.terms.lanes_max {
            self.next_lane = (self.next_lane + 1) % lane;
            return Ok(self.next_lane);
        }
        crash_points::reached(Step::BeforeBegin);
        let stream = match self.stream_type {
            None => format!("{}/streams/_default", self.terms.table),
            Some(kind) => self.storage.create_stream(&self.terms.table, kind).await?,
        };
        self.lanes.push(Lane::start(
            stream,
            self.stream_type.is_some(),
            lane,
            Arc::clone(&self.storage),
            Arc::clone(&self.freight),
            self.fault.clone(),
        ));
        Ok(lane)
    }

    /// Has everything committed that was handed over.
    async fn commit(&mut self) -> Result<(), Failure> {
        self.due = None;
        self.give_out().await?;
        if self.done.is_empty() {
            return Ok(());
        }
        self.committed = Some(self.storage.env.monotonic());
        let marks = self.lanes.iter().map(Lane::mark).collect();
        let done = std::mem::take(&mut self.done);
        let refused = std::mem::take(&mut self.refused);
        let (oldest, newest) = (self.oldest.take(), self.newest.take());
        let commit = Commit { marks, refused, oldest, newest, done };
        let sent = self.commits.send(commit).await;
        sent.map_err(|_| BigQueryProblem::Ended.into())
    }
}

/// Makes what was handed over count, one commit after the other.
struct Committer {
    table: String,
    storage: Arc<Storage>,
    guarantee: Guarantee,
    fault: Fault,
    /// How far the streams are visible.
    flushed: Vec<StreamRows>,
    /// Where rows go that are not taken.
    refusals: Option<Refusals>,
}

impl Committer {
    async fn run(mut self, mut commits: mpsc::Receiver<Commit>) {
        while let Some(mut commit) = self.next(&mut commits).await {
            let done = std::mem::take(&mut commit.done);
            match self.commit(commit).await {
                Ok(()) => {
                    let at_us = self.storage.env.now_us();
                    done.into_iter().for_each(|done| drop(done.send(Ok(at_us))));
                }
                Err(failure) => {
                    if failure.kind() != Kind::Fenced {
                        self.record_flushed("what is visible").await;
                    }
                    if let Some(first) = done.into_iter().next() {
                        let _ = first.send(Err(failure));
                    }
                    return;
                }
            }
        }
        self.tidy_up().await;
    }

    /// The next commit. A quiet time before it is used.
    async fn next(&mut self, commits: &mut mpsc::Receiver<Commit>) -> Option<Commit> {
        while let Guarantee::ExactlyOnce(log) = &self.guarantee
            && (!log.entry.flushed || !log.entry.refused.is_empty())
        {
            tokio::select! {
                biased;
                commit = commits.recv() => return commit,
                () = self.storage.env.sleep(QUIET) => {}
            }
            if !self.record_flushed("a quiet time").await {
                break;
            }
        }
        commits.recv().await
    }

    /// Records that all is visible, if it is: then a restart need not ask for streams that may be
    /// ended by then. And which refused rows are not among the dead letters yet. That it fails is
    /// only told; what is written next finds out what became of it.
    async fn record_flushed(&mut self, what: &str) -> bool {
        let Guarantee::ExactlyOnce(log) = &mut self.guarantee else { return false };
        let refused = progress::kept(self.refusals.as_ref());
        // Before the first commit of a run all of the entry is visible, and a commit of which no
        // row was taken has no streams. Rows whose flush has failed are not visible.
        let streams = match self.flushed.is_empty() {
            true if log.entry.flushed || log.entry.streams.is_empty() => log.entry.streams.clone(),
            true => return false,
            false => self.flushed.clone(),
        };
        let written = log.write_flushed(&streams, refused).await;
        if let Err(failure) = &written {
            tracing::warn!(%failure, "{what} was not recorded");
        }
        written.is_ok()
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), Failure> {
        let Commit { mut marks, mut refused, oldest, newest, .. } = commit;
        for mark in &mut marks {
            if !mark.reached().await {
                return Err(self.explained(self.fault.take()).await);
            }
        }
        let mut streams = Vec::with_capacity(marks.len());
        for mark in marks {
            let (rows, not_taken) = mark.settle();
            refused.extend(not_taken);
            if rows > 0 {
                streams.push(StreamRows { name: mark.stream, rows });
            }
        }
        if let (Some(refusals), Some((batch_id, end_offsets))) = (&self.refusals, &newest) {
            // Which micro-batch of the commit a row is of is not known. The service has all of
            // them.
            let (batch_id, found_ms) = (*batch_id, end_offsets.batch_time_ms);
            let first = oldest.unwrap_or(batch_id);
            refusals.add(RefusedRows { first, batch_id, found_ms, rows: refused });
        }
        crash_points::reached(Step::AfterProduce);
        match &mut self.guarantee {
            Guarantee::AtLeastOnce => Ok(()),
            Guarantee::InOneStep => self.commit_at_once(streams).await,
            Guarantee::ExactlyOnce(log) => {
                let (batch_id, end_offsets) = newest.expect("a commit has a micro-batch");
                let mut entry = Entry::new(&self.table, batch_id, &end_offsets, streams.clone());
                entry.refused = progress::kept(self.refusals.as_ref());
                crash_points::reached(Step::BeforeCommit);
                log.write(entry).await?;
                crash_points::reached(Step::AfterCommit);
                let upto = log.entry.upto();
                let mut lacking = streams.clone();
                lacking.retain(|stream| !self.flushed.contains(stream));
                let flushed = match flush(&self.storage, &lacking).await {
                    Ok(lost) if lost.is_empty() => Ok(()),
                    Ok(streams) => Err(BigQueryProblem::Unflushed { streams, upto }.into()),
                    Err(failure) => Err(failure),
                };
                if let Err(failure) = flushed {
                    return Err(self.explained(failure).await);
                }
                crash_points::reached(Step::StreamsFlushed);
                self.flushed = streams;
                Ok(())
            }
        }
    }

    /// `failure`, unless it comes of another instance that has taken over and ended the streams.
    async fn explained(&mut self, failure: Failure) -> Failure {
        match &mut self.guarantee {
            Guarantee::ExactlyOnce(log) => log.check().await.err().unwrap_or(failure),
            Guarantee::AtLeastOnce | Guarantee::InOneStep => failure,
        }
    }

    async fn commit_at_once(&self, streams: Vec<StreamRows>) -> Result<(), Failure> {
        if streams.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = streams.into_iter().map(|stream| stream.name).collect();
        for name in &names {
            let ended = self.storage.finalize(name).await?;
            ended.map_err(|answer| answer.refused("end a write stream"))?;
        }
        self.storage.commit(&self.table, &names).await
    }

    /// Records that all is visible, and ends the streams.
    async fn tidy_up(&mut self) {
        if self.record_flushed("the end of the run").await {
            let env = &self.storage.env;
            tokio::select! {
                () = finalize(&self.storage, &self.flushed) => {}
                () = env.sleep(TIDYING_UP) => tracing::debug!("write streams were not ended"),
            }
        }
    }
}

/// Makes rows of `streams` visible. Gives those of which the service does not know any more whether
/// they are.
///
/// # Errors
/// The service refuses, or is away for too long; some of the streams may have been asked for.
pub(super) async fn flush(
    storage: &Storage,
    streams: &[StreamRows],
) -> Result<Vec<Unflushed>, Failure> {
    let mut lost = Vec::new();
    for some in streams.chunks(CALLS_MAX) {
        let mut calls = Vec::with_capacity(some.len());
        for stream in some {
            calls.push(flush_one(storage, stream).boxed());
        }
        let mut outcome = Ok(());
        for flushed in future::join_all(calls).await {
            match flushed {
                Ok(gone) => lost.extend(gone),
                Err(failure) => outcome = outcome.and(Err(failure)),
            }
        }
        outcome?;
    }
    Ok(lost)
}

async fn flush_one(storage: &Storage, stream: &StreamRows) -> Result<Option<Unflushed>, Failure> {
    let flushed = storage.flush(stream).await?;
    crash_points::reached(Step::StreamsHalfFlushed);
    Ok(flushed.err().map(|answer| {
        let (stream, rows, said) = (stream.name.clone(), stream.rows, answer.to_string());
        Unflushed { stream, rows, said }
    }))
}

/// Ends streams, so that they do not count as open at the service. That it fails costs nothing
/// else: the service forgets streams that nobody uses.
pub(super) async fn finalize(storage: &Storage, streams: &[StreamRows]) {
    for some in streams.chunks(CALLS_MAX) {
        let mut calls = Vec::with_capacity(some.len());
        for stream in some {
            calls.push(storage.finalize(&stream.name).boxed());
        }
        for ended in future::join_all(calls).await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(answer)) => tracing::debug!(%answer, "a write stream was not ended"),
                Err(failure) => {
                    tracing::debug!(%failure, "write streams were not ended");
                    return;
                }
            }
        }
    }
}
