//! The newest event times among the rows that are read, for the watermark.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::reassign_expr_columns;
use parking_lot::Mutex;

use crate::source::{Lane, RecordBatches, Split};

/// The newest event time of each lane since it was last asked for.
pub struct EventTimes {
    column: usize,
    newest_us: Mutex<NewestTimes>,
    /// Which rows count; `None` for all.
    condition: Mutex<Option<Arc<dyn PhysicalExpr>>>,
}

/// Event times by lane, microseconds since the epoch; `None` stands for rows without a lane.
pub type NewestTimes = BTreeMap<Option<Lane>, i64>;

impl EventTimes {
    /// Of a source whose column `column` has a watermark.
    pub fn new(column: usize) -> Self {
        Self { column, newest_us: Mutex::default(), condition: Mutex::default() }
    }

    /// The column among those of the source.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Counts only rows for which `condition`, over columns of the source's names, is true; `None`
    /// for all.
    pub fn follow(&self, condition: Option<Arc<dyn PhysicalExpr>>) {
        *self.condition.lock() = condition;
    }

    /// What was seen since the last call.
    pub fn take(&self) -> NewestTimes {
        std::mem::take(&mut self.newest_us.lock())
    }

    /// Sees rows that have the columns `projection` of the source.
    pub fn see_columns(&self, lane: Option<Lane>, projection: &[usize], rows: &RecordBatch) {
        if let Some(place) = projection.iter().position(|column| *column == self.column) {
            self.see(lane, place, rows);
        }
    }

    fn see(&self, lane: Option<Lane>, place: usize, rows: &RecordBatch) {
        let times = rows.column(place).as_primitive_opt::<TimestampMicrosecondType>();
        let condition = self.condition.lock().clone();
        let newest = match condition {
            None => times.and_then(arrow::compute::max),
            // What fails here fails in the plan as well, and that tells of it.
            Some(condition) => times.and_then(|times| passing(&condition, rows, times).ok()?),
        };
        let Some(newest) = newest else { return };
        let mut newest_us = self.newest_us.lock();
        let known = newest_us.entry(lane).or_insert(newest);
        *known = newest.max(*known);
    }
}

/// The newest of the times whose rows meet the condition.
fn passing(
    condition: &Arc<dyn PhysicalExpr>,
    rows: &RecordBatch,
    times: &TimestampMicrosecondArray,
) -> Result<Option<i64>> {
    let condition = reassign_expr_columns(Arc::clone(condition), rows.schema_ref())?;
    let meets = condition.evaluate(rows)?.into_array(rows.num_rows())?;
    let meets = meets.as_boolean();
    let met = times.iter().zip(meets).filter(|(_, meets)| *meets == Some(true));
    Ok(met.filter_map(|(time, _)| time).max())
}

/// The rows of `split`, whose event times are seen by `watched` on the way.
pub fn watched_read(
    split: Box<dyn Split>,
    projection: &[usize],
    watched: Option<Arc<EventTimes>>,
) -> RecordBatches {
    let Some(watched) = watched else { return split.read(projection) };
    let Some(place) = projection.iter().position(|column| *column == watched.column) else {
        return split.read(projection);
    };
    let lane = split.lane();
    Box::new(split.read(projection).inspect(move |rows| {
        if let Ok(rows) = rows {
            watched.see(lane, place, rows);
        }
    }))
}
