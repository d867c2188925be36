//! A login by SASL, as KIP-43 and KIP-152 describe it: the mechanism is agreed on, then its
//! messages travel in requests of their own.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use super::frame::{self, Api, SASL_AUTHENTICATE, SASL_HANDSHAKE};
use super::read::ResponseReader;
use super::refusal::Refusal;
use super::scram::{self, Hash};
use super::write::Writer;

/// No answer of a login is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const UNSUPPORTED_SASL_MECHANISM: i16 = 33;

/// How a user is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// User and password as they are (RFC 4616).
    Plain,
    /// RFC 5802.
    Scram(Hash),
}

impl Mechanism {
    /// By the name that `sasl.mechanism` gives it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name.trim().to_ascii_uppercase().as_str() {
            "PLAIN" => Self::Plain,
            "SCRAM-SHA-256" => Self::Scram(Hash::Sha256),
            "SCRAM-SHA-512" => Self::Scram(Hash::Sha512),
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Scram(Hash::Sha256) => "SCRAM-SHA-256",
            Self::Scram(Hash::Sha512) => "SCRAM-SHA-512",
        }
    }
}

/// A user.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// How the user is known.
    pub mechanism: Mechanism,
    /// The name.
    pub user: String,
    /// The password, which is not shown.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.mechanism.name(), self.user)
    }
}

/// Logs in over `stream`, on which nothing was asked yet. Gives how long the login counts, if the
/// broker limits that.
///
/// # Errors
/// The connection is lost, or a [`Refusal`].
pub fn log_in(
    login: &Login,
    stream: &mut (impl Read + Write),
    client: &str,
    secret: &str,
) -> io::Result<Option<Duration>> {
    let mut exchange = Exchange { stream, client, sent: 0 };
    exchange.agree(login.mechanism)?;
    let lifetime_ms = match login.mechanism {
        Mechanism::Plain => {
            let message = format!("\0{}\0{}", login.user, login.password);
            exchange.say(message.as_bytes())?.1
        }
        Mechanism::Scram(hash) => {
            let wrong = |reason| Refusal::Login(format!("SCRAM fails, as {reason}"));
            let nonce = secret.to_owned();
            let first = scram::First::new(hash, &login.user, &login.password, nonce);
            let (answer, _) = exchange.say(first.message().as_bytes())?;
            let (message, last) = first.answer(&answer).map_err(wrong)?;
            let (answer, lifetime_ms) = exchange.say(message.as_bytes())?;
            last.check(&answer).map_err(wrong)?;
            lifetime_ms
        }
    };
    Ok(u64::try_from(lifetime_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis))
}

struct Exchange<'a, S> {
    stream: &'a mut S,
    client: &'a str,
    sent: i32,
}

impl<S: Read + Write> Exchange<'_, S> {
    fn agree(&mut self, mechanism: Mechanism) -> io::Result<()> {
        let body = |body: &mut Writer| body.short_text(mechanism.name());
        let (code, known) = self.ask(SASL_HANDSHAKE, body, |answer| {
            let code = answer.i16()?;
            let mut known = Vec::new();
            for _ in 0..answer.i32()?.clamp(0, 100) {
                known.push(answer.short_text()?);
            }
            Ok((code, known))
        })?;
        match code {
            0 => Ok(()),
            UNSUPPORTED_SASL_MECHANISM => Err(Refusal::Login(format!(
                "it does not take {} on this port; 'kafka.sasl.mechanism' may be {}",
                mechanism.name(),
                known.join(", ")
            ))
            .into()),
            code => Err(Refusal::Login(format!("Kafka's error {code}")).into()),
        }
    }

    /// Sends one message of the mechanism. Gives the answer to it, and how long a login counts that
    /// is done with it, in milliseconds.
    fn say(&mut self, message: &[u8]) -> io::Result<(String, i64)> {
        let body = |body: &mut Writer| {
            body.count(message.len());
            body.raw(message);
            body.end();
        };
        let (code, reason, answer, lifetime_ms) = self.ask(SASL_AUTHENTICATE, body, |answer| {
            let (code, reason) = (answer.i16()?, answer.text_or_null()?);
            Ok((code, reason, answer.text_or_null()?.unwrap_or_default(), answer.i64()?))
        })?;
        if code == 0 {
            return Ok((answer, lifetime_ms));
        }
        let reason = reason.unwrap_or_else(|| format!("Kafka's error {code}"));
        let remedy = "check 'kafka.sasl.username' and 'kafka.sasl.password'";
        Err(Refusal::Login(format!("{reason}; {remedy}")).into())
    }

    fn ask<T>(
        &mut self,
        api: Api,
        body: impl FnOnce(&mut Writer),
        read: impl FnOnce(&mut ResponseReader<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.sent += 1;
        self.stream.write_all(&frame::frame(api, self.sent, self.client, body))?;
        self.stream.flush()?;
        let answer = frame::read_answer(self.stream, ANSWER_BYTES_MAX)?;
        let mut answer = ResponseReader::new(&answer);
        if frame::header(api, &mut answer)? != self.sent {
            let what = "an answer to something else";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        read(&mut answer)
    }
}
