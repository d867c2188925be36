//! Whether rows of the state log are those that a query's operators take.

use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use thiserror::Error;

use crate::api::source::{Classified, Kind};

/// Why operators cannot take what the state log has for them.
#[derive(Debug, Error)]
pub(super) enum StateError {
    /// The rows of an entry are not encoded as rows are.
    #[error("rows in the state log of the checkpoint cannot be read: {error}")]
    Entry {
        /// What Arrow says.
        error: ArrowError,
    },
    /// The query's operators had rows of other types when the state was made.
    #[error(
        "the state of the checkpoint has columns of the types {known}, and those of this query \
         are {own}. Bring back the types, or use a new checkpoint directory (the query then begins \
         anew)"
    )]
    Types {
        /// The types in the state log, separated by commas.
        known: String,
        /// The types of the operator's input.
        own: String,
    },
}

impl Classified for StateError {
    fn kind(&self) -> Kind {
        match self {
            Self::Entry { .. } => Kind::Data,
            Self::Types { .. } => Kind::Config,
        }
    }
}

/// Validates the types of rows of the state against those that the query has now.
pub(super) fn check_types(known: &Schema, own: &Schema) -> Result<(), StateError> {
    let types = |schema: &Schema| -> Vec<DataType> {
        schema.fields().iter().map(|field| field.data_type().clone()).collect()
    };
    let (known, own) = (types(known), types(own));
    if known == own {
        return Ok(());
    }
    let words =
        |types: &[DataType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (known, own) = (words(&known), words(&own));
    Err(StateError::Types { known, own })
}
