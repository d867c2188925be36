//! Rows to records.
//!
//! A batch's arrays are first bound to the fields, so that each row is written without asking for
//! types again. A null is an absent field. Fields are written in the order of their numbers, which
//! makes the bytes of equal rows equal.

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, ListArray, MapArray,
    PrimitiveArray, RecordBatch, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};

use super::encoder::{Encoder, EnumNumbers, Field, Message, Op, Shape};
use super::planned::Number;
use super::wire;
use crate::types::spark_type;

/// A row that is no record of the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A null where there must be a value.
    #[error("row {row}: the field {field} is required, but its column is null")]
    Null {
        /// The row, counted from 0.
        row: usize,
        /// The field, with those around it.
        field: String,
    },
    /// A null where there is none: it would be zero, or empty, to a reader.
    #[error(
        "row {row}: the field {field} cannot be null, which would be read as zero or as empty: \
         replace nulls in the query, as with coalesce, or declare the field optional"
    )]
    NoNull {
        /// The row, counted from 0.
        row: usize,
        /// The field, with those around it.
        field: String,
    },
    /// A null in an array.
    #[error(
        "row {row}: the array for the field {field} has a null, which a repeated field cannot \
         have: filter nulls out in the query"
    )]
    NullElement {
        /// The row, counted from 0.
        row: usize,
        /// The field, with those around it.
        field: String,
    },
    /// A name or number that the enum does not have.
    #[error("row {row}: the field {field} cannot be \"{value}\", which {name} does not have")]
    Enum {
        /// The row, counted from 0.
        row: usize,
        /// The field, with those around it.
        field: String,
        /// What the column has.
        value: String,
        /// The enum's full name.
        name: String,
    },
    /// A number that the field's type cannot have.
    #[error("row {row}: {value} is out of range for the field {field}")]
    Range {
        /// The row, counted from 0.
        row: usize,
        /// The field, with those around it.
        field: String,
        /// The number.
        value: String,
    },
    /// Two members of a oneof.
    #[error(
        "row {row}: the column for {field} has a value although another member of its oneof has \
         one: only one of them can be other than null"
    )]
    Oneof {
        /// The row, counted from 0.
        row: usize,
        /// The second member.
        field: String,
    },
    /// Other arrays than the encoder was made for.
    #[error(
        "the array of the field {field} has the type {}, which was not declared",
        spark_type(data_type)
    )]
    OtherColumns {
        /// The field, with those around it.
        field: String,
        /// The array's type.
        data_type: DataType,
    },
    /// More than a column can have.
    #[error("the records of the batch have more than 2 GiB: encode fewer rows at once")]
    TooLarge,
}

/// What is wrong with a value, and in which field: the innermost first.
struct Fault {
    fields: Vec<String>,
    kind: FaultKind,
}

enum FaultKind {
    Null,
    NoNull,
    NullElement,
    Enum { value: String, name: String },
    Range(String),
    Oneof,
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        Self { fields: Vec::new(), kind }
    }
}

impl Fault {
    fn in_row(mut self, row: usize) -> EncodeError {
        self.fields.reverse();
        let field = self.fields.join(".");
        match self.kind {
            FaultKind::Null => EncodeError::Null { row, field },
            FaultKind::NoNull => EncodeError::NoNull { row, field },
            FaultKind::NullElement => EncodeError::NullElement { row, field },
            FaultKind::Enum { value, name } => EncodeError::Enum { row, field, value, name },
            FaultKind::Range(value) => EncodeError::Range { row, field, value },
            FaultKind::Oneof => EncodeError::Oneof { row, field },
        }
    }
}

impl EncodeError {
    /// The row that is the reason, and what is wrong with it, if a row is.
    pub fn in_row(&self) -> Option<(usize, String)> {
        let row = match self {
            Self::Null { row, .. }
            | Self::NoNull { row, .. }
            | Self::NullElement { row, .. }
            | Self::Enum { row, .. }
            | Self::Range { row, .. }
            | Self::Oneof { row, .. } => *row,
            Self::OtherColumns { .. } | Self::TooLarge => return None,
        };
        let text = self.to_string();
        let problem = text.strip_prefix(&format!("row {row}: ")).unwrap_or(&text);
        Some((row, problem.to_owned()))
    }
}

impl Encoder {
    /// Encodes each row of a batch, with `prefix` before it.
    ///
    /// # Errors
    /// The first row that is no record of the message.
    pub fn encode(&self, batch: &RecordBatch, prefix: &[u8]) -> Result<BinaryArray, EncodeError> {
        self.rows(batch.columns(), None, batch.num_rows(), prefix)
    }

    /// Encodes each struct, with `prefix` before it. A null stays null.
    ///
    /// # Errors
    /// The first row that is no record of the message.
    pub fn encode_structs(
        &self,
        structs: &StructArray,
        prefix: &[u8],
    ) -> Result<BinaryArray, EncodeError> {
        self.rows(structs.columns(), structs.nulls(), structs.len(), prefix)
    }

    fn rows(
        &self,
        columns: &[ArrayRef],
        nulls: Option<&NullBuffer>,
        rows: usize,
        prefix: &[u8],
    ) -> Result<BinaryArray, EncodeError> {
        let values = bind(&self.root, columns)?;
        let mut bytes = Vec::new();
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        for row in 0..rows {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                bytes.extend_from_slice(prefix);
                put_message(&self.root, &values, row, &mut bytes)
                    .map_err(|fault| fault.in_row(row))?;
            }
            offsets.push(i32::try_from(bytes.len()).map_err(|_| EncodeError::TooLarge)?);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Ok(BinaryArray::new(offsets, bytes.into(), nulls.cloned()))
    }
}

/// An array, as its field takes it.
enum Values<'a> {
    Bool(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    Date(&'a PrimitiveArray<Date32Type>),
    Decimal(&'a PrimitiveArray<Decimal128Type>),
    Float(&'a PrimitiveArray<Float32Type>),
    Double(&'a PrimitiveArray<Float64Type>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>),
    /// Text or bytes, in whichever layout.
    Bytes(&'a dyn Array, BytesAt<'a>),
    Struct(&'a StructArray, Vec<Values<'a>>),
    List(&'a ListArray, Box<Values<'a>>),
    Map(&'a MapArray, Vec<Values<'a>>),
}

fn bind<'a>(message: &Message, columns: &'a [ArrayRef]) -> Result<Vec<Values<'a>>, EncodeError> {
    let bind = |field: &Field| match columns.get(field.column) {
        Some(array) => bind_field(field, array),
        None => Err(other_columns(field, &DataType::Null)),
    };
    message.fields.iter().map(bind).collect()
}

fn other_columns(field: &Field, data_type: &DataType) -> EncodeError {
    EncodeError::OtherColumns { field: field.name.to_string(), data_type: data_type.clone() }
}

fn bind_field<'a>(field: &Field, array: &'a ArrayRef) -> Result<Values<'a>, EncodeError> {
    match (field.shape, array.data_type()) {
        (Shape::List | Shape::Packed, DataType::List(_)) => {
            let list = array.as_list::<i32>();
            let items = bind_value(field, &field.op, list.values())?;
            Ok(Values::List(list, Box::new(items)))
        }
        (Shape::Map, DataType::Map(..)) => match &field.op {
            Op::Message(entry) => {
                let map = array.as_map();
                Ok(Values::Map(map, bind(entry, map.entries().columns())?))
            }
            _ => Err(other_columns(field, array.data_type())),
        },
        (Shape::List | Shape::Packed | Shape::Map, other) => Err(other_columns(field, other)),
        _ => bind_value(field, &field.op, array),
    }
}

fn bind_value<'a>(field: &Field, op: &Op, array: &'a ArrayRef) -> Result<Values<'a>, EncodeError> {
    if let Op::Wrapped(inner) = op {
        return bind_value(field, &inner.op, array);
    }
    let is_int = matches!(op, Op::Number(_) | Op::Enum(_));
    let is_bytes = matches!(op, Op::Bytes | Op::Enum(_));
    Ok(match (op, array.data_type()) {
        (Op::Bool, DataType::Boolean) => Values::Bool(array.as_boolean()),
        (_, DataType::Int8) if is_int => Values::Int8(array.as_primitive()),
        (_, DataType::Int16) if is_int => Values::Int16(array.as_primitive()),
        (_, DataType::Int32) if is_int => Values::Int32(array.as_primitive()),
        (Op::Number(_), DataType::Int64) => Values::Int64(array.as_primitive()),
        (Op::Number(_), DataType::Date32) => Values::Date(array.as_primitive()),
        (Op::Number(_), DataType::Decimal128(_, 0)) => Values::Decimal(array.as_primitive()),
        (Op::Float | Op::Double, DataType::Float32) => Values::Float(array.as_primitive()),
        (Op::Double, DataType::Float64) => Values::Double(array.as_primitive()),
        (Op::Timestamp { .. }, DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, _)) => {
            Values::Timestamp(array.as_primitive())
        }
        (_, data_type) if is_bytes => match bytes_of(data_type) {
            Some(at) => Values::Bytes(array.as_ref(), at),
            None => return Err(other_columns(field, data_type)),
        },
        (Op::Message(message) | Op::Group(message), DataType::Struct(_)) => {
            let structs = array.as_struct();
            Values::Struct(structs, bind(message, structs.columns())?)
        }
        (_, other) => return Err(other_columns(field, other)),
    })
}

/// How a value of text or bytes is got.
type BytesAt<'a> = fn(&'a dyn Array, usize) -> &'a [u8];

fn bytes_of<'a>(data_type: &DataType) -> Option<BytesAt<'a>> {
    Some(match data_type {
        DataType::Utf8 => |array, row| array.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => |array, row| array.as_string::<i64>().value(row).as_bytes(),
        DataType::Utf8View => |array, row| array.as_string_view().value(row).as_bytes(),
        DataType::Binary => |array, row| array.as_binary::<i32>().value(row),
        DataType::LargeBinary => |array, row| array.as_binary::<i64>().value(row),
        DataType::BinaryView => |array, row| array.as_binary_view().value(row),
        _ => return None,
    })
}

impl Values<'_> {
    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Bool(array) => array.is_null(row),
            Self::Int8(array) => array.is_null(row),
            Self::Int16(array) => array.is_null(row),
            Self::Int32(array) => array.is_null(row),
            Self::Int64(array) => array.is_null(row),
            Self::Date(array) => array.is_null(row),
            Self::Decimal(array) => array.is_null(row),
            Self::Float(array) => array.is_null(row),
            Self::Double(array) => array.is_null(row),
            Self::Timestamp(array) => array.is_null(row),
            Self::Bytes(array, _) => array.is_null(row),
            Self::Struct(array, _) => array.is_null(row),
            Self::List(array, _) => array.is_null(row),
            Self::Map(array, _) => array.is_null(row),
        }
    }

    /// A whole number, if these are such.
    fn number(&self, row: usize) -> Option<i128> {
        fn at<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, row: usize) -> Option<i128>
        where
            i128: From<T::Native>,
        {
            Some(i128::from(array.value(row)))
        }
        match self {
            Self::Int8(array) => at(array, row),
            Self::Int16(array) => at(array, row),
            Self::Int32(array) => at(array, row),
            Self::Int64(array) => at(array, row),
            Self::Date(array) => at(array, row),
            Self::Decimal(array) => at(array, row),
            _ => None,
        }
    }
}

fn put_message(
    message: &Message,
    values: &[Values<'_>],
    row: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let mut has_member = vec![false; message.oneofs];
    for (field, values) in message.fields.iter().zip(values) {
        if let Some(oneof) = field.oneof
            && !values.is_null(row)
            && std::mem::replace(&mut has_member[oneof], true)
        {
            return Err(Fault { fields: vec![field.name.to_string()], kind: FaultKind::Oneof });
        }
        put_field(field, values, row, out).map_err(|mut fault| {
            fault.fields.push(field.name.to_string());
            fault
        })?;
    }
    Ok(())
}

fn put_field(
    field: &Field,
    values: &Values<'_>,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if values.is_null(row) {
        return match field.shape {
            Shape::Required => Err(FaultKind::Null.into()),
            Shape::Implicit | Shape::List | Shape::Packed | Shape::Map | Shape::Entry
                if field.is_exact =>
            {
                Err(FaultKind::NoNull.into())
            }
            Shape::Entry => {
                put_default(field, out);
                Ok(())
            }
            _ => Ok(()),
        };
    }
    match values {
        Values::List(list, items) => {
            let offsets = list.value_offsets();
            let range = offsets[row] as usize..offsets[row + 1] as usize;
            if range.is_empty() {
                return Ok(());
            }
            if range.clone().any(|item| items.is_null(item)) {
                return Err(FaultKind::NullElement.into());
            }
            if field.shape == Shape::List {
                return range.into_iter().try_for_each(|item| put_tagged(field, items, item, out));
            }
            out.extend_from_slice(&field.tag);
            wire::put_delimited(out, |out| {
                range.into_iter().try_for_each(|item| put_checked(field, items, item, out))
            })
        }
        Values::Map(map, values) => {
            let Op::Message(entry) = &field.op else { return Ok(()) };
            let offsets = map.value_offsets();
            for item in offsets[row] as usize..offsets[row + 1] as usize {
                out.extend_from_slice(&field.tag);
                wire::put_delimited(out, |out| put_message(entry, values, item, out))?;
            }
            Ok(())
        }
        values => {
            let start = out.len();
            put_tagged(field, values, row, out)?;
            let value = &out[start + field.tag.len()..];
            if field.shape == Shape::Implicit && value.iter().all(|byte| *byte == 0) {
                out.truncate(start);
            }
            Ok(())
        }
    }
}

fn put_tagged(
    field: &Field,
    values: &Values<'_>,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    out.extend_from_slice(&field.tag);
    put_checked(field, values, row, out)?;
    out.extend_from_slice(&field.end);
    Ok(())
}

fn put_checked(
    field: &Field,
    values: &Values<'_>,
    row: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if let (true, Op::Number(number)) = (field.is_exact, &field.op)
        && let Some(value) = values.number(row)
        && number.is_unsigned()
        && value < 0
    {
        return Err(FaultKind::Range(value.to_string()).into());
    }
    put_value(&field.op, values, row, out)
}

/// The value that a null in the entry of a map becomes, as in Spark: the default one.
fn put_default(field: &Field, out: &mut Vec<u8>) {
    out.extend_from_slice(&field.tag);
    let zeros = match &field.op {
        Op::Double => 8,
        Op::Float => 4,
        Op::Number(number) => match number {
            Number::Fixed64 | Number::Sfixed64 => 8,
            Number::Fixed32 | Number::Sfixed32 => 4,
            _ => 1,
        },
        _ => 1,
    };
    out.extend_from_slice(&[0; 8][..zeros]);
}

fn put_value(op: &Op, values: &Values<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
    match (op, values) {
        (Op::Number(number), values) => {
            if let Some(value) = values.number(row) {
                return put_number(*number, value, values, out);
            }
        }
        (Op::Float, Values::Float(array)) => out.extend(array.value(row).to_le_bytes()),
        (Op::Double, Values::Float(array)) => out.extend(f64::from(array.value(row)).to_le_bytes()),
        (Op::Double, Values::Double(array)) => out.extend(array.value(row).to_le_bytes()),
        (Op::Bool, Values::Bool(array)) => out.push(u8::from(array.value(row))),
        (Op::Bytes, Values::Bytes(array, at)) => {
            let bytes = at(*array, row);
            wire::put_varint(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        (Op::Enum(numbers), values) => {
            wire::put_varint(i64::from(enum_number(numbers, values, row)?) as u64, out);
        }
        (Op::Timestamp { seconds, nanos }, Values::Timestamp(array)) => {
            let micros = array.value(row);
            let (second, micro) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
            return wire::put_delimited(out, |out| {
                for (number, value) in [(*seconds, second), (*nanos, micro * 1000)] {
                    if value != 0 {
                        wire::put_tag(number, wire::VARINT, out);
                        wire::put_varint(value as u64, out);
                    }
                }
                Ok(())
            });
        }
        (Op::Message(message), Values::Struct(_, values)) => {
            return wire::put_delimited(out, |out| put_message(message, values, row, out));
        }
        (Op::Group(message), Values::Struct(_, values)) => {
            return put_message(message, values, row, out);
        }
        (Op::Wrapped(field), values) => {
            return wire::put_delimited(out, |out| put_field(field, values, row, out));
        }
        _ => unreachable!("arrays are bound to what takes them"),
    }
    Ok(())
}

fn put_number(
    number: Number,
    value: i128,
    values: &Values<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let error = || Fault::from(FaultKind::Range(value.to_string()));
    // A wider column than the field is the unsigned value; one of its size is its bits, as Spark
    // reads them.
    let is_checked = match values {
        Values::Decimal(_) => u64::try_from(value).is_err(),
        Values::Int64(_) if !number.is_long() => u32::try_from(value).is_err(),
        Values::Int8(_) | Values::Int16(_) | Values::Int32(_) => {
            number.is_long() && number.is_unsigned() && value < 0
        }
        _ => false,
    };
    if is_checked {
        return Err(error());
    }
    let long = value as i64;
    match number {
        Number::Int32 | Number::Int64 | Number::Uint64 => wire::put_varint(long as u64, out),
        Number::Uint32 => wire::put_varint(u64::from(long as u32), out),
        Number::Sint32 | Number::Sint64 => wire::put_varint(wire::zigzag(long), out),
        Number::Fixed32 | Number::Sfixed32 => out.extend((long as u32).to_le_bytes()),
        Number::Fixed64 | Number::Sfixed64 => out.extend(long.to_le_bytes()),
    }
    Ok(())
}

fn enum_number(numbers: &EnumNumbers, values: &Values<'_>, row: usize) -> Result<i32, Fault> {
    let unknown =
        |value: String| Fault::from(FaultKind::Enum { value, name: numbers.name.to_string() });
    if let Values::Bytes(array, at) = values {
        let name = String::from_utf8_lossy(at(*array, row));
        return match numbers.numbers.get(name.as_ref()) {
            Some(number) => Ok(*number),
            None => Err(unknown(name.into_owned())),
        };
    }
    let number = values.number(row).and_then(|number| i32::try_from(number).ok()).unwrap_or(0);
    match numbers.is_closed && !numbers.numbers.values().any(|value| *value == number) {
        true => Err(unknown(number.to_string())),
        false => Ok(number),
    }
}
