//! Tables that are read whole: the static side of a join.
//!
//! The rows are held in memory and replaced when the table's fingerprint changes. The driver asks
//! for the fingerprint about once a second, in the background, so that listing a directory
//! delays no micro-batch.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::RwLock;

use crate::api::filter::Filter;
use crate::api::source::{Failure, StaticTable};

/// A static table with its rows as last read.
pub struct LoadedTable {
    schema: SchemaRef,
    /// The filters that the query applies to its rows; none before it is planned.
    wanted: RwLock<Vec<Filter>>,
    content: RwLock<Content>,
}

#[derive(Default)]
struct Content {
    /// Where the rows come from; `None` before the first load.
    table: Option<Arc<dyn StaticTable>>,
    fingerprint: String,
    rows: Vec<RecordBatch>,
}

impl LoadedTable {
    /// A table without rows, to be planned against; [`LoadedTable::load`] fills it.
    pub fn empty(schema: SchemaRef) -> Arc<Self> {
        Arc::new(Self { schema, wanted: RwLock::default(), content: RwLock::default() })
    }

    /// Allows later reads to leave out rows for which one of `filters` does not hold.
    pub fn want(&self, filters: Vec<Filter>) {
        *self.wanted.write() = filters;
    }

    /// Reads `table` for the first time; gives the number of its rows.
    pub async fn load(&self, table: Arc<dyn StaticTable>) -> Result<u64, Failure> {
        // The fingerprint is taken first: a change during the read is then seen at the next look.
        let fingerprint = table.fingerprint().await?;
        let wanted = self.wanted.read().clone();
        let rows = table.read_where(&wanted).await?;
        let count = rows.iter().map(|rows| rows.num_rows() as u64).sum();
        *self.content.write() = Content { table: Some(table), fingerprint, rows };
        Ok(count)
    }

    /// Reads the table again if it changed; true if it did.
    pub async fn refresh(&self) -> Result<bool, Failure> {
        let Some(table) = self.content.read().table.clone() else { return Ok(false) };
        let unchanged = table.fingerprint().await? == self.content.read().fingerprint;
        if !unchanged {
            self.load(table).await?;
        }
        Ok(!unchanged)
    }
}

impl fmt::Debug for LoadedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoadedTable({} record batches)", self.content.read().rows.len())
    }
}

#[async_trait]
impl TableProvider for LoadedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // Inexact: reading may leave out whole files by them, and DataFusion applies them again.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self.content.read().rows.clone();
        let memory = MemTable::try_new(self.schema(), vec![rows])?;
        memory.scan(state, projection, filters, limit).await
    }
}
