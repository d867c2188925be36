//! Rows that come after the watermark.

use arrow::array::{Array, BooleanArray, RecordBatch, TimestampMicrosecondArray};
use arrow::compute::filter_record_batch;
use datafusion::common::Result;

/// `rows`, which have these times, without those that are at or before `late_us`, microseconds
/// since the epoch. A row without a time is never late.
pub fn without(
    times: &TimestampMicrosecondArray,
    late_us: i64,
    rows: RecordBatch,
) -> Result<RecordBatch> {
    if times.null_count() == 0 && times.values().iter().all(|time| *time > late_us) {
        return Ok(rows);
    }
    let kept = times.iter().map(|time| Some(time.is_none_or(|time| time > late_us)));
    let kept: BooleanArray = kept.collect();
    Ok(filter_record_batch(&rows, &kept)?)
}
