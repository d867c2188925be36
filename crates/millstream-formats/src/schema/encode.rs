//! Encodes rows by a schema: one of the options, or of a registry.
//!
//! Options and columns are checked when a table is parsed, and nobody is asked. What has to be
//! asked is asked twice: when a query is checked, so that a schema that the registry does not take
//! is known before anything runs; and when the table is opened, which registers it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Schema, SchemaRef};
use millstream_engine::api::options::OptionError;
use millstream_records::protobuf;
use millstream_registry::{
    self as registry, Body, Draft, Patience, Registry, RegistryError, frame,
};
use millstream_sql::json;
use millstream_store::env::Env;
use parking_lot::RwLock;
use thiserror::Error;

use super::SchemaKind;
use super::engine::{Elsewhere, Engine, Fault, Given, Unfit};
use super::error::WriteFailure;
use super::layout::plain;
use super::options::{Part, of_registry, own_bytes, settings};
use super::parsed::Parsed;
use super::write_options::{By, by, check_message, check_without_registry, no_schema};
use super::writers::{PATIENCE, Registries};

/// How rows become a part of records, by a schema. Cheap to clone.
#[derive(Clone)]
pub struct SchemaEncoder(Arc<Inner>);

struct Inner {
    kind: SchemaKind,
    /// The columns in the one layout that encoders know.
    columns: SchemaRef,
    elsewhere: Vec<Elsewhere>,
    target: Target,
    /// Known once the table is open.
    opened: RwLock<Option<Opened>>,
}

/// What rows are written by.
#[derive(Clone)]
struct Opened {
    engine: Arc<Engine>,
    /// What stands before each record.
    prefix: Arc<[u8]>,
}

/// Where the schema is.
enum Target {
    /// With the table, and nowhere else.
    Own(Arc<Engine>),
    /// Under a subject once it is registered there, or, where `registers` is false, already.
    Draft(Box<Drafted>),
    /// A version of a subject, with a message of it.
    Version { subject: Subject, version: Option<u32>, message: Option<String> },
}

/// A schema that is known from the options and the columns.
struct Drafted {
    subject: Subject,
    text: String,
    engine: Arc<Engine>,
    registers: bool,
    /// The schema, where the columns' order numbers the fields.
    numbered: Option<protobuf::Schema>,
}

struct Subject {
    registry: Arc<Registry>,
    /// The part of a record that its schemas are of.
    part: &'static str,
    name: String,
}

/// Rows that are not written.
#[derive(Debug, Error)]
pub enum NotEncoded {
    /// A row has a value that the schema does not have.
    #[error("{problem} ({excerpt})")]
    Row {
        /// What is wrong, with the column.
        problem: String,
        /// The beginning of the row.
        excerpt: String,
    },
    /// Something else, which is not a matter of one row.
    #[error("{problem}")]
    Rows {
        /// What is wrong.
        problem: String,
    },
}

impl SchemaEncoder {
    /// The encoder of a part, as a table's options say it. Reads a file that they name.
    /// `elsewhere` are columns of the query that are none of `columns`.
    ///
    /// # Errors
    /// An option is missing or cannot be; the columns cannot be encoded.
    pub fn parse(
        kind: SchemaKind,
        part: &Part<'_>,
        columns: &Schema,
        elsewhere: Vec<Elsewhere>,
        registries: &Registries,
    ) -> Result<Self, OptionError> {
        check_columns(part, columns)?;
        check_message(part, kind)?;
        let columns = Arc::new(plain(columns));
        let own = own_bytes(part, registries)?;
        let given = Given { columns: &columns, elsewhere: &elsewhere };
        let target = match settings(part.options, registries)? {
            None => {
                check_without_registry(part)?;
                let own = own.ok_or_else(|| no_schema(part))?;
                Target::Own(Arc::new(own_engine(kind, part, &own, given)?))
            }
            Some(settings) => {
                let by = by(part, own.is_some())?;
                let registry =
                    registries.registry(&settings).map_err(|error| of_registry(&error))?;
                let name = subject_name(part)?;
                let subject = Subject { registry, part: part.name, name };
                target(kind, part, subject, by, own, given)?
            }
        };
        let opened = RwLock::new(match &target {
            Target::Own(engine) => Some(Opened { engine: engine.clone(), prefix: Arc::from([]) }),
            _ => None,
        });
        Ok(Self(Arc::new(Inner { kind, columns, elsewhere, target, opened })))
    }

    /// Asks the registry whether the rows can be written; registers nothing. A registry that does
    /// not answer is no reason to refuse a table: opening it waits for one.
    ///
    /// # Errors
    /// They cannot.
    pub fn check(&self) -> Result<(), OptionError> {
        let checked = Env::real().blocking(|| self.0.ask(&Patience::new(Duration::ZERO), true));
        match checked.map(drop) {
            Ok(()) => Ok(()),
            Err(WriteFailure::Registry(
                RegistryError::Away { .. }
                | RegistryError::Cancelled { .. }
                // Who may register schemas need not be allowed to ask about them.
                | RegistryError::Refused { status: 403, .. },
            )) => Ok(()),
            Err(WriteFailure::Registry(error)) => Err(of_registry(&error)),
            Err(failure) => Err(OptionError::table(failure.to_string(), None)),
        }
    }

    /// Finds the schema, and registers it if the options say so. Blocks; must be called before
    /// rows are encoded, on a thread that may block.
    ///
    /// # Errors
    /// The registry is away or does not have or take the schema; the rows do not fit it.
    pub fn open(&self) -> Result<(), WriteFailure> {
        let opened = self.0.ask(&Patience::new(PATIENCE), false)?;
        if let Some(opened) = opened {
            *self.0.opened.write() = Some(opened);
        }
        Ok(())
    }

    /// Each row of the columns as a part of a record.
    ///
    /// # Errors
    /// The first row that has a value that the schema does not have.
    pub fn encode(&self, rows: &RecordBatch) -> Result<BinaryArray, NotEncoded> {
        let other = |problem: String| NotEncoded::Rows { problem };
        let opened = self.0.opened.read().clone();
        let opened = opened.ok_or_else(|| other("the table is not open".to_owned()))?;
        let rows = self.0.in_layout(rows).map_err(|error| other(error.to_string()))?;
        opened.engine.encode(&rows, &opened.prefix).map_err(|fault| match fault {
            Fault::Row(row, problem) => {
                let row = json::row(&rows, row).unwrap_or_default();
                NotEncoded::Row { problem, excerpt: crate::excerpt(row.as_bytes()) }
            }
            Fault::Other(problem) => other(problem),
        })
    }
}

impl Inner {
    /// What rows are written by, where that is not known from the options. `only_asks` registers
    /// nothing.
    fn ask(
        &self,
        patience: &Patience<'_>,
        only_asks: bool,
    ) -> Result<Option<Opened>, WriteFailure> {
        match &self.target {
            Target::Own(_) => Ok(None),
            Target::Draft(drafted) => {
                let Drafted { subject, text, engine, registers, numbered } = &**drafted;
                let keeps_numbers = || match numbered {
                    Some(schema) => subject.keeps_numbers(schema, patience),
                    None => Ok(()),
                };
                let draft = Draft { kind: in_registry(self.kind), text, references: &[] };
                let id = match (registers, only_asks) {
                    (false, _) => Some(subject.lookup(&draft, patience)?),
                    (true, false) => {
                        keeps_numbers()?;
                        Some(subject.register(&draft, patience)?)
                    }
                    (true, true) => {
                        subject.check(&draft, patience)?;
                        keeps_numbers()?;
                        None
                    }
                };
                Ok(id.map(|id| Opened::new(id, engine.clone())))
            }
            Target::Version { subject, version, message } => {
                let found = subject.version(*version, patience)?;
                let given = Given { columns: &self.columns, elsewhere: &self.elsewhere };
                let engine = registered_engine(self.kind, &found, message.as_deref(), given);
                let subject = || subject.name.clone();
                let engine = engine.map_err(|unfit| match unfit {
                    Unfit::Columns(problem) => {
                        WriteFailure::Mismatch { subject: subject(), problem }
                    }
                    Unfit::Taken(problem, remedy) => {
                        WriteFailure::Taken { subject: subject(), problem, remedy }
                    }
                })?;
                Ok(Some(Opened::new(found.id, Arc::new(engine))))
            }
        }
    }

    /// `rows` as encoders want them: views, large offsets and dictionaries are cast.
    fn in_layout(&self, rows: &RecordBatch) -> Result<RecordBatch, arrow::error::ArrowError> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let pairs = rows.columns().iter().zip(self.columns.fields());
        let columns = pairs.map(|(column, field)| match column.data_type() == field.data_type() {
            true => Ok(ArrayRef::clone(column)),
            false => cast_with_options(column, field.data_type(), &options),
        });
        RecordBatch::try_new(self.columns.clone(), columns.collect::<Result<_, _>>()?)
    }
}

impl Opened {
    fn new(id: u32, engine: Arc<Engine>) -> Self {
        let prefix = [&frame::of(id)[..], &engine.path()].concat();
        Self { engine, prefix: prefix.into() }
    }
}

impl Subject {
    fn register(&self, draft: &Draft<'_>, patience: &Patience<'_>) -> Result<u32, WriteFailure> {
        self.registry.register(&self.name, draft, patience).map_err(|error| match error {
            RegistryError::Incompatible { messages, .. } => self.incompatible(messages),
            other => other.into(),
        })
    }

    fn check(&self, draft: &Draft<'_>, patience: &Patience<'_>) -> Result<(), WriteFailure> {
        // One that is registered already is not compared with later ones.
        if self.registry.lookup(&self.name, draft, patience)?.is_some() {
            return Ok(());
        }
        let answer = self.registry.compatible(&self.name, draft, patience)?;
        match answer.is_compatible {
            true => Ok(()),
            false => Err(self.incompatible(answer.messages)),
        }
    }

    /// Refuses a schema whose fields have other numbers than those of the latest version.
    fn keeps_numbers(
        &self,
        schema: &protobuf::Schema,
        patience: &Patience<'_>,
    ) -> Result<(), WriteFailure> {
        let latest = match self.registry.latest(&self.name, patience) {
            Ok((_, latest)) => latest,
            Err(RegistryError::NoSuchSubject { .. } | RegistryError::NoSuchVersion { .. }) => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        if latest.kind != registry::SchemaKind::Protobuf {
            return Ok(());
        }
        let earlier = match Parsed::of(SchemaKind::Protobuf, &latest, None) {
            Ok(Parsed::Protobuf(earlier)) => {
                let same = earlier.with_message(schema.message_name());
                let same = same.ok().filter(|same| same.message_index().is_ok());
                Ok(same.unwrap_or(earlier))
            }
            Ok(Parsed::Avro(_)) => unreachable!("it is one of Protobuf"),
            Err(problem) => Err(format!("it cannot be understood here: {problem}")),
        };
        let (part, subject) = (self.part, self.name.clone());
        earlier
            .and_then(|earlier| schema.keeps_numbers(&earlier))
            .map_err(|problem| WriteFailure::Renumbered { part, subject, problem })
    }

    fn lookup(&self, draft: &Draft<'_>, patience: &Patience<'_>) -> Result<u32, WriteFailure> {
        self.registry.lookup(&self.name, draft, patience)?.ok_or_else(|| {
            let subject = &self.name;
            let missing = format!("the subject '{subject}' does not have the schema that is given");
            WriteFailure::Missing { part: self.part, missing }
        })
    }

    fn version(
        &self,
        version: Option<u32>,
        patience: &Patience<'_>,
    ) -> Result<registry::Registered, WriteFailure> {
        let found = match version {
            None => self.registry.latest(&self.name, patience).map(|(_, found)| found),
            Some(version) => self.registry.version(&self.name, version, patience),
        };
        found.map_err(|error| match error {
            RegistryError::NoSuchSubject { subject } => {
                let missing = format!("the schema registry has no subject '{subject}'");
                WriteFailure::Missing { part: self.part, missing }
            }
            error @ RegistryError::NoSuchVersion { .. } => {
                WriteFailure::Missing { part: self.part, missing: error.to_string() }
            }
            other => other.into(),
        })
    }

    fn incompatible(&self, messages: Vec<String>) -> WriteFailure {
        WriteFailure::Incompatible { part: self.part, subject: self.name.clone(), messages }
    }
}

impl std::fmt::Debug for SchemaEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {}", self.0.kind, self.0.columns)
    }
}

fn check_columns(part: &Part<'_>, columns: &Schema) -> Result<(), OptionError> {
    let name = part.name;
    if columns.fields().is_empty() {
        let problem = format!("no column of the query is left for the {name}");
        return Err(OptionError::table(problem, Some("select more columns".to_owned())));
    }
    for (at, field) in columns.fields().iter().enumerate() {
        if columns.fields()[..at].iter().any(|other| other.name() == field.name()) {
            let problem = format!("two columns of the query are called {}", field.name());
            return Err(OptionError::table(problem, Some("rename one of them".to_owned())));
        }
        if field.data_type().is_null() {
            let problem = format!("column {}: a NULL without a type has no schema", field.name());
            let help = "say what it is: CAST(NULL AS STRING)";
            return Err(OptionError::table(problem, Some(help.to_owned())));
        }
    }
    Ok(())
}

fn subject_name(part: &Part<'_>) -> Result<String, OptionError> {
    let subject = part.get("subject").map(str::to_owned).or_else(|| part.subject.clone());
    subject.ok_or_else(|| {
        let help = "rows name their topics themselves, so say under which subject the schema is";
        OptionError::missing(&part.key("subject"), help)
    })
}

fn target(
    kind: SchemaKind,
    part: &Part<'_>,
    subject: Subject,
    by: By,
    own: Option<(String, Vec<u8>)>,
    given: Given<'_>,
) -> Result<Target, OptionError> {
    if let By::Version(version) = by {
        let message = part.get("message").map(str::to_owned);
        return Ok(Target::Version { subject, version, message });
    }
    let registers = by == By::Registering;
    let is_numbered = own.is_none() && kind == SchemaKind::Protobuf;
    let (engine, text) = match own {
        None => {
            let name = match part.get("message") {
                Some(message) => message.to_owned(),
                None => record_name(&subject.name),
            };
            Engine::derived(kind, given.columns, &name).map_err(|problem| {
                let help = "cast or rename the column in the query, or leave it out";
                OptionError::table(problem, Some(help.to_owned()))
            })?
        }
        Some(own) => {
            let engine = own_engine(kind, part, &own, given)?;
            let text = String::from_utf8(own.1).ok().filter(|text| {
                // What is no text of a file is a set of descriptors, even if it is UTF-8.
                kind != SchemaKind::Protobuf || text.contains("message")
            });
            let text = text.ok_or_else(|| {
                let help = "give the text of a .proto file, or register the schema first and set \
                            'use.latest.version' = 'true'";
                let problem = "a set of descriptors cannot be registered";
                OptionError::of(&own.0, problem, Some(help.to_owned()))
            })?;
            (engine, text)
        }
    };
    let numbered = is_numbered.then(|| protobuf::Schema::from_text(&text, &[], None));
    let numbered = numbered.transpose().map_err(|error| {
        // The text was parsed when it was made.
        OptionError::table(error.to_string(), None)
    })?;
    let engine = Arc::new(engine);
    Ok(Target::Draft(Box::new(Drafted { subject, text, engine, registers, numbered })))
}

/// An encoder by the schema of the options.
fn own_engine(
    kind: SchemaKind,
    part: &Part<'_>,
    (key, bytes): &(String, Vec<u8>),
    given: Given<'_>,
) -> Result<Engine, OptionError> {
    let engine = match (kind, std::str::from_utf8(bytes)) {
        (SchemaKind::Json, Ok(text)) => Engine::of_json(text, given),
        (SchemaKind::Json, Err(_)) => Err(Unfit::Columns("it is not UTF-8".to_owned())),
        _ => Parsed::from_bytes(kind, bytes, part.get("message"))
            .map_err(Unfit::from)
            .and_then(|schema| Engine::of(&schema, given)),
    };
    engine.map_err(|unfit| match unfit {
        Unfit::Columns(problem) => OptionError::of(key, problem, None),
        Unfit::Taken(problem, remedy) => OptionError::of(key, problem, Some(remedy.to_owned())),
    })
}

/// An encoder by what a registry has.
fn registered_engine(
    kind: SchemaKind,
    found: &registry::Registered,
    message: Option<&str>,
    given: Given<'_>,
) -> Result<Engine, Unfit> {
    if kind != SchemaKind::Json || found.kind != registry::SchemaKind::Json {
        return Engine::of(&Parsed::of(kind, found, message)?, given);
    }
    match (&found.body, found.references.is_empty()) {
        (Body::Text(text), true) => Engine::of_json(text, given),
        _ => Err("it refers to other schemas, which are not followed here".to_owned().into()),
    }
}

fn in_registry(kind: SchemaKind) -> registry::SchemaKind {
    match kind {
        SchemaKind::Avro => registry::SchemaKind::Avro,
        SchemaKind::Protobuf => registry::SchemaKind::Protobuf,
        SchemaKind::Json => registry::SchemaKind::Json,
    }
}

/// The name of the record whose schema is derived: the subject's, with characters that a name
/// can have.
fn record_name(subject: &str) -> String {
    let subject = subject.strip_suffix("-value").unwrap_or(subject);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let name: String = subject.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    match name.chars().next() {
        Some(first) if !first.is_ascii_digit() => name,
        _ => format!("_{name}"),
    }
}
