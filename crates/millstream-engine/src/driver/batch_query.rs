//! The same SELECT without STREAM: one pass over tables at rest.
//!
//! There is no checkpoint and there are no micro-batches: every table is read from its beginning
//! to what is there at the start, the plan runs once, and the sink gets the result as micro-batch
//! 0.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::collect_partitioned;
use millstream_sql::plan::optimize;
use millstream_store::offset::BatchId;
use millstream_store::source_log::SourceLog;

use super::Finished;
use super::dead_letter_sinks::DeadLetterSinks;
use crate::api::sink::{EndOffsets, Output, Sink};
use crate::api::source::{Failure, ReadLimit, Records, Source, Split};
use crate::failures::from_datafusion;

/// All rows that a source has now, for a table that can only be read as a stream.
pub async fn read_to_end(source: &mut dyn Source) -> Result<Vec<RecordBatch>, Failure> {
    let columns: Vec<usize> = (0..source.schema().fields().len()).collect();
    let mut rows = Vec::new();
    for_each_split(source, |split| {
        for decoded in split.read(&columns) {
            rows.push(decoded?);
        }
        Ok(())
    })
    .await?;
    Ok(rows)
}

/// The records of all rows that a source has now.
pub async fn records_to_end(source: &mut dyn Source) -> Result<Vec<Arc<dyn Records>>, Failure> {
    let mut records = Vec::new();
    for_each_split(source, |split| {
        records.extend(split.records());
        Ok(())
    })
    .await?;
    Ok(records)
}

async fn for_each_split(
    source: &mut dyn Source,
    mut work: impl FnMut(Box<dyn Split>) -> Result<(), Failure> + Send,
) -> Result<(), Failure> {
    let start = source.open(None, SourceLog::in_memory()).await?;
    source.start(&start).await?;
    source.fix_end().await?;
    while !source.at_end() {
        source.data_available().await;
        let Some(taken) = source.poll(ReadLimit::AllAvailable)? else { continue };
        for split in taken.splits {
            work(split)?;
        }
    }
    source.close().await;
    Ok(())
}

/// Runs `logical` once and publishes its result; before that, what its constraints reject, at the
/// time given in milliseconds since the epoch.
pub async fn run(
    state: &SessionState,
    logical: &LogicalPlan,
    sink: &mut dyn Sink,
    letter_sinks: Option<(&mut DeadLetterSinks, i64)>,
) -> Result<Finished, Failure> {
    sink.open().await?;
    let logical = optimize::optimize(state, logical).map_err(from_datafusion)?;
    let planner = state.query_planner();
    let physical = planner.create_physical_plan(&logical, state).await.map_err(from_datafusion)?;
    let partitions = collect_partitioned(physical, state.task_ctx()).await;
    let mut partitions = partitions.map_err(from_datafusion)?;
    if let Some((letter_sinks, batch_time_ms)) = letter_sinks {
        let end_offsets = EndOffsets { batch_time_ms, ..EndOffsets::default() };
        partitions = letter_sinks.check_once(partitions, &end_offsets).await?;
    }
    let output = Output { batch_id: BatchId(0), partitions, end_offsets: EndOffsets::default() };
    let rows_out = output.rows();
    let acknowledgement = sink.publish(output).await?;
    sink.flush().await;
    acknowledgement.accepted().await?;
    sink.close().await?;
    Ok(Finished { micro_batches: 1, rows_in: 0, rows_out })
}
