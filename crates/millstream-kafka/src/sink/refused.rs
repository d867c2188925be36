//! Records that the brokers never accept, as rows that the sink refuses: the driver finds the
//! source records that they were made of.

use arrow::array::RecordBatch;
use millstream_engine::api::sink::{Acknowledgement, Classified, Failure, Kind, RefusedRow};

use super::columns::SinkColumns;
use crate::client::delivery_reports::hash;
use crate::error::SinkError;

/// `error` as a refused row with these `columns`, where it is about a record that is never
/// accepted.
pub fn refused(error: SinkError, columns: &SinkColumns) -> Failure {
    let wanted = match &error {
        SinkError::NotEncoded { .. } => {
            let columns = columns.clone();
            let is_among = move |rows: &RecordBatch| {
                matches!(columns.of(rows), Err(SinkError::NotEncoded { .. }))
            };
            return RefusedRow::new(error, is_among).into();
        }
        SinkError::NullTopic => None,
        SinkError::TooLarge { hash, .. } => Some(*hash),
        SinkError::Undelivered { hash, .. } if error.kind() == Kind::Data => Some(*hash),
        _ => return error.into(),
    };
    let columns = columns.clone();
    let is_among = move |rows: &RecordBatch| {
        let Ok(rows) = columns.of(rows) else { return false };
        (0..rows.rows).any(|row| match wanted {
            Some(wanted) => hash(rows.key(row), rows.value(row)) == wanted,
            None => rows.topic(row).is_none(),
        })
    };
    RefusedRow::new(error, is_among).into()
}

/// `acknowledgement` of rows with these `columns`, with errors converted by [`refused`].
pub fn convert_errors(acknowledgement: Acknowledgement, columns: &SinkColumns) -> Acknowledgement {
    let Acknowledgement::Later(accepted) = acknowledgement else { return acknowledgement };
    let columns = columns.clone();
    Acknowledgement::Later(Box::pin(async move {
        accepted.await.map_err(|failure| match failure.downcast::<SinkError>() {
            Ok(error) => refused(error, &columns),
            Err(other) => other,
        })
    }))
}
