//! What a table needs outside of the process: servers that answer, rights, files and variables.
//!
//! `validate` shows it, so that a flow's user can be given all of it before the first start, and
//! nothing beyond it. A connector says what its calls need, not what is there: nothing is asked.

use std::fmt;
use std::path::Path;

use arrow::datatypes::SchemaRef;
use millstream_sql::query::prepared::ReadMode;

/// How a flow uses a table.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// It reads it, or joins it at rest.
    Read(ReadMode),
    /// It writes rows of this schema to it, its dead letters among them.
    Written(&'a SchemaRef),
}

/// A table's place in a flow. The query's id is not known before the first start, so what is named
/// after the id is said by the beginning of its name.
#[derive(Clone, Copy, Debug)]
pub struct Usage<'a> {
    /// The flow's name.
    pub flow: &'a str,
    /// How the table is used.
    pub role: Role<'a>,
    /// Relative paths in options are relative to this directory.
    pub base_dir: &'a Path,
    /// False for a query that runs once, without a checkpoint.
    pub is_stream: bool,
}

/// One thing that a table needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// What kind of thing.
    pub what: What,
    /// Which one: `HOST:PORT`, "topic 'logs'", a path, a variable's name. Never a secret.
    pub on: String,
    /// What it is needed for, and when it may be missing.
    pub purpose: &'static str,
}

/// Kinds of needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A server that must be reachable from here.
    Server,
    /// Rights, by the names that the system itself has for them.
    Rights(Vec<&'static str>),
    /// A file or a directory that is read.
    ReadFile,
    /// A file or a directory that is written.
    WriteFile,
    /// A variable of the environment, which is read where it is set.
    Variable,
}

impl Need {
    /// A server at `address`.
    pub fn server(address: impl Into<String>, purpose: &'static str) -> Self {
        Self { what: What::Server, on: address.into(), purpose }
    }

    /// Rights on something.
    pub fn rights(rights: &[&'static str], on: impl Into<String>, purpose: &'static str) -> Self {
        Self { what: What::Rights(rights.to_vec()), on: on.into(), purpose }
    }

    /// A file or a directory that is read.
    pub fn reads(path: impl fmt::Display, purpose: &'static str) -> Self {
        Self { what: What::ReadFile, on: path.to_string(), purpose }
    }

    /// A file or a directory that is written.
    pub fn writes(path: impl fmt::Display, purpose: &'static str) -> Self {
        Self { what: What::WriteFile, on: path.to_string(), purpose }
    }

    /// A variable of the environment.
    pub fn variable(name: &str, purpose: &'static str) -> Self {
        Self { what: What::Variable, on: name.to_owned(), purpose }
    }
}

/// On one line: `Read on topic 'logs': to read it`.
impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, on, purpose } = self;
        match what {
            What::Server => write!(f, "server {on}: {purpose}"),
            What::Rights(rights) => write!(f, "{} on {on}: {purpose}", rights.join(", ")),
            What::ReadFile => write!(f, "reads {on}: {purpose}"),
            What::WriteFile => write!(f, "writes {on}: {purpose}"),
            What::Variable => write!(f, "variable {on}: {purpose}"),
        }
    }
}
