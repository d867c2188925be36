//! The outputs of a query: its sinks, and which rows each of them gets.
//!
//! First come the sinks of the branches, in the order of the file, then those of the side outputs
//! ([`side_outputs`](super::side_outputs)), which get what decoding, an expression or a constraint
//! rejected. Logs and recovery know the sinks by their place in this list, and make no difference
//! between them.
//!
//! What several sinks promise together is what the most demanding of them needs: an intent that is
//! durable before anything is published if one relies on the same range under the same number, an
//! intent after the acknowledgements if one reports what it published, else any. A sink waits for
//! the intent only if it relies on that itself, or if the time of the micro-batch decides which
//! rows are rejected: then all of them wait, so that a restart decides it the same way.
//!
//! A sink that gathers micro-batches, as a table that commits once a second, is ready only every
//! so many milliseconds: alone it has no use for smaller pieces. Beside a sink that does not
//! gather it would delay the other's rows for nothing, so then the driver does not ask it. It may
//! take many more micro-batches that way, each of which is remembered until it is acknowledged.
//! Therefore they are limited, and once half of them are under way the gathering sinks are asked
//! again and space out the rest: rows wait some milliseconds longer, not for the next commit. A
//! sink that is not asked whether it is ready is asked whether it has room: publishing to one that
//! has none would wait, and could not be interrupted.
//!
//! Rejected rows are few, so their sinks are asked only then, and get no micro-batch without such
//! rows: good rows do not wait until a table of bad ones commits. What is waited for is the
//! hand-over, until the sink has room or, of a sink that publishes at once as a directory of files
//! does, until the rows are published.

use arrow::array::RecordBatch;
use millstream_store::log_writer::Ticket;
use millstream_store::offset::BatchId;

use super::MICRO_BATCHES_IN_FLIGHT_MAX;
use crate::api::sink::{
    Acknowledgement, Delivery, EndOffsets, Ending, Failure, Output, Published, RefusedRow, Sink,
};

/// Micro-batches in flight where a sink that gathers stands beside one that does not. Half of them
/// is what a table takes for one commit.
const IN_FLIGHT_BESIDE_GATHERING_MAX: usize = 16_384;

/// Rows by partition.
pub(super) type Partitions = Vec<Vec<RecordBatch>>;

/// Which rows a sink gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowsOf {
    /// The result of this branch.
    Branch(usize),
    /// What is rejected for this side output.
    SideOutput(usize),
}

/// A sink of a query, and which rows it gets.
struct QueryOutput {
    rows: RowsOf,
    sink: Box<dyn Sink>,
}

/// All sinks of a query.
pub(super) struct Outputs {
    outputs: Vec<QueryOutput>,
    /// Whether the time of a micro-batch decides which of its rows a side output gets.
    time_decides: bool,
}

/// A micro-batch on its way to the sinks.
pub(super) struct Order<'a> {
    pub(super) id: BatchId,
    pub(super) end_offsets: EndOffsets,
    /// The sinks that get it, ascending; `None` for all.
    pub(super) sinks: Option<&'a [usize]>,
    /// An intent that must be durable before a sink publishes that relies on it.
    pub(super) intent: Option<Ticket>,
}

impl Order<'_> {
    /// Whether the sink number `index` gets it.
    pub(super) fn is_for(&self, index: usize) -> bool {
        self.sinks.is_none_or(|sinks| sinks.contains(&index))
    }
}

impl QueryOutput {
    fn is_of_branch(&self) -> bool {
        matches!(self.rows, RowsOf::Branch(_))
    }

    /// Whether the sink gathers micro-batches.
    fn gathers(&self) -> bool {
        self.sink.micro_batches_in_flight_max().is_some()
    }

    /// Whether a micro-batch waits until the sink is ready; `all_gather` where all sinks of
    /// branches gather.
    fn is_waited_for(&self, all_gather: bool) -> bool {
        self.is_of_branch() && (all_gather || !self.gathers())
    }
}

impl Outputs {
    /// The sinks of the branches, in their order.
    pub(super) fn from_branches(sinks: impl IntoIterator<Item = Box<dyn Sink>>) -> Self {
        let output = |(branch, sink)| QueryOutput { rows: RowsOf::Branch(branch), sink };
        Self { outputs: sinks.into_iter().enumerate().map(output).collect(), time_decides: false }
    }

    /// The sinks of side outputs, in their order; `time_decides` where the time of a micro-batch
    /// decides which rows they get.
    pub(super) fn from_side_outputs(
        sinks: impl IntoIterator<Item = Box<dyn Sink>>,
        time_decides: bool,
    ) -> Self {
        let output = |(side, sink)| QueryOutput { rows: RowsOf::SideOutput(side), sink };
        Self { outputs: sinks.into_iter().enumerate().map(output).collect(), time_decides }
    }

    /// Adds other sinks behind these.
    pub(super) fn append(&mut self, others: Self) {
        self.outputs.extend(others.outputs);
        self.time_decides |= others.time_decides;
    }

    /// How many sinks there are.
    pub(super) fn len(&self) -> usize {
        self.outputs.len()
    }

    /// Which rows the sink number `index` gets.
    pub(super) fn rows_of(&self, index: usize) -> RowsOf {
        self.outputs[index].rows
    }

    pub(super) fn sinks(&self) -> impl Iterator<Item = &dyn Sink> {
        self.outputs.iter().map(|output| &*output.sink)
    }

    pub(super) fn sinks_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Sink>> {
        self.outputs.iter_mut().map(|output| &mut output.sink)
    }

    /// The first sink, which a query with one branch and no side output has alone.
    pub(super) fn first_mut(&mut self) -> &mut dyn Sink {
        &mut *self.outputs[0].sink
    }

    /// What the sink number `index` is, for progress and messages.
    pub(super) fn description(&self, index: usize) -> String {
        self.outputs[index].sink.description()
    }

    /// What all sinks together need. Settled once they are open.
    pub(super) fn delivery(&self) -> Delivery {
        let any = |wanted| self.sinks().any(|sink| sink.delivery() == wanted);
        if self.time_decides || any(Delivery::Idempotent) {
            // Which rows are rejected has to be decided again for the same micro-batches, and not
            // for what they come to together.
            Delivery::Idempotent
        } else if any(Delivery::Transactional) {
            Delivery::Transactional
        } else {
            Delivery::AtLeastOnce
        }
    }

    /// Whether all sinks of branches gather micro-batches.
    fn all_gather(&self) -> bool {
        let mut branches = self.outputs.iter().filter(|output| output.is_of_branch());
        branches.all(QueryOutput::gathers)
    }

    /// How many micro-batches may be under way.
    pub(super) fn micro_batches_in_flight_max(&self) -> usize {
        let all_gather = self.all_gather();
        let gathers_beside =
            |output: &QueryOutput| output.gathers() && !output.is_waited_for(all_gather);
        if self.outputs.iter().any(gathers_beside) {
            return IN_FLIGHT_BESIDE_GATHERING_MAX;
        }
        let limits = self.sinks().filter_map(|sink| sink.micro_batches_in_flight_max());
        limits.max().unwrap_or(0).max(MICRO_BATCHES_IN_FLIGHT_MAX)
    }

    /// The sinks that remember no numbers, ascending.
    pub(super) fn at_least_once(&self) -> Vec<usize> {
        let sinks = self.sinks().enumerate();
        let forgets = |sink: &dyn Sink| sink.delivery() == Delivery::AtLeastOnce;
        sinks.filter(|(_, sink)| forgets(*sink)).map(|(index, _)| index).collect()
    }

    /// Opens every sink; gives what each has published last.
    pub(super) async fn open(&mut self) -> Result<Vec<Option<Published>>, Failure> {
        let mut published = Vec::with_capacity(self.outputs.len());
        for sink in self.sinks_mut() {
            published.push(sink.open().await?);
        }
        Ok(published)
    }

    /// Completes when another micro-batch is worth taking; `is_crowded` where more than half of
    /// those that may be under way are.
    pub(super) async fn ready(&mut self, is_crowded: bool) -> Result<(), Failure> {
        let all_gather = self.all_gather();
        for output in &mut self.outputs {
            match is_crowded || output.is_waited_for(all_gather) {
                true => output.sink.ready().await?,
                false => output.sink.room().await?,
            }
        }
        Ok(())
    }

    /// Hands a micro-batch's rows over to the sink number `index`, once the intent that this
    /// relies on is durable.
    pub(super) async fn publish(
        &mut self,
        index: usize,
        partitions: Partitions,
        order: &mut Order<'_>,
    ) -> Result<Acknowledgement, Failure> {
        let sink = &mut self.outputs[index].sink;
        let waits = |_: &mut Ticket| self.time_decides || sink.delivery() == Delivery::Idempotent;
        if let Some(intent) = order.intent.take_if(waits) {
            intent.written().await?;
        }
        let end_offsets = order.end_offsets.clone();
        let published = sink.publish(Output { batch_id: order.id, partitions, end_offsets }).await;
        published.map_err(|failure| RefusedRow::of_sink(failure, index))
    }

    /// Has every sink publish what it holds back.
    pub(super) async fn flush(&mut self) {
        for sink in self.sinks_mut() {
            sink.flush().await;
        }
    }

    /// Tells every sink that nothing is published any more.
    pub(super) async fn end(&mut self, ending: Ending) {
        for sink in self.sinks_mut() {
            sink.end(ending).await;
        }
    }

    /// Closes every sink; gives the first failure.
    pub(super) async fn close(&mut self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for sink in self.sinks_mut() {
            let closed = sink.close().await;
            outcome = outcome.and(closed);
        }
        outcome
    }
}
