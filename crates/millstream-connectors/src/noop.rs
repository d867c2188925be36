//! `USING noop`: a sink that drops what it gets, to measure all that stands before it.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::connector::{Connector, FlowContext, Table};
use millstream_engine::api::options::{OptionError, OptionSpec};
use millstream_engine::api::sink::{
    Acknowledgement, Delivery, Failure, Output, PieceWriter, Published, Sink,
};

/// The `noop` connector.
pub struct Noop;

impl Connector for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn check_sink(&self, _table: &Table, _schema: &SchemaRef) -> Result<(), OptionError> {
        Ok(())
    }

    fn sink(
        &self,
        _table: &Table,
        _schema: &SchemaRef,
        _context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(NoopSink))
    }
}

/// Accepts everything at once.
pub struct NoopSink;

#[async_trait]
impl Sink for NoopSink {
    fn description(&self) -> String {
        "noop-table".into()
    }

    fn delivery(&self) -> Delivery {
        Delivery::AtLeastOnce
    }

    async fn open(&mut self) -> Result<Option<Published>, Failure> {
        Ok(None)
    }

    fn piece_writer(&mut self) -> Option<&mut dyn PieceWriter> {
        Some(self)
    }

    async fn publish(&mut self, _output: Output) -> Result<Acknowledgement, Failure> {
        Ok(Acknowledgement::Done)
    }

    async fn close(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[async_trait]
impl PieceWriter for NoopSink {
    async fn write(&mut self, _partition: usize, _rows: RecordBatch) -> Result<(), Failure> {
        Ok(())
    }
}
