//! One session of ours: a catalog of tables and views, and queries that go the way of `millstream
//! query`.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::StreamExt as _;
use millstream_engine::api::references::{Lookup, Nowhere};
use millstream_engine::failures::from_datafusion;
use millstream_engine::pipeline::Pipeline;
use millstream_query::error::QueryError;
use millstream_query::session::QuerySession;
use millstream_query::state::Limits;
use millstream_query::statements::{Statements, Step};
use millstream_query::tables::Catalog;
use millstream_sql::diagnostic::Diagnostic;
use millstream_sql::query::variables::declare as variables;
use millstream_sql::types::{field_type, quoted};
use millstream_store::env::{Env, STACK_BYTES};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::answers::Table;
use crate::cells::{Cell, of_array};
use crate::columns::{declared, record_batch};
use crate::tables::{self, Places};
use crate::views::Views;

/// How long a query may take.
const QUERY_LIMIT: Duration = Duration::from_secs(10);
/// What queries may keep in memory.
const MEMORY_BYTES: usize = 512 << 20;
/// No answer of Spark has so many rows; the rest of a longer one of ours is not asked for.
const ROWS_MAX: usize = 4_000;

/// What became of a query.
pub enum Ran {
    /// It has an answer.
    Answer(Answer),
    /// It is refused, or fails.
    Error(String),
    /// It does not end in time.
    Hang,
    /// It panics.
    Panic(String),
}

/// Columns and rows.
pub struct Answer {
    /// The columns' names, and their types in Spark's words.
    pub columns: Vec<(String, String)>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// A session, and what queries in it can read.
pub struct Engine {
    runtime: Runtime,
    directory: PathBuf,
    common: Arc<Places>,
    /// By name, the tables that the file has made: their directories, and their columns where these
    /// must be listed.
    made: BTreeMap<String, (PathBuf, Option<String>)>,
    /// Those that cannot be tables.
    views: Views,
    session: QuerySession,
    catalog: Arc<Catalog>,
    /// Tables written so far, for names of directories.
    written: usize,
}

impl Engine {
    /// A session with the `common` tables, whose own are written to `directory`.
    pub fn new(directory: &Path, common: Arc<Places>) -> Self {
        let runtime = runtime();
        let (session, catalog) = session(&runtime, directory);
        let engine = Self {
            runtime,
            directory: directory.to_owned(),
            common,
            made: BTreeMap::new(),
            views: Views::default(),
            session,
            catalog,
            written: 0,
        };
        engine.declare_all();
        engine
    }

    /// Makes a table or a view what it is for the next query. `view` is the query of a view.
    pub fn take(&mut self, table: &Table, view: Option<String>) {
        let was_there = self.made.remove(&table.table).is_some();
        self.views.set(&table.table, None);
        let rows = table.columns.as_ref().zip(table.rows.as_ref());
        match rows.and_then(|(columns, rows)| record_batch(columns, rows)) {
            Some(rows) => {
                self.written += 1;
                let place = self.directory.join(format!("table-{}", self.written));
                tables::write(&rows, &place);
                let columns = table.columns.as_deref().and_then(declared);
                self.declare(&table.table, &place, columns.as_deref());
                self.made.insert(table.table.clone(), (place, columns));
            }
            None => {
                self.views.set(&table.table, view);
                if was_there || self.common.iter().any(|(name, _)| *name == table.table) {
                    self.begin_again();
                }
            }
        }
    }

    /// Takes note of the views that a part of the file makes, and of the database that it uses.
    pub fn note(&mut self, text: &str) {
        self.views.note(text);
        for (name, query) in self.views.of_database() {
            self.views.state(&name, query);
            if self.made.remove(&name).is_some() {
                self.begin_again();
            }
        }
    }

    /// A session with what is there now, and nothing that was there before.
    fn begin_again(&mut self) {
        let variables = self.session.clone();
        (self.session, self.catalog) = session(&self.runtime, &self.directory);
        self.session.take_variables(&variables);
        self.declare_all();
    }

    fn declare_all(&self) {
        for (name, place) in self.common.iter() {
            self.declare(name, place, None);
        }
        for (name, (place, columns)) in &self.made {
            self.declare(name, place, columns.as_deref());
        }
    }

    fn declare(&self, name: &str, place: &Path, columns: Option<&str>) {
        let (name, place) = (quoted(name), place.display());
        let columns = columns.map(|columns| format!("({columns}) ")).unwrap_or_default();
        let text = format!("CREATE TABLE {name} {columns}USING parquet LOCATION '{place}'");
        let registry = millstream_connectors::registry(&self.directory);
        let lookup: Arc<dyn Lookup> = Arc::new(Nowhere);
        let pipeline = Pipeline::load("golden", &text, &registry, &[], &lookup);
        match pipeline {
            Ok(pipeline) => self.catalog.declare(&pipeline, &self.directory),
            // Queries that read it are refused then.
            Err(found) => eprintln!("{text}: {found}"),
        }
    }

    /// A session with these settings, for one query; or why one of them cannot be made.
    fn session_with(&self, settings: &Map<String, Value>) -> Result<QuerySession, String> {
        let mut session = self.session.clone();
        for (key, value) in settings {
            let Some(value) = value.as_str() else { continue };
            session.set(key, value).map_err(|error| text_of(&error))?;
        }
        Ok(session)
    }

    /// Does what a statement about variables says. Spark may refuse it as well: what ours refuses
    /// shows in the queries behind it. A variable whose declaration is refused is there no more, so
    /// that they are not answered with what it was before.
    pub fn change(&mut self, statement: String) {
        let mut session = self.session.clone();
        let text = self.with_views(&statement);
        let changing = self.runtime.spawn(async move {
            if change(&mut session, &text).await.is_err() {
                let forgotten = forget(&mut session, &text).await;
                assert!(forgotten.is_ok(), "{text}: a variable cannot be dropped");
            }
            session
        });
        let ended = {
            let _entered = self.runtime.enter();
            self.runtime.block_on(tokio::time::timeout(QUERY_LIMIT, changing))
        };
        match ended {
            Ok(Ok(session)) => self.session = session,
            Ok(Err(ended)) => panic!("{statement}: {}", message(&*ended.into_panic())),
            Err(_) => panic!("{statement} does not end"),
        }
    }

    /// A statement behind the views that it reads.
    fn with_views(&self, statement: &str) -> String {
        format!("{}{statement}", self.views.before(statement))
    }

    /// Runs a query after the views that it reads. Without a setting that cannot be made it would
    /// have another meaning, so that it is refused then.
    pub fn run(&mut self, query: &str, settings: &Map<String, Value>) -> Ran {
        let session = match self.session_with(settings) {
            Ok(session) => session,
            Err(problem) => return Ran::Error(problem),
        };
        let text = self.with_views(query);
        let running = self.runtime.spawn(answer(session, text));
        let ended = {
            // The clock is the runtime's.
            let _entered = self.runtime.enter();
            self.runtime.block_on(tokio::time::timeout(QUERY_LIMIT, running))
        };
        match ended {
            Ok(Ok(Ok(answer))) => Ran::Answer(answer),
            Ok(Ok(Err(problem))) => Ran::Error(problem),
            Ok(Err(ended)) => Ran::Panic(message(&*ended.into_panic())),
            Err(_) => {
                // What computes without a pause cannot be ended; it is left with its threads.
                std::mem::replace(&mut self.runtime, runtime()).shutdown_background();
                self.begin_again();
                Ran::Hang
            }
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default()
}

fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).thread_name("golden").enable_all();
    runtime.thread_stack_size(STACK_BYTES).build().expect("a runtime can start")
}

fn session(runtime: &Runtime, directory: &Path) -> (QuerySession, Arc<Catalog>) {
    // An environment belongs to the runtime that it is made in.
    let _entered = runtime.enter();
    let registry = millstream_connectors::registry(directory);
    let catalog = Arc::new(Catalog::new(registry, Env::real(), directory.to_owned()));
    let limits = Limits { partitions: 2, memory_bytes: Some(MEMORY_BYTES), spill_directory: None };
    let session = QuerySession::new(Arc::clone(&catalog), &limits, Env::real());
    let session = session.unwrap_or_else(|error| panic!("{}", text_of(&error)));
    (session, catalog)
}

/// The answer to the only query in a text, or why there is none.
async fn answer(session: QuerySession, text: String) -> Result<Answer, String> {
    let rows = rows(&session, &text).await;
    rows.map_err(|error| text_of(&error))
}

/// Does what the only statement in a text, which is about variables, says.
async fn change(session: &mut QuerySession, text: &str) -> Result<(), QueryError> {
    let statements = Statements::parse(text)?;
    for step in &statements.steps {
        match step {
            Step::Variable(statement) => session.change(&statements, statement).await?,
            Step::Immediate(statement) => {
                session.execute(&statements, statement).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Drops the variables that a text declares.
async fn forget(session: &mut QuerySession, text: &str) -> Result<(), QueryError> {
    let Ok(statements) = Statements::parse(text) else { return Ok(()) };
    for step in &statements.steps {
        let Step::Variable(variables::Statement::Declare { names, .. }) = step else { continue };
        for name in names {
            let drop = variables::Statement::Drop { name: name.clone(), if_there: true };
            session.change(&statements, &drop).await?;
        }
    }
    Ok(())
}

async fn rows(session: &QuerySession, text: &str) -> Result<Answer, QueryError> {
    let statements = Statements::parse(text)?;
    statements.check_writes_nothing()?;
    // The session has the settings already; those of the text tell in which a function was made.
    let is_setting = |step: &&Step| matches!(step, Step::Setting(_));
    let steps: Vec<_> = statements.steps.iter().filter(|step| !is_setting(step)).collect();
    let [Step::Query(query)] = steps.as_slice() else {
        return Err(QueryError::Sql(Diagnostic::nowhere("this is not one query").into()));
    };
    let planned = session.plan(&statements, query).await?;
    let schema = planned.schema();
    let fields = schema.fields().iter();
    let columns = fields.map(|field| (field.name().clone(), field_type(field)));
    let mut answer = Answer { columns: columns.collect(), rows: Vec::new() };
    let mut stream = planned.run().await?;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(|error| QueryError::Failure(from_datafusion(error)))?;
        answer.rows.extend(cells(&batch));
        if answer.rows.len() > ROWS_MAX {
            break;
        }
    }
    Ok(answer)
}

fn cells(batch: &RecordBatch) -> impl Iterator<Item = Vec<Cell>> {
    let columns = batch.columns();
    (0..batch.num_rows())
        .map(move |row| columns.iter().map(|column| of_array(column, row)).collect())
}

fn text_of(error: &QueryError) -> String {
    match error {
        QueryError::Sql(found) => found.to_string(),
        QueryError::Failure(failure) => failure.to_string(),
    }
}
