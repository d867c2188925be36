//! Rows of a query for one who reads texts of them, in the session's time zone. To others a
//! TIMESTAMP is a moment, of UTC, in any session.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use millstream_engine::failures::from_datafusion;
use millstream_sql::functions::{recorded_in, recorded_schema, shown_in};

use super::PlannedQuery;
use crate::error::QueryError;

impl PlannedQuery {
    /// Rows to be drawn: TIMESTAMPs at which clocks of UTC show what those of the zone do.
    ///
    /// # Errors
    /// A TIMESTAMP whose offset in the zone is not known.
    pub fn drawn(&self, rows: RecordBatch) -> Result<RecordBatch, QueryError> {
        if self.zone.is_utc() {
            return Ok(rows);
        }
        shown_in(&self.zone, &rows).map_err(failed)
    }

    /// Rows to be written as records of text, with [`Self::recorded_schema`].
    ///
    /// # Errors
    /// A TIMESTAMP whose offset in the zone is not known.
    pub fn recorded(&self, rows: RecordBatch) -> Result<RecordBatch, QueryError> {
        if self.zone.is_utc() {
            return Ok(rows);
        }
        recorded_in(&self.zone, &rows).map_err(failed)
    }

    /// The columns of such rows: where the zone is not UTC, TIMESTAMPs are texts with their offset.
    ///
    /// # Errors
    /// TIMESTAMPs as keys of a MAP.
    pub fn recorded_schema(&self) -> Result<SchemaRef, QueryError> {
        recorded_schema(&self.zone, &self.schema()).map_err(failed)
    }
}

fn failed(error: DataFusionError) -> QueryError {
    QueryError::Failure(from_datafusion(error))
}
