//! The tables of a query: those that are declared, and those that are named by their path.

pub mod buckets;
mod file_metadata;
pub mod lake_table;
pub mod meanings;
mod statistics;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{Connector, FlowContext, Registry, Table};
use millstream_engine::api::options::Options;
use millstream_engine::pipeline::Pipeline;
use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::functions::holds_moment;
use millstream_sql::nearest::suggest;
use millstream_sql::query::prepared::{NotThere, ReadMode, TableCatalog, TableRead};
use millstream_sql::query::routines::declare::Routine;
use millstream_sql::query::settings::Settings;
use millstream_sql::query::streams::AsOf;
use millstream_sql::query::variables::known::Variable;
use millstream_sql::types::collations::stripped;
use millstream_store::env::Env;
use parking_lot::Mutex;

use crate::error::QueryError;
use crate::statements::View;
use lake_table::LakeTable;
use meanings::Meanings;

/// The formats that a path may have in front of it: ``delta.`/lake/orders` ``.
const FORMATS: &[&str] = &["delta", "parquet", "json", "csv", "text"];

/// Connectors whose tables DataFusion scans file by file.
const FILES: &[&str] = &["delta", "parquet"];

/// Spark's names for the catalog and the schema of tables that are declared by a name alone. A
/// table may be called by them, too: `default.orders`.
pub const CATALOG: &str = "spark_catalog";
/// See [`CATALOG`].
pub const SCHEMA: &str = "default";

/// The tables that are declared.
pub struct Catalog {
    registry: Registry,
    env: Env,
    base_dir: PathBuf,
    /// By name in lower case.
    declared: Mutex<BTreeMap<String, Known>>,
}

#[derive(Clone)]
struct Known {
    table: Table,
    connector: Arc<dyn Connector>,
    /// What relative paths in its options are relative to.
    base_dir: PathBuf,
}

impl Catalog {
    /// A catalog without tables. Relative paths are relative to `base_dir`.
    pub fn new(registry: Registry, env: Env, base_dir: PathBuf) -> Self {
        Self { registry, env, base_dir, declared: Mutex::default() }
    }

    /// Adds the tables that `pipeline` declares, a file in `base_dir`; one of the same name is
    /// replaced.
    pub fn declare(&self, pipeline: &Pipeline, base_dir: &Path) {
        let mut tables = self.declared.lock();
        for declared in &pipeline.tables {
            let (table, connector) = (declared.table.clone(), Arc::clone(&declared.connector));
            let base_dir = base_dir.to_owned();
            let known = Known { table, connector, base_dir };
            tables.insert(known.table.name.to_lowercase(), known);
        }
    }

    /// The names of all declared tables.
    pub fn declared(&self) -> Vec<String> {
        self.declared.lock().values().map(|known| known.table.name.clone()).collect()
    }

    fn known(&self, name: &str) -> Option<Known> {
        self.declared.lock().get(&name.to_lowercase()).cloned()
    }

    /// The columns of a declared table.
    ///
    /// # Errors
    /// There is no such table, or it cannot be read.
    pub fn columns(&self, name: &str) -> Result<SchemaRef, NotThere> {
        self.known(name).ok_or_else(|| gone(name))?.columns()
    }
}

fn gone(name: &str) -> NotThere {
    NotThere { problem: format!("there is no table `{name}`"), help: None }
}

impl Known {
    fn columns(&self) -> Result<SchemaRef, NotThere> {
        let schema = self.connector.check_source(&self.table, ReadMode::Batch);
        schema.map_err(|wrong| NotThere { problem: wrong.problem, help: wrong.help })
    }
}

trait IntoQueryError {
    fn into_query(self) -> QueryError;
}

impl IntoQueryError for Diagnostic {
    fn into_query(self) -> QueryError {
        QueryError::Sql(self.into())
    }
}

/// What one query can read: the catalog's tables, the views and functions of its text, variables of
/// the session, and what it names by a path or a version itself, which is forgotten with the query.
pub struct Names<'a> {
    catalog: &'a Catalog,
    /// Of views of one name the last one is meant.
    views: &'a [View],
    functions: &'a [Arc<Routine>],
    variables: &'a [Arc<Variable>],
    settings: Settings,
    meanings: Meanings<'a>,
    /// By just that name: paths differ in case.
    found: Mutex<BTreeMap<String, Known>>,
}

impl<'a> Names<'a> {
    /// Of a query in a text with these views and functions, in a session with these variables.
    pub fn new(
        catalog: &'a Catalog,
        views: &'a [View],
        functions: &'a [Arc<Routine>],
        variables: &'a [Arc<Variable>],
        settings: Settings,
        meanings: Meanings<'a>,
    ) -> Self {
        let found = Mutex::default();
        Self { catalog, views, functions, variables, settings, meanings, found }
    }

    /// Refuses what was made under other settings than those of the session, whose words would mean
    /// something else now, and tables whose TIMESTAMPs are texts, where the zone is not UTC.
    ///
    /// # Errors
    /// The query reads or calls such a thing.
    pub fn check_meanings(&self, reads: &[TableRead]) -> Result<(), Diagnostic> {
        self.meanings.check_made()?;
        if self.meanings.now.zone.is_utc() {
            return Ok(());
        }
        let has_texts = |read: &&TableRead| {
            let mut fields = read.schema.fields().iter();
            !self.has_files(&read.table) && fields.any(|field| holds_moment(field.data_type()))
        };
        let Some(read) = reads.iter().find(has_texts) else { return Ok(()) };
        let message = format!(
            "the TIMESTAMPs of `{}` are texts that are read in UTC, and the session's time zone is \
             {}",
            read.table,
            self.meanings.now.zone.name()
        );
        let help = "declare these columns as STRING and cast them, or write SET TIME ZONE 'UTC'";
        Err(Diagnostic::at(read.span, message).help(help))
    }

    fn known(&self, name: &str) -> Option<Known> {
        let found = self.found.lock().get(name).cloned();
        found.or_else(|| self.catalog.known(name))
    }

    /// Adds a table that the query names itself, and gives its name.
    fn add(&self, known: Known) -> String {
        let name = known.table.name.clone();
        self.found.lock().insert(name.clone(), known);
        name
    }

    /// The table as it is now.
    ///
    /// # Errors
    /// There is no such table, or it cannot be read.
    pub async fn provider(
        &self,
        name: &str,
        schema: &SchemaRef,
    ) -> Result<Arc<LakeTable>, QueryError> {
        let Some(known) = self.known(name) else {
            return Err(Diagnostic::nowhere(gone(name).problem).into_query());
        };
        let context = FlowContext::new("query", "", &self.catalog.env, &known.base_dir);
        let table = known.table.fresh()?.into_owned();
        let table = Table { columns: table.columns.as_ref().map(stripped), ..table };
        let at_rest = known.connector.static_table(&table, &context)?;
        let Some(at_rest) = at_rest else {
            let problem = format!("`{name}` is a {} table", known.connector.name());
            let help = "a query reads tables at rest; a pipeline reads streams: millstream run";
            return Err(Diagnostic::nowhere(problem).help(help).into_query());
        };
        Ok(Arc::new(LakeTable::open(name, Arc::clone(schema), at_rest).await?))
    }
}

impl TableCatalog for Names<'_> {
    fn table(&self, name: &str) -> Option<String> {
        self.known(name).map(|known| known.table.name)
    }

    fn names(&self) -> Vec<String> {
        let mut known = BTreeSet::new();
        let views = self.views.iter().map(|view| view.name.text.clone());
        let views = views.filter(|name| known.insert(name.to_lowercase()));
        self.catalog.declared().into_iter().chain(views).collect()
    }

    fn schema(&self, table: &str, mode: ReadMode, span: Span) -> Result<SchemaRef, Diagnostic> {
        if mode == ReadMode::Stream {
            return Err(Diagnostic::at(span, "a query reads tables at rest")
                .help("leave STREAM out, or write a flow and run it: millstream run"));
        }
        let schema = self.known(table).ok_or_else(|| gone(table)).and_then(|known| known.columns());
        schema.map_err(|wrong| Diagnostic::at(span, wrong.problem).maybe_help(wrong.help))
    }

    fn table_at(&self, format: &str, path: &str) -> Option<Result<String, NotThere>> {
        let format = format.to_lowercase();
        if format == SCHEMA {
            let known = self.catalog.known(path).map(|known| known.table.name);
            return Some(known.ok_or_else(|| gone(path)));
        }
        if !FORMATS.contains(&format.as_str()) {
            let help = suggest(&format, "formats", FORMATS.iter().copied());
            let problem = format!("`{format}` is no format that a path can have in front of it");
            return Some(Err(NotThere { problem, help: Some(help) }));
        }
        let connector = self.catalog.registry.get(&format)?;
        let name = format!("{format}.`{path}`");
        let options = Options::new([("path".to_owned(), path.to_owned())]);
        let table = Table { name, columns: None, options };
        let (connector, base_dir) = (Arc::clone(connector), self.catalog.base_dir.clone());
        Some(Ok(self.add(Known { table, connector, base_dir })))
    }

    fn table_as_of(&self, table: &str, when: &AsOf) -> Option<Result<String, NotThere>> {
        let mut known = self.known(table)?;
        if known.connector.name() != "delta" {
            let problem =
                format!("`{table}` is a {} table, which has no versions", known.connector.name());
            let help = Some("leave the clause out; Delta tables have versions".to_owned());
            return Some(Err(NotThere { problem, help }));
        }
        let (key, value) = match when {
            AsOf::Version(version) => ("versionAsOf", version.to_string()),
            AsOf::Timestamp(text) => ("timestampAsOf", self.meanings.in_utc(text)),
        };
        known.table.name = format!("{table} {key} {value}");
        known.table.options.set(key, value);
        Some(Ok(self.add(known)))
    }

    fn view(&self, name: &str) -> Option<Range<usize>> {
        let is_meant = |view: &&View| view.name.text.eq_ignore_ascii_case(name);
        let view = self.views.iter().rev().find(is_meant)?;
        self.meanings.see_view(view);
        Some(view.query.clone())
    }

    fn has_files(&self, table: &str) -> bool {
        self.known(table).is_some_and(|known| FILES.contains(&known.connector.name()))
    }

    fn settings(&self) -> Settings {
        self.settings
    }

    fn has_collations(&self) -> bool {
        true
    }

    fn has_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    fn function(&self, name: &str) -> Option<Arc<Routine>> {
        let is_meant = |known: &&Arc<Routine>| known.name.text.eq_ignore_ascii_case(name);
        let routine = self.functions.iter().find(is_meant)?;
        self.meanings.see_function(routine);
        Some(Arc::clone(routine))
    }

    fn variables(&self) -> &[Arc<Variable>] {
        self.variables
    }
}
