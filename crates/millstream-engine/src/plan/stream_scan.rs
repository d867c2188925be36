//! The leaf of a streaming plan: gives the rows of the micro-batch in hand.
//!
//! DataFusion sees an ordinary table with a fixed number of partitions. Before each run the driver
//! puts splits into the partitions' slots; running a partition empties its slot, decodes the
//! splits one after the other and gives their record batches. A partition without splits ends at
//! once, which costs next to nothing, so a small micro-batch uses one partition and a large one
//! all of them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream, StatisticsArgs,
};
use futures::stream;
use parking_lot::Mutex;

use crate::api::source::Split;
use crate::failures::into_datafusion;
use crate::state::event_times::{EventTimes, Time, watched_read};

/// The size that a stream reports to the optimizer, so that it builds a join's hash table from the
/// static side, however large that is.
pub(super) const ROWS_PRETENDED: usize = 1 << 48;
pub(super) const BYTES_PRETENDED: usize = 1 << 56;

/// The splits of the micro-batch in hand, a slot per partition. Shared by table, plan and driver.
pub struct Slots {
    slots: Vec<Mutex<Vec<Box<dyn Split>>>>,
    event_time: OnceLock<Arc<EventTimes>>,
}

impl Slots {
    /// Empty slots for `partitions` partitions.
    pub fn new(partitions: usize) -> Arc<Self> {
        assert!(partitions > 0, "a scan has at least one partition");
        let slots = (0..partitions).map(|_| Mutex::default()).collect();
        Arc::new(Self { slots, event_time: OnceLock::new() })
    }

    /// Notes event times by `time` from now on, for a watermark.
    pub fn watch_event_time(&self, time: Time) {
        let _ = self.event_time.set(Arc::new(EventTimes::new(time)));
    }

    /// The event times seen, where they are watched.
    pub fn event_times(&self) -> Option<&Arc<EventTimes>> {
        self.event_time.get()
    }

    /// Puts splits into the partitions' slots as [`spread`] does. Returns whether more than one
    /// partition got rows.
    pub fn fill(&self, splits: Vec<Box<dyn Split>>) -> bool {
        if !is_worth_spreading(&splits, self.slots.len()) {
            *self.slots[0].lock() = splits;
            return false;
        }
        for (slot, share) in self.slots.iter().zip(spread(splits, self.slots.len())) {
            *slot.lock() = share;
        }
        true
    }

    /// Puts splits into the first partition's slot, and nothing into the others.
    pub(super) fn refill(&self, splits: Vec<Box<dyn Split>>) {
        for slot in &self.slots {
            slot.lock().clear();
        }
        *self.slots[0].lock() = splits;
    }

    /// How many partitions there are.
    pub(crate) fn partitions(&self) -> usize {
        self.slots.len()
    }

    fn take(&self, partition: usize) -> Vec<Box<dyn Split>> {
        std::mem::take(&mut self.slots[partition].lock())
    }
}

fn is_worth_spreading(splits: &[Box<dyn Split>], partitions: usize) -> bool {
    const ROWS_WORTH_A_CORE: u64 = 4_096;
    partitions > 1
        && splits.len() > 1
        && splits.iter().map(|split| split.rows()).sum::<u64>() >= ROWS_WORTH_A_CORE
}

/// Spreads splits over partitions: all into the first while they are small, since waking another
/// core costs more than it brings, else each to the partition with the fewest rows.
pub(crate) fn spread(splits: Vec<Box<dyn Split>>, partitions: usize) -> Vec<Vec<Box<dyn Split>>> {
    if !is_worth_spreading(&splits, partitions) {
        return vec![splits];
    }
    let mut shares: Vec<(u64, Vec<_>)> = (0..partitions).map(|_| (0, Vec::new())).collect();
    for split in splits {
        let fewest = shares.iter_mut().min_by_key(|(rows, _)| *rows);
        let (rows, share) = fewest.expect("there is at least one partition");
        *rows += split.rows();
        share.push(split);
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

/// A stream as DataFusion's planner sees it.
pub struct StreamTable {
    schema: SchemaRef,
    name: String,
    slots: Arc<Slots>,
}

impl StreamTable {
    /// A table with `schema` whose rows come from `slots`; `name` is for the plan's display.
    pub fn new(name: String, schema: SchemaRef, slots: Arc<Slots>) -> Self {
        Self { schema, name, slots }
    }
}

impl fmt::Debug for StreamTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamTable({})", self.name)
    }
}

#[async_trait]
impl TableProvider for StreamTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let projection: Vec<usize> = projection.cloned().unwrap_or_else(all);
        Ok(Arc::new(StreamScan::new(self, projection)?))
    }
}

/// The plan's leaf; see the module's head.
pub struct StreamScan {
    name: String,
    projection: Vec<usize>,
    slots: Arc<Slots>,
    properties: Arc<PlanProperties>,
}

impl StreamScan {
    fn new(table: &StreamTable, projection: Vec<usize>) -> Result<Self> {
        let schema = Arc::new(table.schema.project(&projection)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(table.slots.slots.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Self {
            name: table.name.clone(),
            projection,
            slots: Arc::clone(&table.slots),
            properties: Arc::new(properties),
        })
    }

    /// The name of the stream.
    pub(super) fn stream(&self) -> &str {
        &self.name
    }

    /// The columns it reads, where it reads `slots`.
    pub(super) fn columns_of(&self, slots: &Arc<Slots>) -> Option<&[usize]> {
        Arc::ptr_eq(&self.slots, slots).then_some(&self.projection)
    }

    /// Empties a partition's slot and decodes what was in it.
    pub(super) fn record_batches(
        &self,
        partition: usize,
    ) -> impl Iterator<Item = Result<RecordBatch>> + use<> {
        let splits = self.slots.take(partition);
        let projection = self.projection.clone();
        let watched = self.slots.event_times().map(Arc::clone);
        let read = move |split: Box<dyn Split>| watched_read(split, &projection, watched.clone());
        splits.into_iter().flat_map(read).map(|decoded| decoded.map_err(into_datafusion))
    }
}

impl fmt::Debug for StreamScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamScan({})", self.name)
    }
}

impl DisplayAs for StreamScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.properties.eq_properties.schema();
        let columns: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "StreamScan: {} [{}]", self.name, columns.join(", "))
    }
}

impl ExecutionPlan for StreamScan {
    fn name(&self) -> &str {
        "StreamScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let stream = stream::iter(self.record_batches(partition));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream)))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let unknown = Statistics::new_unknown(&self.schema());
        let statistics = unknown
            .with_num_rows(Precision::Inexact(ROWS_PRETENDED))
            .with_total_byte_size(Precision::Inexact(BYTES_PRETENDED));
        Ok(Arc::new(statistics))
    }
}
