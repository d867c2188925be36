//! Rows that BigQuery does not take, put aside as dead letters instead of failing the query.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use millstream_engine::api::options::OptionError;
use millstream_engine::api::refusals::{Refusal, Refusals};
use millstream_formats::RecordEncoder;

use super::error::BigQueryProblem;
use super::mapping::Mapping;
use super::message::{self, Message};

/// Where refused rows go, and what makes messages of the others.
pub(super) struct Aside {
    pub(super) refusals: Refusals,
    pub(super) mapping: Mapping,
    /// The table, for messages.
    pub(super) table: String,
}

impl Aside {
    /// The messages of `rows`, without those that cannot be sent, which are added to `refused`.
    pub(super) fn messages(&self, rows: RecordBatch, refused: &mut Vec<Refusal>) -> Vec<Message> {
        match message::messages(&self.mapping, std::slice::from_ref(&rows)) {
            Ok(messages) => messages,
            Err(problem) if rows.num_rows() == 1 => {
                let problem = BigQueryProblem::Row { table: self.table.clone(), problem };
                let row = json(&rows).expect("the columns were checked");
                refused.push(Refusal { row, error: problem.to_string() });
                Vec::new()
            }
            Err(_) => {
                let half = rows.num_rows() / 2;
                let mut messages = self.messages(rows.slice(0, half), refused);
                let rest = rows.slice(half, rows.num_rows() - half);
                messages.extend(self.messages(rest, refused));
                messages
            }
        }
    }

    /// `rows` without those that the service refuses: `errors` has their places and what the
    /// service says of them. `None` where that is nothing that can be done: no such rows, or rows
    /// that cannot be written as JSON.
    pub(super) fn without(
        &self,
        rows: &RecordBatch,
        errors: &[(usize, String)],
    ) -> Option<(RecordBatch, Vec<Refusal>)> {
        let mut kept = vec![true; rows.num_rows()];
        let mut refused = Vec::with_capacity(errors.len());
        for (index, said) in errors {
            if !std::mem::replace(kept.get_mut(*index)?, false) {
                continue;
            }
            let problem =
                BigQueryProblem::RowRefused { table: self.table.clone(), said: said.clone() };
            let row = json(&rows.slice(*index, 1))?;
            refused.push(Refusal { row, error: problem.to_string() });
        }
        let rows = filter_record_batch(rows, &BooleanArray::from(kept)).ok()?;
        (!refused.is_empty()).then_some((rows, refused))
    }
}

/// What makes JSON of refused rows.
const ENCODER: RecordEncoder = RecordEncoder::Json { ignore_null_fields: true };

/// Whether rows of `schema` can be put aside.
///
/// # Errors
/// A column that cannot be written as JSON.
pub(super) fn check(schema: &SchemaRef) -> Result<(), OptionError> {
    ENCODER.check(schema)
}

/// A row as a JSON object.
fn json(row: &RecordBatch) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    ENCODER.write(row, &mut line).ok()?;
    line.truncate(line.trim_ascii_end().len());
    Some(line)
}
