//! Functions that take text by its characters and BINARY by its bytes.
//!
//! Bytes need not be UTF-8, so none of these makes text of them; mixed with text they become text
//! with U+FFFD in the place of what is wrong, as in a cast.

use std::sync::Arc;

use arrow::array::builder::BinaryBuilder;
use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Int32Type, UInt32Type};
use datafusion::common::{Result, exec_err};

use super::define::{Arguments, Function, Param, returns_boolean, returns_int};

use Param::{Int, Text, TextOrBinary, TextOrBinaryOrArray};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("length", &[TextOrBinary], returns_int, |args| counted(args, 1, true))
        .aliases(&["len", "char_length", "character_length"]),
    Function::new("octet_length", &[TextOrBinary], returns_int, |args| counted(args, 1, false)),
    Function::new("bit_length", &[TextOrBinary], returns_int, |args| counted(args, 8, false)),
    Function::new("left", &[TextOrBinary, Int], first, left),
    // BINARY is text to Spark here, though not for `left`.
    Function::new("right", &[Text, Int], first, right),
    Function::new("substring", &[TextOrBinary, Int, Int], first, substring)
        .aliases(&["substr", "mid"])
        .required(2),
    Function::new("lpad", &[TextOrBinary, Int, TextOrBinary], padded_type, |args| {
        padded(args, Side::Left)
    })
    .required(2),
    Function::new("rpad", &[TextOrBinary, Int, TextOrBinary], padded_type, |args| {
        padded(args, Side::Right)
    })
    .required(2),
    Function::new("reverse", &[TextOrBinaryOrArray], first, reverse),
    Function::new("overlay", &[TextOrBinary, TextOrBinary, Int, Int], both, overlay).required(3),
    Function::new("startswith", &[TextOrBinary, TextOrBinary], returns_boolean, |args| {
        compared(args, |value, part| value.starts_with(part))
    }),
    Function::new("endswith", &[TextOrBinary, TextOrBinary], returns_boolean, |args| {
        compared(args, |value, part| value.ends_with(part))
    }),
    Function::new("contains", &[TextOrBinary, TextOrBinary], returns_boolean, |args| {
        compared(args, |value, part| {
            part.is_empty() || value.windows(part.len()).any(|window| window == part)
        })
    }),
];

/// No longer result is made of one row: its length may come from the data.
const LENGTH_MAX: usize = 1 << 28;

fn first(args: &[DataType]) -> Result<DataType> {
    Ok(args[0].clone())
}

/// BINARY if both arguments are.
fn both(args: &[DataType]) -> Result<DataType> {
    let bytes = args[..2].iter().all(|arg| *arg == DataType::Binary);
    Ok(if bytes { DataType::Binary } else { DataType::Utf8 })
}

/// BINARY if the padded argument is, and the padding where it is given.
fn padded_type(args: &[DataType]) -> Result<DataType> {
    let bytes =
        [0, 2].into_iter().all(|at| args.get(at).is_none_or(|arg| *arg == DataType::Binary));
    Ok(if bytes { DataType::Binary } else { DataType::Utf8 })
}

/// An argument's values as bytes, whether they are text or not.
struct Bytes {
    values: ArrayRef,
    constant: bool,
}

impl Bytes {
    /// The values of an argument, as `wanted` has them.
    fn of(args: &Arguments, at: usize, wanted: &DataType) -> Result<Self> {
        let (values, constant) = args.array(at);
        Ok(Self { values: super::cast::cast(values, wanted, true)?, constant })
    }

    fn get(&self, row: usize) -> Option<&[u8]> {
        let row = if self.constant { 0 } else { row };
        if self.values.is_null(row) {
            return None;
        }
        Some(match self.values.data_type() {
            DataType::Binary => self.values.as_binary::<i32>().value(row),
            _ => self.values.as_string::<i32>().value(row).as_bytes(),
        })
    }
}

/// What is counted: bytes of BINARY, characters of text.
#[derive(Clone, Copy)]
enum Unit {
    Byte,
    Char,
}

impl Unit {
    fn of(data_type: &DataType) -> Self {
        if *data_type == DataType::Binary { Self::Byte } else { Self::Char }
    }

    fn is_char(self) -> bool {
        matches!(self, Self::Char)
    }

    fn count(self, value: &[u8]) -> usize {
        match self {
            Self::Byte => value.len(),
            // Each character has one byte that does not continue another.
            Self::Char => value.iter().filter(|byte| !continues(**byte)).count(),
        }
    }

    /// The byte where unit `at` begins, or the end.
    fn begin(self, value: &[u8], at: usize) -> usize {
        match self {
            Self::Byte => at.min(value.len()),
            Self::Char => {
                let mut begins =
                    value.iter().enumerate().filter(|(_, byte)| !continues(**byte)).skip(at);
                begins.next().map_or(value.len(), |(begin, _)| begin)
            }
        }
    }

    /// `length` units from `position`, which counts from 1, or from -1 at the end.
    fn slice(self, value: &[u8], position: i64, length: i64) -> &[u8] {
        // 0 means the first unit too. A position before the beginning stays negative here, so that
        // the units missing there are taken off the length, as in Spark.
        let start = match position {
            1.. => position - 1,
            0 => 0,
            _ => self.count(value) as i64 + position,
        };
        let end = start.saturating_add(length);
        if end <= start.max(0) {
            return &[];
        }
        let begin = self.begin(value, usize::try_from(start).unwrap_or(0));
        let rest = &value[begin..];
        let units = usize::try_from(end - start.max(0)).unwrap_or(usize::MAX);
        &rest[..self.begin(rest, units)]
    }
}

fn continues(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// A column of the result's type, each value written as bytes; those of text are UTF-8, since
/// only whole characters are moved.
fn written(
    args: &Arguments,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<bool>,
) -> Result<ArrayRef> {
    let mut value = Vec::new();
    if args.returns != DataType::Binary {
        return args.write(|row, out| {
            value.clear();
            let is_there = write(row, &mut value)?;
            out.push_str(&String::from_utf8_lossy(&value));
            Ok(is_there)
        });
    }
    let (mut out, mut total) = (BinaryBuilder::new(), 0);
    for row in 0..args.rows {
        value.clear();
        if write(row, &mut value)? {
            super::define::within_column(&mut total, value.len())?;
            out.append_value(&value);
        } else {
            out.append_null()
        }
    }
    Ok(Arc::new(out.finish()))
}

fn counted(args: &Arguments, times: i32, characters: bool) -> Result<ArrayRef> {
    let values = Bytes::of(args, 0, args.data_type(0))?;
    let unit = if characters { Unit::of(args.data_type(0)) } else { Unit::Byte };
    args.primitives::<Int32Type>(|row| {
        let count = values.get(row).map(|value| unit.count(value));
        Ok(count.and_then(|count| i32::try_from(count).ok()?.checked_mul(times)))
    })
}

fn left(args: &Arguments) -> Result<ArrayRef> {
    let (values, lengths) = (Bytes::of(args, 0, &args.returns)?, args.int(1));
    let unit = Unit::of(&args.returns);
    written(args, |row, out| {
        let (Some(value), Some(length)) = (values.get(row), lengths.get(row)) else {
            return Ok(false);
        };
        out.extend(unit.slice(value, 1, length.into()));
        Ok(true)
    })
}

fn right(args: &Arguments) -> Result<ArrayRef> {
    let (values, lengths) = (Bytes::of(args, 0, &args.returns)?, args.int(1));
    let unit = Unit::of(&args.returns);
    written(args, |row, out| {
        let (Some(value), Some(length)) = (values.get(row), lengths.get(row)) else {
            return Ok(false);
        };
        if length > 0 {
            out.extend(unit.slice(value, -i64::from(length), i64::MAX));
        }
        Ok(true)
    })
}

fn substring(args: &Arguments) -> Result<ArrayRef> {
    let (values, positions) = (Bytes::of(args, 0, &args.returns)?, args.int(1));
    let lengths = (args.len() > 2).then(|| args.int(2));
    let unit = Unit::of(&args.returns);
    written(args, |row, out| {
        let length = match &lengths {
            // Of a text Spark takes as many characters as an INT says, also from far before it.
            None if unit.is_char() => Some(i32::MAX.into()),
            None => Some(i64::MAX),
            Some(lengths) => lengths.get(row).map(i64::from),
        };
        let (Some(value), Some(position), Some(length)) =
            (values.get(row), positions.get(row), length)
        else {
            return Ok(false);
        };
        out.extend(unit.slice(value, position.into(), length));
        Ok(true)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// With spaces, or zero bytes, where nothing else is given; too long values are cut at their end.
fn padded(args: &Arguments, side: Side) -> Result<ArrayRef> {
    let (values, lengths) = (Bytes::of(args, 0, &args.returns)?, args.int(1));
    let pads = match args.len() {
        3 => Some(Bytes::of(args, 2, &args.returns)?),
        _ => None,
    };
    let unit = Unit::of(&args.returns);
    let default: &[u8] = if args.returns == DataType::Binary { &[0] } else { b" " };
    written(args, |row, out| {
        let pad = pads.as_ref().map_or(Some(default), |pads| pads.get(row));
        let (Some(value), Some(length), Some(pad)) = (values.get(row), lengths.get(row), pad)
        else {
            return Ok(false);
        };
        let count = i32::try_from(unit.count(value)).unwrap_or(i32::MAX);
        if unit.is_char() && !pad.is_empty() && length.checked_sub(count).is_none() {
            return exec_err!(
                "a value cannot be padded to {length} characters, which overflows; cast the \
                 length of a pad from what is 0 or more"
            );
        }
        let length = usize::try_from(length).unwrap_or(0);
        let missing = length.saturating_sub(unit.count(value));
        if missing == 0 || pad.is_empty() {
            out.extend(&value[..unit.begin(value, length)]);
            return Ok(true);
        }
        if length > LENGTH_MAX {
            return exec_err!("a value cannot be padded to {length}; {LENGTH_MAX} is the most");
        }
        let times = missing / unit.count(pad).max(1);
        let part = &pad[..unit.begin(pad, missing % unit.count(pad).max(1))];
        if side == Side::Right {
            out.extend(value);
        }
        (0..times).for_each(|_| out.extend(pad));
        out.extend(part);
        if side == Side::Left {
            out.extend(value);
        }
        Ok(true)
    })
}

fn reverse(args: &Arguments) -> Result<ArrayRef> {
    if matches!(args.returns, DataType::List(_)) {
        return reversed_lists(&args.expanded(0)?);
    }
    let values = Bytes::of(args, 0, &args.returns)?;
    let unit = Unit::of(&args.returns);
    written(args, |row, out| {
        let Some(value) = values.get(row) else { return Ok(false) };
        let mut end = value.len();
        for at in (0..value.len()).rev() {
            if matches!(unit, Unit::Byte) || !continues(value[at]) {
                out.extend(&value[at..end]);
                end = at;
            }
        }
        Ok(true)
    })
}

fn reversed_lists(values: &ArrayRef) -> Result<ArrayRef> {
    let list = values.as_list::<i32>();
    let DataType::List(item) = list.data_type() else {
        return exec_err!("a list has items");
    };
    let rows = list.value_offsets().windows(2).map(|row| row[0] as u32..row[1] as u32);
    let lengths: Vec<usize> = rows.clone().map(|row| row.len()).collect();
    let indices = rows.flat_map(|row| row.rev());
    let indices = arrow::array::PrimitiveArray::<UInt32Type>::from_iter_values(indices);
    let items = take(list.values(), &indices, None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, items, list.nulls().cloned())?))
}

/// Argument 1 in the place of as many units of argument 0, or of as many as are asked for.
fn overlay(args: &Arguments) -> Result<ArrayRef> {
    let (values, parts) = (Bytes::of(args, 0, &args.returns)?, Bytes::of(args, 1, &args.returns)?);
    let positions = args.int(2);
    let lengths = (args.len() > 3).then(|| args.int(3));
    let unit = Unit::of(&args.returns);
    written(args, |row, out| {
        let length = lengths.as_ref().map_or(Some(-1), |lengths| lengths.get(row));
        let (Some(value), Some(part), Some(position), Some(length)) =
            (values.get(row), parts.get(row), positions.get(row).map(i64::from), length)
        else {
            return Ok(false);
        };
        let length = match i64::from(length) {
            length @ 0.. => length,
            _ => unit.count(part) as i64,
        };
        out.extend(unit.slice(value, 1, position - 1));
        out.extend(part);
        out.extend(unit.slice(value, position + length, i64::MAX));
        Ok(true)
    })
}

/// Bytes if both are BINARY. UTF-8 has no character within another, so text compares as bytes too.
fn compared(args: &Arguments, holds: fn(&[u8], &[u8]) -> bool) -> Result<ArrayRef> {
    let wanted = both(&[args.data_type(0).clone(), args.data_type(1).clone()])?;
    let (values, parts) = (Bytes::of(args, 0, &wanted)?, Bytes::of(args, 1, &wanted)?);
    args.booleans(|row| Ok(values.get(row).zip(parts.get(row)).map(|(v, p)| holds(v, p))))
}
