//! Connectors: a name in `USING ...` and what it can make.
//!
//! A connector checks its options before anything is touched, so that `validate` finds what `run`
//! would. Options arrive as [`Options`]: keys without case, the original spelling kept for
//! messages. What is wrong with one is an [`OptionError`], which the SQL layer turns into a
//! message that points at the option in the pipeline file.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use millstream_store::env::Env;
use millstream_store::secrets;
use millstream_store::sink_log::SinkLog;

use crate::contact::Contacts;
use crate::dead_letters::{Form, Payloads};
use crate::plan::stages::OutputMode;
use crate::references::{Lookup, Reference, SharedLookup, Template};
use crate::sink::{Failure, Sink};
use crate::source::{Kind, Source, StaticTable};

/// Options of one `CREATE TABLE`, in the order written. Secrets among them are not shown.
#[derive(Clone, Default)]
pub struct Options {
    entries: Vec<Entry>,
    lookup: SharedLookup,
}

#[derive(Clone)]
struct Entry {
    key: String,
    value: String,
    /// Where parts of the value are, if they stand elsewhere.
    template: Option<Template>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.iter().map(|(key, value)| match self.is_secret(key) {
            true => (key, Cow::Borrowed(secrets::HIDDEN)),
            false => (key, secrets::redacted_source(value)),
        });
        f.debug_map().entries(shown).finish()
    }
}

impl Options {
    /// Options from keys and values; of two keys that differ in case only, the later one holds.
    pub fn new(entries: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut options = Self::default();
        for (key, value) in entries {
            options.set(key, value);
        }
        options
    }

    /// Sets one option, replacing it whatever its case.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.put(key.into(), value.into(), None);
    }

    /// Sets one option whose value stands elsewhere, replacing it whatever its case.
    ///
    /// # Errors
    /// Why the value cannot be looked up, a sentence without a full stop.
    pub fn set_elsewhere(
        &mut self,
        key: &str,
        template: Template,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<(), String> {
        self.lookup = SharedLookup(Arc::clone(lookup));
        let value = template.value(&**lookup)?;
        let is_elsewhere = template.references().next().is_some();
        self.put(key.to_owned(), value, is_elsewhere.then_some(template));
        Ok(())
    }

    fn put(&mut self, key: String, value: String, template: Option<Template>) {
        secrets::remember_setting(&key, &value);
        self.entries.retain(|entry| !entry.key.eq_ignore_ascii_case(&key));
        self.entries.push(Entry { key, value, template });
    }

    /// True for an option whose value must not be shown: by its name, or because it stands
    /// elsewhere.
    pub fn is_secret(&self, key: &str) -> bool {
        secrets::is_secret_key(key) || self.references().any(|(of, _)| of.eq_ignore_ascii_case(key))
    }

    /// Where values stand that are not in the pipeline file, with the options they are of.
    pub fn references(&self) -> impl Iterator<Item = (&str, &Reference)> {
        let of = |entry: &'_ Entry| entry.template.is_some();
        self.entries.iter().filter(move |entry| of(entry)).flat_map(|entry| {
            let template = entry.template.iter();
            template.flat_map(Template::references).map(|reference| (&*entry.key, reference))
        })
    }

    /// The same options, with values that stand elsewhere looked up anew.
    ///
    /// # Errors
    /// The option and why its value cannot be looked up.
    pub fn fresh(&self) -> Result<Self, OptionError> {
        let mut fresh = self.clone();
        for entry in &mut fresh.entries {
            if let Some(template) = &entry.template {
                let value = template.value(&*self.lookup.0);
                entry.value =
                    value.map_err(|problem| OptionError::of(&entry.key, problem, None))?;
            }
        }
        Ok(fresh)
    }

    /// Those of the options that `keep` says.
    pub fn only(&self, keep: impl Fn(&str) -> bool) -> Self {
        let entries = self.entries.iter().filter(|entry| keep(&entry.key)).cloned();
        Self { entries: entries.collect(), lookup: self.lookup.clone() }
    }

    /// The value of `key`, whatever its case.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.entries.iter().find(|entry| entry.key.eq_ignore_ascii_case(key));
        found.map(|entry| entry.value.as_str())
    }

    /// Keys and values as written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()))
    }

    /// The value of `key` read as `T`; `wanted` says what it should look like ("a whole number").
    pub fn parse<T: std::str::FromStr>(
        &self,
        key: &str,
        wanted: &str,
    ) -> Result<Option<T>, OptionError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        match text.trim().parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(OptionError::invalid(key, text, wanted)),
        }
    }

    /// The value of `key` as a number of bytes, more than none: with `k`, `m` or `g` behind it,
    /// with or without `b`.
    pub fn parse_bytes(&self, key: &str) -> Result<Option<u64>, OptionError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.bytes().take_while(u8::is_ascii_digit).count();
        let factor = match lower[digits..].trim().trim_end_matches('b') {
            "" => 1,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            _ => 0,
        };
        let count: Option<u64> = lower[..digits].parse().ok();
        match count.and_then(|count| count.checked_mul(factor)).filter(|bytes| *bytes > 0) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(OptionError::invalid(key, text, "a size such as '128mb'")),
        }
    }

    /// The value of `key` as true or false.
    pub fn parse_bool(&self, key: &str) -> Result<Option<bool>, OptionError> {
        match self.get(key).map(|text| (text, text.trim().to_ascii_lowercase())) {
            None => Ok(None),
            Some((_, lower)) if lower == "true" => Ok(Some(true)),
            Some((_, lower)) if lower == "false" => Ok(Some(false)),
            Some((text, _)) => Err(OptionError::invalid(key, text, "true or false")),
        }
    }
}

/// What is wrong with a table's declaration. Points at an option, or at the whole declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionError {
    /// The option's key, or `None` where the declaration as a whole is wrong.
    pub key: Option<String>,
    /// What is wrong, a sentence without a full stop.
    pub problem: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl OptionError {
    /// An option whose value does not read as what it should be.
    pub fn invalid(key: &str, value: &str, wanted: &str) -> Self {
        Self {
            key: Some(key.to_owned()),
            problem: format!("'{key}' is '{value}', but should be {wanted}"),
            help: None,
        }
    }

    /// An option that must be there.
    pub fn missing(key: &str, help: impl Into<String>) -> Self {
        Self { key: None, problem: format!("'{key}' is missing"), help: Some(help.into()) }
    }

    /// Anything else about one option.
    pub fn of(key: &str, problem: impl Into<String>, help: Option<String>) -> Self {
        Self { key: Some(key.to_owned()), problem: problem.into(), help }
    }

    /// Anything else about the declaration as a whole.
    pub fn table(problem: impl Into<String>, help: Option<String>) -> Self {
        Self { key: None, problem: problem.into(), help }
    }
}

/// Where an option may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Only on a table that is read.
    Source,
    /// Only on a table that is written.
    Sink,
    /// On either.
    Both,
}

/// One option a connector knows. A name that ends in `.*` stands for all keys with that prefix.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The key as documented.
    pub name: &'static str,
    /// Where it may stand.
    pub side: Side,
    /// A line for the reference page and for `validate`.
    pub about: &'static str,
}

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
            let (name, key) = (&self.name, error.key.unwrap_or_default());
            let problem = format!("table '{name}': the value of '{key}': {}", error.problem);
            Failure::new(Kind::Config, problem)
        })?;
        Ok(Cow::Owned(Self { options, ..self.clone() }))
    }
}

/// What a table is used for when a source is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// `FROM STREAM t`: micro-batches, from the starting position on.
    Stream,
    /// `FROM t`: from the earliest row to what is there at the start.
    Batch,
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
        }
    }
}

/// How a flow's `memoryLimit` is divided: half of it is for the state, an eighth for what sources
/// have read ahead and their clients hold back. The rest is for the micro-batch in hand: as many
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
    /// gives the columns a query sees.
    fn check_source(&self, table: &Table, mode: ReadMode) -> Result<SchemaRef, OptionError>;

    /// Checks a table that is written, for rows of `schema`, touching nothing.
    fn check_sink(&self, table: &Table, schema: &SchemaRef) -> Result<(), OptionError>;

    /// The output modes whose rows a table can take.
    fn output_modes(&self) -> &'static [OutputMode] {
        &[OutputMode::Append, OutputMode::Update, OutputMode::Complete]
    }

    /// Makes a source. The table passed `check_source`.
    fn source(
        &self,
        table: &Table,
        mode: ReadMode,
        context: &FlowContext,
    ) -> Result<Box<dyn Source>, Failure>;

    /// Makes a sink for rows of `schema`. The table passed `check_sink`.
    fn sink(
        &self,
        table: &Table,
        schema: &SchemaRef,
        context: &FlowContext,
    ) -> Result<Box<dyn Sink>, Failure>;

    /// A table that can be read whole and again when it changes, for the static side of a join;
    /// `None` where the connector has no such thing.
    fn static_table(
        &self,
        _table: &Table,
        _context: &FlowContext,
    ) -> Result<Option<Arc<dyn StaticTable>>, Failure> {
        Ok(None)
    }

    /// What rows of dead letters look like in its tables.
    fn dead_letter_form(&self) -> Form {
        Form::Table
    }

    /// A dead-letter table as one that is read whole, with the columns that its rows were written
    /// with.
    fn dead_letter_source(&self, table: &Table, _columns: &SchemaRef) -> Table {
        table.clone()
    }

    /// The largest record that one of its tables takes, in bytes, where dead letters have to be
    /// made to fit.
    fn dead_letter_bytes_max(&self, _table: &Table) -> Option<usize> {
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
