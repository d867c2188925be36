//! The sink: rows become pieces as they come, and a task of its own writes them, one script at a
//! time. Micro-batches that come meanwhile are written together, as one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Table};
use millstream_engine::api::sink::{
    Acknowledgement, Delivery, Failure, OtherQuery, Output, Published, Sink,
};
use millstream_store::env::{Env, Task};
use tokio::sync::{mpsc, oneshot};

use super::encode::Encoder;
use super::error::RedisProblem;
use super::link::Link;
use super::memory::{self, Acknowledged, Recorder};
use super::options::SinkOptions;
use super::record::Keys;
use super::writer::{Work, Writer, Writing};

/// Micro-batches that wait for the writer; while there are more, the next one grows.
const WAITING_MAX: usize = 2;
/// How long a server may be away at the start: a wrong address is to be reported soon.
pub(super) const OPEN_PATIENCE: Duration = Duration::from_secs(5);
/// What the name of a query that runs once begins with.
const BATCH_RUN: &str = "once-";

/// Writes micro-batches to Redis.
pub(super) struct RedisSink {
    options: Arc<SinkOptions>,
    encoder: Encoder,
    context: FlowContext,
    keys: Keys,
    running: Option<Running>,
}

/// The writer's task.
struct Running {
    requests: mpsc::Sender<Request>,
    task: Task<()>,
    recorder: Option<Recorder>,
}

/// What the writer is asked.
enum Request {
    Publish(Work, oneshot::Sender<Result<i64, Failure>>),
    OtherQueries(oneshot::Sender<Result<Vec<OtherQuery>, Failure>>),
}

impl RedisSink {
    /// A sink of a table that was checked, for rows of `schema`.
    pub(super) fn new(
        table: &Table,
        schema: &SchemaRef,
        base_dir: &Path,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let options = Arc::new(SinkOptions::parse(table, schema, base_dir)?);
        let query = match context.query_id.is_empty() {
            true => format!("{BATCH_RUN}{}", context.env.random_uuid()),
            false => context.query_id.clone(),
        };
        let keys = Keys::new(&options.prefix, &query);
        let encoder = Encoder::new(Arc::clone(&options), Arc::clone(schema));
        Ok(Self { options, encoder, context: context.clone(), keys, running: None })
    }

    fn is_once(&self) -> bool {
        self.context.query_id.is_empty()
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the driver opens a sink before it uses it")
    }
}

#[async_trait]
impl Sink for RedisSink {
    fn description(&self) -> String {
        format!("Redis[{}]", self.options.prefix)
    }

    fn delivery(&self) -> Delivery {
        // A query that runs once does not continue after a crash.
        if self.is_once() { Delivery::AtLeastOnce } else { Delivery::Transactional }
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        self.close().await?;
        let env = self.context.env.clone();
        let log = self.context.sink_log.clone();
        let remembered = match &log {
            Some(log) => memory::recall(log, &self.keys.record).await?,
            None => None,
        };
        let acknowledged = Acknowledged::none();
        let writing = Writing {
            options: Arc::clone(&self.options),
            encoder: self.encoder.clone(),
            keys: self.keys.clone(),
            flow: self.context.flow.clone(),
            is_once: self.is_once(),
            remembered,
            acknowledged: acknowledged.clone(),
            env: env.clone(),
        };
        let server = self.options.server.clone();
        let contact = self.context.contacts.with(format!("Redis at {}", server.shown()));
        let link = Link::new(server, env.clone(), contact, OPEN_PATIENCE)?;
        let (requests, inbox) = mpsc::channel(WAITING_MAX);
        let (opened, opening) = oneshot::channel();
        let serving = serve(Writer::new(writing, link), opened, inbox, env.clone(), self.is_once());
        let task = match self.is_once() {
            // Nobody closes the sink of a query that runs once and fails: what it leaves on the
            // server is removed all the same.
            true => env.spawn_on_own_thread("redis-writer", serving),
            // On the flow's own thread: it mostly waits for the server, and handing a small
            // micro-batch to another thread and back takes longer than writing it.
            false => env.spawn("redis-writer", serving),
        };
        let published = opening.await.unwrap_or_else(|_| Err(RedisProblem::Ended.into()))?;
        let place = self.keys.record.clone();
        let recorder = log.map(|log| Recorder::start(log, place, acknowledged, &env));
        self.running = Some(Running { requests, task, recorder });
        Ok(published)
    }

    async fn other_queries(&mut self) -> Result<Vec<OtherQuery>, Failure> {
        let (answer, answered) = oneshot::channel();
        // If it is not taken, `answer` is dropped and the wait ends.
        let _ = self.running().requests.send(Request::OtherQueries(answer)).await;
        answered.await.unwrap_or_else(|_| Err(RedisProblem::Ended.into()))
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        self.room().await
    }

    async fn room(&mut self) -> Result<(), Failure> {
        // The next publish reports a failure.
        let _ = self.running().requests.reserve().await;
        Ok(())
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let mut pieces = Vec::new();
        for rows in output.record_batches() {
            self.encoder.encode(rows, &mut pieces)?;
        }
        if pieces.is_empty() {
            return Ok(Acknowledgement::Done);
        }
        let Output { batch_id, end_offsets, .. } = output;
        let (done, published) = oneshot::channel();
        let work = Work { batch_id, end_offsets, pieces };
        let _ = self.running().requests.send(Request::Publish(work, done)).await;
        Ok(Acknowledgement::Later(Box::pin(async move {
            published.await.unwrap_or_else(|_| Err(RedisProblem::Ended.into()))
        })))
    }

    async fn close(&mut self) -> Result<(), Failure> {
        let Some(Running { requests, task, recorder }) = self.running.take() else { return Ok(()) };
        drop(requests);
        task.join().await;
        if let Some(recorder) = recorder {
            recorder.end().await;
        }
        Ok(())
    }
}

/// The writer's life.
async fn serve(
    mut writer: Writer,
    opened: oneshot::Sender<Result<Option<Published>, Failure>>,
    mut inbox: mpsc::Receiver<Request>,
    env: Env,
    is_once: bool,
) {
    let published = writer.open().await;
    let is_open = published.is_ok();
    if opened.send(published).is_err() || !is_open {
        return;
    }
    writer.is_patient();
    let mut next = None;
    while let Some(request) = match next.take() {
        Some(request) => Some(request),
        None => inbox.recv().await,
    } {
        let (mut work, done) = match request {
            Request::Publish(work, done) => (work, done),
            Request::OtherQueries(answer) => {
                let _ = answer.send(writer.other_queries().await);
                continue;
            }
        };
        let mut all = vec![done];
        next = gather(&mut work, &mut all, &mut inbox);
        match writer.write(work).await {
            Ok(()) => {
                let at_us = env.now_us();
                all.into_iter().for_each(|done| drop(done.send(Ok(at_us))));
            }
            Err(failure) => {
                // The others learn that writing has ended; the first has the reason.
                if let Some(first) = all.into_iter().next() {
                    let _ = first.send(Err(failure));
                }
                break;
            }
        }
    }
    if is_once && let Err(error) = writer.forget().await {
        tracing::warn!(%error, "the record of a query that ran once was not removed");
    }
}

/// Adds the micro-batches that wait to `work`, as long as they fit into one piece; gives the
/// request that does not.
fn gather(
    work: &mut Work,
    all: &mut Vec<oneshot::Sender<Result<i64, Failure>>>,
    inbox: &mut mpsc::Receiver<Request>,
) -> Option<Request> {
    while let Ok(request) = inbox.try_recv() {
        let (mut more, done) = match request {
            Request::Publish(more, done) => (more, done),
            other => return Some(other),
        };
        let ([piece], true) = (&mut *work.pieces, more.pieces.len() == 1) else {
            return Some(Request::Publish(more, done));
        };
        let added = more.pieces.pop().expect("there is one");
        if let Err(added) = piece.append(added) {
            more.pieces.push(added);
            return Some(Request::Publish(more, done));
        }
        (work.batch_id, work.end_offsets) = (more.batch_id, more.end_offsets);
        all.push(done);
    }
    None
}
