//! The newest event times among the rows that are read, for the watermark.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use parking_lot::Mutex;

use crate::source::{Lane, RecordBatches, Split};

/// The newest event time of each lane since it was last asked for.
pub struct EventTimes {
    column: usize,
    newest_us: Mutex<NewestTimes>,
}

/// Event times by lane, microseconds since the epoch; `None` stands for rows without a lane.
pub type NewestTimes = BTreeMap<Option<Lane>, i64>;

impl EventTimes {
    /// Of a source whose column `column` has a watermark.
    pub fn new(column: usize) -> Self {
        Self { column, newest_us: Mutex::default() }
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
        let Some(newest) = times.and_then(arrow::compute::max) else { return };
        let mut newest_us = self.newest_us.lock();
        let known = newest_us.entry(lane).or_insert(newest);
        *known = newest.max(*known);
    }
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
