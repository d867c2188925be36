//! Errors are sorted by what the caller should do, not by where they came from.
//!
//! Each operation has an enum of its own with the facts in fields; it says its [`Kind`] and is
//! boxed into a [`Failure`] where operations of different layers meet (the micro-batch driver).
//! Text for people is made from the facts at the edge, in the binary.

use std::error::Error;
use std::fmt;

/// What the caller of a failed operation should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Wait and repeat: the same call may work soon.
    Retry,
    /// Stop: another process owns the checkpoint now.
    Fenced,
    /// A person edits settings, SQL or permissions.
    Config,
    /// What the other side refuses may have been replaced meanwhile: look the credentials up again.
    /// Where that gives the same ones a person edits them.
    Credentials,
    /// A person looks at the data: input that cannot be read, or a damaged log.
    Data,
    /// Report it: an invariant of ours does not hold.
    Bug,
}

/// An error that knows what its caller should do.
pub trait Classified: Error + Send + Sync + 'static {
    /// What the caller should do about it.
    fn kind(&self) -> Kind;
}

/// What an error of a library comes from: of errors that wrap each other, as those of an HTTP
/// client do, the innermost says what happened, and those around it only where.
pub fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Any classified error, where several layers meet. It is made of one, and never of a text: what an
/// error of a library means here is said by an enum of ours that has it in a field.
pub struct Failure {
    kind: Kind,
    cause: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// What the caller should do.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The error itself, if it is an `E`; else the failure as it was.
    pub fn downcast<E: Error + 'static>(self) -> Result<E, Self> {
        let Self { kind, cause } = self;
        cause.downcast().map(|error| *error).map_err(|cause| Self { kind, cause })
    }

    /// The error itself, to be looked into for its facts.
    pub fn cause(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.cause
    }
}

impl<E: Classified> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { kind: error.kind(), cause: Box::new(error) }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.kind, self.cause)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)
    }
}
