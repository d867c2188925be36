//! The sink: rows become cells as they come, get the micro-batch's write time, and go to the
//! [`writer`](crate::writer).

use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{FlowContext, Table};
use millstream_engine::api::sink::{
    Acknowledgement, Classified as _, Delivery, Failure, Kind, Output, Published, RefusedRow, Sink,
};
use millstream_store::crash_points::{self, Step};
use millstream_store::env::Task;
use tokio::sync::{mpsc, oneshot};

use crate::error::CassandraProblem;
use crate::options::SinkOptions;
use crate::requests::requests;
use crate::rows::Encoder;
use crate::write_times::WriteTimes;
use crate::writer::{Opening, Work, serve};

/// Micro-batches that wait for the writer, besides those that it has under way.
const WAITING_MAX: usize = 1;

/// Writes micro-batches to a table of Cassandra.
pub(crate) struct CassandraSink {
    options: Arc<SinkOptions>,
    schema: SchemaRef,
    context: FlowContext,
    running: Option<Running>,
}

/// The writer's thread, and what goes to it.
struct Running {
    encoder: Encoder,
    times: WriteTimes,
    work: mpsc::Sender<Work>,
    task: Task<()>,
}

impl CassandraSink {
    /// A sink of a table that was checked, for rows of `schema`.
    pub(crate) fn new(
        table: &Table,
        schema: &SchemaRef,
        base_dir: &Path,
        context: &FlowContext,
    ) -> Result<Self, Failure> {
        let options = Arc::new(SinkOptions::parse(table, schema, base_dir)?);
        let (schema, context) = (Arc::clone(schema), context.clone());
        Ok(Self { options, schema, context, running: None })
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("the driver opens a sink before it uses it")
    }
}

#[async_trait]
impl Sink for CassandraSink {
    fn description(&self) -> String {
        format!("Cassandra[{}]", self.options.shown())
    }

    fn delivery(&self) -> Delivery {
        // A query that runs once does not continue after a crash, and keeps no times.
        match self.context.sink_log {
            Some(_) => Delivery::Idempotent,
            None => Delivery::AtLeastOnce,
        }
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        self.close().await?;
        let env = self.context.env.clone();
        let (table, log) = (self.options.shown(), self.context.sink_log.clone());
        let times = WriteTimes::open(log, &table, env.now_ms()).await?;
        let what = format!("Cassandra at {}", self.options.server.shown());
        let opening = Opening {
            options: Arc::clone(&self.options),
            schema: Arc::clone(&self.schema),
            contact: self.context.contacts.with(what),
            env: env.clone(),
        };
        let (work, inbox) = mpsc::channel(WAITING_MAX);
        let (opened, opening_ends) = oneshot::channel();
        let task = env.spawn_on_own_thread("cassandra-writer", serve(opening, opened, inbox));
        let target = opening_ends.await.unwrap_or(Err(CassandraProblem::Ended))?;
        let ignores_nulls = self.options.ignores_nulls;
        let encoder = Encoder { table, target, ignores_nulls };
        self.running = Some(Running { encoder, times, work, task });
        Ok(None)
    }

    async fn ready(&mut self) -> Result<(), Failure> {
        // The next publish reports a failure.
        let _ = self.running().work.reserve().await;
        Ok(())
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        crash_points::reached(Step::BeforeBegin);
        let options = Arc::clone(&self.options);
        let running = self.running();
        let rows = running.encoder.rows(&output).map_err(|problem| running.refused(problem))?;
        if rows.is_empty() {
            return Ok(Acknowledgement::Done);
        }
        let batch_time_ms = output.end_offsets.batch_time_ms;
        let time = running.times.time(output.batch_id, batch_time_ms).await?;
        crash_points::reached(Step::AfterProduce);
        let requests = requests(rows, options.batch_rows, options.batch_bytes);
        let (done, written) = oneshot::channel();
        // If it is not taken, `done` is dropped and the wait ends.
        let _ = running.work.send(Work { time, requests, done }).await;
        Ok(Acknowledgement::Later(Box::pin(async move {
            written.await.unwrap_or_else(|_| Err(CassandraProblem::Ended.into()))
        })))
    }

    async fn close(&mut self) -> Result<(), Failure> {
        if let Some(Running { work, task, .. }) = self.running.take() {
            drop(work);
            task.join().await;
        }
        Ok(())
    }
}

impl Running {
    /// A row that Cassandra never takes is known as one, so that it can become a dead letter.
    fn refused(&self, problem: CassandraProblem) -> Failure {
        if problem.kind() != Kind::Data {
            return problem.into();
        }
        let encoder = self.encoder.clone();
        RefusedRow::new(problem, move |rows| encoder.each(rows, drop).is_err()).into()
    }
}
