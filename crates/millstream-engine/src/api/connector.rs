//! Connectors: a name in `USING ...` and what it can make.
//!
//! A connector checks its options before anything is touched, so that `validate` finds what `run`
//! would. What is wrong with one is an [`OptionError`].

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
pub use millstream_sql::query::prepared::ReadMode;
use millstream_store::env::Env;
use millstream_store::sink_log::SinkLog;
use thiserror::Error;

use super::contact::Contacts;
use super::dead_letter::{Form, Payloads};
use super::lookup::{LookupForm, LookupTable};
use super::needs::{Need, Usage};
use super::options::{OptionError, OptionSpec, Options};
use super::refusals::Refusals;
use super::settings::OutputMode;
use super::sink::{Failure, Sink};
use super::source::{Classified, Kind, Source, StaticTable};

/// A declared table: what stands in the pipeline file, checked for form only.
#[derive(Clone, Debug)]
pub struct Table {
    /// The table's name as written.
    pub name: String,
    /// Declared columns, or `None` where the declaration has none. Nullability is kept:
    /// `NOT NULL` makes a field not nullable.
    pub columns: Option<SchemaRef>,
    /// The options, `LOCATION '...'` among them as `path`.
    pub options: Options,
}

impl Table {
    /// The table with values of options that stand elsewhere as they are now, for a source or a
    /// sink that is made.
    ///
    /// # Errors
    /// `Config`: a variable or a file is gone.
    pub fn fresh(&self) -> Result<Cow<'_, Self>, Failure> {
        if self.options.references().next().is_none() {
            return Ok(Cow::Borrowed(self));
        }
        let options = self.options.fresh().map_err(|error| {
            let (table, key) = (self.name.clone(), error.key.unwrap_or_default());
            ValueGone { table, key, problem: error.problem }
        })?;
        Ok(Cow::Owned(Self { options, ..self.clone() }))
    }
}

/// A value that stands elsewhere cannot be looked up any more.
#[derive(Debug, Error)]
#[error("table '{table}': the value of '{key}': {problem}")]
struct ValueGone {
    table: String,
    key: String,
    problem: String,
}

impl Classified for ValueGone {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// By which columns rows replace each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacingKeys {
    /// The option that names them.
    pub option: &'static str,
    /// Their indices in the query's rows.
    pub columns: Vec<usize>,
}

/// A flow's own facts, for connectors that name things after it.
#[derive(Clone, Debug)]
pub struct FlowContext {
    /// The flow's name.
    pub flow: String,
    /// The query's id from the checkpoint's `metadata`; stable across restarts.
    pub query_id: String,
    /// Clock, chance and tasks.
    pub env: Env,
    /// Relative paths in options are relative to this directory.
    pub base_dir: PathBuf,
    /// Where to tell that something outside does not answer.
    pub contacts: Contacts,
    /// What there is of memory, where `memoryLimit` says it.
    pub memory: Option<Memory>,
    /// For a sink, its private part of the checkpoint; a query that runs once has none.
    pub sink_log: Option<SinkLog>,
    /// For a sink that says it has [refused rows](Connector::has_refused_rows), where to put them.
    /// Without it they fail the query.
    pub refusals: Option<Refusals>,
}

impl FlowContext {
    /// The context of a flow that nobody listens to, without a limit of memory.
    pub fn new(flow: &str, query_id: &str, env: &Env, base_dir: &Path) -> Self {
        Self {
            flow: flow.to_owned(),
            query_id: query_id.to_owned(),
            env: env.clone(),
            base_dir: base_dir.to_owned(),
            contacts: Contacts::untold(env.clone()),
            memory: None,
            sink_log: None,
            refusals: None,
        }
    }
}

/// How a flow's `memoryLimit` is divided: half of it is for the state, an eighth for what sources
/// have read ahead and their clients hold back, an eighth for what a sink keeps in mind of its
/// table, where it has to. The rest is for the micro-batch in hand: as many
/// bytes as a source reads ahead, what they are decoded, and what comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    bytes: u64,
    sources: u64,
}

/// Less than this a source does not hold, whatever the limit: it would only ask more often.
const READ_AHEAD_MIN: usize = 256 << 10;

impl Memory {
    /// The limit `bytes` of a flow with so many sources.
    pub fn new(bytes: u64, sources: usize) -> Self {
        Self { bytes, sources: sources.max(1) as u64 }
    }

    /// For the state of all operators.
    pub fn state(self) -> u64 {
        self.bytes / 2
    }

    /// For what one source has read ahead, and so for what it gives to a micro-batch.
    pub fn read_ahead(self) -> usize {
        let share = self.bytes / 16 / self.sources;
        usize::try_from(share).unwrap_or(usize::MAX).max(READ_AHEAD_MIN)
    }

    /// For what a sink keeps in mind of the table that it writes to.
    pub fn index(self) -> u64 {
        self.bytes / 8
    }

    /// For what a source's client has received and not handed on.
    pub fn client_queue(self) -> usize {
        self.read_ahead()
    }
}

/// A name in `USING ...` and what it can make.
pub trait Connector: Send + Sync {
    /// The name after `USING`.
    fn name(&self) -> &'static str;

    /// Every option it knows, the writer options of the driver aside.
    fn options(&self) -> &'static [OptionSpec];

    /// Checks a table that is read, touching nothing but one whose columns are not declared, and
    /// gives the columns a query sees. A connector without sources leaves it out.
    fn check_source(&self, _table: &Table, _mode: ReadMode) -> Result<SchemaRef, OptionError> {
        Err(no_source(self.name()))
    }

    /// Checks a table that is written, for rows of `schema`, touching nothing. A connector without
    /// sinks leaves it out.
    fn check_sink(&self, _table: &Table, _schema: &SchemaRef) -> Result<(), OptionError> {
        Err(no_sink(self.name()))
    }

    /// The output modes whose rows the table can take.
    fn output_modes(&self, _table: &Table) -> &'static [OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    /// The columns of `schema` by which a row takes the place of an earlier one, if rows do that
    /// and nothing else tells which of two is the later one. With output mode `update` each
    /// group has to have keys of its own. The table passed `check_sink`.
    fn replacing_keys(&self, _table: &Table, _schema: &SchemaRef) -> Option<ReplacingKeys> {
        None
    }

    /// Whether its sink learns from a receiver that single rows are refused, and can go on without
    /// them: it puts them where [`FlowContext::refusals`] says. The table passed `check_sink`.
    fn has_refused_rows(&self, _table: &Table) -> bool {
        false
    }

    /// What to do about an output mode whose rows a table cannot take.
    fn output_mode_help(&self) -> &'static str {
        "leave outputMode out: rows are appended; or write to Kafka"
    }

    /// Makes a source. The table passed `check_source`.
    fn source(
        &self,
        _table: &Table,
        _mode: ReadMode,
        _context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure> {
        Err(no_source(self.name()).into())
    }

    /// Makes a sink for rows of `schema`. The table passed `check_sink`.
    fn sink(
        &self,
        _table: &Table,
        _schema: &SchemaRef,
        _context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure> {
        Err(no_sink(self.name()).into())
    }

    /// A table that can be read whole and again when it changes, for the static side of a join;
    /// `None` where the connector has no such thing.
    fn static_table(
        &self,
        _table: &Table,
        _context: &FlowContext,
    ) -> Result<Option<Arc<dyn StaticTable>>, Failure> {
        Ok(None)
    }

    /// For a table that is asked for rows by key and never read whole: its columns and its key,
    /// without touching anything. It may only be joined with a stream, by its key. The table
    /// passed `check_source` for [`ReadMode::Batch`].
    ///
    /// # Errors
    /// An option that look-ups have is wrong.
    fn lookup_form(&self, _table: &Table) -> Result<Option<LookupForm>, OptionError> {
        Ok(None)
    }

    /// Makes a table that is asked for rows by key: one that has a [`Self::lookup_form`].
    fn lookup_table(
        &self,
        table: &Table,
        _context: &FlowContext,
    ) -> Result<Arc<dyn LookupTable>, Failure> {
        Err(no_lookup(self.name(), &table.name).into())
    }

    /// What a table needs outside of the process, without touching anything: nothing, unless the
    /// connector says it. The table passed the check of its role.
    ///
    /// # Errors
    /// An option is wrong.
    fn needs(&self, _table: &Table, _usage: &Usage<'_>) -> Result<Vec<Need>, OptionError> {
        Ok(Vec::new())
    }

    /// What it does about dead letters: by default its tables hold them as any other rows, and its
    /// records cannot be malformed.
    fn dead_letters(&self) -> &dyn DeadLetterSupport {
        &PlainTables
    }
}

fn no_source(connector: &str) -> OptionError {
    let help = "read a table of another connector".to_owned();
    OptionError::table(format!("'{connector}' only takes rows and cannot be read"), Some(help))
}

fn no_sink(connector: &str) -> OptionError {
    let help = "write to a table of another connector".to_owned();
    OptionError::table(
        format!("'{connector}' only gives rows and cannot be written to"),
        Some(help),
    )
}

fn no_lookup(connector: &str, table: &str) -> OptionError {
    let problem = format!("'{table}' uses '{connector}', which has no rows to ask for by key");
    OptionError::table(problem, None)
}

/// What a connector does about dead letters: how its tables hold them, and how those of its own
/// records are decoded again.
pub trait DeadLetterSupport: Send + Sync {
    /// What rows of dead letters look like in its tables.
    fn form(&self) -> Form {
        Form::Table
    }

    /// Whether several queries may write to one of its tables.
    fn takes_several_writers(&self) -> bool {
        true
    }

    /// A dead-letter table as one that is read whole, with the columns that its rows were written
    /// with.
    fn readable(&self, table: &Table, _columns: &SchemaRef) -> Table {
        table.clone()
    }

    /// The largest record that one of its tables takes, in bytes, where dead letters have to be
    /// made to fit.
    fn bytes_max(&self, _table: &Table) -> Option<usize> {
        None
    }

    /// What decodes payloads of letters as a source of `table` would now. `None` where records of
    /// the connector cannot be malformed. The table passed `check_source`.
    fn payloads(
        &self,
        _table: &Table,
        _context: &FlowContext,
    ) -> Result<Option<Arc<dyn Payloads>>, Failure> {
        Ok(None)
    }
}

/// Tables that hold dead letters as any other rows, of records that cannot be malformed.
struct PlainTables;

impl DeadLetterSupport for PlainTables {}

/// The connectors a binary was built with.
#[derive(Clone, Default)]
pub struct Registry {
    connectors: Vec<Arc<dyn Connector>>,
}

impl Registry {
    /// A registry of `connectors`.
    pub fn new(connectors: Vec<Arc<dyn Connector>>) -> Self {
        Self { connectors }
    }

    /// The connector called `name`, whatever its case.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Connector>> {
        self.connectors.iter().find(|connector| connector.name().eq_ignore_ascii_case(name))
    }

    /// All names, for suggestions.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.connectors.iter().map(|connector| connector.name())
    }
}
