//! What a table that is written says of schemas.
//!
//! | with a registry | rows are written by |
//! |---|---|
//! | nothing else | the schema of their columns, which is registered |
//! | `value.schema` | that schema, which is registered |
//! | the same, `auto.register.schemas` = `false` | that schema, which has to be registered |
//! | `use.latest.version`, `value.subject.version` | that version of the subject |
//! | `auto.register.schemas` = `false` alone | the latest version of the subject |
//!
//! Without a registry they are written by `value.schema`, and nothing is put in front of them.

use millstream_engine::api::options::{OptionError, OptionSpec, Side};

use super::SchemaKind;
use super::options::{Part, URL};

const REGISTERS: &str = "auto.register.schemas";
const LATEST: &str = "use.latest.version";

const fn option(name: &'static str, about: &'static str) -> OptionSpec {
    OptionSpec { name, side: Side::Sink, about }
}

/// The options of tables that are written, besides [`OPTIONS`](super::OPTIONS).
pub const WRITE_OPTIONS: &[OptionSpec] = &[
    option(
        REGISTERS,
        "whether the schema of what is written is registered (default true; false: the subject's \
         is used)",
    ),
    option(LATEST, "whether rows are written by the latest schema of the subject (default false)"),
    option("key.schema", "the schema of keys as text, as value.schema"),
    option("key.schema.file", "a file with the schema of keys, as value.schema.file"),
    option("key.message", "protobuf: the message of keys, as value.message"),
    option("key.subject", "the subject of keys (default: TOPIC-key)"),
    option("key.subject.version", "the version of that subject, as value.subject.version"),
];

/// By which schema rows are written, where there is a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// One that is registered.
    Registering,
    /// One of the options that has to be registered.
    Registered,
    /// One of the subject's versions; none is the latest.
    Version(Option<u32>),
}

/// What the options say.
///
/// # Errors
/// Some contradict each other.
pub(super) fn by(part: &Part<'_>, has_own: bool) -> Result<By, OptionError> {
    let registers = part.options.parse_bool(REGISTERS)?;
    let latest = part.options.parse_bool(LATEST)?.unwrap_or(false);
    let version = part.version()?;
    let names_version = part.get("subject.version").is_some();
    let key = part.key("subject.version");
    let by_version = if names_version { key.as_str() } else { LATEST };
    let help = |one: &str, other: &str| Some(format!("leave '{one}' or '{other}' out"));
    if latest && version.is_some() {
        let problem = "the latest version and a certain one are asked for";
        return Err(OptionError::of(LATEST, problem, help(LATEST, &key)));
    }
    if !(latest || names_version) {
        return Ok(match (registers, has_own) {
            (None | Some(true), _) => By::Registering,
            (Some(false), true) => By::Registered,
            (Some(false), false) => By::Version(None),
        });
    }
    if registers == Some(true) {
        let problem = "a schema is to be registered, and one that is registered to be used";
        return Err(OptionError::of(REGISTERS, problem, help(REGISTERS, by_version)));
    }
    if has_own {
        let problem = "a schema is given, and one of the subject is to be used";
        let own = part.key("schema");
        return Err(OptionError::of(&own, problem, help(&own, by_version)));
    }
    Ok(By::Version(version))
}

/// Refuses what means something with a registry only.
pub(super) fn check_without_registry(part: &Part<'_>) -> Result<(), OptionError> {
    let names = [part.key("subject"), part.key("subject.version")];
    let names = names.iter().map(String::as_str).chain([REGISTERS, LATEST]);
    match names.into_iter().find(|name| part.options.get(name).is_some()) {
        None => Ok(()),
        Some(name) => {
            let problem = format!("'{name}' is of tables with a schema registry");
            let help = format!("set '{URL}', or leave the option out");
            Err(OptionError::of(name, problem, Some(help)))
        }
    }
}

/// Refuses the name of a message where there are none.
pub(super) fn check_message(part: &Part<'_>, kind: SchemaKind) -> Result<(), OptionError> {
    if kind == SchemaKind::Protobuf || part.get("message").is_none() {
        return Ok(());
    }
    let key = part.key("message");
    let problem = format!("'{key}' is of protobuf, and the format is '{}'", kind.name());
    Err(OptionError::of(&key, problem, Some("leave the option out".to_owned())))
}

/// The error where neither a registry nor a schema is given.
pub(super) fn no_schema(part: &Part<'_>) -> OptionError {
    let (text, file) = (part.key("schema"), part.key("schema.file"));
    let help = format!(
        "say by which schema rows are written: '{URL}' = 'http://...', '{text}' = '...' or \
         '{file}' = 'path'; for JSON alone select to_json(struct(*)) AS value"
    );
    OptionError::missing(URL, help)
}
