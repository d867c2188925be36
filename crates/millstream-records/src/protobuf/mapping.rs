//! Which columns a message has, by the rules of Spark's SchemaConverters.
//!
//! The types follow Spark 4 (`org.apache.spark.sql.protobuf.utils.SchemaConverters`) with one
//! exception: a google.protobuf.Duration, there an interval, is `STRUCT<seconds: BIGINT,
//! nanos: INT>`, which keeps all of it and can be calculated with.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema as Columns, TimeUnit};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use super::options::Options;
use super::schema::Schema;
use super::wire::MAX_DEPTH;

/// Fields in all of the columns together. Types that refer to each other can stand for very many
/// columns in few lines.
const MAX_FIELDS: usize = 50_000;

/// The field of a struct that has none of its own.
const DUMMY_FIELD: &str = "__dummy_field_in_empty_struct";

/// A message that has no columns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// A message within itself.
    #[error(
        "the field {field} makes {message} a part of itself, which columns cannot be: set \
         recursive.fields.max.depth to a number from 1 to 10 to leave out what is deeper"
    )]
    Recursion {
        /// The field's full name.
        field: String,
        /// The message's full name.
        message: String,
    },
    /// An Any with `convert.any.fields.to.json`.
    #[error(
        "the field {field} is a google.protobuf.Any, which cannot be converted to JSON: leave out \
         convert.any.fields.to.json for a STRUCT<type_url: STRING, value: BINARY>"
    )]
    AnyToJson {
        /// The field's full name.
        field: String,
    },
    /// Too many fields.
    #[error(
        "the message {message} has more than {limit} fields with those of the messages in it: \
         declare the columns that are wanted, or lower recursive.fields.max.depth"
    )]
    TooManyFields {
        /// The message's full name.
        message: String,
        /// How many there may be.
        limit: usize,
    },
    /// Messages nested too deep.
    #[error("the field {field} is nested deeper than {limit} messages")]
    TooDeep {
        /// The field's full name.
        field: String,
        /// How deep it may be.
        limit: usize,
    },
}

impl Schema {
    /// The columns of the message.
    ///
    /// # Errors
    /// When the message has no columns under these options.
    pub fn columns(&self, options: &Options) -> Result<Columns, MappingError> {
        let message = self.descriptor();
        let mut mapping = Mapping { options, fields: 0, root: message.full_name() };
        let depths = HashMap::from([(message.full_name().to_owned(), 1)]);
        let fields = mapping.message(message, &depths, 0)?;
        Ok(Columns::new(fields.unwrap_or_else(Fields::empty)))
    }
}

/// How often each message is around the current field.
type Depths = HashMap<String, i32>;

struct Mapping<'a> {
    options: &'a Options,
    fields: usize,
    root: &'a str,
}

impl Mapping<'_> {
    /// The fields of a message. None when there are none and it is to be left out.
    fn message(
        &mut self,
        message: &MessageDescriptor,
        depths: &Depths,
        depth: usize,
    ) -> Result<Option<Fields>, MappingError> {
        let mut fields = Vec::new();
        for field in declared_fields(message) {
            fields.extend(self.field(&field, depths, depth)?);
        }
        if fields.is_empty() {
            let keep = self.options.retain_empty_message_types;
            return Ok(keep.then(|| vec![Field::new(DUMMY_FIELD, DataType::Utf8, true)].into()));
        }
        Ok(Some(fields.into()))
    }

    fn field(
        &mut self,
        field: &FieldDescriptor,
        depths: &Depths,
        depth: usize,
    ) -> Result<Option<Field>, MappingError> {
        self.fields += 1;
        if self.fields > MAX_FIELDS {
            let message = self.root.to_owned();
            return Err(MappingError::TooManyFields { message, limit: MAX_FIELDS });
        }
        if depth > MAX_DEPTH {
            let field = field.full_name().to_owned();
            return Err(MappingError::TooDeep { field, limit: MAX_DEPTH });
        }
        if let Kind::Message(entry) = field.kind()
            && field.is_map()
        {
            return self.map(field, &entry, depths, depth);
        }
        let Some(data_type) = self.value(field, depths, depth)? else { return Ok(None) };
        Ok(Some(if field.is_list() {
            let element = Field::new("element", data_type, false);
            Field::new(field.name(), DataType::List(Arc::new(element)), true)
        } else {
            Field::new(field.name(), data_type, !field.is_required())
        }))
    }

    fn map(
        &mut self,
        field: &FieldDescriptor,
        entry: &MessageDescriptor,
        depths: &Depths,
        depth: usize,
    ) -> Result<Option<Field>, MappingError> {
        let mut part = |number| match entry.get_field(number) {
            Some(field) => self.value(&field, depths, depth),
            None => Ok(None),
        };
        let (Some(key), Some(value)) = (part(1)?, part(2)?) else { return Ok(None) };
        let entries = DataType::Struct(
            vec![Field::new("key", key, false), Field::new("value", value, false)].into(),
        );
        let entries = Arc::new(Field::new("entries", entries, false));
        Ok(Some(Field::new(field.name(), DataType::Map(entries, false), true)))
    }

    /// The type of one value of a field.
    fn value(
        &mut self,
        field: &FieldDescriptor,
        depths: &Depths,
        depth: usize,
    ) -> Result<Option<DataType>, MappingError> {
        let Kind::Message(message) = field.kind() else {
            return Ok(Some(self.scalar(&field.kind())));
        };
        let name = message.full_name();
        if time_numbers(&message, "Timestamp").is_some() {
            return Ok(Some(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))));
        }
        if name == "google.protobuf.Any" && self.options.convert_any_fields_to_json {
            return Err(MappingError::AnyToJson { field: field.full_name().to_owned() });
        }
        if self.options.unwrap_primitive_wrapper_types
            && let Some(value) = wrapped(&message)
        {
            return Ok(Some(self.scalar(&value.kind())));
        }
        let around = depths.get(name).copied().unwrap_or(0);
        let limit = self.options.recursive_fields_max_depth;
        if around > 0 && !(1..=10).contains(&limit) {
            let (field, message) = (field.full_name().to_owned(), name.to_owned());
            return Err(MappingError::Recursion { field, message });
        }
        if around > 0 && around >= limit {
            return Ok(None);
        }
        let mut inner = depths.clone();
        inner.insert(name.to_owned(), around + 1);
        Ok(self.message(&message, &inner, depth + 1)?.map(DataType::Struct))
    }

    fn scalar(&self, kind: &Kind) -> DataType {
        match kind {
            Kind::Double => DataType::Float64,
            Kind::Float => DataType::Float32,
            // Spark raises uint32 and uint64 only, not fixed32 and fixed64.
            Kind::Uint32 if self.options.upcast_unsigned_ints => DataType::Int64,
            Kind::Uint64 if self.options.upcast_unsigned_ints => DataType::Decimal128(20, 0),
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 | Kind::Uint32 | Kind::Fixed32 => {
                DataType::Int32
            }
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 | Kind::Uint64 | Kind::Fixed64 => {
                DataType::Int64
            }
            Kind::Bool => DataType::Boolean,
            Kind::Enum(_) if self.options.enums_as_ints => DataType::Int32,
            Kind::String | Kind::Enum(_) => DataType::Utf8,
            Kind::Bytes | Kind::Message(_) => DataType::Binary,
        }
    }
}

/// A message's fields in the order they are declared in, which is that of Spark's columns.
pub(super) fn declared_fields(
    message: &MessageDescriptor,
) -> impl Iterator<Item = FieldDescriptor> + '_ {
    let numbers = message.descriptor_proto().field.iter().map(|field| field.number() as u32);
    numbers.filter_map(|number| message.get_field(number))
}

/// The numbers of the seconds and nanoseconds in a message that Spark takes for a point in time:
/// called Timestamp, in whichever package, with nothing but these two fields.
pub(super) fn time_numbers(message: &MessageDescriptor, name: &str) -> Option<(u32, u32)> {
    let mut fields = declared_fields(message);
    let (seconds, nanos) = (fields.next()?, fields.next()?);
    let is_it = message.name() == name
        && fields.next().is_none()
        && (seconds.name(), nanos.name()) == ("seconds", "nanos")
        && (seconds.kind(), nanos.kind()) == (Kind::Int64, Kind::Int32)
        && ![&seconds, &nanos].iter().any(|field| field.is_list());
    is_it.then(|| (seconds.number(), nanos.number()))
}

/// The field in a google.protobuf.Int32Value or its like.
pub(super) fn wrapped(message: &MessageDescriptor) -> Option<FieldDescriptor> {
    let is_wrapper = matches!(
        message.full_name().strip_prefix("google.protobuf.")?,
        "BoolValue"
            | "Int32Value"
            | "UInt32Value"
            | "Int64Value"
            | "UInt64Value"
            | "FloatValue"
            | "DoubleValue"
            | "StringValue"
            | "BytesValue"
    );
    let value = message.get_field(1)?;
    let is_scalar = !matches!(value.kind(), Kind::Message(_) | Kind::Enum(_));
    (is_wrapper && is_scalar && !value.is_list() && message.fields().len() == 1).then_some(value)
}
