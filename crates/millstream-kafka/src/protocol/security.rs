//! What a connection does before the first request: TLS, and a login by SASL.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustls::StreamOwned;

use super::login::{self, Login};
use super::tls::{self, Tls};

/// How connections are made safe. Cheap enough to clone once per client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// TLS, if there is any.
    pub tls: Option<Tls>,
    /// The user, if the brokers ask for one.
    pub login: Option<Login>,
}

/// The bytes of a connection, in the open or by TLS.
pub enum Transport {
    /// In the open.
    Plain(TcpStream),
    /// By TLS.
    Tls(Box<StreamOwned<rustls::ClientConnection, TcpStream>>),
}

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

impl Security {
    /// Makes `stream`, connected to `host`, what requests are sent over. Gives as well how long the
    /// login counts, if the broker limits that.
    ///
    /// # Errors
    /// The connection is lost, or a [`Refusal`].
    pub fn begin(
        &self,
        stream: TcpStream,
        host: &str,
        client: &str,
        secret: &str,
    ) -> io::Result<(Transport, Option<Duration>)> {
        let mut transport = match &self.tls {
            None => Transport::Plain(stream),
            Some(tls) => Transport::Tls(Box::new(tls::handshake(tls, stream, host)?)),
        };
        let lifetime = match &self.login {
            None => None,
            Some(login) => login::log_in(login, &mut transport, client, secret)?,
        };
        Ok((transport, lifetime))
    }
}

impl Read for Transport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer).map_err(tls::refusal),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(buffer),
            Self::Tls(stream) => stream.write(buffer).map_err(tls::refusal),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush().map_err(tls::refusal),
        }
    }
}

#[cfg(test)]
#[path = "security_tests.rs"]
mod tests;
