//! What can be wrong with letters that are to be fed to their flow again.

use thiserror::Error;

use crate::api::source::{Classified, Kind};

/// Why letters cannot be fed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The source's records are all fit.
    #[error(
        "as `{table}` is declared now its records are not decoded from their values alone, so that \
         letters cannot be fed as records of it again"
    )]
    NothingToDecode {
        /// The source's table.
        table: String,
    },
    /// A letter that was chosen is not in its table any more.
    #[error(
        "the letter of {position} is to be replayed again after a crash, but is not in the \
         dead-letter table any more"
    )]
    Gone {
        /// Where its record was read.
        position: String,
    },
    /// A letter that was chosen cannot be decoded any more.
    #[error(
        "the letter of {position} is to be replayed again after a crash, and cannot be decoded: \
         {problem}. Replay it with the declaration of the run before"
    )]
    Unfit {
        /// Where its record was read.
        position: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The log of what was replayed cannot be read.
    #[error("the record of replayed letters is damaged: {problem}")]
    Log {
        /// What is wrong.
        problem: String,
    },
}

impl Classified for ReplayError {
    fn kind(&self) -> Kind {
        match self {
            Self::NothingToDecode { .. } => Kind::Config,
            _ => Kind::Data,
        }
    }
}
