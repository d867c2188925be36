//! librdkafka's own log lines and errors, routed to `tracing`.
//!
//! librdkafka reconnects by itself and says so each time. A person wants to hear of a broker that
//! is away once, not ten times a second, so warnings of one kind are spaced out, and the raw log
//! lines are for debugging. The latest reasons are kept: they explain why a connection could not
//! be made.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use millstream_store::env::Env;
use millstream_store::error::{Classified as _, Kind};
use parking_lot::Mutex;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::native_token::{set_no_token, set_token};
use crate::tokens::Tokens;

/// A warning is repeated only after this time.
const WARNING_REPEAT: Duration = Duration::from_secs(30);
/// How soon a client asks for a token again.
const TOKEN_RETRY: Duration = Duration::from_secs(1);
/// Reasons kept to explain a failure.
const REASONS_MAX: usize = 8;

/// Receives the events of one client.
pub struct Context {
    env: Env,
    /// What the client is for, as a table's name.
    purpose: String,
    tokens: Option<Tokens>,
    /// The consumer group that progress is committed to, if the client does that.
    group: Option<String>,
    given: Mutex<Given>,
    heard: Mutex<Heard>,
}

/// The token that the client has.
#[derive(Default)]
struct Given {
    text: String,
    /// When it gets the next one, on the monotonic clock.
    due: Duration,
}

#[derive(Default)]
struct Heard {
    warned: HashMap<String, Duration>,
    reasons: VecDeque<String>,
    refused: Option<String>,
}

impl Context {
    /// A context for a client that serves `purpose`, and gets its tokens, if it needs any, from
    /// `tokens`.
    pub fn new(env: Env, purpose: &str, tokens: Option<&Tokens>) -> Self {
        let (purpose, tokens) = (purpose.to_owned(), tokens.cloned());
        let (given, heard) = Default::default();
        Self { env, purpose, tokens, group: None, given, heard }
    }

    /// The context of a client that commits progress to `group`.
    pub fn committing_to(self, group: Option<&str>) -> Self {
        Self { group: group.map(str::to_owned), ..self }
    }

    /// `reason`, and what to do about it if the user may not commit to the group.
    fn explained(&self, code: Option<RDKafkaErrorCode>, reason: &str) -> String {
        match (&self.group, code) {
            (Some(group), Some(RDKafkaErrorCode::GroupAuthorizationFailed)) => format!(
                "Kafka: {}. Progress is not shown in the consumer group '{group}': give the user \
                 the right Read on it, if somebody looks at its lag",
                reason.trim_end_matches('.')
            ),
            _ => format!("Kafka: {reason}"),
        }
    }

    /// Gives the client its token, if the last one has become old. Blocks while somebody is asked
    /// for one.
    pub fn renew_token<C: ClientContext>(&self, client: &Client<C>) {
        let Some(tokens) = &self.tokens else { return };
        let mut given = self.given.lock();
        if self.env.monotonic() < given.due {
            return;
        }
        let token = tokens.token(&self.env);
        let token = token.map_err(|error| (error.kind() == Kind::Retry, error.to_string()));
        let token = token.and_then(|token| {
            // Each token makes the client log in again.
            if token.text != given.text {
                let set = set_token(client, &token, tokens.extensions());
                set.map_err(|problem| (false, problem))?;
                given.text.clone_from(&token.text);
            }
            Ok(token)
        });
        let soon = self.env.monotonic() + TOKEN_RETRY;
        given.due = match token {
            Ok(token) => token.renewed_at.max(soon),
            // Who gives tokens may be back in a moment: nobody has refused anything.
            Err((true, problem)) => {
                self.heard.lock().note(&problem);
                self.warn_now_and_then("token", &problem);
                soon
            }
            Err((false, problem)) => {
                set_no_token(client, &problem);
                soon
            }
        };
    }

    /// The latest distinct reasons for errors, oldest first.
    pub fn reasons(&self) -> Vec<String> {
        self.heard.lock().reasons.iter().cloned().collect()
    }

    /// Why the brokers do not let this client in, if they said so after they last let it in:
    /// waiting will not help.
    pub fn refused(&self) -> Option<String> {
        self.heard.lock().refused.clone()
    }

    /// Notes that the brokers answered, so that an earlier refusal no longer counts.
    pub fn let_in(&self) {
        self.heard.lock().refused = None;
    }

    /// Warns, unless the same kind of warning was given a short while ago.
    pub fn warn_now_and_then(&self, kind: &str, message: &str) {
        let now = self.env.monotonic();
        let mut heard = self.heard.lock();
        if heard.warned.get(kind).is_some_and(|last| now < *last + WARNING_REPEAT) {
            return;
        }
        heard.warned.insert(kind.to_owned(), now);
        drop(heard);
        tracing::warn!(client = %self.purpose, "{message}");
    }
}

impl Heard {
    fn note(&mut self, reason: &str) {
        // The rest of the text has times and counts, which differ from attempt to attempt.
        let reason = reason.split(" (after ").next().unwrap_or(reason);
        if self.reasons.iter().any(|known| known == reason) {
            return;
        }
        if self.reasons.len() == REASONS_MAX {
            self.reasons.pop_front();
        }
        self.reasons.push_back(reason.to_owned());
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(&self.purpose, level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        // AllBrokersDown follows from the errors reported for each broker; the end of a partition
        // is no error.
        let is_news = !matches!(
            code,
            Some(RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::PartitionEOF)
        );
        if !is_news || matches!(error, KafkaError::PartitionEOF(_)) {
            return;
        }
        {
            let mut heard = self.heard.lock();
            heard.note(reason);
            if code.is_some_and(is_refusal) {
                heard.refused = Some(reason.to_owned());
            }
        }
        self.warn_now_and_then(&format!("{code:?}"), &self.explained(code, reason));
    }
}

// A commit that fails is in librdkafka's log; its callback for commits is never called, since the
// binding asks for events instead, and those are only made where a callback is set.
impl ConsumerContext for Context {}

/// True if the brokers do not let the client in: settings are wrong, waiting will not help.
pub fn is_refusal(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::UnsupportedSASLMechanism
            | RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::SSL
    )
}

/// The level of detail to ask of librdkafka, from what `tracing` would show.
pub fn log_level() -> RDKafkaLogLevel {
    if tracing::enabled!(target: "librdkafka", tracing::Level::DEBUG) {
        RDKafkaLogLevel::Debug
    } else {
        RDKafkaLogLevel::Warning
    }
}

/// Passes one of librdkafka's log lines on.
pub fn log(purpose: &str, level: RDKafkaLogLevel, facility: &str, message: &str) {
    let severe = matches!(
        level,
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical
    );
    // A failed connection is logged at each attempt and also reported as an error, once. A setting
    // of the other kind of client is harmless: one set of options serves several clients.
    let repeats_itself =
        matches!(facility, "FAIL" | "ERROR" | "REQTMOUT" | "TERMINATE" | "CONFWARN" | "COMMITFAIL");
    if severe {
        tracing::error!(target: "librdkafka", client = purpose, facility, "{message}");
    } else if repeats_itself || (level as i32) > (RDKafkaLogLevel::Warning as i32) {
        tracing::debug!(target: "librdkafka", client = purpose, facility, "{message}");
    } else {
        tracing::warn!(target: "librdkafka", client = purpose, facility, "{message}");
    }
}
