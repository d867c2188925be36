//! Single values from the wire to a column.

use super::fault::{Error, Fault};
use super::planned::{Constant, EnumValues, Number, Op};
use super::state::State;
use super::wire::{self, VARINT};
use crate::columns::{Bytes, Column};

/// Takes a value that is no message and appends it.
#[inline]
pub(super) fn append_scalar(
    state: &mut State,
    op: &Op,
    column: &mut Column,
    rest: &mut &[u8],
) -> Result<(), Error> {
    match (op, column) {
        // The most common numbers come first, since this is where most of the time goes.
        (Op::Number(Number::Int64 | Number::Uint64), Column::Int64(column)) => {
            column.append(wire::varint(rest)? as i64);
            Ok(())
        }
        (Op::Number(Number::Int32 | Number::Uint32), Column::Int32(column)) => {
            column.append(wire::varint(rest)? as i32);
            Ok(())
        }
        (Op::Number(number), column) => {
            let value = take_number(*number, rest)?;
            append_number(value, *number == Number::Uint64 || *number == Number::Fixed64, column)
        }
        (Op::Text(is_checked), Column::Text(column)) => {
            append_text(state, *is_checked, column, wire::delimited(rest)?)
        }
        (Op::Bytes, Column::Binary(column)) => {
            column.append(wire::delimited(rest)?);
            Ok(())
        }
        (Op::Double, Column::Float64(column)) => {
            column.append(f64::from_bits(wire::fixed64(rest)?));
            Ok(())
        }
        (Op::Float, Column::Float32(column)) => {
            column.append(f32::from_bits(wire::fixed32(rest)?));
            Ok(())
        }
        (Op::Float, Column::Float64(column)) => {
            column.append(f64::from(f32::from_bits(wire::fixed32(rest)?)));
            Ok(())
        }
        (Op::Bool, Column::Boolean(column)) => {
            column.append(wire::varint(rest)? != 0);
            Ok(())
        }
        (Op::Enum(values), Column::Text(column)) => {
            append_name(state, values, column, wire::varint(rest)? as i32)
        }
        (Op::EnumNumber(_), Column::Int32(column)) => {
            column.append(wire::varint(rest)? as i32);
            Ok(())
        }
        _ => Err(Fault::OtherColumns.into()),
    }
}

/// Appends a string. Bytes that are no text are an error if `is_checked`, else they are replaced.
#[inline]
fn append_text(
    state: &mut State,
    is_checked: bool,
    column: &mut Bytes,
    bytes: &[u8],
) -> Result<(), Error> {
    if is_ascii(bytes) {
        column.append(bytes);
        return Ok(());
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => column.append(bytes),
        Err(_) if is_checked => return Err(Fault::Utf8.into()),
        Err(_) => {
            let text = String::from_utf8_lossy(bytes);
            state.grow(text.len())?;
            column.append(text.as_bytes());
        }
    }
    Ok(())
}

/// Appends the name that an enum has for a number.
#[inline]
fn append_name(
    state: &mut State,
    values: &EnumValues,
    column: &mut Bytes,
    number: i32,
) -> Result<(), Error> {
    match values.find(number) {
        Some(name) => {
            state.grow(name.len())?;
            column.append(name.as_bytes());
        }
        None => {
            let name = values.unknown(number);
            state.grow(name.len())?;
            column.append(name.as_bytes());
        }
    }
    Ok(())
}

/// True for bytes that are text without a closer look. Most strings are short, for which this takes
/// a fraction of the time that checking them as UTF-8 does.
#[inline]
fn is_ascii(bytes: &[u8]) -> bool {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, tail) = bytes.as_chunks::<8>();
    let all = words.iter().fold(0, |all, word| all | u64::from_le_bytes(*word));
    match bytes.last_chunk::<8>() {
        // The last eight bytes have the tail, with some that were in a word already.
        Some(last) => (all | u64::from_le_bytes(*last)) & HIGH == 0,
        None => tail.iter().fold(0, |all, byte| all | byte) < 0x80,
    }
}

/// Takes an integer: those of 64 unsigned bits with the sign that the bits have, all others as
/// they are.
#[inline]
fn take_number(number: Number, rest: &mut &[u8]) -> Result<i64, Error> {
    Ok(match number {
        // Of a value that was written with more bits the lower ones count.
        Number::Int32 => i64::from(wire::varint(rest)? as i32),
        Number::Uint32 => i64::from(wire::varint(rest)? as u32),
        Number::Sint32 => wire::unzigzag(u64::from(wire::varint(rest)? as u32)),
        Number::Fixed32 => i64::from(wire::fixed32(rest)?),
        Number::Sfixed32 => i64::from(wire::fixed32(rest)? as i32),
        Number::Int64 | Number::Uint64 => wire::varint(rest)? as i64,
        Number::Sint64 => wire::unzigzag(wire::varint(rest)?),
        Number::Fixed64 | Number::Sfixed64 => wire::fixed64(rest)? as i64,
    })
}

#[inline]
fn append_number(value: i64, is_unsigned: bool, column: &mut Column) -> Result<(), Error> {
    match column {
        Column::Int64(column) => column.append(value),
        // An unsigned number above 2^31 - 1 becomes negative, as in Spark.
        Column::Int32(column) => column.append(value as i32),
        Column::Int16(column) => column.append(checked(value, "SMALLINT")?),
        Column::Int8(column) => column.append(checked(value, "TINYINT")?),
        Column::Decimal(column, ..) if is_unsigned => column.append(i128::from(value as u64)),
        Column::Decimal(column, ..) => column.append(i128::from(value)),
        _ => return Err(Fault::OtherColumns.into()),
    }
    Ok(())
}

fn checked<T: TryFrom<i64>>(value: i64, data_type: &'static str) -> Result<T, Error> {
    T::try_from(value).map_err(|_| Fault::Range { value: i128::from(value), data_type }.into())
}

/// Appends a default value.
pub(super) fn append_constant(
    state: &mut State,
    value: &Constant,
    column: &mut Column,
) -> Result<(), Error> {
    match (value, column) {
        (Constant::Number(value), Column::Decimal(column, ..)) => column.append(*value),
        // Those of 64 unsigned bits keep their bits.
        (Constant::Number(value), column) => return append_number(*value as i64, false, column),
        (Constant::Float(value), Column::Float64(column)) => column.append(*value),
        (Constant::Float(value), Column::Float32(column)) => column.append(*value as f32),
        (Constant::Bool(value), Column::Boolean(column)) => column.append(*value),
        (Constant::Text(value), Column::Text(column) | Column::Binary(column)) => {
            state.grow(value.len())?;
            column.append(value);
        }
        _ => return Err(Fault::OtherColumns.into()),
    }
    Ok(())
}

/// Appends a google.protobuf.Timestamp as microseconds. What is below a microsecond is cut off.
pub(super) fn append_timestamp(
    column: &mut Column,
    seconds_number: u32,
    nanos_number: u32,
    mut bytes: &[u8],
) -> Result<(), Error> {
    let Column::Timestamp(column, _) = column else { return Err(Fault::OtherColumns.into()) };
    let (mut seconds, mut nanos) = (0, 0);
    while !bytes.is_empty() {
        match wire::tag(&mut bytes)? {
            (number, VARINT) if number == seconds_number => {
                seconds = wire::varint(&mut bytes)? as i64;
            }
            (number, VARINT) if number == nanos_number => {
                nanos = wire::varint(&mut bytes)? as i32;
            }
            (number, wire) => wire::skip(number, wire, &mut bytes)?,
        }
    }
    let micros = seconds.checked_mul(1_000_000);
    let micros = micros.and_then(|micros| micros.checked_add(i64::from(nanos / 1000)));
    column.append(micros.ok_or(Fault::Timestamp { seconds })?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_ascii;

    #[test]
    fn each_byte_of_a_text_is_looked_at() {
        for length in 0..40 {
            let mut bytes = vec![0x7f; length];
            assert!(is_ascii(&bytes));
            for at in 0..length {
                bytes[at] = 0x80;
                assert!(!is_ascii(&bytes), "byte {at} of {length}");
                bytes[at] = 0x7f;
            }
        }
    }
}
