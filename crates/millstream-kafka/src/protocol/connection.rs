//! A connection to one broker. Requests may be sent before the answers to earlier ones are read;
//! answers come in the order of the requests.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::frame::{self, Api};
use super::read::ResponseReader;
use super::responses::Address;
use super::write::Writer;

/// How long connecting may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// How long an answer may take. After that the caller connects anew and asks again.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// No answer to these requests is longer: a larger length is not Kafka's.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection; of no use any more after an error.
pub struct Connection {
    stream: TcpStream,
    client: String,
    sent: i32,
    /// Requests without their answer yet.
    awaited: VecDeque<(i32, Api)>,
}

impl Connection {
    /// Connects; `client` is the name to be known by.
    pub fn open(to: &Address, client: &str) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (to.host.as_str(), to.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
                Ok(stream) => {
                    // Requests are small and wait for their answers; Nagle's algorithm would hold
                    // them back.
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
                    stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
                    let client = client.to_owned();
                    return Ok(Self { stream, client, sent: 0, awaited: VecDeque::new() });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends a request.
    pub fn send(&mut self, api: Api, body: impl FnOnce(&mut Writer)) -> io::Result<()> {
        self.sent = self.sent.wrapping_add(1);
        self.awaited.push_back((self.sent, api));
        self.stream.write_all(&frame::frame(api, self.sent, &self.client, body))
    }

    /// Waits for the answer to the earliest request that has none, and reads it.
    pub fn receive<T>(
        &mut self,
        read: impl FnOnce(&mut ResponseReader<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        // Kafka answers the requests of one connection in their order, so the oldest one is
        // answered next.
        let Some((number, api)) = self.awaited.pop_front() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > ANSWER_BYTES_MAX {
            return Err(wrong("an answer of impossible length"));
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        let mut answer = ResponseReader::new(&answer);
        if frame::header(api, &mut answer)? != number {
            return Err(wrong("an answer to something else"));
        }
        read(&mut answer)
    }

    /// Sends a request and waits for its answer; no other may be awaited.
    pub fn ask<T>(
        &mut self,
        api: Api,
        body: impl FnOnce(&mut Writer),
        read: impl FnOnce(&mut ResponseReader<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.send(api, body)?;
        self.receive(read)
    }
}
