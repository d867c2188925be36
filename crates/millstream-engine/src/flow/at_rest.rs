//! Tables at rest: where their rows come from when a flow runs.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;

use crate::api::connector::{FlowContext, ReadMode};
use crate::api::drained::{DrainedSource, records_to_end};
use crate::api::snapshot::{Snapshot, read_all};
use crate::api::source::{Failure, Records, Source, StaticTable};
use crate::pipeline::DeclaredTable;
use crate::plan::scanned_table::ScannedTable;
use crate::plan::static_table::LoadedTable;

/// A table at rest, empty until the flow runs.
pub(super) struct AtRest {
    pub(super) declared: Arc<DeclaredTable>,
    pub(super) schema: SchemaRef,
    pub(super) rows: Rows,
    /// Its name in plans.
    pub(super) registered_as: String,
}

/// The rows of a table at rest.
pub(super) enum Rows {
    /// Of the static side of a join with a stream: they are held in memory.
    Loaded(Arc<LoadedTable>),
    /// Of the input of a batch query.
    Scanned(Arc<ScannedTable>),
}

impl AtRest {
    /// The table as plans have it.
    pub(super) fn provider(&self) -> Arc<dyn TableProvider> {
        match &self.rows {
            Rows::Loaded(table) => Arc::clone(table) as Arc<dyn TableProvider>,
            Rows::Scanned(table) => Arc::clone(table) as Arc<dyn TableProvider>,
        }
    }

    /// The table, where its rows are held in memory.
    pub(super) fn loaded(&self) -> Option<&Arc<LoadedTable>> {
        match &self.rows {
            Rows::Loaded(table) => Some(table),
            Rows::Scanned(_) => None,
        }
    }

    /// The table, where a batch query scans it.
    pub(super) fn scanned(&self) -> Option<&Arc<ScannedTable>> {
        match &self.rows {
            Rows::Loaded(_) => None,
            Rows::Scanned(table) => Some(table),
        }
    }

    fn table(&self, context: &FlowContext) -> Result<Arc<dyn StaticTable>, Failure> {
        let connector = &self.declared.connector;
        let table = connector.static_table(&*self.declared.table.fresh()?, context)?;
        Ok(table.unwrap_or_else(|| {
            Arc::new(StreamAtRest {
                declared: Arc::clone(&self.declared),
                schema: Arc::clone(&self.schema),
                context: context.clone(),
            })
        }))
    }
}

/// A table whose connector can only stream, read once from its beginning to what is there.
struct StreamAtRest {
    declared: Arc<DeclaredTable>,
    schema: SchemaRef,
    context: FlowContext,
}

#[async_trait]
impl StaticTable for StreamAtRest {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn fingerprint(&self) -> Result<String, Failure> {
        // Read once per run: a topic that grows would otherwise be read whole every second.
        Ok("at the start of the run".to_owned())
    }

    async fn read(&self) -> Result<Vec<RecordBatch>, Failure> {
        let snapshot = self.snapshot().await?;
        read_all(&*snapshot, self.schema.fields().len()).await
    }

    async fn records(&self) -> Result<Vec<Arc<dyn Records>>, Failure> {
        records_to_end(source(&self.declared, &self.context)?).await
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, Failure> {
        let (declared, context) = (Arc::clone(&self.declared), self.context.clone());
        Ok(Arc::new(DrainedSource::new(move || source(&declared, &context))))
    }
}

fn source(declared: &DeclaredTable, context: &FlowContext) -> Result<Box<dyn Source>, Failure> {
    declared.connector.source(&*declared.table.fresh()?, ReadMode::Batch, context)
}

/// Fills tables that are held in memory.
pub(super) async fn load_tables(tables: &[AtRest], context: &FlowContext) -> Result<(), Failure> {
    for table in tables {
        if let Some(loaded) = table.loaded() {
            loaded.load(table.table(context)?).await?;
        }
    }
    Ok(())
}

/// Opens the tables of a batch query, each of which is scanned the given number of times.
pub(super) async fn open_tables(
    tables: &[AtRest],
    scans: &[usize],
    context: &FlowContext,
) -> Result<(), Failure> {
    for (table, scans) in tables.iter().zip(scans) {
        if let Some(scanned) = table.scanned() {
            scanned.open(table.table(context)?, *scans).await?;
        }
    }
    Ok(())
}
