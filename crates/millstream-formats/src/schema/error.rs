//! What ends a query, where a schema and not a record is the reason.

use millstream_engine::api::source::{Classified, Kind};
use millstream_registry::RegistryError;
use thiserror::Error;

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
