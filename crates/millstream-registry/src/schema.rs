//! Schemas as a registry has them, and as they are given to it.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Base64 as encoders write it, with or without `=` at the end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The wire type of Protobuf's fields that begin with their length.
const LENGTH_DELIMITED: u8 = 2;

/// The language of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchemaKind {
    /// Apache Avro: JSON as its specification says.
    Avro,
    /// Protocol Buffers: a file of messages.
    Protobuf,
    /// JSON Schema.
    Json,
}

impl SchemaKind {
    /// Its name in the protocol. Registries leave out Avro's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avro => "AVRO",
            Self::Protobuf => "PROTOBUF",
            Self::Json => "JSON",
        }
    }

    /// The kind of this name; Avro where there is none.
    pub(crate) fn named(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("" | "AVRO") => Some(Self::Avro),
            Some("PROTOBUF") => Some(Self::Protobuf),
            Some("JSON") => Some(Self::Json),
            Some(_) => None,
        }
    }
}

impl fmt::Display for SchemaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A schema's own text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Text: JSON of Avro and JSON Schema, or a `.proto` file.
    Text(String),
    /// An encoded `google.protobuf.FileDescriptorProto`; its name need not be the one under which
    /// others import it.
    Descriptor(Vec<u8>),
}

impl Body {
    /// What `text` of a registry is. A descriptor is base64, which a `.proto` file is not: it has
    /// spaces and semicolons. And it begins with a field that has a length, as its name or package.
    pub(crate) fn new(kind: SchemaKind, text: String) -> Self {
        if kind == SchemaKind::Protobuf
            && let Ok(bytes) = BASE64.decode(text.trim())
            && bytes.first().is_some_and(|tag| tag & 0b111 == LENGTH_DELIMITED)
        {
            return Self::Descriptor(bytes);
        }
        Self::Text(text)
    }

    /// Its size, bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Descriptor(bytes) => bytes.len(),
        }
    }
}

/// A schema that another one is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// What the other calls it: a full name of Avro, the path of an import of Protobuf, a URL of
    /// JSON Schema.
    pub name: String,
    /// The subject it is registered under.
    pub subject: String,
    /// The version there.
    pub version: u32,
    /// The schema itself.
    pub body: Body,
}

/// A schema of the registry, with all that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its id.
    pub id: u32,
    /// Its language, which is that of its references too.
    pub kind: SchemaKind,
    /// The schema itself.
    pub body: Body,
    /// The schemas it is made with, and those that they are, each once and after those that it
    /// needs itself. Files that belong to Protobuf, as `google/protobuf/timestamp.proto`, are not
    /// among them.
    pub references: Vec<Reference>,
}

impl Registered {
    /// The size of all texts, bytes.
    pub(crate) fn len(&self) -> usize {
        let references = self.references.iter();
        let of = |it: &Reference| it.body.len() + it.name.len() + it.subject.len();
        self.body.len() + references.map(of).sum::<usize>()
    }
}

/// Which schema a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The name, as in [`Reference::name`].
    pub name: String,
    /// The subject.
    pub subject: String,
    /// The version there.
    pub version: u32,
}

/// A schema that is to be registered or looked up.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// Its language.
    pub kind: SchemaKind,
    /// Its text; of Protobuf a `.proto` file, or a `FileDescriptorProto` in base64.
    pub text: &'a str,
    /// The schemas that it names itself; those that these name are not listed again.
    pub references: &'a [Link],
}
