//! The dead-letter sinks of a query: its side outputs with the sink of each, as a flow makes them.
//!
//! A streaming query takes them apart: the sinks join its [`outputs`](super::outputs). A query that
//! runs once has its rows validated here, and what is rejected published, before its own rows are.

use millstream_store::offset::BatchId;

use super::outputs::{Order, Outputs, Partitions};
use super::side_outputs::{Rejections, SideOutput, SideOutputs};
use crate::api::dead_letter::Layout;
use crate::api::progress::ConstraintProgress;
use crate::api::sink::{EndOffsets, Failure, Sink};

/// The side outputs of a query, and their sinks.
pub struct DeadLetterSinks {
    pub(super) side_outputs: SideOutputs,
    pub(super) outputs: Outputs,
}

/// The sink of a side output.
pub struct DeadLetterSink {
    /// What tells it from the others: its table's name in lower case.
    pub name: String,
    /// The sink.
    pub sink: Box<dyn Sink>,
    /// Which columns it gets.
    pub layout: Layout,
}

impl DeadLetterSinks {
    /// The dead-letter sinks of the flow `flow`, of whose rows some are rejected.
    pub fn new(flow: &str, rejections: Rejections, sinks: Vec<DeadLetterSink>) -> Self {
        let split = |DeadLetterSink { name, sink, layout }| (SideOutput { name, layout }, sink);
        let (tables, sinks): (Vec<_>, Vec<_>) = sinks.into_iter().map(split).unzip();
        let side_outputs = SideOutputs::new(flow, rejections, tables);
        let outputs = Outputs::of_side_outputs(sinks, side_outputs.follow_time());
        Self { side_outputs, outputs }
    }

    /// Validates the rows of a query that runs once against the constraints, and publishes what
    /// they reject. Gives the others.
    pub(super) async fn check_once(
        &mut self,
        partitions: Partitions,
        end_offsets: &EndOffsets,
    ) -> Result<Partitions, Failure> {
        let Self { side_outputs, outputs } = self;
        let mut rejected = side_outputs.nothing();
        let (partitions, counts) = side_outputs.check(partitions, &mut rejected)?;
        for ConstraintProgress { name, passed, failed } in counts {
            tracing::info!(constraint = name, passed, failed, "the rows were checked");
        }
        outputs.open().await?;
        let (id, end_offsets) = (BatchId(0), end_offsets.clone());
        let mut order = Order { id, end_offsets, sinks: None, intent: None };
        let mut acknowledgements = Vec::with_capacity(rejected.len());
        for (index, rejected) in rejected.into_iter().enumerate() {
            let rows = side_outputs.rows(index, rejected, order.end_offsets.batch_time_ms);
            if !rows.is_empty() {
                acknowledgements.push(outputs.publish(index, vec![rows], &mut order).await?);
            }
        }
        outputs.flush().await;
        for acknowledgement in acknowledgements {
            acknowledgement.accepted().await?;
        }
        outputs.close().await?;
        Ok(partitions)
    }
}
