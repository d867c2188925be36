//! Where messages go that are not delivered, and that the query goes on without.

use bytes::Bytes;
use millstream_engine::api::refusals::{Refusal, Refusals, RefusedRows};
use millstream_engine::api::sink::BatchId;

use super::Message;
use super::error::DeliveryError;
use super::refused_file::RefusedFile;

/// A place for undelivered messages.
#[derive(Clone)]
pub enum Aside {
    /// A file, which keeps what the message said.
    File(RefusedFile),
    /// The flow's dead letters: each row of the message is one.
    Letters(Refusals),
}

/// Whether a message that was put aside is there for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Whatever happens next.
    Now,
    /// Once its micro-batch is acknowledged: a run that ends before has not kept it.
    WithMicroBatch,
}

impl Aside {
    /// Keeps a message of micro-batch `batch_id` that `error` is about; `answer` is what its
    /// receiver said.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn keep(
        &self,
        batch_id: BatchId,
        message: &impl Message,
        error: &DeliveryError,
        answer: &str,
    ) -> Result<Kept, DeliveryError> {
        match self {
            Self::File(file) => {
                file.add(message, answer).await?;
                Ok(Kept::Now)
            }
            Self::Letters(refusals) => {
                let refusal = |row: &Bytes| Refusal { row: row.to_vec(), error: error.to_string() };
                let rows = message.rows().iter().map(refusal).collect();
                refusals.add(RefusedRows { first: batch_id, batch_id, found_ms: 0, rows });
                Ok(Kept::WithMicroBatch)
            }
        }
    }
}
