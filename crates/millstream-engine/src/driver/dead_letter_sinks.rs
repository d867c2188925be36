//! The dead-letter sinks of a query: its side outputs with the sink of each, as a flow makes them.
//!
//! A streaming query takes them apart: the sinks join its [`outputs`](super::outputs). A batch
//! query has its rows validated piece by piece ([`checked_once`](super::checked_once)), and what
//! is rejected published, before its own rows are.

use super::outputs::Outputs;
use super::side_outputs::{Rejections, SideOutput, SideOutputs};
use crate::api::dead_letter::Layout;
use crate::api::sink::Sink;

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
        let outputs = Outputs::from_side_outputs(sinks, side_outputs.follow_time());
        Self { side_outputs, outputs }
    }
}
