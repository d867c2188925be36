//! What an answer means.
//!
//! | answer | meaning |
//! |---|---|
//! | 2xx | what was asked for, if it is JSON of the expected form |
//! | 404 with 40401, 40402, 40403 | there is no such subject, version, schema |
//! | 401, 403, 407 | who asks is refused |
//! | 409 | the schema is incompatible |
//! | 400, 422 with a code of the protocol | the schema or the subject is invalid |
//! | 408, 425, 429, 5xx | later, not before `Retry-After` |
//! | all else | this is no registry |
//!
//! Text of a server is shortened and redacted before it is in a message.

use millstream_store::secrets;
use reqwest::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ask::{Ask, Place, version_name};
use crate::error::RegistryError;
use crate::server::{Missed, Reply, Server};

/// So much of what came is in a message, where it is not for people.
const EXCERPT_CHARS: usize = 200;
/// And where it is: reasons of incompatibility have the old schema in them.
const MESSAGE_CHARS: usize = 2_000;
/// So much of an answer is looked at for an excerpt.
const LOOKED_AT_BYTES: usize = 16 << 10;

/// A schema, as a registry gives it.
#[derive(Deserialize)]
pub(crate) struct SchemaAnswer {
    pub(crate) schema: String,
    #[serde(rename = "schemaType")]
    pub(crate) kind: Option<String>,
    pub(crate) references: Option<Vec<LinkAnswer>>,
    pub(crate) id: Option<u32>,
    pub(crate) version: Option<u32>,
}

/// A reference, as a registry gives it.
#[derive(Deserialize)]
pub(crate) struct LinkAnswer {
    pub(crate) name: String,
    pub(crate) subject: String,
    /// -1 is the latest one.
    pub(crate) version: i64,
}

/// The id of a schema.
#[derive(Deserialize)]
pub(crate) struct IdAnswer {
    pub(crate) id: u32,
}

/// Whether a schema is compatible.
#[derive(Deserialize)]
pub(crate) struct CompatibleAnswer {
    pub(crate) is_compatible: bool,
    #[serde(default)]
    pub(crate) messages: Messages,
}

/// Reasons, as several texts or one.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Messages {
    Several(Vec<String>),
    One(String),
    None(()),
}

impl Default for Messages {
    fn default() -> Self {
        Self::None(())
    }
}

impl Messages {
    pub(crate) fn list(self) -> Vec<String> {
        match self {
            Self::Several(messages) => messages.iter().map(|it| message(it)).collect(),
            Self::One(text) => vec![message(&text)],
            Self::None(()) => Vec::new(),
        }
    }
}

/// What a registry says when it gives nothing.
#[derive(Deserialize)]
struct Refusal {
    error_code: i64,
    #[serde(default)]
    message: Option<String>,
}

/// What `ask` was asked for, out of `reply`.
pub(crate) fn judge<T: DeserializeOwned>(
    server: &Server,
    ask: &Ask<'_>,
    reply: &Reply,
) -> Result<T, Missed> {
    let status = reply.status;
    if status.is_success() {
        return serde_json::from_slice(&reply.body).map_err(|error| {
            // Its text has some of the answer in it.
            let problem = message(&error.to_string());
            let found = format!("{problem}, in '{}'", excerpt(&reply.body));
            Missed::Final(server.not_a_registry(found))
        });
    }
    let refusal: Option<Refusal> = serde_json::from_slice(&reply.body).ok();
    let said = match refusal.as_ref().and_then(|refusal| refusal.message.as_deref()) {
        Some(text) => message(text),
        None => excerpt(&reply.body),
    };
    let code = refusal.map(|refusal| refusal.error_code);
    let is_unknown_format = matches!(ask, Ask::Schema { serialized: true, .. })
        && matches!(status, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::NOT_IMPLEMENTED);
    match (status.as_u16(), code) {
        (401 | 403 | 407, _) => Err(Missed::Final(RegistryError::Refused {
            url: server.url().to_owned(),
            who: server.who().to_owned(),
            status: status.as_u16(),
            said,
        })),
        // Redpanda says 501 where it does not know the format, Karapace 500 where the schema has
        // references.
        (408 | 425 | 429 | 500.., _) if !is_unknown_format => {
            let problem = described(status, &said);
            Err(Missed::Away { problem, retry_after: reply.retry_after })
        }
        (404, Some(40_401..=40_409)) => Err(Missed::Final(missing(ask, code))),
        (409, _) if ask.subject().is_some() => Err(Missed::Final(RegistryError::Incompatible {
            subject: ask.subject().unwrap_or_default().to_owned(),
            messages: vec![said],
        })),
        (400 | 422, Some(_)) => {
            Err(Missed::Final(RegistryError::Invalid { what: ask.what(), said }))
        }
        _ => {
            let found = format!("its answer is {}", described(status, &said));
            Err(Missed::Final(server.not_a_registry(found)))
        }
    }
}

/// What is missing. The codes say subject, version or schema, but not all registries mean it.
fn missing(ask: &Ask<'_>, code: Option<i64>) -> RegistryError {
    match ask {
        Ask::Schema { place: Place::Id(id), .. } => RegistryError::NoSuchSchema { id: *id },
        Ask::Schema {
            place: Place::Version { subject, version } | Place::Reference { subject, version },
            ..
        } if !matches!(code, Some(40_401 | 40_404)) => RegistryError::NoSuchVersion {
            subject: (*subject).to_owned(),
            version: version_name(*version),
        },
        _ => RegistryError::NoSuchSubject { subject: ask.subject().unwrap_or_default().to_owned() },
    }
}

fn described(status: StatusCode, said: &str) -> String {
    let reason = status.canonical_reason().map_or(String::new(), |reason| format!(" {reason}"));
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    format!("{}{reason}{said}", status.as_u16())
}

/// The beginning of what came.
fn excerpt(body: &[u8]) -> String {
    let begin = &body[..body.len().min(LOOKED_AT_BYTES)];
    shortened(&String::from_utf8_lossy(begin), EXCERPT_CHARS)
}

/// What a registry says to people.
fn message(text: &str) -> String {
    shortened(text, MESSAGE_CHARS)
}

fn shortened(text: &str, chars_max: usize) -> String {
    // Redacted first: half of a secret would not be found.
    let text = secrets::redacted(text);
    let words = text.split(|char: char| char.is_control() || char.is_whitespace());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let text = words.join(" ");
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        // It becomes part of a sentence.
        None => text.trim_end_matches('.').to_owned(),
    }
}
