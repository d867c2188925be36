//! Tables at rest: where their rows come from when a flow runs.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use millstream_sql::diagnostic::{Diagnostic, Diagnostics};
use millstream_sql::query::prepared::TableRead;

use crate::api::connector::{FlowContext, ReadMode};
use crate::api::drained::{DrainedSource, records_to_end};
use crate::api::snapshot::{Snapshot, read_all};
use crate::api::source::{Failure, Records, Source, StaticTable};
use crate::pipeline::{Branch, DeclaredTable};
use crate::plan::lookup::LookupRefused;
use crate::plan::lookup::table::PlannedLookup;
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
    /// Asked for by key, in a join with a stream.
    LookedUp(Arc<PlannedLookup>),
}

impl Rows {
    /// Of the table `declared`, which a flow over streams, or one that runs once, reads at `read`.
    pub(super) fn of(
        declared: &DeclaredTable,
        read: &TableRead,
        is_stream: bool,
    ) -> Result<Self, Diagnostic> {
        let (name, schema) = (declared.table.name.clone(), Arc::clone(&read.schema));
        let form = declared.connector.lookup_form(&declared.table);
        let form =
            form.map_err(|wrong| Diagnostic::at(read.span, wrong.problem).maybe_help(wrong.help))?;
        Ok(match (form, is_stream) {
            (Some(form), true) => Self::LookedUp(PlannedLookup::new(name, form)),
            (Some(_), false) => return Err(not_at_rest(declared, read)),
            (None, true) => Self::Loaded(LoadedTable::empty(schema)),
            (None, false) => Self::Scanned(ScannedTable::empty(name, schema)),
        })
    }
}

fn not_at_rest(declared: &DeclaredTable, read: &TableRead) -> Diagnostic {
    let (name, connector) = (&declared.table.name, declared.connector.name());
    let message = format!(
        "'{name}' is a {connector} table, which is asked for rows by key: only a stream can be \
         joined with it"
    );
    let help = format!("write FROM STREAM s [LEFT] JOIN {name} ON ..., or store it as files too");
    Diagnostic::at(read.span, message).help(help)
}

/// The use of a look-up table that was refused, at the place where it is read.
pub(super) fn refused(branch: &Branch, refused: &LookupRefused) -> Diagnostics {
    let LookupRefused { table, problem, help } = refused;
    let mut reads = branch.query.reads.iter();
    match reads.find(|read| read.table.eq_ignore_ascii_case(table)) {
        Some(read) => Diagnostic::at(read.span, problem).help(help).into(),
        None => branch.query.refused(problem, help),
    }
}

impl AtRest {
    /// The table as plans have it.
    pub(super) fn provider(&self) -> Arc<dyn TableProvider> {
        match &self.rows {
            Rows::Loaded(table) => Arc::clone(table) as Arc<dyn TableProvider>,
            Rows::Scanned(table) => Arc::clone(table) as Arc<dyn TableProvider>,
            Rows::LookedUp(table) => Arc::clone(table) as Arc<dyn TableProvider>,
        }
    }

    /// The table, where its rows are held in memory.
    pub(super) fn loaded(&self) -> Option<&Arc<LoadedTable>> {
        match &self.rows {
            Rows::Loaded(table) => Some(table),
            Rows::Scanned(_) | Rows::LookedUp(_) => None,
        }
    }

    /// The table, where a batch query scans it.
    pub(super) fn scanned(&self) -> Option<&Arc<ScannedTable>> {
        match &self.rows {
            Rows::Loaded(_) | Rows::LookedUp(_) => None,
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

/// Fills tables that are held in memory, and opens those that are asked for rows by key.
pub(super) async fn load_tables(tables: &[AtRest], context: &FlowContext) -> Result<(), Failure> {
    for table in tables {
        if let Some(loaded) = table.loaded() {
            loaded.load(table.table(context)?).await?;
        }
        if let Rows::LookedUp(planned) = &table.rows {
            let declared = &table.declared;
            let opened = declared.connector.lookup_table(&*declared.table.fresh()?, context)?;
            opened.open().await?;
            planned.open(opened, &context.env);
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
