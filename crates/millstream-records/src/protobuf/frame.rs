//! Confluent's message indexes: which message of a registered file a record is.
//!
//! Between the schema's number and the record, a producer writes the path to the message: the
//! index of a top-level message, then that of a message nested in it, and so on. The path is a
//! zigzag varint with how many there are and as many zigzag varints; the most common path, the
//! first message, is the single byte 0.
//! See "Wire format" in Confluent's documentation of Schema Registry's serializers.

use super::wire::{self, WireError};

/// Indexes in a path. Messages cannot be nested as deep.
const MAX_INDEXES: i64 = 100;

/// A path of message indexes that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Bytes that are no varints, or too few.
    #[error("the message indexes before the record cannot be read: {0}")]
    Wire(#[from] WireError),
    /// Negative, or more than any message is deep.
    #[error("the record begins with {0} message indexes, where 0 to {MAX_INDEXES} are possible")]
    Count(i64),
    /// Negative, or above 2^31 - 1.
    #[error("the record begins with the message index {0}, which no message can have")]
    Index(i64),
}

/// The path at the front of `bytes`, and how many bytes it takes.
///
/// # Errors
/// When there is none.
pub fn read_indexes(bytes: &[u8]) -> Result<(Vec<i32>, usize), FrameError> {
    let mut rest = bytes;
    let count = wire::unzigzag(wire::varint(&mut rest)?);
    if !(0..=MAX_INDEXES).contains(&count) {
        return Err(FrameError::Count(count));
    }
    if count == 0 {
        return Ok((vec![0], bytes.len() - rest.len()));
    }
    let mut indexes = Vec::new();
    for _ in 0..count {
        let index = wire::unzigzag(wire::varint(&mut rest)?);
        match i32::try_from(index) {
            Ok(index) if index >= 0 => indexes.push(index),
            _ => return Err(FrameError::Index(index)),
        }
    }
    Ok((indexes, bytes.len() - rest.len()))
}

/// Appends a path, as short as it can be.
pub fn write_indexes(indexes: &[i32], out: &mut Vec<u8>) {
    if matches!(indexes, [] | [0]) {
        return out.push(0);
    }
    wire::put_varint(wire::zigzag(indexes.len() as i64), out);
    indexes.iter().for_each(|index| wire::put_varint(wire::zigzag(i64::from(*index)), out));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_back_and_forth() {
        let long: Vec<i32> = (0..100).collect();
        for path in [&[0][..], &[1], &[1, 0], &[0, 0], &[300, 2, 1], &[i32::MAX], &long] {
            let mut bytes = Vec::new();
            write_indexes(path, &mut bytes);
            let used = bytes.len();
            bytes.extend(b"record");
            assert_eq!(read_indexes(&bytes), Ok((path.to_vec(), used)));
            for end in 0..used {
                let cut = read_indexes(&bytes[..end]);
                assert_eq!(cut, Err(FrameError::Wire(WireError::Truncated)), "{path:?} {end}");
            }
        }
    }

    #[test]
    fn bytes_are_those_of_confluent() {
        let written = |path: &[i32]| {
            let mut bytes = Vec::new();
            write_indexes(path, &mut bytes);
            bytes
        };
        assert_eq!(written(&[0]), [0]);
        assert_eq!(written(&[1]), [2, 2]);
        assert_eq!(written(&[1, 0]), [4, 2, 0]);
        // The first message need not be written as the one byte.
        assert_eq!(read_indexes(&[2, 0]), Ok((vec![0], 2)));
    }

    #[test]
    fn impossible_paths_are_refused() {
        assert_eq!(read_indexes(&[1]), Err(FrameError::Count(-1)));
        assert_eq!(read_indexes(&[2, 1]), Err(FrameError::Index(-1)));
        let mut many = Vec::new();
        wire::put_varint(wire::zigzag(1 << 40), &mut many);
        assert_eq!(read_indexes(&many), Err(FrameError::Count(1 << 40)));
    }
}
