//! A session: settings, tables, and the way from a statement to rows.
//!
//! [`settings`] are changed by SET, [`variables`] are what a session knows by DECLARE,
//! [`immediate`] runs statements that are texts, and rows are [`shown`] in the session's time zone.

mod immediate;
mod settings;
mod shown;
mod variables;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::{
    CatalogProvider as _, CatalogProviderList as _, MemoryCatalogProvider,
    MemoryCatalogProviderList, MemorySchemaProvider, SchemaProvider as _,
};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{FunctionRegistry as _, SendableRecordBatchStream};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use millstream_engine::failures::from_datafusion;
use millstream_engine::plan::scanned_table::scans_in;
use millstream_sql::diagnostic::Diagnostics;
use millstream_sql::functions::{BatchClock, KeepsDigits, SessionZone, WithoutAnsi, frozen, held};
use millstream_sql::plan::logical::{blamed, to_logical};
use millstream_sql::plan::optimize::optimize;
use millstream_sql::query::prepare::{prepare, prepare_value};
use millstream_sql::query::prepared::PreparedQuery;
use millstream_sql::query::routines::declare::Routine;
use millstream_sql::query::settings::Settings;
use millstream_sql::query::variables::known::{Variable, function_of};
use millstream_store::env::Env;
use parking_lot::Mutex;

use crate::cluster::auto;
use crate::cluster::client;
use crate::cluster::in_process::InProcess;
use crate::cluster::security::Security;
use crate::cluster::settings::{cluster_config, remote_options};
use crate::error::QueryError;
use crate::progress::Scans;
use crate::result_names::{named, with_names};
use crate::state::{Limits, session_state};
use crate::statements::Statements;
use crate::tables::buckets::may_be_told;
use crate::tables::lake_table::LakeTable;
use crate::tables::meanings::{Always, Meaning, Meanings};
use crate::tables::{Catalog, Names};
use variables::Variables;

/// Queries, one after the other, over one catalog. A clone has settings and variables of its own.
#[derive(Clone)]
pub struct QuerySession {
    env: Env,
    catalog: Arc<Catalog>,
    state: SessionState,
    /// How queries are read from now on.
    settings: Settings,
    /// What expressions mean, and what of it has always been so.
    meaning: Meaning,
    always: Always,
    /// `HOST:PORT` of the coordinator that runs them, if they do not run here.
    coordinator: Option<String>,
    variables: Variables,
    /// The statements that declare the functions of the texts so far.
    declared: Vec<String>,
    /// The names of these functions, and of those that were made under other settings, in lower
    /// case.
    functions: BTreeSet<String>,
    of_other_meanings: BTreeSet<String>,
}

/// Tokens that rows are computed of.
enum Source<'a> {
    /// Those of a query.
    Query(&'a Range<usize>),
    /// Those of an expression, which is one row of one column.
    Value(&'a Range<usize>),
}

/// A query that can run.
pub struct PlannedQuery {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    state: SessionState,
    zone: SessionZone,
    env: Env,
    coordinator: Option<String>,
    /// What the coordinator calls the query, since it ran there.
    job: Mutex<Option<String>>,
}

impl PlannedQuery {
    /// The columns of the result.
    pub fn schema(&self) -> SchemaRef {
        named(&self.plan.schema())
    }

    /// Runs it. The rows of several partitions come as they are ready. Dropping the stream ends the
    /// query.
    ///
    /// # Errors
    /// What fails before the first row; later the stream says so.
    pub async fn run(&self) -> Result<SendableRecordBatchStream, QueryError> {
        if let Some(coordinator) = self.elsewhere() {
            let plan = Arc::clone(&self.plan);
            let answer = client::run(&self.env, coordinator, plan, &self.state).await?;
            *self.job.lock() = Some(answer.job);
            return Ok(with_names(answer.rows));
        }
        let stream = execute_stream(Arc::clone(&self.plan), self.state.task_ctx());
        Ok(with_names(stream.map_err(from_datafusion)?))
    }

    /// Whether the nodes of a cluster can run it.
    pub fn is_for_nodes(&self) -> bool {
        client::check_leaves(&self.plan).is_ok()
    }

    /// The coordinator that runs it, if it does not run here.
    fn elsewhere(&self) -> Option<&str> {
        let options = remote_options(self.state.config());
        let is_here = options.is_auto() && auto::runs_here(&options, &self.plan);
        self.coordinator.as_deref().filter(|_| !is_here)
    }

    /// Where it runs and why, where that was to be decided.
    fn decision(&self) -> String {
        let options = remote_options(self.state.config());
        if self.coordinator.is_none() || !options.is_auto() {
            return String::new();
        }
        auto::explained(&options, &self.plan)
    }

    /// What tells how far it is, where it runs in this process.
    pub fn scans(&self) -> Scans {
        Scans::of(&self.plan)
    }

    /// The plan as a tree, and where it runs, if that was to be decided.
    pub fn shown(&self) -> String {
        let plan = DisplayableExecutionPlan::new(self.plan.as_ref());
        format!("{}{}", plan.indent(false), self.decision())
    }

    /// The plan with rows and times of each operator, after all rows were read; on a cluster, stage
    /// by stage.
    ///
    /// # Errors
    /// A coordinator that does not answer.
    pub async fn profile(&self) -> Result<String, QueryError> {
        let job = self.job.lock().clone();
        if let (Some(coordinator), Some(job)) = (&self.coordinator, job) {
            let profile = client::profile(coordinator, &job, self.state.config()).await?;
            return Ok(format!("{profile}{}", self.decision()));
        }
        let plan = DisplayableExecutionPlan::with_metrics(self.plan.as_ref());
        Ok(format!("{}{}", plan.indent(false), self.decision()))
    }
}

impl QuerySession {
    /// A session over `catalog`.
    ///
    /// # Errors
    /// As [`session_state`].
    pub fn new(catalog: Arc<Catalog>, limits: &Limits, env: Env) -> Result<Self, QueryError> {
        let state = session_state(limits, &BatchClock::default())?;
        let (settings, variables) = (Settings::default(), Variables::default());
        Ok(Self {
            env,
            catalog,
            state,
            settings,
            meaning: Meaning::default(),
            always: Always { utc: true, ansi: true },
            coordinator: None,
            variables,
            declared: Vec::new(),
            functions: BTreeSet::new(),
            of_other_meanings: BTreeSet::new(),
        })
    }

    /// Has queries run on a cluster from now on, that of the coordinator at `address`.
    pub fn run_on(&mut self, address: &str, security: &Security) {
        let config = cluster_config(self.state.config().clone());
        *self.state.config_mut() = security.configured(config);
        self.coordinator = Some(address.to_owned());
    }

    /// Has queries run on the cluster of this process's own coordinator from now on.
    pub fn run_in(&mut self, coordinator: Arc<InProcess>, security: &Security) {
        self.run_on("this process", security);
        let config = self.state.config().clone().with_extension(coordinator);
        *self.state.config_mut() = config;
    }

    /// The settings of a query that begins with a token of a text.
    fn meanings<'a>(&'a self, text: &'a Statements, at: usize) -> Meanings<'a> {
        Meanings::new(&self.meaning, (text, at), &self.of_other_meanings, self.always)
    }

    /// Takes over the variables of another session.
    pub fn take_variables(&mut self, other: &Self) {
        self.variables = other.variables.clone();
    }

    /// Reads a text, which sees the functions that were kept of the texts before it.
    ///
    /// # Errors
    /// As [`Statements::parse`].
    pub fn read(&self, text: &str) -> Result<Statements, Diagnostics> {
        Statements::parse_after(text, &self.declared)
    }

    /// Keeps the functions that are there after a text for those behind it.
    pub fn keep_functions(&mut self, text: &Statements) {
        let (others, same): (Vec<_>, Vec<_>) = {
            let meanings = self.meanings(text, text.end());
            text.last_functions().iter().partition(|routine| meanings.has_other(routine))
        };
        let name = |routine: &Arc<Routine>| routine.name.text.to_lowercase();
        let others: BTreeSet<String> = others.into_iter().map(name).collect();
        self.functions = same.into_iter().map(name).chain(others.iter().cloned()).collect();
        self.of_other_meanings = others;
        self.declared = text.functions_after();
    }

    /// The tables.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The names of all functions, in lower case and in their order.
    pub fn functions(&self) -> Vec<String> {
        let scalar = self.state.scalar_functions().keys();
        let aggregate = self.state.aggregate_functions().keys();
        let window = self.state.window_functions().keys();
        let names = scalar.chain(aggregate).chain(window).map(|name| name.to_lowercase());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Plans the query whose tokens are `query`. Its tables are read as they are now, and the time
    /// is what it is now, throughout the query.
    ///
    /// # Errors
    /// What is wrong with the query, or with a table that it reads.
    pub async fn plan(
        &self,
        text: &Statements,
        query: &Range<usize>,
    ) -> Result<PlannedQuery, QueryError> {
        self.plan_with(text, Source::Query(query), &self.variables.all()).await
    }

    /// Plans what sees these variables.
    async fn plan_with(
        &self,
        text: &Statements,
        source: Source<'_>,
        variables: &[Arc<Variable>],
    ) -> Result<PlannedQuery, QueryError> {
        let (Source::Query(tokens) | Source::Value(tokens)) = source;
        let views = text.views_at(tokens.start);
        let functions = text.functions_at(tokens.start);
        let meanings = self.meanings(text, tokens.start);
        let names = Names::new(&self.catalog, views, functions, variables, self.settings, meanings);
        let prepared = match source {
            Source::Query(query) => prepare(&text.lexed, std::slice::from_ref(query), &names)?,
            Source::Value(value) => prepare_value(&text.lexed, value, &names)?,
        };
        names.check_meanings(&prepared.reads).map_err(|found| QueryError::Sql(found.into()))?;
        let tables = tables(&names, &prepared).await?;
        let mut state = self.state_with(&tables)?;
        if !self.settings.digits_give_way {
            state.config_mut().options_mut().extensions.insert(KeepsDigits);
        }
        let zone = self.meaning.zone.clone();
        if !zone.is_utc() {
            state.config_mut().options_mut().extensions.insert(zone.clone());
        }
        if !self.meaning.ansi {
            state.config_mut().options_mut().extensions.insert(WithoutAnsi);
        }
        // A text is a literal of the query by now.
        let called = variables.iter().enumerate().filter(|(_, one)| one.text().is_none());
        for (at, variable) in called {
            let value = held(function_of(at), &variable.field, variable.value.clone());
            state.register_udf(value).map_err(from_datafusion)?;
        }
        let planned = |error: &_| QueryError::Sql(blamed(&state, &prepared, error));
        let logical = to_logical(&state, &prepared)?;
        let logical = frozen(logical, self.env.now_us()).map_err(|error| planned(&error))?;
        let logical = optimize(&state, &logical).map_err(|error| planned(&error))?;
        let tells_buckets = may_be_told(&logical).map_err(from_datafusion)?;
        for (registered_as, table) in &tables {
            let scans = scans_in(&logical, registered_as).map_err(from_datafusion)?;
            table.expect_scans(scans.len());
            if tells_buckets {
                table.tell_buckets();
            }
        }
        let plan = state.query_planner().create_physical_plan(&logical, &state).await;
        let plan = plan.map_err(from_datafusion)?;
        let (env, coordinator) = (self.env.clone(), self.coordinator.clone());
        Ok(PlannedQuery { plan, state, zone, env, coordinator, job: Mutex::default() })
    }

    /// The session's state with these tables, and no others.
    fn state_with(&self, named: &[(String, Arc<LakeTable>)]) -> Result<SessionState, QueryError> {
        let tables = MemorySchemaProvider::new();
        for (name, table) in named {
            let registered = tables.register_table(name.clone(), Arc::clone(table) as _);
            registered.map_err(from_datafusion)?;
        }
        let names = &self.state.config_options().catalog;
        let catalog = MemoryCatalogProvider::new();
        let registered = catalog.register_schema(&names.default_schema, Arc::new(tables));
        registered.map_err(from_datafusion)?;
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(names.default_catalog.clone(), Arc::new(catalog));
        let mut state = self.state.clone();
        state.register_catalog_list(Arc::new(catalogs));
        Ok(state)
    }
}

/// The tables that a query reads, by their names in its plan.
async fn tables(
    names: &Names<'_>,
    prepared: &PreparedQuery,
) -> Result<Vec<(String, Arc<LakeTable>)>, QueryError> {
    let mut tables = Vec::with_capacity(prepared.reads.len());
    for read in &prepared.reads {
        let provider = names.provider(&read.table, &read.schema).await?;
        tables.push((read.registered_as.clone(), provider));
    }
    Ok(tables)
}
