//! The sink: opens the table and says what it published last, and hands micro-batches to the
//! writer, which has a thread of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Table};
use millstream_engine::api::sink::{
    Acknowledgement, Delivery, Ending, Failure, Output, PieceWriter, Published, Sink,
};
use millstream_store::crash_points::{self, Step};
use millstream_store::env::Task;
use millstream_store::sink_log::SinkLog;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tonic::Code;

use super::aside::{self, Aside};
use super::columns::Column;
use super::error::BigQueryProblem;
use super::mapping::{self, Mapping, Mismatch};
use super::options::SinkOptions;
use super::progress::ProgressLog;
use super::rest::{Rest, TableReference};
use super::storage::Storage;
use super::writer::{self, Guarantee, Request, Terms, Work};
use crate::service::Connection;

/// Micro-batches that wait for the writer; while there are more, the next one grows.
const WAITING_MAX: usize = 2;
/// Bytes of rows and of their messages that are under way, at most, where no limit of memory says
/// less.
const UNDER_WAY_MAX: usize = 64 << 20;
/// Connections, at most; lanes share them.
const CONNECTIONS_MAX: usize = 8;
/// Micro-batches of one commit are at least this share of the interval apart, and at most so far:
/// what is gathered for a second need not be taken in pieces of a millisecond.
const MICRO_BATCHES_A_COMMIT: u32 = 64;
const SPACING_MAX: Duration = Duration::from_millis(20);

/// Writes micro-batches to a table of BigQuery.
pub(super) struct BigQuerySink {
    options: SinkOptions,
    schema: SchemaRef,
    context: FlowContext,
    running: Option<Running>,
}

/// The writer's thread.
struct Running {
    /// Without a limit of their own, so that one to make haste always comes through.
    requests: mpsc::UnboundedSender<Request>,
    /// Places of micro-batches that wait.
    room: Arc<Semaphore>,
    storage: Arc<Storage>,
    task: Task<()>,
    /// When the last micro-batch was taken, on the monotonic clock.
    last: Option<Duration>,
    /// Whether rows were written since the last publish.
    has_pieces: bool,
}

/// A table that was opened.
struct Opened {
    storage: Arc<Storage>,
    guarantee: Guarantee,
    published: Option<Published>,
    terms: Terms,
}

impl BigQuerySink {
    /// A sink of a table that was checked, for rows of `schema`.
    pub(super) fn new(
        table: &Table,
        schema: &SchemaRef,
        base_dir: &Path,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let options = SinkOptions::parse(table, schema, base_dir)?;
        if context.refusals.is_some() {
            aside::check(schema)?;
        }
        Ok(Self { options, schema: Arc::clone(schema), context: context.clone(), running: None })
    }

    /// The log of a flow that can be repeated.
    fn log(&self) -> Option<SinkLog> {
        self.context.sink_log.clone().filter(|_| !self.options.is_at_least_once)
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("the driver opens a sink before it uses it")
    }

    fn spacing(&self) -> Duration {
        (self.options.interval / MICRO_BATCHES_A_COMMIT).min(SPACING_MAX)
    }
}

#[async_trait]
impl Sink for BigQuerySink {
    fn description(&self) -> String {
        format!("BigQuery[{}]", self.options.name)
    }

    fn delivery(&self) -> Delivery {
        // A query that runs once does not continue after a crash.
        if self.log().is_some() { Delivery::Transactional } else { Delivery::AtLeastOnce }
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        self.close().await?;
        let env = self.context.env.clone();
        let opening = Opening {
            options: self.options.clone(),
            schema: Arc::clone(&self.schema),
            context: self.context.clone(),
            log: self.log(),
        };
        let (requests, inbox) = mpsc::unbounded_channel();
        let (tell, told) = oneshot::channel();
        let room = Arc::new(Semaphore::new(WAITING_MAX));
        let until_closed = Arc::clone(&room);
        // Connections live on the runtime of the writer's thread.
        let task = env.spawn_on_own_thread("bigquery-writer", async move {
            let Opened { storage, guarantee, published, terms } = match opening.open().await {
                Ok(opened) => opened,
                Err(failure) => {
                    let _ = tell.send(Err(failure));
                    return;
                }
            };
            if tell.send(Ok((published, Arc::clone(&storage)))).is_ok() {
                writer::run(terms, storage, guarantee, inbox).await;
                // Wakes a driver that waits; its next publish reports the failure.
                until_closed.close();
            }
        });
        let opened = told.await.unwrap_or_else(|_| Err(BigQueryProblem::Ended.into()));
        let (published, storage) = opened?;
        let (last, has_pieces) = (None, false);
        self.running = Some(Running { requests, room, storage, task, last, has_pieces });
        Ok(published)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        let (env, spacing) = (self.context.env.clone(), self.spacing());
        let running = self.running();
        if let Some(last) = running.last {
            env.sleep((last + spacing).saturating_sub(env.monotonic())).await;
        }
        self.room().await?;
        self.running().last = Some(env.monotonic());
        Ok(())
    }

    async fn room(&mut self) -> Result<(), Failure> {
        // It fails where the writer has ended: the next publish reports that.
        let _ = self.running().room.acquire().await;
        Ok(())
    }

    fn micro_batches_in_flight_max(&self) -> Option<usize> {
        let gathered = self.options.interval.as_micros() / self.spacing().as_micros().max(1);
        // Twice: one commit is under way while the next is gathered.
        usize::try_from(gathered * 2).ok().filter(|_| !self.options.interval.is_zero())
    }

    fn piece_writer(&mut self) -> Option<&mut dyn PieceWriter> {
        Some(self)
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let Output { batch_id, partitions, end_offsets } = output;
        let rows = partitions.into_iter().flatten().filter(|rows| rows.num_rows() > 0);
        let rows: Vec<_> = rows.collect();
        let running = self.running();
        if rows.is_empty() && !std::mem::take(&mut running.has_pieces) {
            return Ok(Acknowledgement::Done);
        }
        let (done, published) = oneshot::channel();
        let work = Work { batch_id, end_offsets, rows, done };
        // If it is not taken, `done` is dropped and the acknowledgement says so.
        if let Ok(room) = Arc::clone(&running.room).acquire_owned().await {
            let _ = running.requests.send(Request::Publish(work, room));
        }
        Ok(Acknowledgement::Later(Box::pin(async move {
            published.await.unwrap_or_else(|_| Err(BigQueryProblem::Ended.into()))
        })))
    }

    async fn flush(&mut self) {
        // It fails only after a failure that an acknowledgement has reported.
        let _ = self.running().requests.send(Request::Flush);
    }

    async fn end(&mut self, ending: Ending) {
        if ending == Ending::Stopped {
            self.running().storage.is_hurried();
        }
        self.flush().await;
    }

    async fn close(&mut self) -> Result<(), Failure> {
        if let Some(Running { requests, storage, task, .. }) = self.running.take() {
            storage.is_hurried();
            drop(requests);
            task.join().await;
        }
        Ok(())
    }
}

#[async_trait]
impl PieceWriter for BigQuerySink {
    async fn write(&mut self, _partition: usize, rows: RecordBatch) -> Result<(), Failure> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let (taken, result) = oneshot::channel();
        let running = self.running();
        running.has_pieces = true;
        let _ = running.requests.send(Request::Piece(rows, taken));
        result.await.unwrap_or_else(|_| Err(BigQueryProblem::Ended.into()))
    }
}

/// What is needed to open a table.
struct Opening {
    options: SinkOptions,
    schema: SchemaRef,
    context: FlowContext,
    log: Option<SinkLog>,
}

impl Opening {
    async fn open(self) -> Result<Opened, Failure> {
        let Self { options, context, .. } = &self;
        let count = options.streams_max.min(CONNECTIONS_MAX);
        let connections: Result<Vec<Connection>, _> =
            (0..count).map(|_| options.service.connect(&context.env)).collect();
        let connections = connections?;
        let first = connections[0].clone();
        let table = self.table(&first)?;
        let contact = context.contacts.with(format!("BigQuery at {}", options.service.url));
        let env = context.env.clone();
        let storage = Arc::new(Storage::new(connections, options.flush_counts, contact, env));
        let billed = options.parent_project.clone();
        let rest = Rest::new(&options.rest_url, first, billed, Arc::clone(&storage))?;
        let (mapping, age) = self.mapping(&rest, &table).await?;
        let resource = table.resource();
        let (guarantee, published) = match (&self.log, options.is_at_least_once) {
            (_, true) => (Guarantee::AtLeastOnce, None),
            (None, false) => (Guarantee::InOneStep, None),
            (Some(log), false) => {
                let writer = context.env.random_uuid().to_string();
                let log = ProgressLog::read(log.clone(), &resource, writer).await?;
                let log = self.continue_from(log, &storage).await?;
                let published = log.entry.published();
                (Guarantee::ExactlyOnce(Box::new(log)), published)
            }
        };
        storage.has_table_of_age(age);
        storage.is_patient();
        let memory = context.memory.map(|memory| memory.read_ahead());
        let aside = |refusals| {
            Arc::new(Aside { refusals, mapping: mapping.clone(), table: resource.clone() })
        };
        let terms = Terms {
            aside: self.context.refusals.clone().map(aside),
            table: resource,
            mapping,
            lanes_max: options.streams_max,
            interval: options.interval,
            bytes_max: memory.unwrap_or(UNDER_WAY_MAX).min(UNDER_WAY_MAX),
            trace_id: format!("millstream:{}", context.flow),
        };
        Ok(Opened { storage, guarantee, published, terms })
    }

    fn table(&self, connection: &Connection) -> Result<TableReference, Failure> {
        let name = &self.options.name;
        let project = name.project.clone().or_else(|| connection.project().map(str::to_owned));
        let Some(project_id) = project else {
            let what = format!("write to {name}");
            let said = "the credentials do not say a project; set the option 'project'".to_owned();
            return Err(BigQueryProblem::Refused { what, code: Code::InvalidArgument, said }.into());
        };
        let (dataset_id, table_id) = (name.dataset.clone(), name.table.clone());
        Ok(TableReference { project_id, dataset_id, table_id })
    }

    /// Where the query's columns go, and how old the table is. It is made where that is asked for.
    async fn mapping(
        &self,
        rest: &Rest,
        table: &TableReference,
    ) -> Result<(Mapping, Duration), Failure> {
        let shown = table.resource();
        let mismatch =
            |mismatch: Mismatch| BigQueryProblem::Column { table: shown.clone(), mismatch };
        let mut described = rest.describe(table).await?;
        if let (None, Some(creation)) = (&described, &self.options.creation) {
            let new: Result<Vec<Column>, _> =
                self.schema.fields().iter().map(|field| mapping::column_for(field)).collect();
            let now_ms = self.context.env.now_ms();
            rest.create(table, new.map_err(mismatch)?, creation).await?;
            let created = rest.describe(table).await?;
            described = created.map(|(columns, created_ms)| (columns, created_ms.max(now_ms)));
        }
        let Some((columns, created_ms)) = described else {
            return Err(BigQueryProblem::NoTable { table: shown }.into());
        };
        let age_ms = self.context.env.now_ms().saturating_sub(created_ms);
        let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or_default());
        Ok((mapping::map(&self.schema, &columns).map_err(mismatch)?, age))
    }

    /// Does what a crash may have left undone: makes visible what counts as published.
    async fn continue_from(
        &self,
        mut log: ProgressLog,
        storage: &Storage,
    ) -> Result<ProgressLog, Failure> {
        // From here on an instance that ran before cannot publish any more.
        let entry = log.entry.clone();
        log.write(entry.clone()).await?;
        crash_points::reached(Step::ProgressClaimed);
        if !entry.flushed {
            let lost = writer::flush(storage, &entry.streams).await?;
            if !lost.is_empty() {
                let (streams, upto) = (lost, entry.upto());
                let failure = BigQueryProblem::Unflushed { streams, upto };
                if self.options.fails_on_loss {
                    return Err(failure.into());
                }
                tracing::warn!(%failure, "going on");
            }
            log.write_flushed(&entry.streams, entry.refused.clone()).await?;
        }
        if let Some(refusals) = &self.context.refusals {
            entry.refused.into_iter().for_each(|kept| refusals.add(kept.into()));
        }
        writer::finalize(storage, &entry.streams).await;
        Ok(log)
    }
}
