//! A look-up table as plans have it: columns and a key; where its rows come from follows when the
//! flow runs.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use millstream_store::env::Env;
use parking_lot::RwLock;

use crate::api::lookup::{CacheLimits, LookupForm, LookupTable};

/// A look-up table in plans.
pub struct PlannedLookup {
    name: String,
    schema: SchemaRef,
    key: Vec<usize>,
    cache: Option<CacheLimits>,
    opened: RwLock<Option<Opened>>,
}

/// Where the rows come from.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) table: Arc<dyn LookupTable>,
    pub(super) env: Env,
}

impl PlannedLookup {
    /// The table `name`, to be planned against; [`Self::open`] says where its rows come from.
    pub fn new(name: String, form: LookupForm) -> Arc<Self> {
        let LookupForm { schema, key, cache } = form;
        // A row that is not there is all NULL, also where the declaration says otherwise.
        let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
        let fields: Vec<Field> = schema.fields().iter().map(nullable).collect();
        let schema = Arc::new(Schema::new(fields));
        Arc::new(Self { name, schema, key, cache, opened: RwLock::default() })
    }

    /// Rows come from `table` from now on.
    pub fn open(&self, table: Arc<dyn LookupTable>, env: &Env) {
        *self.opened.write() = Some(Opened { table, env: env.clone() });
    }

    pub(super) fn opened(&self) -> Option<Opened> {
        self.opened.read().clone()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn columns(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn key(&self) -> &[usize] {
        &self.key
    }

    pub(super) fn cache(&self) -> Option<CacheLimits> {
        self.cache
    }
}

impl fmt::Debug for PlannedLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlannedLookup({})", self.name)
    }
}

#[async_trait]
impl TableProvider for PlannedLookup {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Whatever would scan it was refused before.
        Err(DataFusionError::Internal(format!("the look-up table {} is not scanned", self.name)))
    }
}
