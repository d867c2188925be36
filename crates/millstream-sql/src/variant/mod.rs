//! VARIANT: values that say themselves of which type they are, in the encoding of Spark and
//! Parquet.
//!
//! A value is two runs of bytes, so that a column of them is an Arrow STRUCT of two BINARYs
//! ([`crate::types::variant`]): `metadata` is the names of all fields of objects, each once, and
//! `value` a tree whose first byte says what it is. A part of it is read without reading the rest:
//! an object and an array begin with a list of the places of what they hold.
//!
//! [`parse`] makes a value of JSON, and [`Builder`] of anything; [`Variant`] reads one, [`text`]
//! writes it as JSON, [`path`] finds a part, [`schema`] says what is in it. [`column`] is the way
//! between values and columns. Bytes may come from a file that someone else has written: whatever
//! they are, reading ends with an error and takes no more time than their length allows.
//!
//! The encoding is written here and not taken from a library, since what a JSON number becomes, in
//! which order names are and which sizes are refused has to be as in Spark.
//!
//! Origin: Parquet's `VariantEncoding.md` and Spark's `common/variant`.

mod build;
mod column;
mod error;
mod parse;
pub(crate) mod path;
mod read;
pub(crate) mod schema;
pub(crate) mod schema_text;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use build::{Builder, Entry};
pub use column::text_of;
pub(crate) use column::{Variants, VariantsBuilder, texts};
pub use error::VariantError;
pub(crate) use parse::parse;
pub(crate) use read::{Items, Value, Variant};
pub(crate) use text::{to_json, write_uuid};
