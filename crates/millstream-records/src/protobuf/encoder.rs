//! What becomes of each column when rows are encoded, decided once per schema.

use std::collections::HashMap;

use arrow::datatypes::{DataType, FieldRef, Schema as Columns, TimeUnit};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::mapping::{declared_fields, time_numbers, wrapped};
use super::names::proto_type;
use super::pairing::{field_named, is_too_deep, struct_fields};
use super::planned::Number;
use super::schema::Schema;
use super::wire::{self, DELIMITED, END_GROUP, FIXED32, FIXED64, MAX_DEPTH, START_GROUP, VARINT};
use crate::types::spark_type;

/// Encodes rows as records of a message.
pub struct Encoder {
    pub(super) root: Message,
}

/// Columns that do not fit a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncoderError {
    /// A column without a field.
    #[error("the message {message} has no field for the column {column}; it has {fields:?}")]
    NoField {
        /// The column, with those around it.
        column: String,
        /// The message's full name.
        message: String,
        /// The fields it has.
        fields: Vec<String>,
    },
    /// Several fields whose names differ in case only.
    #[error(
        "the column {column} can be any of the fields {fields:?} of {message}: name it like one \
         of them, in the same case"
    )]
    Ambiguous {
        /// The column, with those around it.
        column: String,
        /// The message's full name.
        message: String,
        /// The fields' names.
        fields: Vec<String>,
    },
    /// Two columns for one field.
    #[error("two columns, {column} being the second, would be the field {field}")]
    Twice {
        /// The column, with those around it.
        column: String,
        /// The field's full name.
        field: String,
    },
    /// A required field without a column.
    #[error("no column is called {field} in {message}, which requires this field")]
    Required {
        /// The field's name.
        field: String,
        /// The message's full name.
        message: String,
    },
    /// Types without a conversion.
    #[error(
        "the column {column} of the type {column_type} cannot become the field {field} of the \
         type {field_type}: convert the column to {remedy} in the query"
    )]
    Type {
        /// The column, with those around it.
        column: String,
        /// Its type in Spark's terms.
        column_type: String,
        /// The field's full name.
        field: String,
        /// Its type in Protobuf's terms.
        field_type: String,
        /// The type that it could be.
        remedy: String,
    },
    /// Columns nested too deep.
    #[error("the column {column} is nested deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// The column, with those around it.
        column: String,
    },
}

impl Encoder {
    /// Pairs columns with the fields of the schema's message, by name.
    ///
    /// # Errors
    /// When a column has no field that can take it, or a required field has no column.
    pub fn new(schema: &Schema, columns: &Columns) -> Result<Self, EncoderError> {
        Self::linked(schema, columns, false)
    }

    /// As [`new`](Self::new), for readers that are not Spark: what it writes as another value is
    /// an error. That is a null for a field that has none, in an array or a map, or for one that
    /// is such; and a negative number for an unsigned field.
    ///
    /// # Errors
    /// As of [`new`](Self::new).
    pub fn exact(schema: &Schema, columns: &Columns) -> Result<Self, EncoderError> {
        Self::linked(schema, columns, true)
    }

    fn linked(schema: &Schema, columns: &Columns, is_exact: bool) -> Result<Self, EncoderError> {
        let mut link = Link { path: Vec::new(), is_exact };
        Ok(Self { root: link.message(schema.descriptor(), columns.fields())? })
    }
}

/// A message type, and the columns that its fields come from.
pub(super) struct Message {
    /// In the order of their numbers.
    pub(super) fields: Vec<Field>,
    /// How many oneofs the fields are members of.
    pub(super) oneofs: usize,
}

/// A field and its column.
pub(super) struct Field {
    pub(super) column: usize,
    pub(super) name: Box<str>,
    /// The tag of a value, and for groups the one after it.
    pub(super) tag: Box<[u8]>,
    pub(super) end: Box<[u8]>,
    pub(super) shape: Shape,
    pub(super) op: Op,
    pub(super) oneof: Option<usize>,
    /// Refuses what would become another value.
    pub(super) is_exact: bool,
}

/// How values make up a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// One value. Absent when null, or when it is the default one.
    Implicit,
    /// One value. Absent when null.
    Single,
    /// One value that must be there.
    Required,
    /// The elements of an array, each with its tag.
    List,
    /// The elements of an array under one tag.
    Packed,
    /// The entries of a map.
    Map,
    /// The key or the value of an entry, of which a null is the default value.
    Entry,
}

/// What a value becomes.
pub(super) enum Op {
    Number(Number),
    Float,
    Double,
    Bool,
    /// Text or bytes.
    Bytes,
    Enum(Box<EnumNumbers>),
    Timestamp {
        seconds: u32,
        nanos: u32,
    },
    Message(Box<Message>),
    Group(Box<Message>),
    /// A message with the value in its only field.
    Wrapped(Box<Field>),
}

/// The numbers of an enum's values.
pub(super) struct EnumNumbers {
    pub(super) name: Box<str>,
    pub(super) numbers: HashMap<Box<str>, i32>,
    pub(super) is_closed: bool,
}

struct Link {
    path: Vec<String>,
    is_exact: bool,
}

impl Link {
    fn message(
        &mut self,
        message: &MessageDescriptor,
        columns: &[FieldRef],
    ) -> Result<Message, EncoderError> {
        let mut found: Vec<(FieldDescriptor, usize)> = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            self.path.push(column.name().clone());
            let field = self.field_of(message, column.name())?;
            if found.iter().any(|(other, _)| *other == field) {
                let (column, field) = (self.column(), field.full_name().to_owned());
                return Err(EncoderError::Twice { column, field });
            }
            found.push((field, index));
            self.path.pop();
        }
        let is_found = |field: &FieldDescriptor| found.iter().any(|(other, _)| other == field);
        if let Some(field) =
            declared_fields(message).find(|field| field.is_required() && !is_found(field))
        {
            let (field, message) = (field.name().to_owned(), message.full_name().to_owned());
            return Err(EncoderError::Required { field, message });
        }
        found.sort_by_key(|(field, _)| field.number());
        let mut oneofs = HashMap::new();
        let mut fields = Vec::with_capacity(found.len());
        for (field, index) in found {
            self.path.push(columns[index].name().clone());
            let mut planned = self.field(&field, index, &columns[index])?;
            if let Some(oneof) = field.containing_oneof().filter(|oneof| !oneof.is_synthetic()) {
                let next = oneofs.len();
                let index = *oneofs.entry(oneof.name().to_owned()).or_insert(next);
                planned.oneof = Some(index);
            }
            fields.push(planned);
            self.path.pop();
        }
        Ok(Message { fields, oneofs: oneofs.len() })
    }

    fn column(&self) -> String {
        self.path.join(".")
    }

    fn field_of(
        &self,
        message: &MessageDescriptor,
        column: &str,
    ) -> Result<FieldDescriptor, EncoderError> {
        if is_too_deep(&self.path) {
            return Err(EncoderError::TooDeep { column: self.column() });
        }
        let name = || message.full_name().to_owned();
        let field = field_named(message, column).map_err(|fields| EncoderError::Ambiguous {
            column: self.column(),
            message: name(),
            fields,
        })?;
        field.ok_or_else(|| EncoderError::NoField {
            column: self.column(),
            message: name(),
            fields: declared_fields(message).map(|field| field.name().to_owned()).collect(),
        })
    }

    fn field(
        &mut self,
        field: &FieldDescriptor,
        index: usize,
        column: &FieldRef,
    ) -> Result<Field, EncoderError> {
        if field.is_map() {
            return self.map(field, index, column);
        }
        let (item, shape) = match column.data_type() {
            DataType::List(item) if field.is_list() && field.is_packed() => (item, Shape::Packed),
            DataType::List(item) if field.is_list() => (item, Shape::List),
            _ if field.is_list() => return Err(self.mismatch(field, column.data_type())),
            _ if field.is_required() => (column, Shape::Required),
            _ if field.supports_presence() => (column, Shape::Single),
            _ => (column, Shape::Implicit),
        };
        let op = self.value(field, item.data_type())?;
        Ok(self.planned(field, index, shape, op))
    }

    fn map(
        &mut self,
        field: &FieldDescriptor,
        index: usize,
        column: &FieldRef,
    ) -> Result<Field, EncoderError> {
        let columns = match column.data_type() {
            DataType::Map(entries, _) => struct_fields(entries),
            _ => None,
        };
        let (Some([key, value]), Kind::Message(entry)) = (columns, field.kind()) else {
            return Err(self.mismatch(field, column.data_type()));
        };
        let mut fields = Vec::new();
        for (at, (number, part)) in [(1, key), (2, value)].into_iter().enumerate() {
            let descriptor = entry.get_field(number).expect("checked when the schema was linked");
            self.path.push(part.name().clone());
            let op = self.value(&descriptor, part.data_type())?;
            fields.push(self.planned(&descriptor, at, Shape::Entry, op));
            self.path.pop();
        }
        let op = Op::Message(Box::new(Message { fields, oneofs: 0 }));
        Ok(self.planned(field, index, Shape::Map, op))
    }

    fn value(&mut self, field: &FieldDescriptor, from: &DataType) -> Result<Op, EncoderError> {
        if let Some(number) = Number::of(&field.kind()) {
            return match takes(number, from) {
                true => Ok(Op::Number(number)),
                false => Err(self.mismatch(field, from)),
            };
        }
        let is_text = matches!(from, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let is_binary =
            matches!(from, DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
        let is_int = matches!(from, DataType::Int8 | DataType::Int16 | DataType::Int32);
        match (field.kind(), from) {
            (Kind::Float, DataType::Float32) => Ok(Op::Float),
            (Kind::Double, DataType::Float32 | DataType::Float64) => Ok(Op::Double),
            (Kind::Bool, DataType::Boolean) => Ok(Op::Bool),
            (Kind::String, _) if is_text => Ok(Op::Bytes),
            (Kind::Bytes, _) if is_binary => Ok(Op::Bytes),
            (Kind::Enum(item), _) if is_text || is_int => {
                let proto = item.enum_descriptor_proto();
                let values = proto.value.iter();
                let is_proto2 = |syntax| syntax == prost_reflect::Syntax::Proto2;
                Ok(Op::Enum(Box::new(EnumNumbers {
                    name: item.full_name().into(),
                    numbers: values.map(|value| (value.name().into(), value.number())).collect(),
                    is_closed: is_proto2(item.parent_file().syntax()),
                })))
            }
            (Kind::Message(message), _) => self.message_value(field, &message, from),
            _ => Err(self.mismatch(field, from)),
        }
    }

    fn message_value(
        &mut self,
        field: &FieldDescriptor,
        message: &MessageDescriptor,
        from: &DataType,
    ) -> Result<Op, EncoderError> {
        let time = time_numbers(message, "Timestamp");
        match (from, time, wrapped(message)) {
            (DataType::Struct(fields), ..) => {
                let message = Box::new(self.message(message, fields)?);
                Ok(if field.is_group() { Op::Group(message) } else { Op::Message(message) })
            }
            (DataType::Timestamp(TimeUnit::Microsecond, Some(_)), Some((seconds, nanos)), _) => {
                Ok(Op::Timestamp { seconds, nanos })
            }
            (_, _, Some(value)) if !field.is_group() => {
                let op = self.value(&value, from)?;
                Ok(Op::Wrapped(Box::new(self.planned(&value, 0, Shape::Implicit, op))))
            }
            _ => Err(self.mismatch(field, from)),
        }
    }

    fn planned(&self, field: &FieldDescriptor, column: usize, shape: Shape, op: Op) -> Field {
        Field { is_exact: self.is_exact, ..planned(field, column, shape, op) }
    }

    fn mismatch(&self, field: &FieldDescriptor, from: &DataType) -> EncoderError {
        let one = match field.kind() {
            Kind::Float => "FLOAT".to_owned(),
            Kind::Double => "DOUBLE".to_owned(),
            Kind::Bool => "BOOLEAN".to_owned(),
            Kind::String | Kind::Enum(_) => "STRING".to_owned(),
            Kind::Bytes => "BINARY".to_owned(),
            Kind::Message(_) if field.is_map() => "a MAP".to_owned(),
            Kind::Message(message) if time_numbers(&message, "Timestamp").is_some() => {
                "TIMESTAMP".to_owned()
            }
            Kind::Message(_) => "a STRUCT".to_owned(),
            other => match Number::of(&other).is_some_and(Number::is_long) {
                true => "BIGINT".to_owned(),
                false => "INT".to_owned(),
            },
        };
        EncoderError::Type {
            column: self.column(),
            column_type: spark_type(from),
            field: field.full_name().to_owned(),
            field_type: proto_type(field),
            remedy: if field.is_list() { format!("ARRAY<{one}>") } else { one },
        }
    }
}

/// True if every value of a type is one of a number's, or is checked to be.
fn takes(number: Number, from: &DataType) -> bool {
    match from {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => true,
        DataType::Date32 => !number.is_long() && !number.is_unsigned(),
        // What uint32 and uint64 are decoded to with `upcast.unsigned.ints`.
        DataType::Int64 => number.is_long() || number.is_unsigned(),
        DataType::Decimal128(_, 0) => number.is_long() && number.is_unsigned(),
        _ => false,
    }
}

fn planned(field: &FieldDescriptor, column: usize, shape: Shape, op: Op) -> Field {
    let wire = match (&op, field.kind()) {
        (Op::Group(_), _) => START_GROUP,
        _ if shape == Shape::Packed => DELIMITED,
        (_, Kind::Double | Kind::Fixed64 | Kind::Sfixed64) => FIXED64,
        (_, Kind::Float | Kind::Fixed32 | Kind::Sfixed32) => FIXED32,
        (_, Kind::String | Kind::Bytes | Kind::Message(_)) => DELIMITED,
        _ => VARINT,
    };
    let bytes = |wire| {
        let mut tag = Vec::new();
        wire::put_tag(field.number(), wire, &mut tag);
        tag.into_boxed_slice()
    };
    let end = if wire == START_GROUP { bytes(END_GROUP) } else { Box::default() };
    let (name, tag) = (field.name().into(), bytes(wire));
    Field { column, name, tag, end, shape, op, oneof: None, is_exact: false }
}
