//! Values as bytes of the native protocol: a length of four bytes, and the value. A length of -1
//! is NULL, and -2 leaves the column as it is.

use std::net::IpAddr;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType,
};
use thiserror::Error;
use uuid::Uuid;

use super::Encoding;

/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400_000_000_000;
/// The day 1970-01-01 as Cassandra counts days.
const EPOCH_DAY: i64 = 1 << 31;

/// A value that its column cannot hold.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ValueProblem {
    /// A text does not read as what the column holds.
    #[error("'{text}' is not {wanted}")]
    Text { text: String, wanted: &'static str },
    /// A time of day beyond the day.
    #[error("{nanoseconds} is not a time of day in nanoseconds")]
    Time { nanoseconds: i64 },
    /// Cassandra has no NULL within a collection.
    #[error(
        "it has an element that is NULL, which collections of Cassandra cannot hold; remove such \
         elements, as with filter(c, x -> x IS NOT NULL)"
    )]
    NullElement,
    /// A vector has another length.
    #[error("it has {found} elements, and the vector has {wanted}")]
    Length { found: usize, wanted: usize },
    /// More bytes than a length can say.
    #[error("it has {bytes} bytes, which is more than a value of Cassandra can have")]
    Large { bytes: usize },
}

/// Appends the value of `array` at `row`, with its length; `null` is the length of NULL.
///
/// # Errors
/// The column cannot hold the value.
pub(crate) fn append_cell(
    encoding: &Encoding,
    array: &dyn Array,
    row: usize,
    null: i32,
    bytes: &mut Vec<u8>,
) -> Result<(), ValueProblem> {
    if array.is_null(row) || array.data_type().is_null() {
        bytes.extend_from_slice(&null.to_be_bytes());
        return Ok(());
    }
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    append_value(encoding, array, row, bytes)?;
    let length = bytes.len() - start - 4;
    let short = i32::try_from(length).map_err(|_| ValueProblem::Large { bytes: length })?;
    bytes[start..start + 4].copy_from_slice(&short.to_be_bytes());
    Ok(())
}

/// The value without its length; it is not NULL.
fn append_value(
    encoding: &Encoding,
    array: &dyn Array,
    row: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), ValueProblem> {
    match encoding {
        Encoding::Boolean => bytes.push(u8::from(array.as_boolean().value(row))),
        Encoding::TinyInt => bytes.extend(number::<Int8Type>(array, row).to_be_bytes()),
        Encoding::SmallInt => bytes.extend(number::<Int16Type>(array, row).to_be_bytes()),
        Encoding::Int => bytes.extend(number::<Int32Type>(array, row).to_be_bytes()),
        Encoding::BigInt => bytes.extend(number::<Int64Type>(array, row).to_be_bytes()),
        Encoding::Float => bytes.extend(number::<Float32Type>(array, row).to_be_bytes()),
        Encoding::Double => bytes.extend(number::<Float64Type>(array, row).to_be_bytes()),
        Encoding::Varint => append_varint(number::<Int64Type>(array, row).into(), bytes),
        Encoding::Decimal { scale, is_varint } => {
            if !is_varint {
                bytes.extend_from_slice(&scale.to_be_bytes());
            }
            append_varint(number::<Decimal128Type>(array, row), bytes);
        }
        Encoding::Blob => bytes.extend_from_slice(array.as_binary::<i32>().value(row)),
        Encoding::Text | Encoding::Ascii | Encoding::Uuid { .. } | Encoding::Inet => {
            append_text(encoding, array.as_string::<i32>().value(row), bytes)?;
        }
        Encoding::Date => {
            let days = i64::from(number::<Date32Type>(array, row)) + EPOCH_DAY;
            let days = u32::try_from(days).expect("32 bits, shifted by half of them");
            bytes.extend_from_slice(&days.to_be_bytes());
        }
        Encoding::Timestamp => {
            let micros = number::<TimestampMicrosecondType>(array, row);
            bytes.extend_from_slice(&micros.div_euclid(1_000).to_be_bytes());
        }
        Encoding::Time => {
            let nanoseconds = number::<Int64Type>(array, row);
            if !(0..DAY_NS).contains(&nanoseconds) {
                return Err(ValueProblem::Time { nanoseconds });
            }
            bytes.extend_from_slice(&nanoseconds.to_be_bytes());
        }
        parts => append_parts(parts, array, row, bytes)?,
    }
    Ok(())
}

fn number<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

/// A value that is made of others.
fn append_parts(
    encoding: &Encoding,
    array: &dyn Array,
    row: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), ValueProblem> {
    match encoding {
        Encoding::Elements(element) => {
            let values = array.as_list::<i32>().value(row);
            append_count(values.len(), bytes)?;
            for at in 0..values.len() {
                append_element(element, &*values, at, bytes)?;
            }
        }
        Encoding::Map(key, value) => {
            let entries = array.as_map().value(row);
            append_count(entries.len(), bytes)?;
            for at in 0..entries.len() {
                append_element(key, &**entries.column(0), at, bytes)?;
                append_element(value, &**entries.column(1), at, bytes)?;
            }
        }
        Encoding::Vector(element, dimensions) => {
            let values = array.as_list::<i32>().value(row);
            if values.len() != *dimensions {
                return Err(ValueProblem::Length { found: values.len(), wanted: *dimensions });
            }
            for at in 0..values.len() {
                if values.is_null(at) || values.data_type().is_null() {
                    return Err(ValueProblem::NullElement);
                }
                append_value(element, &*values, at, bytes)?;
            }
        }
        Encoding::Fields(fields) => {
            let columns = array.as_struct();
            for field in fields {
                match field {
                    None => bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
                    Some((index, encoding)) => {
                        append_cell(encoding, &**columns.column(*index), row, -1, bytes)?;
                    }
                }
            }
        }
        plain => unreachable!("{plain:?} has no parts"),
    }
    Ok(())
}

fn append_element(
    encoding: &Encoding,
    values: &dyn Array,
    at: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), ValueProblem> {
    if values.is_null(at) || values.data_type().is_null() {
        return Err(ValueProblem::NullElement);
    }
    append_cell(encoding, values, at, -1, bytes)
}

fn append_count(count: usize, bytes: &mut Vec<u8>) -> Result<(), ValueProblem> {
    let count = i32::try_from(count).map_err(|_| ValueProblem::Large { bytes: count })?;
    bytes.extend_from_slice(&count.to_be_bytes());
    Ok(())
}

fn append_text(encoding: &Encoding, text: &str, bytes: &mut Vec<u8>) -> Result<(), ValueProblem> {
    let not = |wanted| ValueProblem::Text { text: excerpt(text), wanted };
    match encoding {
        Encoding::Ascii if !text.is_ascii() => return Err(not("ASCII")),
        Encoding::Uuid { is_time } => {
            let uuid = Uuid::parse_str(text.trim()).map_err(|_| not("a UUID"))?;
            if *is_time && uuid.get_version_num() != 1 {
                return Err(not("a UUID of version 1, which timeuuid holds"));
            }
            bytes.extend_from_slice(uuid.as_bytes());
        }
        Encoding::Inet => match text.trim().parse() {
            Ok(IpAddr::V4(address)) => bytes.extend_from_slice(&address.octets()),
            Ok(IpAddr::V6(address)) => bytes.extend_from_slice(&address.octets()),
            Err(_) => return Err(not("an IP address")),
        },
        _ => bytes.extend_from_slice(text.as_bytes()),
    }
    Ok(())
}

/// Two's complement in as few bytes as it needs, one at least.
fn append_varint(value: i128, bytes: &mut Vec<u8>) {
    let all = value.to_be_bytes();
    let sign: u8 = if value < 0 { 0xFF } else { 0 };
    let is_redundant = |at: &usize| all[*at] == sign && (all[*at + 1] & 0x80 != 0) == (value < 0);
    let first = (0..all.len() - 1).take_while(is_redundant).count();
    bytes.extend_from_slice(&all[first..]);
}

/// The beginning of a text, for a message.
fn excerpt(text: &str) -> String {
    const CHARACTERS: usize = 40;
    match text.char_indices().nth(CHARACTERS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
