//! What can go wrong between the parts of a cluster.

use std::io;

use ballista_core::error::BallistaError;
use datafusion::error::DataFusionError;
use millstream_store::error::{Classified, Kind};
use thiserror::Error;

use crate::error::QueryError;

/// What can go wrong between the parts of a cluster.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// An address cannot be listened at.
    #[error("{address} cannot be listened at: {error}")]
    Listen {
        /// The address.
        address: String,
        /// What the operating system says.
        error: io::Error,
    },
    /// The coordinator does not answer.
    #[error("the coordinator at {address} does not answer: {problem}")]
    NoCoordinator {
        /// Its address.
        address: String,
        /// What was met.
        problem: String,
    },
    /// A directory cannot be used.
    #[error("the directory {path} cannot be used: {error}")]
    Directory {
        /// The directory.
        path: String,
        /// What the operating system says.
        error: io::Error,
    },
    /// A setting has a value that it cannot have.
    #[error("{key} cannot be set to '{value}': {help}")]
    Setting {
        /// The setting.
        key: String,
        /// The value.
        value: String,
        /// What to write.
        help: &'static str,
    },
    /// A query reads something that only this process can read.
    #[error("a cluster cannot run this query: {what}; run it without --on")]
    OnlyHere {
        /// What it is.
        what: String,
    },
    /// Ballista fails.
    #[error(transparent)]
    Ballista(#[from] BallistaError),
    /// DataFusion fails.
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
}

impl Classified for ClusterError {
    fn kind(&self) -> Kind {
        match self {
            Self::Listen { .. }
            | Self::Directory { .. }
            | Self::Setting { .. }
            | Self::OnlyHere { .. } => Kind::Config,
            Self::NoCoordinator { .. } | Self::Ballista(_) => Kind::Retry,
            Self::DataFusion(_) => Kind::Data,
        }
    }
}

impl From<ClusterError> for QueryError {
    fn from(error: ClusterError) -> Self {
        Self::Failure(error.into())
    }
}
