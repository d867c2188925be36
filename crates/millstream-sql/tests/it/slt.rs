//! Runs `tests/slt/*.slt`: SQL in, rows out, with the results that Spark gives.
//!
//! Queries go the way of a pipeline file's, so names, windows and errors are its. Every file runs
//! with tables cut into record batches of several sizes, since a function may well
//! be right for one row and wrong for the second. Values are shown as `CAST(x AS STRING)` shows
//! them. `MILLSTREAM_SLT_REWRITE=1` writes the results found into the files, for review.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::config::Extensions;
use datafusion::config::Dialect;
use datafusion::datasource::{MemTable, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::execution::FunctionRegistry as _;
use datafusion::logical_expr::{cast, lit};
use datafusion::physical_plan::collect;
use datafusion::prelude::{DataFrame, Expr, SessionConfig, SessionContext};
use millstream_sql::diagnostic::{Diagnostic, Span};
use millstream_sql::functions::{BatchClock, SessionZone, WithoutAnsi, frozen, holds_moment};
use millstream_sql::plan::logical::to_logical;
use millstream_sql::plan::optimize::optimize;
use millstream_sql::query::prepare::prepare_query;
use millstream_sql::query::prepared::{ReadMode, TableCatalog};
use millstream_sql::session::session;
use sqllogictest::{AsyncDB, ColumnType, DBOutput, Runner, strict_column_validator};

/// 2026-03-07 15:04:05.006007 UTC: what `current_timestamp()` says in these files.
const NOW_US: i64 = 1_772_895_845_006_007;

#[test]
fn record_batches_of_one_row() {
    run_all(1);
}

#[test]
fn record_batches_of_seven_rows() {
    run_all(7);
}

#[test]
fn record_batches_of_all_rows() {
    run_all(8192);
}

/// The files, in the order of their names.
pub fn files() -> Vec<PathBuf> {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let directory = Path::new(&here).join("../../tests/slt");
    let entries = std::fs::read_dir(&directory).expect("the repository has tests/slt");
    let paths = entries.map(|entry| entry.expect("the directory can be read").path());
    let mut files: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "slt")).collect();
    files.sort();
    assert!(!files.is_empty(), "there are files in {}", directory.display());
    files
}

/// The queries of all files.
pub fn queries() -> Vec<String> {
    let mut queries = Vec::new();
    for file in files() {
        let text = std::fs::read_to_string(file).expect("the file can be read");
        let blocks = text.split("\n\n").filter(|block| block.starts_with("query"));
        let query = |block: &str| {
            let (_, query) = block.split_once('\n')?;
            Some(query.split("\n----").next().unwrap_or(query).to_owned())
        };
        queries.extend(blocks.filter_map(query));
    }
    queries
}

fn run_all(rows_max: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let rewrite = std::env::var_os("MILLSTREAM_SLT_REWRITE").is_some() && rows_max == 8192;
    let mut failures = Vec::new();
    for file in files() {
        let mut runner = Runner::new(|| async { Ok(Engine::new(rows_max)) });
        runner.with_column_validator(strict_column_validator);
        if rewrite {
            let update = runner.update_test_file(
                &file,
                " ",
                sqllogictest::default_validator,
                sqllogictest::default_normalizer,
                strict_column_validator,
            );
            runtime.block_on(update).expect("the file can be rewritten");
        } else if let Err(error) = runtime.block_on(runner.run_file_async(&file)) {
            failures.push(error.display(false).to_string());
        }
    }
    assert!(failures.is_empty(), "record batches of {rows_max}:\n{}", failures.join("\n\n"));
}

pub type Outcome<T> = Result<T, DataFusionError>;

/// One session; tables live as long as it does.
pub struct Engine {
    context: SessionContext,
    zone: SessionZone,
    rows_max: usize,
    tables: Tables,
}

/// The tables made so far.
#[derive(Default)]
struct Tables(Vec<(String, SchemaRef)>);

impl TableCatalog for Tables {
    fn table(&self, name: &str) -> Option<String> {
        self.names().into_iter().find(|table| table.eq_ignore_ascii_case(name))
    }

    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    fn schema(&self, table: &str, _: ReadMode, span: Span) -> Result<SchemaRef, Diagnostic> {
        let found = self.0.iter().find(|(name, _)| name == table);
        let found = found.map(|(_, schema)| Arc::clone(schema));
        found.ok_or_else(|| Diagnostic::at(span, "there is no such table"))
    }
}

impl Engine {
    pub fn new(rows_max: usize) -> Self {
        Self::with_partitions(rows_max, 1)
    }

    /// As [`Self::new`], with plans of several partitions.
    pub fn with_partitions(rows_max: usize, partitions: usize) -> Self {
        let config = SessionConfig::new().with_batch_size(rows_max);
        let mut config = config.with_target_partitions(partitions);
        let options = config.options_mut();
        options.sql_parser.dialect = Dialect::Databricks;
        options.sql_parser.map_string_types_to_utf8view = false;
        options.execution.time_zone = Some("UTC".to_owned());
        let clock = BatchClock::default();
        clock.set(NOW_US);
        let (zone, tables) = (SessionZone::default(), Tables::default());
        Self { context: session(config, &clock), zone, rows_max, tables }
    }

    /// Has the session another time zone from now on.
    fn set_zone(&mut self, zone: SessionZone) {
        let state = self.context.state_ref();
        state.write().config_mut().options_mut().extensions.insert(zone.clone());
        self.zone = zone;
    }

    /// Has the session ANSI mode, or not, from now on.
    fn set_ansi(&mut self, is_on: bool) {
        let state = self.context.state_ref();
        let mut state = state.write();
        let options = state.config_mut().options_mut();
        match is_on {
            true => options.extensions = Extensions::new(),
            false => options.extensions.insert(WithoutAnsi),
        }
        options.extensions.insert(self.zone.clone());
    }

    /// Makes a table.
    pub async fn create(&mut self, sql: &str) -> Outcome<()> {
        self.run(sql).await.map(drop)
    }

    /// Adds a table.
    pub fn add(&mut self, name: &str, table: MemTable) -> Outcome<()> {
        self.tables.0.push((name.to_owned(), table.schema()));
        self.context.register_table(name, Arc::new(table)).map(drop)
    }

    /// The rows of a query, as text.
    pub async fn rows(&self, sql: &str) -> Outcome<Vec<Vec<String>>> {
        let frame = self.frame(sql).await?;
        match self.query(frame).await? {
            DBOutput::Rows { rows, .. } => Ok(rows),
            _ => Ok(Vec::new()),
        }
    }

    /// Runs a query, and gives nothing of what it finds.
    pub async fn execute(&self, sql: &str) -> Outcome<()> {
        let frame = self.frame(sql).await?;
        self.query(frame).await.map(drop)
    }

    /// The rows of a query, by the way of a pipeline file's.
    async fn frame(&self, sql: &str) -> Outcome<DataFrame> {
        let state = self.context.state();
        let plan = prepare_query(sql, &self.tables);
        let plan = plan.and_then(|prepared| to_logical(&state, &prepared));
        let plan = plan.map_err(|found| DataFusionError::External(Box::new(found)))?;
        self.context.execute_logical_plan(frozen(plan, NOW_US)?).await
    }

    /// `CREATE TABLE name AS query`, in record batches of at most `rows_max` rows.
    async fn create_table(&mut self, name: &str, query: DataFrame) -> Outcome<()> {
        let schema = Arc::new(query.schema().as_arrow().clone());
        let rows = concat_batches(&schema, &query.collect().await?)?;
        let slice = |start: usize| rows.slice(start, self.rows_max.min(rows.num_rows() - start));
        let batches: Vec<_> = (0..rows.num_rows()).step_by(self.rows_max).map(slice).collect();
        let table = Arc::new(MemTable::try_new(schema, vec![batches])?);
        self.tables.0.push((name.to_owned(), table.schema()));
        self.context.register_table(name, table)?;
        Ok(())
    }

    async fn query(&self, frame: DataFrame) -> Outcome<DBOutput<Kind>> {
        let schema: Schema = frame.schema().as_arrow().clone();
        let types = schema.fields().iter().map(|field| Kind::of(field.data_type())).collect();
        // Columns of different tables can have the same name.
        let columns = frame.schema().iter().enumerate().map(|(at, (relation, field))| {
            let mut column = Expr::Column((relation, field).into());
            if !self.zone.is_utc() && holds_moment(field.data_type()) {
                let clock = self.context.udf("__clock_in_zone")?;
                column = clock.call(vec![column, lit(self.zone.name())]);
            }
            Ok(cast(column, DataType::Utf8).alias(format!("c{at}")))
        });
        let text = frame.clone().select(columns.collect::<Outcome<Vec<_>>>()?)?;
        let (state, plan) = text.into_parts();
        let plan = optimize(&state, &plan)?;
        let plan = state.query_planner().create_physical_plan(&plan, &state).await?;
        let rows = collect(plan, state.task_ctx()).await?.iter().flat_map(shown).collect();
        Ok(DBOutput::Rows { types, rows })
    }
}

/// The zone of `SET TIME ZONE 'name'`.
fn zone_set(sql: &str) -> Option<SessionZone> {
    let name = sql.strip_prefix("SET TIME ZONE '")?.strip_suffix('\'')?;
    Some(SessionZone::parse(name).expect("there is such a zone"))
}

/// The value of `SET spark.sql.ansi.enabled = value`.
fn ansi_set(sql: &str) -> Option<bool> {
    let value = sql.strip_prefix("SET spark.sql.ansi.enabled = ")?;
    Some(value.parse().expect("it is true or false"))
}

/// The name and the query of `CREATE TABLE name (column TYPE, ...) AS VALUES ...`, or of
/// `CREATE TABLE name AS SELECT ...`.
fn creation(sql: &str) -> Option<(String, String)> {
    let rest = sql.strip_prefix("CREATE TABLE ")?;
    let Some((head, rows)) = rest.split_once(" AS VALUES") else {
        let (name, query) = rest.split_once(" AS")?;
        return Some((name.to_owned(), query.to_owned()));
    };
    let (name, columns) = head.split_once(" (")?;
    let mut depth = 0;
    let columns = columns.trim_end().strip_suffix(')')?.split(|ch| {
        depth += i32::from(matches!(ch, '(' | '<')) - i32::from(matches!(ch, ')' | '>'));
        ch == ',' && depth == 0
    });
    let casts = columns.enumerate().map(|(at, column)| {
        let (name, data_type) = column.trim().split_once(' ').expect("a column has a type");
        format!("CAST(col{} AS {data_type}) AS {name}", at + 1)
    });
    let casts = casts.collect::<Vec<_>>().join(", ");
    Some((name.to_owned(), format!("SELECT {casts} FROM (VALUES {rows}) AS rows")))
}

fn shown(batch: &RecordBatch) -> Vec<Vec<String>> {
    let cell = |row: usize, column: &Arc<dyn Array>| {
        let column = column.as_string::<i32>();
        match column.is_valid(row).then(|| column.value(row)) {
            None => "NULL".to_owned(),
            Some("") => "(empty)".to_owned(),
            Some(text) => text.to_owned(),
        }
    };
    let row = |row: usize| batch.columns().iter().map(|column| cell(row, column)).collect();
    (0..batch.num_rows()).map(row).collect()
}

#[async_trait]
impl AsyncDB for Engine {
    type Error = DataFusionError;
    type ColumnType = Kind;

    async fn run(&mut self, sql: &str) -> Outcome<DBOutput<Kind>> {
        if let Some(zone) = zone_set(sql) {
            self.set_zone(zone);
            return Ok(DBOutput::StatementComplete(0));
        }
        if let Some(is_on) = ansi_set(sql) {
            self.set_ansi(is_on);
            return Ok(DBOutput::StatementComplete(0));
        }
        if let Some((name, query)) = creation(sql) {
            let rows = self.frame(&query).await?;
            self.create_table(&name, rows).await?;
            return Ok(DBOutput::StatementComplete(0));
        }
        let frame = self.frame(sql).await?;
        self.query(frame).await
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "millstream"
    }
}

/// The letter for a column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(char);

impl Kind {
    fn of(data_type: &DataType) -> Self {
        Self(match data_type {
            DataType::Boolean => 'B',
            DataType::Int8 | DataType::Int16 | DataType::Int32 => 'I',
            DataType::Int64 => 'L',
            DataType::Float32 | DataType::Float64 => 'R',
            DataType::Decimal128(..) => 'N',
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 'T',
            DataType::Date32 => 'D',
            DataType::Timestamp(..) => 'P',
            DataType::Binary => 'X',
            _ => '?',
        })
    }
}

impl ColumnType for Kind {
    fn from_char(letter: char) -> Option<Self> {
        "BILRNTDPX?".contains(letter).then_some(Self(letter))
    }

    fn to_char(&self) -> char {
        self.0
    }
}
