//! An Avro schema as a graph of types.
//!
//! Named types may refer to themselves, so a schema is no tree: its types lie in one vector and
//! refer to each other by index. What walks along the references must limit its depth itself.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

/// A parsed Avro schema. Cheap to clone.
#[derive(Clone)]
pub struct Schema {
    graph: Arc<Graph>,
}

pub(super) struct Graph {
    pub types: Vec<Type>,
    pub root: TypeId,
    pub text: String,
}

/// Where a type lies in its schema's graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TypeId(pub u32);

pub(super) struct Type {
    pub kind: Kind,
    pub logical: Option<Logical>,
    /// A logical type of time that no column type has. Such a value is read as the number that it
    /// is, but a time is not written into it, as its unit is another one.
    pub other_time: Option<OtherTime>,
}

/// A logical type of time that is not among [`Logical`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherTime {
    pub name: &'static str,
    /// What its number counts.
    pub counts: &'static str,
}

pub(super) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(Named, usize),
    Enum(Enum),
    Array(TypeId),
    Map(TypeId),
    Union(Vec<TypeId>),
    Record(Record),
}

/// The names of a record, an enum or a fixed, in full: with the namespace, if there is one.
pub(super) struct Named {
    pub name: String,
    pub aliases: Vec<String>,
}

pub(super) struct Enum {
    pub named: Named,
    pub symbols: Vec<String>,
    pub default: Option<String>,
}

pub(super) struct Record {
    pub named: Named,
    pub fields: Vec<Field>,
}

pub(super) struct Field {
    pub name: String,
    pub aliases: Vec<String>,
    /// As it is written in the schema. Whether it is a value of the type shows when it is needed:
    /// like Spark, which lets schemas through whose defaults are wrong but unused.
    pub default: Option<Value>,
    pub id: TypeId,
}

/// The logical types that change what a value becomes. All others are ignored when records are
/// read, as the specification wants it (section "Logical Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logical {
    Decimal { precision: usize, scale: usize },
    Date,
    TimestampMillis,
    TimestampMicros,
    LocalTimestampMillis,
    LocalTimestampMicros,
}

impl Logical {
    /// Microseconds in a unit, and whether it is a time without a zone.
    pub fn timestamp(self) -> Option<(i64, bool)> {
        match self {
            Self::TimestampMillis => Some((1000, false)),
            Self::TimestampMicros => Some((1, false)),
            Self::LocalTimestampMillis => Some((1000, true)),
            Self::LocalTimestampMicros => Some((1, true)),
            Self::Decimal { .. } | Self::Date => None,
        }
    }
}

impl Schema {
    pub(super) fn new(graph: Graph) -> Self {
        Self { graph: Arc::new(graph) }
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.graph.text
    }

    /// The names of the fields of a record that the schema is, also where it may be null. None if
    /// it is another type.
    pub fn field_names(&self) -> Vec<&str> {
        let kind = |id: TypeId| &self.get(id).kind;
        let of_union = match kind(self.root()) {
            Kind::Union(branches) => branches.as_slice(),
            _ => &[],
        };
        let all = std::iter::once(self.root()).chain(of_union.iter().copied());
        let records = all.filter_map(|id| match kind(id) {
            Kind::Record(record) => Some(record),
            _ => None,
        });
        records.flat_map(|record| &record.fields).map(|field| field.name.as_str()).collect()
    }

    pub(super) fn root(&self) -> TypeId {
        self.graph.root
    }

    pub(super) fn types(&self) -> &[Type] {
        &self.graph.types
    }

    pub(super) fn get(&self, id: TypeId) -> &Type {
        &self.graph.types[id.0 as usize]
    }

    /// The type in words, for messages.
    pub(super) fn describe(&self, id: TypeId) -> String {
        let of = self.get(id);
        let base = match &of.kind {
            Kind::Fixed(named, size) => return format!("fixed {} of {size} bytes", named.name),
            Kind::Enum(of) => return format!("enum {}", of.named.name),
            Kind::Record(of) => return format!("record {}", of.named.name),
            Kind::Union(branches) => {
                let shown = branches.iter().take(8).map(|&id| match &self.get(id).kind {
                    Kind::Union(_) => "union".to_owned(),
                    _ => self.describe(id),
                });
                return format!("union [{}]", shown.collect::<Vec<_>>().join(", "));
            }
            kind => kind.word(),
        };
        match of.logical {
            Some(Logical::Decimal { precision, scale }) => {
                format!("{base} (decimal({precision},{scale}))")
            }
            Some(Logical::Date) => format!("{base} (date)"),
            Some(Logical::TimestampMillis) => format!("{base} (timestamp-millis)"),
            Some(Logical::TimestampMicros) => format!("{base} (timestamp-micros)"),
            Some(Logical::LocalTimestampMillis) => format!("{base} (local-timestamp-millis)"),
            Some(Logical::LocalTimestampMicros) => format!("{base} (local-timestamp-micros)"),
            None => match of.other_time {
                Some(time) => format!("{base} ({})", time.name),
                None => base.to_owned(),
            },
        }
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.graph.text).finish()
    }
}

impl Kind {
    /// The word that schemas have for it; types with a name are known by that instead.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Union(_) => "union",
            Self::Fixed(..) => "fixed",
            Self::Enum(_) => "enum",
            Self::Record(_) => "record",
        }
    }

    pub fn named(&self) -> Option<&Named> {
        match self {
            Self::Fixed(named, _) => Some(named),
            Self::Enum(of) => Some(&of.named),
            Self::Record(of) => Some(&of.named),
            _ => None,
        }
    }
}

impl Named {
    /// The name without its namespace.
    pub fn short(&self) -> &str {
        short(&self.name)
    }

    /// True if a type with these names, the reader's, may read one that was written as `written`:
    /// by the unqualified name or an alias (section "Schema Resolution").
    pub fn reads(&self, written: &Self) -> bool {
        self.short() == written.short()
            || self.aliases.iter().any(|alias| short(alias) == written.short())
    }
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// A schema that cannot be parsed, or that has no columns.
#[derive(Debug, Error)]
#[error("Avro schema, at {place}: {problem}")]
pub struct SchemaError {
    /// Where, as a path into the JSON text: `$.fields[2].type`. Within a reference it begins with
    /// the reference's number, counted from 1.
    pub place: String,
    /// What is wrong there.
    pub problem: SchemaProblem,
}

/// What is wrong with a schema.
#[derive(Debug, Error)]
pub enum SchemaProblem {
    /// The text is no JSON.
    #[error("not JSON: {0}")]
    Json(serde_json::Error),
    /// A JSON value that is no schema.
    #[error("a schema is a string, an object or an array, not {0}")]
    NotASchema(String),
    /// A member that must be there is missing or of another type.
    #[error("`{member}` must be {expected}")]
    Member {
        /// The member's name.
        member: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// A name that the specification does not allow.
    #[error("`{0}` is no Avro name: letters, digits and `_`, not beginning with a digit")]
    Name(String),
    /// A named type is defined a second time.
    #[error("type `{0}` is defined twice")]
    Duplicate(String),
    /// A name that nothing defines.
    #[error("type `{0}` is not defined, neither here nor in a reference")]
    Unknown(String),
    /// Two fields of a record, or two symbols of an enum, have the same name.
    #[error("`{0}` occurs twice")]
    Repeated(String),
    /// A union right in a union.
    #[error("a union may not contain another union directly")]
    NestedUnion,
    /// Two branches of a union that a reader could not tell apart.
    #[error("a union may not contain {0} twice")]
    SameBranch(String),
    /// A fixed's size.
    #[error("a fixed has a size from 0 to 2147483647 bytes")]
    Size,
    /// An enum's default is none of its symbols.
    #[error("default `{0}` is no symbol of the enum")]
    EnumDefault(String),
    /// A type within itself, which would need columns without end.
    #[error(
        "type `{0}` is recursive, which no column type can be; set the option \
         recursiveFieldMaxDepth to 1 - 15, or declare the columns"
    )]
    Recursive(String),
    /// The option `recursiveFieldMaxDepth` is above Spark's limit.
    #[error("recursiveFieldMaxDepth is {0}, the limit is 15")]
    RecursionLimit(usize),
    /// A decimal that no column can hold.
    #[error("a decimal of precision {0} does not fit into DECIMAL, whose precision ends at 38")]
    DecimalPrecision(usize),
    /// A type that has no values but null, so that there is no column type for it.
    #[error("type null has no column type; declare the columns, or make it a union with a type")]
    Null,
    /// Types nested deeper than anyone means to.
    #[error("types are nested more than {0} levels deep")]
    TooDeep(usize),
    /// Types used so often that the columns become too many.
    #[error("the schema expands to more than {0} columns and parts of columns")]
    TooLarge(usize),
    /// A column type that Avro has nothing for.
    #[error("{0} has no Avro type")]
    NoAvroType(String),
}

impl SchemaProblem {
    pub(super) fn at(self, place: impl Into<String>) -> SchemaError {
        SchemaError { place: place.into(), problem: self }
    }
}
