//! Apache Avro's binary encoding, by the specification 1.12 and Spark's rules for types.
//!
//! A record's bytes say nothing about themselves: they are read by the schema that wrote them.
//! So for each writer schema a [`Plan`] is compiled once: a flat program that reads the writer's
//! fields in their order and puts each into its column, converts it or skips it. A [`Decoder`]
//! holds the columns of a [`Layout`] and runs the plan over each record. The other way, an
//! [`Encoder`] writes the rows of a batch as records.
//!
//! - [`Schema`]: the schema text as a graph of types, and Spark's columns for it.
//! - [`Target`]: what a plan reads a writer's records as: a reader schema or declared columns.
//! - Limits: types nested 100 deep, columns of 100,000 parts, a batch of 1 GiB, 65,536 items
//!   without bytes in a record. They keep a hostile schema or record from exhausting the process.

mod cursor;
mod declared;
mod decode;
mod default;
mod derive;
mod encode;
mod error;
mod form;
mod layout;
mod parse;
mod plan;
mod program;
mod resolve;
mod schema;
mod shape;
mod write;

pub use decode::Decoder;
pub use encode::{Encoder, EncoderError};
pub use error::{EncodeError, LayoutError, PlanError, PlanProblem, RecordError, RecordProblem};
pub use layout::Layout;
pub use plan::{Plan, Target};
pub use schema::{Schema, SchemaError, SchemaProblem};

#[cfg(test)]
mod tests;
