//! Micro-batches into Cassandra, in a thread of its own.
//!
//! Several are under way at once, and their requests too: which write counts is decided by its
//! time, and not by its order. A request is repeated until it is answered, since a repeated one
//! changes nothing.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use futures::future::BoxFuture;
use futures::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use millstream_engine::api::contact::ContactWith;
use millstream_engine::api::sink::Failure;
use millstream_store::crash_points::{self, Step};
use millstream_store::env::Env;
use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::statement::batch::{Batch, BatchStatement, BatchType};
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::CassandraProblem;
use crate::opening::{OPEN_PATIENCE, Place, connect, prepare};
use crate::options::SinkOptions;
use crate::repeat::Asking;
use crate::requests::{Request, Statement, Values};
use crate::table::Target;

/// Micro-batches under way; while there are more, the next one grows.
const MICRO_BATCHES_MAX: usize = 8;

/// The requests of a micro-batch.
pub(crate) struct Work {
    /// Its time, microseconds since the epoch.
    pub(crate) time: i64,
    pub(crate) requests: Vec<Request>,
    pub(crate) done: oneshot::Sender<Result<i64, Failure>>,
}

/// What writes.
pub(crate) struct Writer {
    options: Arc<SinkOptions>,
    session: Session,
    insert: PreparedStatement,
    remove: PreparedStatement,
    permits: Semaphore,
    contact: ContactWith,
    env: Env,
}

/// What a writer needs before it is connected.
pub(crate) struct Opening {
    pub(crate) options: Arc<SinkOptions>,
    /// The query's columns.
    pub(crate) schema: SchemaRef,
    pub(crate) contact: ContactWith,
    pub(crate) env: Env,
}

impl Opening {
    /// Connects, looks at the table and prepares the statements.
    ///
    /// # Errors
    /// The cluster is away, refuses the user, or has no table that takes the rows.
    async fn open(self) -> Result<(Writer, Target), CassandraProblem> {
        let SinkOptions { server, keyspace, .. } = &*self.options;
        let session = connect(server, keyspace, &self.env).await?;
        let target = self.target(&session)?;
        let insert = prepare(&session, &target.insert, server, &self.env, OPEN_PATIENCE).await?;
        let remove = prepare(&session, &target.remove, server, &self.env, OPEN_PATIENCE).await?;
        let permits = Semaphore::new(self.options.requests_max);
        let Self { options, contact, env, .. } = self;
        let writer = Writer { options, session, insert, remove, permits, contact, env };
        Ok((writer, target))
    }

    fn target(&self, session: &Session) -> Result<Target, CassandraProblem> {
        let SinkOptions { server, keyspace, table, .. } = &*self.options;
        let state = session.get_cluster_state();
        let found = Place { server, keyspace, table }.table(&state)?;
        Target::new(&self.options, &self.schema, found).map_err(|(column, mismatch)| {
            CassandraProblem::Column { table: self.options.shown(), column, mismatch }
        })
    }
}

/// The writer's life: `opened` gets what the rows are made for.
pub(crate) async fn serve(
    opening: Opening,
    opened: oneshot::Sender<Result<Target, CassandraProblem>>,
    mut inbox: mpsc::Receiver<Work>,
) {
    let writer = match opening.open().await {
        Ok((writer, target)) => {
            if opened.send(Ok(target)).is_err() {
                return;
            }
            writer
        }
        Err(problem) => {
            let _ = opened.send(Err(problem));
            return;
        }
    };
    let mut running: FuturesUnordered<BoxFuture<'_, bool>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(is_written) = running.next(), if !running.is_empty() => {
                if !is_written {
                    break;
                }
            }
            work = inbox.recv(), if running.len() < MICRO_BATCHES_MAX => match work {
                Some(work) => running.push(Box::pin(writer.micro_batch(work))),
                None => break,
            },
        }
    }
    // Each of the others has an outcome of its own.
    while running.next().await.is_some() {}
}

impl Writer {
    /// Writes a micro-batch and reports it; whether it is written.
    async fn micro_batch(&self, work: Work) -> bool {
        let Work { time, requests, done } = work;
        let half = requests.len().div_ceil(2);
        let writes = requests.into_iter().map(|request| self.write(request, time));
        let mut answers = stream::iter(writes).buffer_unordered(self.options.requests_max);
        let mut answered = 0;
        let written = loop {
            match answers.try_next().await {
                Ok(Some(())) => answered += 1,
                Ok(None) => break Ok(()),
                Err(problem) => break Err(problem),
            }
            if answered == half {
                crash_points::reached(Step::RowsHalfApplied);
            }
        };
        if written.is_ok() {
            crash_points::reached(Step::AfterCommit);
        }
        let is_written = written.is_ok();
        // Nobody waits for it where the query has ended.
        let _ = done.send(written.map(|()| self.env.now_us()).map_err(Into::into));
        is_written
    }

    /// Sends a request until it is answered.
    async fn write(&self, request: Request, time: i64) -> Result<(), CassandraProblem> {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let values = request.values(time);
        let (server, contact, env) = (&self.options.server, &self.contact, &self.env);
        let asking = Asking { server, contact, env, what: "write rows" };
        let silent = |waited, error| CassandraProblem::Away {
            server: server.shown(),
            table: self.options.shown(),
            waited,
            error,
        };
        asking.until_answered(|| self.send(&values), silent).await
    }

    async fn send(&self, values: &[Values<'_>]) -> Result<(), ExecutionError> {
        if let [one] = values {
            let statement = self.statement(one.statement);
            return self.session.execute_unpaged(statement, one).await.map(drop);
        }
        let statements = values.iter().map(|values| {
            BatchStatement::PreparedStatement(self.statement(values.statement).clone())
        });
        let mut batch = Batch::new_with_statements(BatchType::Unlogged, statements.collect());
        batch.set_is_idempotent(true);
        self.session.batch(&batch, values).await.map(drop)
    }

    fn statement(&self, statement: Statement) -> &PreparedStatement {
        match statement {
            Statement::Remove => &self.remove,
            Statement::Write => &self.insert,
        }
    }
}
