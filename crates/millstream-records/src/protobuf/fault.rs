//! What can be wrong with a record, and how an error gets from a value in it to the caller.

use super::wire::WireError;

/// Bytes that the rows of a batch may have, since Arrow counts those of a column in 31 bits. Short
/// records can stand for many bytes, so this is counted while they are decoded.
pub(super) const MAX_BYTES: usize = i32::MAX as usize;

/// A record that is not one of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    /// The fields that lead to what is wrong, from the outermost to the innermost.
    pub path: Vec<String>,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Bytes that are not the wire format.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// A field of another type than the schema has: the schema is not that of the record.
    #[error(
        "the field has the wire type {found} where the schema has {expected}: \
         the record was written with another schema"
    )]
    WireType {
        /// The wire type by the schema.
        expected: u8,
        /// The wire type in the record.
        found: u8,
    },
    /// A number that is no value of a closed enum.
    #[error("{0} is no value of the enum")]
    Enum(i32),
    /// A string that is no text.
    #[error("the string is not valid UTF-8")]
    Utf8,
    /// A number that is too large for the declared column.
    #[error("{value} does not fit into the column's type {data_type}")]
    Range {
        /// The number.
        value: i128,
        /// The column's type.
        data_type: &'static str,
    },
    /// A point in time that microseconds cannot count to.
    #[error("{seconds} seconds since 1970 are no TIMESTAMP")]
    Timestamp {
        /// The seconds.
        seconds: i64,
    },
    /// A required field (proto2) that is absent.
    #[error("the required field is missing")]
    Required,
    /// A null for a column that was declared NOT NULL.
    #[error("the field is absent, and its column is declared NOT NULL")]
    Null,
    /// Too many bytes for a batch.
    #[error("the rows of the batch would have more than {MAX_BYTES} bytes")]
    TooLarge,
    /// The plan was made for other columns than the decoder.
    #[error("the record's plan was made for other columns")]
    OtherColumns,
}

impl std::fmt::Display for RecordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path.as_slice() {
            [] => write!(f, "malformed Protobuf record: {}", self.fault),
            path => {
                write!(f, "malformed Protobuf record, field {}: {}", path.join("."), self.fault)
            }
        }
    }
}

impl std::error::Error for RecordError {}

/// An error on its way out. In a box, a result fits into a register, which counts here.
pub(super) type Error = Box<RecordError>;

impl From<Fault> for Error {
    #[cold]
    fn from(fault: Fault) -> Self {
        Box::new(RecordError { path: Vec::new(), fault })
    }
}

impl From<WireError> for Error {
    #[cold]
    fn from(error: WireError) -> Self {
        Fault::Wire(error).into()
    }
}
