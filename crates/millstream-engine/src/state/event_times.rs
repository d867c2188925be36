//! The newest event times among the rows that are read, for the watermark.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::TimestampMicrosecondType;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::reassign_expr_columns;
use parking_lot::Mutex;

use crate::api::source::{RecordBatches, SourcePartition, Split};

/// The newest event time of each partition since it was last asked for.
pub struct EventTimes {
    time: Time,
    newest_us: Mutex<NewestTimes>,
    /// Which rows count; `None` for all.
    condition: Mutex<Option<Arc<dyn PhysicalExpr>>>,
}

/// Where a row's event time comes from.
pub enum Time {
    /// A column of the source.
    Column(usize),
    /// An expression over columns of the source.
    Computed {
        /// A timestamp in microseconds.
        time: Arc<dyn PhysicalExpr>,
        /// The columns.
        columns: Vec<usize>,
    },
}

/// Event times by partition, microseconds since the epoch; `None` stands for rows of a source
/// without partitions.
pub type NewestTimes = BTreeMap<Option<SourcePartition>, i64>;

impl EventTimes {
    /// The event times of a source whose watermark is by `time`.
    pub fn new(time: Time) -> Self {
        Self { time, newest_us: Mutex::default(), condition: Mutex::default() }
    }

    /// The columns of the source that the event time comes from.
    pub fn columns(&self) -> &[usize] {
        match &self.time {
            Time::Column(column) => std::slice::from_ref(column),
            Time::Computed { columns, .. } => columns,
        }
    }

    /// Counts only rows for which `condition`, over columns of the source's names, is true; `None`
    /// for all.
    pub fn follow(&self, condition: Option<Arc<dyn PhysicalExpr>>) {
        *self.condition.lock() = condition;
    }

    /// The newest event times since the last call.
    pub fn take(&self) -> NewestTimes {
        std::mem::take(&mut self.newest_us.lock())
    }

    /// Returns what [`Self::take`] gave, for a micro-batch that is run again.
    pub fn put_back(&self, seen: NewestTimes) {
        let mut newest_us = self.newest_us.lock();
        for (partition, us) in seen {
            let known = newest_us.entry(partition).or_insert(us);
            *known = us.max(*known);
        }
    }

    /// Whether rows with the columns `projection` of the source have their event times.
    fn is_in(&self, projection: &[usize]) -> bool {
        self.columns().iter().all(|column| projection.contains(column))
    }

    /// Notes the event times of rows that have the columns `projection` of the source.
    pub fn see_columns(
        &self,
        partition: Option<SourcePartition>,
        projection: &[usize],
        rows: &RecordBatch,
    ) {
        if self.is_in(projection) {
            self.see(partition, projection, rows);
        }
    }

    fn see(&self, partition: Option<SourcePartition>, projection: &[usize], rows: &RecordBatch) {
        let newest = match self.newest(projection, rows) {
            Ok(Some(newest)) => newest,
            Ok(None) => return,
            Err(_) => {
                // The plan reports rows whose time cannot be computed. A failure here alone is of
                // a row that a filter of the plan leaves out, so the rows are halved until only
                // that row is not counted.
                let (half, all) = (rows.num_rows() / 2, rows.num_rows());
                if half > 0 {
                    self.see(partition, projection, &rows.slice(0, half));
                    self.see(partition, projection, &rows.slice(half, all - half));
                }
                return;
            }
        };
        let mut newest_us = self.newest_us.lock();
        let known = newest_us.entry(partition).or_insert(newest);
        *known = newest.max(*known);
    }

    /// The newest of the times whose rows meet the condition.
    fn newest(&self, projection: &[usize], rows: &RecordBatch) -> Result<Option<i64>> {
        let times = match &self.time {
            Time::Column(column) => {
                let place = projection.iter().position(|other| other == column);
                place.map(|place| Arc::clone(rows.column(place)))
            }
            Time::Computed { time, .. } => Some(evaluated(time, rows)?),
        };
        let times = times.as_ref();
        let times = times.and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>());
        let (Some(times), condition) = (times, self.condition.lock().clone()) else {
            return Ok(None);
        };
        let Some(condition) = condition else { return Ok(arrow::compute::max(times)) };
        let meets = evaluated(&condition, rows)?;
        let met = times.iter().zip(meets.as_boolean()).filter(|(_, meets)| *meets == Some(true));
        Ok(met.filter_map(|(time, _)| time).max())
    }
}

/// Evaluates an expression whose columns are found by their names.
fn evaluated(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef> {
    let expr = reassign_expr_columns(Arc::clone(expr), rows.schema_ref())?;
    expr.evaluate(rows)?.into_array(rows.num_rows())
}

/// The rows of `split`, whose event times are seen by `watched` on the way.
pub fn watched_read(
    split: Box<dyn Split>,
    projection: &[usize],
    watched: Option<Arc<EventTimes>>,
) -> RecordBatches {
    let Some(watched) = watched.filter(|watched| watched.is_in(projection)) else {
        return split.read(projection);
    };
    let (partition, columns) = (split.partition(), projection.to_vec());
    Box::new(split.read(projection).inspect(move |rows| {
        if let Ok(rows) = rows {
            watched.see(partition, &columns, rows);
        }
    }))
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, StringArray, TimestampMicrosecondArray};
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use datafusion::physical_expr::expressions::{Column, cast};

    use super::*;

    fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, column)| (name, column, true)),
        )
        .expect("columns of one length")
    }

    fn at(times: &[i64]) -> RecordBatch {
        rows(vec![("ts", Arc::new(TimestampMicrosecondArray::from(times.to_vec())))])
    }

    #[test]
    fn the_newest_time_of_each_partition_is_seen_once() {
        let times = EventTimes::new(Time::Column(0));
        for (partition, of) in [(1, &[2, 5, 3][..]), (1, &[9, 4]), (1, &[6]), (2, &[7])] {
            times.see_columns(Some(partition), &[0], &at(of));
        }
        times.see_columns(None, &[], &at(&[100]).project(&[]).expect("no columns"));
        assert_eq!(times.take(), [(Some(1), 9), (Some(2), 7)].into());
        assert_eq!(times.take(), NewestTimes::new());
    }

    #[test]
    fn what_is_put_back_counts_beside_what_was_seen_since() {
        let times = EventTimes::new(Time::Column(0));
        times.see_columns(Some(1), &[0], &at(&[9]));
        times.put_back([(Some(1), 7), (Some(2), 3)].into());
        times.put_back([(Some(2), 4)].into());
        assert_eq!(times.take(), [(Some(1), 9), (Some(2), 4)].into());
    }

    #[test]
    fn only_rows_that_meet_the_condition_are_seen() {
        let times = EventTimes::new(Time::Column(0));
        times.follow(Some(Arc::new(Column::new("kept", 1))));
        let kept = BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]);
        let ts = TimestampMicrosecondArray::from(vec![5, 8, 9, 3]);
        let all = rows(vec![("ts", Arc::new(ts)), ("kept", Arc::new(kept))]);
        times.see_columns(None, &[0, 1], &all);
        assert_eq!(times.take(), [(None, 5)].into());
    }

    #[test]
    fn rows_beside_one_that_cannot_be_computed_are_seen() {
        let schema = Schema::new(vec![Field::new("text", DataType::Utf8, true)]);
        let text = Arc::new(Column::new("text", 0));
        let time = cast(text, &schema, DataType::Timestamp(TimeUnit::Microsecond, None));
        let time = time.expect("text is cast to a time");
        let times = EventTimes::new(Time::Computed { time, columns: vec![0] });
        let texts = ["1970-01-01T00:00:01", "no time", "1970-01-01T00:00:03"];
        let texts = rows(vec![("text", Arc::new(StringArray::from(texts.to_vec())))]);
        times.see_columns(None, &[0], &texts);
        assert_eq!(times.take(), [(None, 3_000_000)].into());
    }
}
