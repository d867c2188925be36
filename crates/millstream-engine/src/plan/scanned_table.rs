//! Tables that a batch query scans: no table is in memory as a whole.
//!
//! DataFusion sees an ordinary table. Planning a scan asks the table's snapshot for the parts that
//! may have the rows wanted, and spreads them over partitions; running a partition reads its parts
//! one after the other, only the columns of the scan, and only as fast as rows are taken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as PlanResult, Statistics};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream, StatisticsArgs,
};
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::{Mutex, RwLock};
use thiserror::Error;

use crate::api::filter::Filter;
use crate::api::snapshot::{HeldRows, Snapshot, SnapshotPart};
use crate::api::source::{Classified, Failure, Kind, Records, StaticTable};
use crate::failures::into_datafusion;

/// A table of fewer rows is read by one task, in order.
const ROWS_WORTH_A_CORE: u64 = 65_536;

/// What a table pretends to hold where nobody knows how many rows it has, so that the optimizer
/// keeps the other table of a join in memory.
const ROWS_PRETENDED: usize = 1 << 40;

/// A table as a batch query scans it.
pub struct ScannedTable {
    name: String,
    schema: SchemaRef,
    content: RwLock<Option<Content>>,
    /// How many rows each scan has read.
    rows_read: Mutex<Vec<Arc<AtomicU64>>>,
}

#[derive(Clone)]
struct Content {
    table: Arc<dyn StaticTable>,
    snapshot: Arc<dyn Snapshot>,
    /// By column of the query's schema, its index in the snapshot's rows.
    columns: Arc<[usize]>,
}

/// A table is not what it was when the query was planned.
#[derive(Debug, Error)]
enum ScanError {
    #[error("the table '{table}' has no column {column} any more")]
    ColumnGone { table: String, column: String },
    #[error("the table '{table}' does not have the columns that it had before: {problem}")]
    Columns { table: String, problem: ArrowError },
}

impl Classified for ScanError {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

impl ScannedTable {
    /// A table without rows, to be planned against; [`ScannedTable::open`] gives it content.
    pub fn empty(name: String, schema: SchemaRef) -> Arc<Self> {
        let (content, rows_read) = (RwLock::default(), Mutex::default());
        Arc::new(Self { name, schema, content, rows_read })
    }

    /// Scans read `table` as it is now. Where a reading of it cannot be repeated and there are
    /// `scans` of it that have to agree, all rows are held in memory.
    pub async fn open(&self, table: Arc<dyn StaticTable>, scans: usize) -> Result<(), Failure> {
        let snapshot = table.snapshot().await?;
        self.open_at(table, snapshot, scans).await
    }

    /// The same, of a `snapshot` that was taken of it before.
    pub async fn open_at(
        &self,
        table: Arc<dyn StaticTable>,
        mut snapshot: Arc<dyn Snapshot>,
        scans: usize,
    ) -> Result<(), Failure> {
        let schema = table.schema();
        let column = |field: &arrow::datatypes::FieldRef| {
            let (table, column) = (self.name.clone(), field.name().clone());
            schema.index_of(field.name()).map_err(|_| ScanError::ColumnGone { table, column })
        };
        let columns = self.schema.fields().iter().map(column);
        let columns = columns.collect::<Result<_, _>>()?;
        if scans > 1 && !snapshot.is_repeatable() {
            snapshot = Arc::new(HeldRows::new(table.read().await?));
        }
        *self.content.write() = Some(Content { table, snapshot, columns });
        Ok(())
    }

    /// How many rows were read. Several scans read the same rows.
    pub fn rows_read(&self) -> u64 {
        let scans = self.rows_read.lock();
        scans.iter().map(|rows| rows.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Has `rows`, in the columns of the query's schema, in the place of those of the table, until
    /// [`Self::restore`].
    pub(super) fn hold(&self, rows: Vec<RecordBatch>) {
        if let Some(content) = self.content.write().as_mut() {
            content.snapshot = Arc::new(HeldRows::new(rows));
            content.columns = (0..self.schema.fields().len()).collect();
        }
    }

    /// Has the rows of `original` again.
    pub(super) fn restore(&self, original: &Original) {
        *self.content.write() = Some(original.content.clone());
    }

    /// What it has now; `None` before it was opened.
    pub(super) fn original(&self) -> Option<Original> {
        let (name, schema) = (self.name.clone(), Arc::clone(&self.schema));
        self.content.read().clone().map(|content| Original { name, schema, content })
    }

    /// Whether it has a column of this name.
    pub(super) fn has_column(&self, name: &str) -> bool {
        self.schema.fields().iter().any(|field| field.name().eq_ignore_ascii_case(name))
    }
}

/// A table's own rows, while it has others.
pub(super) struct Original {
    name: String,
    schema: SchemaRef,
    content: Content,
}

/// Rows, and by row the number of its record.
pub(super) struct TracedRows {
    pub(super) rows: RecordBatch,
    pub(super) of: Option<(Arc<dyn Records>, Vec<u64>)>,
}

impl Original {
    /// All rows, piece by piece, with the record of each where the table knows it.
    pub(super) async fn traced(
        &self,
    ) -> Result<BoxStream<'_, Result<Vec<TracedRows>, Failure>>, Failure> {
        let Content { table, snapshot, columns } = &self.content;
        let records = table.records().await?;
        if !records.is_empty() {
            let traced = stream::iter(records).map(|records| {
                let traced = records.read(columns, false)?.into_iter();
                let traced = traced.map(|traced| {
                    let rows = shaped(&traced.rows, &self.schema, &self.name)?;
                    Ok(TracedRows { rows, of: Some((Arc::clone(&records), traced.numbers)) })
                });
                traced.collect()
            });
            return Ok(traced.boxed());
        }
        let parts = snapshot.parts(&[]).await?;
        let rows = stream::iter(parts).flat_map(|part| part.read(columns));
        let untraced = rows.map(|rows| {
            let rows = shaped(&rows?, &self.schema, &self.name)?;
            Ok(vec![TracedRows { rows, of: None }])
        });
        Ok(untraced.boxed())
    }
}

/// `rows` under the columns that the query was planned with.
fn shaped(rows: &RecordBatch, schema: &SchemaRef, table: &str) -> Result<RecordBatch, ScanError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let columns = rows.columns().to_vec();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|problem| ScanError::Columns { table: table.to_owned(), problem })
}

impl fmt::Debug for ScannedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScannedTable({})", self.name)
    }
}

#[async_trait]
impl TableProvider for ScannedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        // Seen by the scan, so that parts may be left out, and applied again above.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let all = || (0..self.schema.fields().len()).collect();
        let wanted: Vec<usize> = projection.cloned().unwrap_or_else(all);
        let schema = Arc::new(self.schema.project(&wanted)?);
        let content = self.content.read().clone();
        let (mut parts, mut columns, mut rows_estimate) = (Vec::new(), wanted, Some(0));
        if let Some(Content { snapshot, columns: in_table, .. }) = content {
            let filters: Vec<Filter> = filters.iter().filter_map(Filter::of).collect();
            parts = snapshot.parts(&filters).await.map_err(into_datafusion)?;
            columns = columns.into_iter().map(|column| in_table[column]).collect();
            rows_estimate = snapshot.rows_estimate();
        }
        let is_small = rows_estimate.is_some_and(|rows| rows < ROWS_WORTH_A_CORE);
        // The first rows of a table are the same ones each time if one task reads it.
        let partitions_max =
            if limit.is_some() || is_small { 1 } else { state.config().target_partitions() };
        let rows_read = Arc::new(AtomicU64::new(0));
        self.rows_read.lock().push(Arc::clone(&rows_read));
        let partitions = spread(parts, partitions_max);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(partitions.len()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        let properties = Arc::new(properties);
        let name = self.name.clone();
        Ok(Arc::new(TableScan { name, columns, partitions, rows_estimate, rows_read, properties }))
    }
}

/// The scans that `plan` has of the table `registered_as`, subqueries included: of each, what it
/// asks of the table.
pub fn scans_in(plan: &LogicalPlan, registered_as: &str) -> PlanResult<Vec<Vec<Filter>>> {
    let mut scans = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan.table_name.table() == registered_as
        {
            scans.push(scan.filters.iter().filter_map(Filter::of).collect());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(scans)
}

/// Spreads parts over `partitions_max` partitions at most. Partition by partition they have the
/// order of the table.
fn spread(
    parts: Vec<Arc<dyn SnapshotPart>>,
    partitions_max: usize,
) -> Vec<Vec<Arc<dyn SnapshotPart>>> {
    let partitions = parts.len().min(partitions_max).max(1);
    let end = |partition: usize| parts.len() * partition / partitions;
    (0..partitions).map(|at| parts[end(at)..end(at + 1)].to_vec()).collect()
}

/// The plan's leaf; see the module's head.
struct TableScan {
    name: String,
    /// What is read, as indices into the snapshot's columns.
    columns: Vec<usize>,
    partitions: Vec<Vec<Arc<dyn SnapshotPart>>>,
    rows_estimate: Option<u64>,
    rows_read: Arc<AtomicU64>,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for TableScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableScan({})", self.name)
    }
}

impl DisplayAs for TableScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.properties.eq_properties.schema();
        let columns: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "TableScan: {} [{}]", self.name, columns.join(", "))
    }
}

impl ExecutionPlan for TableScan {
    fn name(&self) -> &str {
        "TableScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        _: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let columns = self.columns.clone();
        let parts = stream::iter(self.partitions[partition].clone());
        let (schema, name) = (self.schema(), self.name.clone());
        let rows_read = Arc::clone(&self.rows_read);
        let rows = parts.flat_map(move |part| part.read(&columns)).map(move |rows| {
            let rows = rows.and_then(|rows| Ok(shaped(&rows, &schema, &name)?));
            let rows = rows.map_err(into_datafusion)?;
            rows_read.fetch_add(rows.num_rows() as u64, Ordering::Relaxed);
            Ok(rows)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> PlanResult<Arc<Statistics>> {
        let statistics = Statistics::new_unknown(&self.schema());
        let rows = self.rows_estimate.and_then(|rows| usize::try_from(rows).ok());
        let rows = Precision::Inexact(rows.unwrap_or(ROWS_PRETENDED));
        Ok(Arc::new(statistics.with_num_rows(rows)))
    }
}
