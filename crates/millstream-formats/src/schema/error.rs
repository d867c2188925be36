//! What ends a query, or keeps it from beginning, where a schema and not a record is the reason.

use millstream_engine::api::source::{Classified, Kind};
use millstream_registry::RegistryError;
use thiserror::Error;

/// Why a table cannot be written: its schema is the reason. `part` is `value` or `key`, whose
/// options a remedy names.
#[derive(Debug, Error)]
pub enum WriteFailure {
    /// The registry does not give or take it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The subject takes no such schema.
    #[error(
        "the schema registry does not take the schema of the query's columns for the subject \
         '{subject}', as it is incompatible with those before{}; {}",
        reasons(messages), self.remedy()
    )]
    Incompatible {
        /// The part of a record.
        part: &'static str,
        /// The subject.
        subject: String,
        /// Why, as the registry says it.
        messages: Vec<String>,
    },
    /// Readers would take fields for others.
    #[error(
        "the {part} cannot be written by the schema of the query's columns: its fields are not \
         numbered as in the latest version of the subject '{subject}': {problem}; {}",
        self.remedy()
    )]
    Renumbered {
        /// The part of a record.
        part: &'static str,
        /// The subject.
        subject: String,
        /// Which field.
        problem: String,
    },
    /// The subject is not there, and is not to be made.
    #[error("{missing}, and no schema is to be registered; {}", self.remedy())]
    Missing {
        /// The part of a record.
        part: &'static str,
        /// What is not there, in words.
        missing: String,
    },
    /// The subject has other schemas.
    #[error("rows cannot be written by the schema of the subject '{subject}': {problem}; {}",
        self.remedy())]
    Mismatch {
        /// The subject.
        subject: String,
        /// What does not fit.
        problem: String,
    },
    /// A field is called as a column that is no field.
    #[error("rows cannot be written by the schema of the subject '{subject}': {problem}; {remedy}")]
    Taken {
        /// The subject.
        subject: String,
        /// Which field, and what the column is instead.
        problem: String,
        /// What to do about it.
        remedy: &'static str,
    },
}

impl WriteFailure {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Self::Registry(_) => "look at the registry and at the options that are about it".into(),
            Self::Incompatible { part, .. } => format!(
                "select columns that are compatible, set 'use.latest.version' = 'true' to write by \
                 the schema that is there, name another subject ('{part}.subject'), or let the \
                 registry allow it for the subject"
            ),
            Self::Renumbered { part, .. } => format!(
                "keep the order of columns and add new ones at the end, set 'use.latest.version' = \
                 'true' to write by the schema that is there, or name another subject \
                 ('{part}.subject')"
            ),
            Self::Missing { part, .. } => format!(
                "register the schema first, correct '{part}.subject' and '{part}.subject.version', \
                 or leave out 'auto.register.schemas' and 'use.latest.version'"
            ),
            Self::Mismatch { .. } => {
                "let the query give columns of the names and types that the schema has".into()
            }
            Self::Taken { remedy, .. } => (*remedy).to_owned(),
        }
    }
}

impl Classified for WriteFailure {
    fn kind(&self) -> Kind {
        match self {
            Self::Registry(error) => error.kind(),
            Self::Incompatible { .. }
            | Self::Renumbered { .. }
            | Self::Missing { .. }
            | Self::Mismatch { .. }
            | Self::Taken { .. } => Kind::Config,
        }
    }
}

fn reasons(messages: &[String]) -> String {
    if messages.is_empty() { String::new() } else { format!(" ({})", messages.join("; ")) }
}

/// A schema that records cannot be read by.
#[derive(Debug, Error)]
pub enum SchemaFailure {
    /// The registry does not give it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Records that are decoded together do not fit into memory together.
    #[error(
        "{rows} records of a micro-batch and the next one have more than a gigabyte once they are \
         decoded: lower 'maxOffsetsPerTrigger'"
    )]
    TooLarge {
        /// How many fit.
        rows: usize,
    },
    /// It cannot become the table's columns.
    #[error(
        "records with the schema {id} of the schema registry cannot become the columns of the \
         table: {problem}. Change the table's columns; or set 'deadLetter', which takes such \
         records, or 'mode' = 'DROPMALFORMED', which drops them"
    )]
    Mismatch {
        /// Its id.
        id: u32,
        /// What does not fit.
        problem: String,
    },
}

impl Classified for SchemaFailure {
    fn kind(&self) -> Kind {
        match self {
            Self::Registry(error) => error.kind(),
            Self::Mismatch { .. } | Self::TooLarge { .. } => Kind::Data,
        }
    }
}
