//! Why there is no VARIANT.

use thiserror::Error;

/// What is wrong with a VARIANT, or with what should become one.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum VariantError {
    /// The bytes are not the encoding of a value.
    #[error("a VARIANT is malformed: its bytes are no value (MALFORMED_VARIANT)")]
    Malformed,
    /// An object has a key twice.
    #[error("an object has the key `{0}` twice (VARIANT_DUPLICATE_KEY)")]
    DuplicateKey(String),
    /// The value or its names are longer than Spark takes.
    #[error("a VARIANT is longer than 128 MiB (VARIANT_SIZE_LIMIT)")]
    TooLarge,
    /// The text is not JSON.
    #[error("this is not JSON from byte {0} on")]
    NoJson(usize),
    /// Arrays and objects in each other.
    #[error("values are nested deeper than 1000 levels")]
    TooDeep,
}
