//! The same SELECT without STREAM: one pass over tables at rest.
//!
//! There is no checkpoint and there are no micro-batches: every table is read from its beginning
//! to what is there at the start, the plan runs once, and the sink gets the result as micro-batch
//! 0. Rows stream: scans decode them as the plan asks for them, and the sink encodes them as the
//! plan gives them. In memory at once are only some record batches, what the plan itself has to
//! keep (sorted rows, groups, the smaller side of a join), and the files that the sink has begun.
//! A sink that cannot take a result in pieces gets all of it at the end.
//!
//! Whatever fails, fails before the sink publishes anything: a batch query's result is there as a
//! whole or not at all, where the sink can do that. So being asked to stop does not end it; only
//! what is left to be delivered then must not take for ever.

use std::pin::pin;

use arrow::array::RecordBatch;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlanProperties, execute_stream_partitioned};
use futures::StreamExt;
use millstream_sql::plan::optimize;
use millstream_store::env::{Env, Task};
use millstream_store::offset::BatchId;
use thiserror::Error;
use tokio::sync::mpsc;

use super::checked_once::CheckedOnce;
use super::stop::Stop;
use crate::api::sink::{Classified, EndOffsets, Ending, Kind, LeftToNextRun, Output, Sink};
use crate::api::source::Failure;
use crate::failures::from_datafusion;

/// Runs the query once and publishes its result; before that, what its constraints reject. Gives
/// the number of rows of the result.
pub async fn run(
    env: &Env,
    (state, logical): (&SessionState, &LogicalPlan),
    sink: &mut dyn Sink,
    mut checked: Option<CheckedOnce<'_>>,
    stop: &mut Stop,
) -> Result<u64, Failure> {
    sink.open().await?;
    let mut result = ResultRows::start(env, state, logical).await?;
    let mut held: Vec<Vec<RecordBatch>> = vec![Vec::new(); result.partitions()];
    let mut rows_out = 0;
    while let Some((partition, rows)) = result.next().await? {
        let rows = match &mut checked {
            Some(checked) => checked.check(rows).await?,
            None => Some(rows),
        };
        let Some(rows) = rows else { continue };
        rows_out += rows.num_rows() as u64;
        match sink.piece_writer() {
            Some(writer) => writer.write(partition, rows).await?,
            None => held[partition].push(rows),
        }
    }
    if let Some(checked) = checked {
        checked.publish().await?;
    }
    let end_offsets = EndOffsets::default();
    let output = Output { batch_id: BatchId(0), partitions: held, end_offsets };
    let acknowledgement = sink.publish(output).await?;
    sink.end(Ending::Complete).await;
    let mut accepted = pin!(acknowledgement.accepted());
    let delivered = tokio::select! {
        biased;
        delivered = &mut accepted => delivered,
        () = stop.requested() => {
            sink.end(Ending::Stopped).await;
            accepted.await
        }
    };
    delivered.map_err(undelivered)?;
    sink.close().await?;
    Ok(rows_out)
}

/// No run follows that continues with what is left of the result.
fn undelivered(failure: Failure) -> Failure {
    match failure.downcast::<LeftToNextRun>() {
        Ok(LeftToNextRun { what }) => Undelivered { what }.into(),
        Err(other) => other,
    }
}

/// A query that runs once was asked to stop while its result was delivered.
#[derive(Debug, Error)]
#[error(
    "{what}. What was sent stays there; a query that runs once does not continue, and if it is run \
     again, it sends all of its result"
)]
struct Undelivered {
    what: String,
}

impl Classified for Undelivered {
    fn kind(&self) -> Kind {
        Kind::Retry
    }
}

/// The rows of a plan, as its partitions give them.
struct ResultRows {
    receiver: mpsc::Receiver<(usize, Result<RecordBatch, Failure>)>,
    /// By partition, what runs it.
    tasks: Vec<Task<()>>,
}

impl ResultRows {
    async fn start(
        env: &Env,
        state: &SessionState,
        logical: &LogicalPlan,
    ) -> Result<Self, Failure> {
        let logical = optimize::optimize(state, logical).map_err(from_datafusion)?;
        let planner = state.query_planner();
        let plan = planner.create_physical_plan(&logical, state).await.map_err(from_datafusion)?;
        let partitions = plan.output_partitioning().partition_count();
        let streams =
            execute_stream_partitioned(plan, state.task_ctx()).map_err(from_datafusion)?;
        let (sender, receiver) = mpsc::channel(partitions.max(1));
        let tasks = streams.into_iter().enumerate().map(|(partition, mut stream)| {
            let sender = sender.clone();
            let run = async move {
                while let Some(rows) = stream.next().await {
                    let rows = rows.map_err(from_datafusion);
                    let is_last = rows.is_err();
                    if sender.send((partition, rows)).await.is_err() || is_last {
                        return;
                    }
                }
            };
            env.spawn_on_cores("plan-partition", run)
        });
        Ok(Self { receiver, tasks: tasks.collect() })
    }

    fn partitions(&self) -> usize {
        self.tasks.len()
    }

    /// Some rows, and the partition that they are of; `None` at the end of all partitions.
    async fn next(&mut self) -> Result<Option<(usize, RecordBatch)>, Failure> {
        while let Some((partition, rows)) = self.receiver.recv().await {
            let rows = rows?;
            if rows.num_rows() > 0 {
                return Ok(Some((partition, rows)));
            }
        }
        // One that has panicked is found here.
        for task in self.tasks.drain(..) {
            task.join().await;
        }
        Ok(None)
    }
}

impl Drop for ResultRows {
    fn drop(&mut self) {
        self.tasks.iter().for_each(Task::abort);
    }
}
