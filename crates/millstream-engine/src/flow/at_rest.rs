//! Tables at rest of connectors that can only stream.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;

use super::AtRest;
use crate::api::connector::{FlowContext, ReadMode};
use crate::api::source::{Failure, Records, Source, StaticTable};
use crate::driver::batch_query;
use crate::pipeline::DeclaredTable;

/// A table whose connector can only stream, read once from its beginning to what is there.
pub(super) struct StreamAtRest {
    pub(super) declared: Arc<DeclaredTable>,
    pub(super) schema: SchemaRef,
    pub(super) context: FlowContext,
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
        batch_query::read_to_end(self.source()?.as_mut()).await
    }

    async fn records(&self) -> Result<Vec<Arc<dyn Records>>, Failure> {
        batch_query::records_to_end(self.source()?.as_mut()).await
    }
}

impl StreamAtRest {
    fn source(&self) -> Result<Box<dyn Source>, Failure> {
        let connector = &self.declared.connector;
        connector.source(&*self.declared.table.fresh()?, ReadMode::Batch, &self.context)
    }
}

/// Fills tables that are read whole; gives their rows.
pub async fn load_tables(tables: &[AtRest], context: &FlowContext) -> Result<u64, Failure> {
    let mut rows = 0;
    for table in tables {
        let connector = &table.declared.connector;
        let content = match connector.static_table(&*table.declared.table.fresh()?, context)? {
            Some(content) => content,
            None => Arc::new(StreamAtRest {
                declared: Arc::clone(&table.declared),
                schema: Arc::clone(&table.schema),
                context: context.clone(),
            }),
        };
        rows += table.loaded.load(content).await?;
    }
    Ok(rows)
}
