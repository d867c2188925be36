//! Writes one row after the other from a batch's arrays.

use std::collections::HashMap;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, ListArray, MapArray, PrimitiveArray,
    StringArray,
};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};

use super::default::{counted, long};
use super::error::EncodeError;
use super::form::{Form, Part, Value};

/// A [`Value`] and the array that its rows are in.
pub(super) struct Source<'a> {
    value: &'a Value,
    array: &'a ArrayRef,
    rows: Rows<'a>,
}

enum Rows<'a> {
    Boolean(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Date(&'a PrimitiveArray<Date32Type>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>, i64),
    Text(&'a StringArray),
    Enum(&'a StringArray, &'a HashMap<String, i64>),
    Binary(&'a BinaryArray),
    Fixed(&'a BinaryArray, usize),
    Decimal(&'a PrimitiveArray<Decimal128Type>),
    FixedDecimal(&'a PrimitiveArray<Decimal128Type>, usize),
    List(&'a ListArray, Box<Source<'a>>),
    Map(&'a MapArray, &'a StringArray, Box<Source<'a>>),
    Record(Vec<Field<'a>>),
    Choice(Vec<Source<'a>>),
}

enum Field<'a> {
    Column(&'a str, Source<'a>),
    Null(Option<i64>),
}

/// Binds a value to its array, which has the type that the value was made for.
pub(super) fn bind<'a>(value: &'a Value, array: &'a ArrayRef) -> Source<'a> {
    let rows = match &value.form {
        Form::Boolean => Rows::Boolean(array.as_boolean()),
        Form::Int8 => Rows::Int8(array.as_primitive()),
        Form::Int16 => Rows::Int16(array.as_primitive()),
        Form::Int32 => Rows::Int32(array.as_primitive()),
        Form::Int64 => Rows::Int64(array.as_primitive()),
        Form::Float32 => Rows::Float32(array.as_primitive()),
        Form::Float64 => Rows::Float64(array.as_primitive()),
        Form::Date => Rows::Date(array.as_primitive()),
        Form::Timestamp(micros) => Rows::Timestamp(array.as_primitive(), *micros),
        Form::Text => Rows::Text(array.as_string()),
        Form::Enum(symbols) => Rows::Enum(array.as_string(), symbols),
        Form::Binary => Rows::Binary(array.as_binary()),
        Form::Fixed(size) => Rows::Fixed(array.as_binary(), *size),
        Form::Decimal => Rows::Decimal(array.as_primitive()),
        Form::FixedDecimal(size) => Rows::FixedDecimal(array.as_primitive(), *size),
        Form::List(items) => {
            let list = array.as_list::<i32>();
            Rows::List(list, Box::new(bind(items, list.values())))
        }
        Form::Map(values) => {
            let map = array.as_map();
            Rows::Map(map, map.keys().as_string(), Box::new(bind(values, map.values())))
        }
        Form::Record(parts) => {
            let columns = array.as_struct().columns();
            let fields = parts.iter().map(|part| match part {
                Part::Column(at, name, value) => Field::Column(name, bind(value, &columns[*at])),
                Part::Null(branch) => Field::Null(*branch),
            });
            Rows::Record(fields.collect())
        }
        Form::Choice(members) => {
            let columns = array.as_struct().columns();
            let members = members.iter().zip(columns);
            Rows::Choice(members.map(|(value, column)| bind(value, column)).collect())
        }
    };
    Source { value, array, rows }
}

/// A value that the schema does not allow.
pub(super) struct Fault {
    problem: String,
    /// From the innermost column outwards.
    path: Vec<String>,
}

impl Fault {
    #[cold]
    fn new(problem: String) -> Box<Self> {
        Box::new(Self { problem, path: Vec::new() })
    }

    #[cold]
    fn within(mut self: Box<Self>, part: &str) -> Box<Self> {
        self.path.push(part.to_owned());
        self
    }

    pub fn in_row(self, row: usize) -> EncodeError {
        let path: Vec<_> = self.path.into_iter().rev().collect();
        EncodeError::Value { column: path.join("."), row, problem: self.problem }
    }
}

pub(super) fn write(source: &Source<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Box<Fault>> {
    if source.array.is_null(row) {
        return null(source.value.null, out);
    }
    if let Some(branch) = source.value.branch {
        long(branch, out);
    }
    match &source.rows {
        Rows::Boolean(array) => out.push(array.value(row).into()),
        Rows::Int8(array) => long(array.value(row).into(), out),
        Rows::Int16(array) => long(array.value(row).into(), out),
        Rows::Int32(array) => long(array.value(row).into(), out),
        Rows::Int64(array) => long(array.value(row), out),
        Rows::Float32(array) => out.extend_from_slice(&array.value(row).to_le_bytes()),
        Rows::Float64(array) => out.extend_from_slice(&array.value(row).to_le_bytes()),
        Rows::Date(array) => long(array.value(row).into(), out),
        // Times before the epoch are rounded down too.
        Rows::Timestamp(array, micros) => long(array.value(row).div_euclid(*micros), out),
        Rows::Text(array) => counted(array.value(row).as_bytes(), out),
        Rows::Enum(array, symbols) => match symbols.get(array.value(row)) {
            Some(symbol) => long(*symbol, out),
            None => return Err(no_symbol(array.value(row), symbols)),
        },
        Rows::Binary(array) => counted(array.value(row), out),
        Rows::Fixed(array, size) => fixed(array.value(row), *size, out)?,
        Rows::Decimal(array) => {
            let bytes = array.value(row).to_be_bytes();
            counted(&bytes[16 - significant(&bytes)..], out);
        }
        Rows::FixedDecimal(array, size) => fixed_decimal(array.value(row), *size, out)?,
        Rows::List(list, items) => {
            let bounds = &list.value_offsets()[row..row + 2];
            let (from, to) = (bounds[0] as usize, bounds[1] as usize);
            block(to - from, out);
            let mut items = (from..to).map(|row| write(items, row, out));
            items.try_for_each(|item| item.map_err(|fault| fault.within("element")))?;
            if to > from {
                block(0, out);
            }
        }
        Rows::Map(map, keys, values) => {
            let bounds = &map.value_offsets()[row..row + 2];
            let (from, to) = (bounds[0] as usize, bounds[1] as usize);
            block(to - from, out);
            for row in from..to {
                counted(keys.value(row).as_bytes(), out);
                write(values, row, out).map_err(|fault| fault.within("value"))?;
            }
            if to > from {
                block(0, out);
            }
        }
        Rows::Record(fields) => record(fields, row, out)?,
        Rows::Choice(members) => {
            let mut some = members.iter().filter(|member| member.array.is_valid(row));
            match (some.next(), some.next()) {
                (Some(member), None) => write(member, row, out)?,
                (Some(_), Some(_)) => return Err(several()),
                (None, _) => null(source.value.null, out)?,
            }
        }
    }
    Ok(())
}

fn record(fields: &[Field<'_>], row: usize, out: &mut Vec<u8>) -> Result<(), Box<Fault>> {
    for field in fields {
        match field {
            Field::Column(name, source) => {
                if let Err(fault) = write(source, row, out) {
                    return Err(fault.within(name));
                }
            }
            Field::Null(Some(branch)) => long(*branch, out),
            Field::Null(None) => {}
        }
    }
    Ok(())
}

fn null(branch: Option<i64>, out: &mut Vec<u8>) -> Result<(), Box<Fault>> {
    match branch {
        Some(branch) => {
            long(branch, out);
            Ok(())
        }
        None => Err(Fault::new("null, but the schema's field cannot be null".to_owned())),
    }
}

fn block(items: usize, out: &mut Vec<u8>) {
    long(items as i64, out);
}

#[cold]
fn no_symbol(found: &str, symbols: &HashMap<String, i64>) -> Box<Fault> {
    let mut known: Vec<_> = symbols.keys().take(20).map(String::as_str).collect();
    known.sort_unstable();
    Fault::new(format!("`{found}` is no symbol of the enum, which has {}", known.join(", ")))
}

#[cold]
fn several() -> Box<Fault> {
    Fault::new("more than one member is not null, but a union has one value".to_owned())
}

fn fixed(value: &[u8], size: usize, out: &mut Vec<u8>) -> Result<(), Box<Fault>> {
    if value.len() != size {
        return Err(Fault::new(format!("{} bytes, but the fixed has {size}", value.len())));
    }
    out.extend_from_slice(value);
    Ok(())
}

fn fixed_decimal(value: i128, size: usize, out: &mut Vec<u8>) -> Result<(), Box<Fault>> {
    let bytes = value.to_be_bytes();
    if significant(&bytes) > size {
        return Err(Fault::new(format!("a decimal that does not fit the fixed's {size} bytes")));
    }
    let fill = if value < 0 { 0xff } else { 0 };
    out.extend(std::iter::repeat_n(fill, size.saturating_sub(16)));
    out.extend_from_slice(&bytes[16usize.saturating_sub(size)..]);
    Ok(())
}

/// How many bytes of a two's complement are needed: the others repeat the sign.
fn significant(bytes: &[u8; 16]) -> usize {
    let repeats =
        |pair: &&[u8]| matches!(pair[0], 0 | 0xff) && (pair[0] == 0xff) == (pair[1] >= 0x80);
    16 - bytes.windows(2).take_while(repeats).count()
}
