//! Keeps what is published.

use async_trait::async_trait;
use millstream_engine::api::sink::{self, Acknowledgement, Delivery, Failure, Output, Sink};

use super::table::{MemoryTable, Published};

/// Appends each micro-batch to a table in this process.
pub struct MemorySink {
    table: MemoryTable,
}

impl MemorySink {
    /// A sink that appends to `table`.
    pub fn new(table: MemoryTable) -> Self {
        Self { table }
    }
}

#[async_trait]
impl Sink for MemorySink {
    fn description(&self) -> String {
        "MemorySink".into()
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    async fn open(&mut self) -> Result<Option<sink::Published>, Failure> {
        Ok(None)
    }

    async fn publish(&mut self, output: Output) -> Result<Acknowledgement, Failure> {
        let record_batches = output.partitions.into_iter().flatten().collect();
        self.table.publish(Published { batch_id: output.batch_id, record_batches });
        Ok(Acknowledgement::Done)
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}
