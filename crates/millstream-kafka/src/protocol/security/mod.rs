//! What a connection does before the first request: TLS, and a login by SASL.

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

impl Security {
    /// Makes `stream`, connected to `host`, what requests are sent over. Gives as well how long the
    /// login counts, if the broker limits that.
    ///
    /// # Errors
    /// The connection is lost, or a [`Refusal`](super::refusal::Refusal).
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

impl Transport {
    /// The connection below.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => &stream.sock,
        }
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
mod tests;
