//! Tables that are read whole: the static side of a join.
//!
//! The rows are held in memory and replaced when the table's fingerprint changes. The driver asks
//! for the fingerprint about once a second, in the background, so that a look at a directory
//! stands in no micro-batch's way.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::RwLock;

use crate::source::{Failure, StaticTable};

/// A static table with its rows as last read.
pub struct LoadedTable {
    table: Arc<dyn StaticTable>,
    content: RwLock<Content>,
}

struct Content {
    fingerprint: String,
    rows: Vec<RecordBatch>,
}

impl LoadedTable {
    /// Reads the table for the first time.
    pub async fn load(table: Arc<dyn StaticTable>) -> Result<Arc<Self>, Failure> {
        // The fingerprint is taken first: a change during the read is then seen at the next look.
        let fingerprint = table.fingerprint().await?;
        let rows = table.read().await?;
        Ok(Arc::new(Self { table, content: RwLock::new(Content { fingerprint, rows }) }))
    }

    /// A table whose rows never change.
    pub fn fixed(schema: SchemaRef, rows: Vec<RecordBatch>) -> Arc<Self> {
        let content = Content { fingerprint: String::new(), rows: rows.clone() };
        let table = Arc::new(FixedTable { schema, rows });
        Arc::new(Self { table, content: RwLock::new(content) })
    }

    /// Reads the table again if it changed; true if it did.
    pub async fn refresh(&self) -> Result<bool, Failure> {
        let fingerprint = self.table.fingerprint().await?;
        if fingerprint == self.content.read().fingerprint {
            return Ok(false);
        }
        let rows = self.table.read().await?;
        *self.content.write() = Content { fingerprint, rows };
        Ok(true)
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
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
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

struct FixedTable {
    schema: SchemaRef,
    rows: Vec<RecordBatch>,
}

#[async_trait]
impl StaticTable for FixedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        Ok(String::new())
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        Ok(self.rows.clone())
    }
}
