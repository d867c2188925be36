//! Schemas as decoders need them, from texts of options and from registries.

use arrow::datatypes::Schema;
use millstream_records::{avro, protobuf};
use millstream_registry::{self as registry, Body, Registered};

use super::SchemaKind;

/// Levels of a recursive schema that become columns; none, as in Spark.
const RECURSION: usize = 0;

/// A schema that was understood.
#[derive(Clone, Debug)]
pub(super) enum Parsed {
    Avro(avro::Schema),
    Protobuf(protobuf::Schema),
}

impl Parsed {
    /// From a text, or the bytes of a set of descriptors; `message` is the one of Protobuf.
    pub fn from_bytes(
        kind: SchemaKind,
        bytes: &[u8],
        message: Option<&str>,
    ) -> Result<Self, String> {
        match (kind, std::str::from_utf8(bytes)) {
            (SchemaKind::Avro, Ok(text)) => {
                avro::Schema::parse(text, &[]).map(Self::Avro).map_err(|error| error.to_string())
            }
            (SchemaKind::Protobuf, Ok(text)) if text.contains("message") => {
                let schema = protobuf::Schema::from_text(text, &[], message);
                schema.map(Self::Protobuf).map_err(|error| error.to_string())
            }
            (SchemaKind::Protobuf, _) => {
                let schema = protobuf::Schema::from_descriptor_set(bytes, message);
                schema.map(Self::Protobuf).map_err(|error| error.to_string())
            }
            (SchemaKind::Avro, Err(_)) => Err("it is not UTF-8".to_owned()),
            (SchemaKind::Json, _) => Err("columns are not derived from a JSON Schema".to_owned()),
        }
    }

    /// From what a registry has.
    pub fn of(
        kind: SchemaKind,
        registered: &Registered,
        message: Option<&str>,
    ) -> Result<Self, String> {
        let expected = match kind {
            SchemaKind::Avro => registry::SchemaKind::Avro,
            SchemaKind::Protobuf => registry::SchemaKind::Protobuf,
            SchemaKind::Json => registry::SchemaKind::Json,
        };
        if registered.kind != expected {
            return Err(format!(
                "it is one of {}, and the format of the table is '{}'",
                registered.kind,
                kind.name()
            ));
        }
        match (kind, &registered.body) {
            (SchemaKind::Avro, Body::Text(text)) => {
                let references: Vec<&str> =
                    registered.references.iter().filter_map(|it| text_of(&it.body)).collect();
                let schema = avro::Schema::parse(text, &references);
                schema.map(Self::Avro).map_err(|error| error.to_string())
            }
            (SchemaKind::Protobuf, Body::Text(text)) => {
                let references = registered.references.iter();
                let references: Vec<(&str, &str)> = references
                    .filter_map(|it| Some((it.name.as_str(), text_of(&it.body)?)))
                    .collect();
                if references.len() < registered.references.len() {
                    return Err("it is a text, and imports encoded descriptors".to_owned());
                }
                let schema = protobuf::Schema::from_text(text, &references, message);
                schema.map(Self::Protobuf).map_err(|error| error.to_string())
            }
            (SchemaKind::Protobuf, Body::Descriptor(bytes)) => {
                let references: Vec<&[u8]> =
                    registered.references.iter().filter_map(|it| bytes_of(&it.body)).collect();
                let schema = protobuf::Schema::from_file_descriptor(bytes, &references, message);
                schema.map(Self::Protobuf).map_err(|error| error.to_string())
            }
            _ => Err("it is in no form that is known".to_owned()),
        }
    }

    /// The columns that records have, by Spark's rules.
    pub fn columns(&self, options: &protobuf::Options) -> Result<Schema, String> {
        match self {
            Self::Avro(schema) => schema.columns(RECURSION).map_err(|error| error.to_string()),
            Self::Protobuf(schema) => schema.columns(options).map_err(|error| error.to_string()),
        }
    }

    /// The names of the fields that a record has.
    pub fn field_names(&self) -> Vec<String> {
        match self {
            Self::Avro(schema) => schema.field_names().into_iter().map(str::to_owned).collect(),
            Self::Protobuf(schema) => {
                schema.descriptor().fields().map(|field| field.name().to_owned()).collect()
            }
        }
    }

    /// What a plan reads records as, where this is the reader's schema.
    pub fn as_target(&self) -> avro::Target<'_> {
        match self {
            Self::Avro(schema) => avro::Target::Reader { schema, recursion: RECURSION },
            Self::Protobuf(_) => avro::Target::Declared,
        }
    }
}

impl Parsed {
    /// The schema of the message that `path` leads to; of Avro there is one.
    pub fn at(self, path: &[i32]) -> Result<Self, String> {
        match self {
            Self::Avro(schema) => Ok(Self::Avro(schema)),
            Self::Protobuf(schema) => {
                schema.with_index(path).map(Self::Protobuf).map_err(|error| error.to_string())
            }
        }
    }
}

fn bytes_of(body: &Body) -> Option<&[u8]> {
    match body {
        Body::Descriptor(bytes) => Some(bytes),
        Body::Text(_) => None,
    }
}

fn text_of(body: &Body) -> Option<&str> {
    match body {
        Body::Text(text) => Some(text),
        Body::Descriptor(_) => None,
    }
}
