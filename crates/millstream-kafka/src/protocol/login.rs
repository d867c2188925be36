//! A login by SASL, as KIP-43 and KIP-152 describe it: the mechanism is agreed on, then its
//! messages travel in requests of their own.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::Duration;

use super::error_code::ErrorCode;
use super::frame::{self, Api, SASL_AUTHENTICATE, SASL_HANDSHAKE};
use super::read::ResponseReader;
use super::refusal::Refusal;
use super::requests;
use super::responses::{self, LoginAnswer};
use super::scram::{self, Hash};
use super::write::Writer;

/// No answer of a login is longer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// How a user is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// User and password as they are (RFC 4616).
    Plain,
    /// RFC 5802.
    Scram(Hash),
}

/// The mechanism of tokens.
pub const OAUTHBEARER: &str = "OAUTHBEARER";

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

/// A user. What is secret is not shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// By name and password.
    Password {
        /// How the two are shown to the broker.
        mechanism: Mechanism,
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// By a token (RFC 7628).
    Token {
        /// The token.
        token: String,
        /// Extensions, as name and value (RFC 7628, section 3.1).
        extensions: Vec<(String, String)>,
    },
}

impl Login {
    fn mechanism(&self) -> &'static str {
        match self {
            Self::Password { mechanism, .. } => mechanism.name(),
            Self::Token { .. } => OAUTHBEARER,
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { user, .. } => write!(f, "{} as {user}", self.mechanism()),
            Self::Token { .. } => f.write_str(OAUTHBEARER),
        }
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
    let remedy = match login {
        Login::Password { .. } => "check 'kafka.sasl.username' and 'kafka.sasl.password'",
        Login::Token { .. } => "the token is not one that it takes",
    };
    let mut exchange = Exchange { stream, client, remedy, sent: 0 };
    exchange.agree(login.mechanism())?;
    let lifetime_ms = match login {
        Login::Password { mechanism: Mechanism::Plain, user, password } => {
            let message = format!("\0{user}\0{password}");
            exchange.say(message.as_bytes())?.1
        }
        Login::Password { mechanism: Mechanism::Scram(hash), user, password } => {
            let wrong = |reason| Refusal::Login(format!("SCRAM fails, as {reason}"));
            let first = scram::First::new(*hash, user, password, secret.to_owned());
            let (answer, _) = exchange.say(first.message().as_bytes())?;
            let (message, last) = first.answer(&answer).map_err(wrong)?;
            let (answer, lifetime_ms) = exchange.say(message.as_bytes())?;
            last.check(&answer).map_err(wrong)?;
            lifetime_ms
        }
        Login::Token { token, extensions } => exchange.show_token(token, extensions)?,
    };
    Ok(u64::try_from(lifetime_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis))
}

struct Exchange<'a, S> {
    stream: &'a mut S,
    client: &'a str,
    /// What to do about a refusal.
    remedy: &'static str,
    sent: i32,
}

impl<S: Read + Write> Exchange<'_, S> {
    fn agree(&mut self, mechanism: &str) -> io::Result<()> {
        let body = |body: &mut Writer| requests::sasl_handshake(body, mechanism);
        let (code, known) = self.ask(SASL_HANDSHAKE, body, responses::sasl_handshake)?;
        match code {
            ErrorCode::NONE => Ok(()),
            ErrorCode::UNSUPPORTED_SASL_MECHANISM => Err(Refusal::Login(format!(
                "it does not take {mechanism} on this port; 'kafka.sasl.mechanism' may be {}",
                known.join(", ")
            ))
            .into()),
            ErrorCode(code) => Err(Refusal::Login(format!("Kafka's error {code}")).into()),
        }
    }

    /// A refusal comes as JSON in an answer without an error; the error follows the empty message
    /// that the client has to answer with (RFC 7628, 3.2.3).
    fn show_token(&mut self, token: &str, extensions: &[(String, String)]) -> io::Result<i64> {
        let more: String =
            extensions.iter().map(|(name, value)| format!("{name}={value}\x01")).collect();
        let message = format!("n,,\x01auth=Bearer {token}\x01{more}\x01");
        let (answer, lifetime_ms) = self.say(message.as_bytes())?;
        if answer.is_empty() {
            return Ok(lifetime_ms);
        }
        let problem = match self.say(b"\x01") {
            Ok(_) => "it takes no token and says no more".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(Refusal::Login(format!("{answer}; {problem}")).into())
    }

    /// Sends one message of the mechanism. Gives the answer to it, and how long a login counts that
    /// is done with it, in milliseconds.
    fn say(&mut self, message: &[u8]) -> io::Result<(String, i64)> {
        let body = |body: &mut Writer| requests::sasl_authenticate(body, message);
        let answer = self.ask(SASL_AUTHENTICATE, body, responses::sasl_authenticate)?;
        let LoginAnswer { code: ErrorCode(code), reason, message, lifetime_ms } = answer;
        if code == 0 {
            return Ok((message, lifetime_ms));
        }
        let reason = reason.unwrap_or_else(|| format!("Kafka's error {code}"));
        Err(Refusal::Login(format!("{reason}; {}", self.remedy)).into())
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
