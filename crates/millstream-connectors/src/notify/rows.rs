//! Rows as JSON, and found again.

use arrow::array::RecordBatch;
use bytes::Bytes;
use millstream_engine::api::sink::{Failure, LeftToNextRun, RefusedRow};
use millstream_formats::RecordEncoder;

use super::courier::Undelivered;
use super::error::DeliveryError;

/// Each row as a JSON object.
pub fn objects(encoder: &RecordEncoder, rows: &RecordBatch) -> Result<Vec<Bytes>, DeliveryError> {
    let mut lines = Vec::new();
    encoder.write(rows, &mut lines).map_err(DeliveryError::Encode)?;
    let lines = Bytes::from(lines);
    let mut objects = Vec::with_capacity(rows.num_rows());
    let mut start = 0;
    // A line feed within a text of JSON is escaped.
    for (end, _) in lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        objects.push(lines.slice(start..end));
        start = end + 1;
    }
    Ok(objects)
}

/// What a query fails with: where a message was refused, a row of it. The rows became messages by
/// `encoder`.
pub fn failure(encoder: &RecordEncoder, undelivered: Undelivered) -> Failure {
    let Undelivered { error, rows } = undelivered;
    if rows.is_empty() {
        return match error {
            DeliveryError::NotDue { .. } | DeliveryError::OutOfTime { .. } => {
                LeftToNextRun { what: error.to_string() }.into()
            }
            error => error.into(),
        };
    }
    let encoder = encoder.clone();
    let is_among = move |batch: &RecordBatch| {
        let objects = objects(&encoder, batch).unwrap_or_default();
        objects.iter().any(|object| rows.contains(object))
    };
    RefusedRow::new(error, is_among).into()
}
