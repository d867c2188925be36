//! Binary record formats whose bytes mean nothing without a schema: Avro and Protobuf.
//!
//! A source hands over the bytes of one record and says which schema wrote it; the values become
//! rows of Arrow columns, by Spark's rules for what type becomes which. A record that turns out
//! malformed half way leaves nothing behind: its row is cut off again ([`columns`]), and the rows
//! before and after it are whole. The other way, rows become records.
//!
//! - [`types`]: names of types, for messages.
//! - [`columns`]: columns under construction that can be cut back to a row.
//! - [`avro`]: Apache Avro's binary encoding.
//! - [`protobuf`]: Protocol Buffers' wire format, by descriptors.
//!
//! Not here: where schemas come from (files, options, a schema registry), the frames that carry a
//! schema's number before a record, and what becomes of malformed records.

pub mod avro;
pub mod columns;
pub mod protobuf;
pub mod types;
