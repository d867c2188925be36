//! Why a broker cannot be talked to, though it is there.

use std::fmt;
use std::io;

/// Why a connection may not be used. It travels inside an [`io::Error`], whose kind is
/// `PermissionDenied` for a login: trying again does not help then, and may lock the user out.
/// Certificates are replaced while a flow runs, one file after the other.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The broker does not take the user.
    Login(String),
    /// One of the two does not take the other's certificate, or a file cannot be used.
    Tls(String),
    /// One of the two speaks TLS, and the other does not.
    Protocol(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Login(reason) => write!(f, "the broker refuses the user: {reason}"),
            Self::Tls(reason) => write!(f, "TLS: {reason}"),
            Self::Protocol(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Login(_) => io::ErrorKind::PermissionDenied,
            Refusal::Tls(_) | Refusal::Protocol(_) => io::ErrorKind::Other,
        };
        Self::new(kind, refusal)
    }
}
