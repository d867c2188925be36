//! JSON: the records of a stream to Arrow columns and back.
//!
//! [`Decoder`] is on the path of every record that arrives, [`encode`] on that of most that leave.
//! Both follow Spark's rules for what converts to what. The text is RFC 8259 and nothing more:
//! comments, single quotation marks and unquoted NaN are refused, but by functions, which take what
//! Spark's parser takes ([`Leniency`]).

mod column;
mod decode;
mod encode;
mod infer;
mod keys;
mod lenient;
mod path;
mod pretty;
mod readers;
mod scalar;
mod scan;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use column::nullable;
pub(crate) use decode::decode_values;
pub use decode::{
    DecodeOptions, Decoded, Decoder, MalformedRecord, ParseMode, UnsupportedSchema, Values,
};
pub use encode::{EncodeOptions, UnsupportedType, check, encode, plain_texts, row};
pub(crate) use infer::infer;
pub(crate) use lenient::Leniency;
pub(crate) use path::{Path, array_length, member, object_keys};
pub(crate) use pretty::pretty;
pub(crate) use readers::{Reader, Readers};
pub(crate) use scalar::parse_decimal;
pub use scan::Problem;
