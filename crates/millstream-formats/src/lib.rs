//! Record formats: one decoder and one encoder of each, for every source and sink.
//!
//! A source finds records: the values of messages, the lines of files. It hands many of them over
//! at once, and a [`RecordDecoder`] makes columns of them. What makes a record malformed is decided
//! here, and what becomes of it ([`Malformed`]) is done here, so that the same bytes give the same
//! rows wherever they come from. A sink hands rows over, and a [`RecordEncoder`] makes a line of
//! each.
//!
//! - [`RecordFormat`]: the columns of a table and how its records are decoded into them.
//! - [`csv`]: separated values. JSON is `millstream-sql`'s, whose functions read it, too.
//! - [`text`]: records that are taken as they are; none of them is malformed.
//! - [`schema`]: Avro, Protobuf and JSON Schema, with and without a schema registry.
//! - [`infer`]: columns that were not declared.
//! - [`excerpt`]: the beginning of a record, for a message.
//!
//! Not here: how records are found in files and messages, and Parquet, which has no records.

pub mod csv;
mod decoder;
mod encoder;
mod excerpt;
pub mod infer;
mod records;
pub mod schema;
pub mod text;

pub use decoder::{RecordDecoder, RecordFormat};
pub use encoder::RecordEncoder;
pub use excerpt::excerpt;
pub use millstream_sql::json::Values;
pub use records::{Decoded, Malformed, MalformedRecord};

#[cfg(test)]
mod tests;
