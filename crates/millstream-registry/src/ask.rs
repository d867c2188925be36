//! What a registry can be asked: the paths and bodies of Confluent's protocol.

use reqwest::Method;
use serde_json::json;

use crate::error::RegistryError;
use crate::schema::{Draft, SchemaKind};

/// Where a schema stands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// Under an id.
    Id(u32),
    /// Under a subject; `None` is the latest version.
    Version { subject: &'a str, version: Option<u32> },
    /// Where another schema refers to. It may have been deleted since, unless for good.
    Reference { subject: &'a str, version: Option<u32> },
}

/// One question.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask<'a> {
    /// A schema. `serialized` asks for a Protobuf one as a descriptor; a registry that does not
    /// know that gives text, or an error.
    Schema { place: Place<'a>, serialized: bool },
    /// The id under which a schema is registered.
    Lookup { subject: &'a str, draft: &'a Draft<'a> },
    /// To register a schema, unless it is.
    Register { subject: &'a str, draft: &'a Draft<'a> },
    /// Whether a schema could be registered.
    Compatible { subject: &'a str, draft: &'a Draft<'a> },
}

impl<'a> Ask<'a> {
    pub(crate) fn method(&self) -> Method {
        match self {
            Self::Schema { .. } => Method::GET,
            _ => Method::POST,
        }
    }

    /// The path below the registry's URL, and the query.
    ///
    /// # Errors
    /// `Invalid`: no path stands for the subject.
    pub(crate) fn path(&self) -> Result<String, RegistryError> {
        let path = match self {
            Self::Schema { place, serialized } => {
                let mut path = match place {
                    Place::Id(id) => format!("/schemas/ids/{id}"),
                    Place::Version { subject, version } | Place::Reference { subject, version } => {
                        let subject = segment(subject)?;
                        format!("/subjects/{subject}/versions/{}", version_name(*version))
                    }
                };
                let is_reference = matches!(place, Place::Reference { .. });
                let queries = [(is_reference, "deleted=true"), (*serialized, "format=serialized")];
                for (index, (_, query)) in queries.iter().filter(|(used, _)| *used).enumerate() {
                    path.push(if index == 0 { '?' } else { '&' });
                    path.push_str(query);
                }
                path
            }
            Self::Lookup { subject, .. } => format!("/subjects/{}", segment(subject)?),
            Self::Register { subject, .. } => format!("/subjects/{}/versions", segment(subject)?),
            Self::Compatible { subject, .. } => {
                let subject = segment(subject)?;
                format!("/compatibility/subjects/{subject}/versions/latest?verbose=true")
            }
        };
        Ok(path)
    }

    /// What is sent, as JSON.
    pub(crate) fn body(&self) -> Option<String> {
        let draft = self.draft()?;
        let mut body = json!({"schema": draft.text});
        // Registries from before there were other kinds do not know the names.
        if draft.kind != SchemaKind::Avro {
            body["schemaType"] = json!(draft.kind.name());
        }
        if !draft.references.is_empty() {
            let references = draft.references.iter().map(
                |link| json!({"name": link.name, "subject": link.subject, "version": link.version}),
            );
            body["references"] = references.collect();
        }
        Some(body.to_string())
    }

    fn draft(&self) -> Option<&'a Draft<'a>> {
        match self {
            Self::Schema { .. } => None,
            Self::Lookup { draft, .. }
            | Self::Register { draft, .. }
            | Self::Compatible { draft, .. } => Some(draft),
        }
    }

    /// The subject, if it is about one.
    pub(crate) fn subject(&self) -> Option<&'a str> {
        match self {
            Self::Schema { place: Place::Id(_), .. } => None,
            Self::Schema {
                place: Place::Version { subject, .. } | Place::Reference { subject, .. },
                ..
            }
            | Self::Lookup { subject, .. }
            | Self::Register { subject, .. }
            | Self::Compatible { subject, .. } => Some(subject),
        }
    }

    /// What it is about, for messages.
    pub(crate) fn what(&self) -> String {
        match self {
            Self::Schema { place, .. } => place.to_string(),
            Self::Lookup { subject, draft }
            | Self::Register { subject, draft }
            | Self::Compatible { subject, draft } => {
                format!("the {} schema for the subject '{subject}'", draft.kind)
            }
        }
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "schema {id}"),
            Self::Version { subject, version } | Self::Reference { subject, version } => {
                write!(f, "version {} of the subject '{subject}'", version_name(*version))
            }
        }
    }
}

/// A version as it stands in paths and messages.
pub(crate) fn version_name(version: Option<u32>) -> String {
    version.map_or("latest".to_owned(), |version| version.to_string())
}

/// A subject as a segment of a path (RFC 3986, section 3.3): what is not unreserved is
/// percent-encoded, as all the rest means something to one server or another.
///
/// # Errors
/// `Invalid`: it is one of the names that mean a place in every path.
fn segment(subject: &str) -> Result<String, RegistryError> {
    if matches!(subject, "" | "." | "..") {
        let what = format!("the subject '{subject}'");
        return Err(RegistryError::Invalid { what, said: "it cannot be in a URL".to_owned() });
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded = subject.bytes().map(|byte| {
        if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    Ok(encoded.collect())
}
