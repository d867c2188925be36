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
    /// The coordinator does not take the token.
    #[error(
        "the coordinator at {address} refuses the token: give the cluster's by MILLSTREAM_TOKEN or \
         --token-file"
    )]
    Refused {
        /// Its address.
        address: String,
    },
    /// A token is none.
    #[error("a token is one word of letters, digits and signs of ASCII")]
    TokenText,
    /// Everybody could connect.
    #[error(
        "others can connect to {address}: give all parts of the cluster a token by MILLSTREAM_TOKEN \
         or --token-file, or listen at 127.0.0.1"
    )]
    Open {
        /// The address.
        address: String,
    },
    /// Files of TLS are missing.
    #[error(
        "a part that listens needs --tls-cert, --tls-key and --tls-ca together, and one that only \
         connects needs --tls-ca"
    )]
    TlsHalf,
    /// A file of certificates, of a key or of a token cannot be used.
    #[error("{path} {problem}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A certificate and its key cannot be used.
    #[error("TLS cannot be served: {problem}")]
    Tls {
        /// What is wrong.
        problem: String,
    },
    /// A setting of Spark's has another value here.
    #[error("{key} cannot be set to '{value}': it is '{here}' here and stays so{help}")]
    FixedSetting {
        /// The setting.
        key: String,
        /// The value.
        value: String,
        /// The value that it has.
        here: &'static str,
        /// What to write instead, behind a semicolon; empty where there is nothing.
        help: &'static str,
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
    /// Functions of AWS Lambda cannot be invoked, or have no events.
    #[error("AWS Lambda cannot be used: {problem}")]
    Lambda {
        /// Why.
        problem: String,
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
            | Self::Lambda { .. }
            | Self::Setting { .. }
            | Self::FixedSetting { .. }
            | Self::TokenText
            | Self::Open { .. }
            | Self::TlsHalf
            | Self::File { .. }
            | Self::Tls { .. }
            | Self::OnlyHere { .. } => Kind::Config,
            Self::Refused { .. } => Kind::Credentials,
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
