//! Rows that BigQuery does not take, put aside as dead letters instead of failing the query.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use millstream_engine::api::refusals::{Refusal, Refusals};
use millstream_formats::RecordEncoder;

use super::error::BigQueryProblem;
use super::mapping::Mapping;
use super::message::{self, Message};
use super::rows::RowProblem;

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
                refused.extend(self.refused(&rows, problem));
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

    fn refused(&self, row: &RecordBatch, problem: RowProblem) -> Option<Refusal> {
        let problem = BigQueryProblem::Row { table: self.table.clone(), problem };
        Some(Refusal { row: json(row)?, error: problem.to_string() })
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

/// A row as a JSON object.
fn json(row: &RecordBatch) -> Option<Vec<u8>> {
    let encoder = RecordEncoder::Json { ignore_null_fields: true };
    let mut line = Vec::new();
    encoder.write(row, &mut line).ok()?;
    line.truncate(line.trim_ascii_end().len());
    Some(line)
}
