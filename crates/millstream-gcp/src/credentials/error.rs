//! Why there is no token.

use std::io;
use std::path::PathBuf;

use millstream_store::error::{Classified, Kind};
use thiserror::Error;

/// Credentials cannot be used, or Google does not take them.
#[derive(Clone, Debug, Error)]
pub enum CredentialsError {
    /// A file of credentials cannot be read.
    #[error("the credentials of Google Cloud in {} cannot be read: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The private key is not one.
    #[error(
        "the private key of {account} cannot be used: {problem}. It is the text between \
         '-----BEGIN PRIVATE KEY-----' and '-----END PRIVATE KEY-----' of a service account's key \
         file, these lines included"
    )]
    Key {
        /// The service account.
        account: String,
        /// What is wrong.
        problem: String,
    },
    /// A kind of credentials that is not supported.
    #[error(
        "{} has credentials of the type '{found}', which are not supported. Use the key file of \
         a service account, or run where the metadata server gives tokens", path.display()
    )]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Its type.
        found: String,
    },
    /// Nothing says who we are.
    #[error(
        "there are no credentials of Google Cloud: set the variable GOOGLE_APPLICATION_CREDENTIALS \
         to a key file, or the option 'credentialsFile', or 'clientEmail' and 'privateKey'; or run \
         on Google Cloud, where the metadata server gives tokens ({problem})"
    )]
    None {
        /// Why the metadata server gave none.
        problem: String,
    },
    /// Google refuses.
    #[error("Google Cloud refuses the credentials of {account}: {problem}")]
    Refused {
        /// Whose.
        account: String,
        /// What it said.
        problem: String,
    },
    /// The server of tokens does not answer, or not now.
    #[error("no token for {account} from {server}: {problem}")]
    Away {
        /// Whose.
        account: String,
        /// Who was asked.
        server: String,
        /// What happened.
        problem: String,
    },
}

impl CredentialsError {
    pub(super) fn file(path: PathBuf, problem: &dyn std::fmt::Display) -> Self {
        Self::File { path, problem: problem.to_string() }
    }

    pub(super) fn unreadable(path: PathBuf, error: &io::Error) -> Self {
        Self::file(path, error)
    }
}

impl Classified for CredentialsError {
    fn kind(&self) -> Kind {
        match self {
            Self::File { .. } | Self::Key { .. } | Self::Unsupported { .. } | Self::None { .. } => {
                Kind::Config
            }
            Self::Refused { .. } => Kind::Credentials,
            Self::Away { .. } => Kind::Retry,
        }
    }
}
