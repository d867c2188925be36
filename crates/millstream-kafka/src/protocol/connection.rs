//! A connection to one broker. Requests may be sent before the answers to earlier ones are read;
//! answers come in the order of the requests.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::frame::{self, Api};
use super::read::ResponseReader;
use super::responses::Address;
use super::security::{Security, Transport};
use super::write::Writer;

/// How long connecting may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// How long an answer may take. After that the caller connects anew and asks again.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// No answer to these requests is longer: a larger length is not Kafka's.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A connection; of no use any more after an error.
pub struct Connection {
    stream: Transport,
    /// How long the login counts, if the broker limits that.
    lifetime: Option<Duration>,
    client: String,
    sent: i32,
    /// Requests without their answer yet.
    awaited: VecDeque<(i32, Api)>,
    /// What an answer said of it.
    throttled: Duration,
    /// How long an answer may take usually.
    usual: Duration,
    /// True while answers are waited for longer than that.
    is_patient: bool,
}

impl Connection {
    /// Connects, and logs in where that is asked for. `client` is the name to be known by, and
    /// `secret` what nobody else can guess.
    ///
    /// # Errors
    /// The broker is not there, or a [`Refusal`](super::refusal::Refusal).
    pub fn open(to: &Address, client: &str, security: &Security, secret: &str) -> io::Result<Self> {
        let stream = connect(to)?;
        let (stream, lifetime) = security.begin(stream, &to.host, client, secret)?;
        let client = client.to_owned();
        Ok(Self {
            stream,
            lifetime,
            client,
            sent: 0,
            awaited: VecDeque::new(),
            throttled: Duration::ZERO,
            usual: ANSWER_PATIENCE,
            is_patient: false,
        })
    }

    /// For how long from the answer that was just read on the broker reads no further request,
    /// since a quota is used up (KIP-219).
    pub fn take_throttled(&mut self) -> Duration {
        std::mem::take(&mut self.throttled)
    }

    /// Waits for answers for so much longer than usual from now on.
    pub fn set_patience(&mut self, more: Duration) -> io::Result<()> {
        let is_patient = !more.is_zero();
        if is_patient || self.is_patient {
            self.set_time_outs(self.usual + more)?;
        }
        self.is_patient = is_patient;
        Ok(())
    }

    /// Waits for answers for `usual` from now on, where nothing else is said.
    pub fn set_usual_patience(&mut self, usual: Duration) -> io::Result<()> {
        self.usual = usual;
        self.set_time_outs(usual)
    }

    fn set_time_outs(&self, patience: Duration) -> io::Result<()> {
        let stream = self.stream.socket();
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))
    }

    /// How long it may be used; `None` for any time.
    pub fn lifetime(&self) -> Option<Duration> {
        self.lifetime
    }

    /// True until something was sent.
    pub fn is_new(&self) -> bool {
        self.sent == 0
    }

    /// The socket, to end a wait for an answer from another thread.
    pub fn socket(&self) -> io::Result<TcpStream> {
        self.stream.socket().try_clone()
    }

    /// True while an answer is awaited.
    pub fn is_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Sends a request.
    pub fn send(&mut self, api: Api, body: impl FnOnce(&mut Writer)) -> io::Result<()> {
        self.sent = self.sent.wrapping_add(1);
        self.awaited.push_back((self.sent, api));
        self.stream.write_all(&frame::frame(api, self.sent, &self.client, body))?;
        self.stream.flush()
    }

    /// Waits for the answer to the earliest request that has none, and reads it.
    pub fn receive<T>(
        &mut self,
        read: impl FnOnce(&mut ResponseReader<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.receive_into(&mut Vec::new(), ANSWER_BYTES_MAX, read)
    }

    /// As [`receive`](Self::receive): the answer of `bytes_max` bytes at most is put into `answer`,
    /// whose space is used again and which what is read may borrow from.
    pub fn receive_into<'a, T>(
        &mut self,
        answer: &'a mut Vec<u8>,
        bytes_max: usize,
        read: impl FnOnce(&mut ResponseReader<'a>) -> io::Result<T>,
    ) -> io::Result<T> {
        let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        // Kafka answers the requests of one connection in their order, so the oldest one is
        // answered next.
        let Some((number, api)) = self.awaited.pop_front() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        frame::read_answer_into(answer, &mut self.stream, bytes_max)?;
        let mut answer = ResponseReader::new(answer);
        if frame::header(api, &mut answer)? != number {
            return Err(wrong("an answer to something else"));
        }
        let read = read(&mut answer)?;
        self.throttled = answer.throttled();
        Ok(read)
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

fn connect(to: &Address) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (to.host.as_str(), to.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(stream) => {
                // Requests are small and wait for their answers; Nagle's algorithm would hold
                // them back.
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
                stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
