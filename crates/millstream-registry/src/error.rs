//! What can go wrong between us and a registry, sorted by what the caller should do.

use std::fmt::Write as _;

use millstream_store::error::{Classified, Kind};
use thiserror::Error;

/// The registry does not give what was asked for. No text in it holds a secret: URLs are without
/// users and passwords, and what the registry said is redacted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    /// Nobody registered a schema of this id.
    #[error(
        "the schema registry has no schema of the id {id}: the record may have been written with \
         another registry, or its schema deleted for good"
    )]
    NoSuchSchema {
        /// The id.
        id: u32,
    },
    /// There is no such subject.
    #[error(
        "the schema registry has no subject '{subject}': correct its name, or register a schema \
         under it first"
    )]
    NoSuchSubject {
        /// Its name.
        subject: String,
    },
    /// The subject has no such version.
    #[error("the subject '{subject}' has no version {version} in the schema registry")]
    NoSuchVersion {
        /// The subject.
        subject: String,
        /// The version, or 'latest'.
        version: String,
    },
    /// The registry does not let us ask.
    #[error(
        "the schema registry at {url} refuses {who} ({status}{}): {}", spaced(said),
        if *status == 401 { "correct the user and password, or the token" } else {
            "it knows who asks; what was asked needs a permission"
        }
    )]
    Refused {
        /// Its URL.
        url: String,
        /// Who asked, without the password.
        who: String,
        /// The status of HTTP.
        status: u16,
        /// What it said.
        said: String,
    },
    /// The subject takes no such schema, as it could not be read with those before, or the other
    /// way round.
    #[error(
        "the schema registry does not take the schema for the subject '{subject}', as it is \
         incompatible with those before{}",
        listed(messages)
    )]
    Incompatible {
        /// The subject.
        subject: String,
        /// Why, as the registry says it.
        messages: Vec<String>,
    },
    /// The registry says that what was asked is wrong in itself.
    #[error("the schema registry does not take {what}: {said}")]
    Invalid {
        /// What it was asked.
        what: String,
        /// What it said.
        said: String,
    },
    /// A schema cannot be used as the registry has it.
    #[error("the {schema} cannot be used: {problem}")]
    Unusable {
        /// Which.
        schema: String,
        /// Why.
        problem: String,
    },
    /// TLS does not come about.
    #[error("no TLS to the schema registry at {url}: {problem}; {remedy}")]
    Tls {
        /// Its URL.
        url: String,
        /// Why.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// Who answers is not a registry.
    #[error(
        "what is at {url} does not answer as a schema registry: {found}. Correct the URL with its \
         path; Apicurio's ends with /apis/ccompat/v7"
    )]
    NotARegistry {
        /// The URL.
        url: String,
        /// What came instead.
        found: String,
    },
    /// Nobody answers, or not now.
    #[error("the schema registry at {url} does not answer: {problem}")]
    Away {
        /// Its URL, or URLs.
        url: String,
        /// What happened last, at each.
        problem: String,
    },
    /// The caller did not want to wait any longer.
    #[error("the request to the schema registry at {url} was cancelled")]
    Cancelled {
        /// Its URL, or URLs.
        url: String,
    },
    /// A URL cannot be one of a registry.
    #[error("'{url}' cannot be the URL of a schema registry: {problem}")]
    Url {
        /// The URL, without user and password.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// Who asks, or a certificate or key, cannot be used.
    #[error("{what} cannot be used: {problem}")]
    Setting {
        /// Which setting.
        what: String,
        /// What is wrong.
        problem: String,
    },
}

impl Classified for RegistryError {
    fn kind(&self) -> Kind {
        match self {
            Self::NoSuchSchema { .. } | Self::Unusable { .. } => Kind::Data,
            Self::Refused { .. } => Kind::Credentials,
            Self::Away { .. } | Self::Cancelled { .. } => Kind::Retry,
            Self::NoSuchSubject { .. }
            | Self::NoSuchVersion { .. }
            | Self::Incompatible { .. }
            | Self::Invalid { .. }
            | Self::Tls { .. }
            | Self::NotARegistry { .. }
            | Self::Url { .. }
            | Self::Setting { .. } => Kind::Config,
        }
    }
}

fn spaced(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" {said}") }
}

fn listed(messages: &[String]) -> String {
    let mut text = String::new();
    for (index, message) in messages.iter().enumerate() {
        let between = if index == 0 { ": " } else { "; " };
        write!(text, "{between}{message}").expect("a string takes it");
    }
    text
}
