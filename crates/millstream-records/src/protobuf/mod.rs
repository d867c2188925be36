//! Protocol Buffers: records of the wire format to rows, and rows to records.
//!
//! A [`Schema`] is one message type with all that it refers to, from compiled descriptors or from
//! the text of .proto files. [`Schema::columns`] says which columns it has by Spark's rules. A
//! [`Plan`] pairs declared columns with its fields, and a [`Decoder`] appends the values of each
//! record to Arrow columns straight from the wire, without a message in between. An [`Encoder`]
//! goes the other way. [`frame`] has the bytes that Confluent's serializers put before a record.
//!
//! Of a record only what the columns want is looked at; all else is skipped by its length. Records
//! are read like Spark's from_protobuf reads them, which uses the official Java library: the last
//! value of a field counts, occurrences of a nested message are merged, unknown fields are
//! ignored, and a required field that is missing, a known field of the record itself with another
//! wire type, or invalid UTF-8 in proto3 make the record malformed.

mod decode;
mod decoder;
mod encode;
mod encoder;
mod fault;
mod files;
pub mod frame;
mod link;
mod map;
mod mapping;
mod names;
mod options;
mod pairing;
mod plan;
mod plan_error;
mod planned;
mod proto_text;
mod renumbered;
mod schema;
mod schema_error;
mod state;
#[cfg(test)]
mod tests;
mod value;
mod wire;

pub use decoder::{Decoder, UnsupportedColumn};
pub use encode::EncodeError;
pub use encoder::{Encoder, EncoderError};
pub use fault::{Fault, RecordError};
pub use mapping::MappingError;
pub use options::{OptionError, Options};
pub use plan::Plan;
pub use plan_error::PlanError;
pub use proto_text::{TextError, proto_text_of};
pub use schema::Schema;
pub use schema_error::SchemaError;
pub use wire::WireError;
