//! Why there is no token.

use std::io;
use std::path::PathBuf;

use millstream_store::error::{Classified, Kind};
use thiserror::Error;

/// There is no token for the brokers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The issuer refuses.
    #[error(
        "{server} gives no token for '{user}': {problem}. Check \
         'kafka.sasl.oauthbearer.client.id', 'kafka.sasl.oauthbearer.client.secret' and \
         'kafka.sasl.oauthbearer.scope'"
    )]
    Refused {
        /// Who was asked.
        server: String,
        /// Whose token.
        user: String,
        /// What was said.
        problem: String,
    },
    /// The issuer does not answer, or not now.
    #[error("no token from {server}: {problem}")]
    Away {
        /// Who was asked.
        server: String,
        /// What happened.
        problem: String,
    },
    /// A file has no token.
    #[error("there is no token in {}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// AWS's credentials cannot be used.
    #[error(
        "no credentials of AWS for Kafka: {problem}. Set AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or run where a role gives them"
    )]
    Aws {
        /// What is wrong.
        problem: String,
    },
}

impl Classified for TokenError {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused { .. } => Kind::Credentials,
            Self::Away { .. } => Kind::Retry,
            Self::File { .. } | Self::Aws { .. } => Kind::Config,
        }
    }
}

impl From<TokenError> for io::Error {
    /// As [`Refusal`](crate::protocol::refusal::Refusal): what does not help to try again is
    /// `PermissionDenied`.
    fn from(error: TokenError) -> Self {
        let kind = match error.kind() {
            Kind::Retry => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::PermissionDenied,
        };
        Self::new(kind, error)
    }
}
