//! Encodes rows as JSON text, as Spark's `to_json` does: compact, one object per row.
//!
//! For each record batch a tree of writers is made, one for each column and for each part of its
//! type; a row is then written without looking at types and without allocating.

use arrow::array::builder::StringBuilder;
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, ListArray, MapArray,
    RecordBatch, StringArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt64Type,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;
use std::ops::Range;
use thiserror::Error;

use crate::types::{is_variant, spark_type};
use crate::values::calendar::{write_date, write_date_time, write_timestamp};
use crate::values::java_text::{write_big_decimal, write_double, write_float};
use crate::values::json_text::quote;
use crate::values::time_of_day::write_time;
use crate::variant::texts;

/// A type that JSON has no form for.
#[derive(Debug, Error)]
#[error("values of type {} cannot be written as JSON; cast them to STRING", spark_type(data_type))]
pub struct UnsupportedType {
    /// The type, or the part of it that is the reason.
    pub data_type: DataType,
}

/// How JSON is written.
#[derive(Clone, Copy, Debug)]
pub struct EncodeOptions {
    /// Leave out fields that are null. Spark's option `ignoreNullFields`.
    pub ignore_null_fields: bool,
    /// Write fields, and the keys of maps, in the order of their names. Spark's `sortKeys`.
    pub sort_keys: bool,
}

impl Default for EncodeOptions {
    fn default() -> Self {
        Self { ignore_null_fields: true, sort_keys: false }
    }
}

/// Writes each row of `values` (structs, maps or arrays) as JSON; null rows become null.
pub fn encode(values: &dyn Array, options: EncodeOptions) -> Result<StringArray, UnsupportedType> {
    let values = plain(values)?;
    let writer = Writer::new(&values, options)?;
    let mut out = StringBuilder::with_capacity(values.len(), values.len() * 64);
    let mut text = String::new();
    for row in 0..values.len() {
        if matches!(writer, Writer::Null) || values.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        writer.write(row, &mut text);
        out.append_value(&text);
    }
    Ok(out.finish())
}

/// One row of columns as an object.
pub fn row(rows: &RecordBatch, at: usize) -> Result<String, UnsupportedType> {
    let row = StructArray::from(rows.slice(at, 1));
    Ok(encode(&row, EncodeOptions::default())?.value(0).to_owned())
}

/// Writes each value of a column as in JSON, but without quotation marks and escapes;
/// nulls become null. That is also how Spark writes the columns of CSV files.
pub fn plain_texts(values: &ArrayRef) -> Result<StringArray, UnsupportedType> {
    let part = Child::new(values, EncodeOptions::default())?;
    if let Writer::Text(texts) = part.writer {
        return Ok(texts);
    }
    let mut out = StringBuilder::with_capacity(values.len(), values.len() * 16);
    let mut text = String::new();
    for row in 0..values.len() {
        if part.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        part.write(row, &mut text);
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        out.append_value(quoted.unwrap_or(&text));
    }
    Ok(out.finish())
}

/// Whether [`encode`] can write values of `data_type`.
pub fn check(data_type: &DataType) -> Result<(), UnsupportedType> {
    let empty = arrow::array::new_empty_array(data_type);
    encode(&empty, EncodeOptions::default()).map(drop)
}

/// `values` in the one layout that is written: views, large offsets and dictionaries are cast.
fn plain(values: &dyn Array) -> Result<ArrayRef, UnsupportedType> {
    let wanted = plain_type(values.data_type());
    if wanted == *values.data_type() {
        return Ok(values.slice(0, values.len()));
    }
    let unsupported = |_| UnsupportedType { data_type: values.data_type().clone() };
    arrow::compute::cast(values, &wanted).map_err(unsupported)
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => DataType::Int64,
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            DataType::List(item.clone())
        }
        DataType::Timestamp(unit, zone) if *unit != TimeUnit::Microsecond => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::Date64 => DataType::Date32,
        other => other.clone(),
    }
}

/// Writes values of one array.
enum Writer {
    Null,
    Boolean(BooleanArray),
    Int8(Int8Array),
    Int16(Int16Array),
    Int32(Int32Array),
    Int64(Int64Array),
    UInt64(UInt64Array),
    Float32(Float32Array),
    Float64(Float64Array),
    Decimal(Decimal128Array, i8),
    Text(StringArray),
    Binary(BinaryArray),
    /// VARIANTs, in JSON already.
    Variant(StringArray),
    Date(Date32Array),
    TimeOfDay(Time64MicrosecondArray),
    /// An instant, written with its zone.
    Timestamp(TimestampMicrosecondArray),
    /// A local time, written without.
    LocalTime(TimestampMicrosecondArray),
    List(ListArray, Box<Child>),
    Map(Box<Entries>),
    Struct(Vec<Member>, EncodeOptions),
}

/// Values within others, and which of them are null.
struct Child {
    values: ArrayRef,
    writer: Writer,
}

/// The entries of maps.
struct Entries {
    map: MapArray,
    keys: Child,
    values: Child,
    sorted: bool,
}

struct Member {
    /// The key, quoted, with its colon.
    key: String,
    part: Child,
}

impl Child {
    fn new(values: &ArrayRef, options: EncodeOptions) -> Result<Self, UnsupportedType> {
        let values = plain(values)?;
        let writer = Writer::new(&values, options)?;
        Ok(Self { values, writer })
    }

    fn write(&self, row: usize, out: &mut String) {
        if self.is_null(row) { out.push_str("null") } else { self.writer.write(row, out) }
    }

    /// Whether a row is null. An array of the type NULL has no null buffer, so it is asked by type.
    fn is_null(&self, row: usize) -> bool {
        matches!(self.writer, Writer::Null) || self.values.is_null(row)
    }

    /// Writes a map's key: its text, always as a JSON string.
    fn write_key(&self, row: usize, out: &mut String) {
        match &self.writer {
            Writer::Text(values) => quote(values.value(row), out),
            _ => quote(&self.key(row), out),
        }
    }

    fn key(&self, row: usize) -> String {
        let mut text = String::new();
        match &self.writer {
            Writer::Text(values) => text.push_str(values.value(row)),
            Writer::Float32(values) => write_float(values.value(row), &mut text),
            Writer::Float64(values) => write_double(values.value(row), &mut text),
            Writer::Date(values) => write_date(values.value(row), &mut text),
            Writer::TimeOfDay(values) => write_time(values.value(row), &mut text),
            Writer::Timestamp(values) | Writer::LocalTime(values) => {
                write_timestamp(values.value(row), &mut text);
            }
            writer => writer.write(row, &mut text),
        }
        text
    }
}

impl Entries {
    fn write(&self, row: usize, out: &mut String) {
        out.push('{');
        let entries = range(self.map.value_offsets(), row);
        let mut write = |(count, entry): (usize, usize)| {
            out.push_str(if count > 0 { "," } else { "" });
            self.keys.write_key(entry, out);
            out.push(':');
            self.values.write(entry, out);
        };
        match self.sorted {
            false => entries.enumerate().for_each(&mut write),
            true => {
                let mut entries: Vec<usize> = entries.collect();
                let units =
                    |entry: &usize| self.keys.key(*entry).encode_utf16().collect::<Vec<_>>();
                entries.sort_by_cached_key(units);
                entries.into_iter().enumerate().for_each(&mut write);
            }
        }
        out.push('}');
    }
}

impl Writer {
    fn new(values: &ArrayRef, options: EncodeOptions) -> Result<Self, UnsupportedType> {
        Ok(match values.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Boolean(values.as_boolean().clone()),
            DataType::Int8 => Self::Int8(values.as_primitive::<Int8Type>().clone()),
            DataType::Int16 => Self::Int16(values.as_primitive::<Int16Type>().clone()),
            DataType::Int32 => Self::Int32(values.as_primitive::<Int32Type>().clone()),
            DataType::Int64 => Self::Int64(values.as_primitive::<Int64Type>().clone()),
            DataType::UInt64 => Self::UInt64(values.as_primitive::<UInt64Type>().clone()),
            DataType::Float32 => Self::Float32(values.as_primitive::<Float32Type>().clone()),
            DataType::Float64 => Self::Float64(values.as_primitive::<Float64Type>().clone()),
            DataType::Decimal128(_, scale) => {
                Self::Decimal(values.as_primitive::<Decimal128Type>().clone(), *scale)
            }
            DataType::Utf8 => Self::Text(values.as_string::<i32>().clone()),
            DataType::Binary => Self::Binary(values.as_binary::<i32>().clone()),
            DataType::Date32 => Self::Date(values.as_primitive::<Date32Type>().clone()),
            DataType::Time64(TimeUnit::Microsecond) => {
                Self::TimeOfDay(values.as_primitive::<Time64MicrosecondType>().clone())
            }
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let times = values.as_primitive::<TimestampMicrosecondType>().clone();
                if zone.is_some() { Self::Timestamp(times) } else { Self::LocalTime(times) }
            }
            DataType::List(_) => {
                let list = values.as_list::<i32>().clone();
                let items = Child::new(list.values(), options)?;
                Self::List(list, Box::new(items))
            }
            DataType::Map(_, _) => {
                let map = values.as_map().clone();
                // Spark writes such a key in a form of its own, which is no JSON.
                if map.keys().data_type().is_nested() {
                    return Err(UnsupportedType { data_type: values.data_type().clone() });
                }
                let keys = Child::new(map.keys(), options)?;
                let values = Child::new(map.values(), options)?;
                let sorted = options.sort_keys;
                Self::Map(Box::new(Entries { map, keys, values, sorted }))
            }
            of if is_variant(of) => {
                let unsupported = |_| UnsupportedType { data_type: of.clone() };
                Self::Variant(texts(values).map_err(unsupported)?)
            }
            DataType::Struct(_) => Self::Struct(members(values.as_struct(), options)?, options),
            other => return Err(UnsupportedType { data_type: other.clone() }),
        })
    }

    /// Appends the value in `row`, which is not null.
    fn write(&self, row: usize, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Boolean(values) => out.push_str(if values.value(row) { "true" } else { "false" }),
            Self::Int8(values) => integer(values.value(row), out),
            Self::Int16(values) => integer(values.value(row), out),
            Self::Int32(values) => integer(values.value(row), out),
            Self::Int64(values) => integer(values.value(row), out),
            Self::UInt64(values) => integer(values.value(row), out),
            Self::Float32(values) => {
                let value = values.value(row);
                // JSON has no NaN and infinities; Spark writes them as strings.
                quoted_if(!value.is_finite(), out, |out| write_float(value, out));
            }
            Self::Float64(values) => {
                let value = values.value(row);
                quoted_if(!value.is_finite(), out, |out| write_double(value, out));
            }
            Self::Decimal(values, scale) => write_big_decimal(values.value(row), *scale, out),
            Self::Text(values) => quote(values.value(row), out),
            Self::Binary(values) => {
                quoted_if(true, out, |out| STANDARD.encode_string(values.value(row), out));
            }
            Self::Variant(texts) => out.push_str(texts.value(row)),
            Self::Date(values) => quoted_if(true, out, |out| write_date(values.value(row), out)),
            Self::TimeOfDay(values) => {
                quoted_if(true, out, |out| write_time(values.value(row), out));
            }
            Self::Timestamp(values) => time(values.value(row), "Z", out),
            Self::LocalTime(values) => time(values.value(row), "", out),
            Self::List(list, items) => {
                out.push('[');
                for (count, item) in range(list.value_offsets(), row).enumerate() {
                    out.push_str(if count > 0 { "," } else { "" });
                    items.write(item, out);
                }
                out.push(']');
            }
            Self::Map(entries) => entries.write(row, out),
            Self::Struct(members, options) => object(members, *options, row, out),
        }
    }
}

fn members(values: &StructArray, options: EncodeOptions) -> Result<Vec<Member>, UnsupportedType> {
    let member = |(field, column): (&arrow::datatypes::FieldRef, &ArrayRef)| {
        let mut key = String::new();
        quote(field.name(), &mut key);
        key.push(':');
        Ok(Member { key, part: Child::new(column, options)? })
    };
    let mut columns: Vec<_> = values.fields().iter().zip(values.columns()).collect();
    if options.sort_keys {
        // Java's order of texts is that of their units in UTF-16.
        columns.sort_by(|(one, _), (other, _)| {
            one.name().encode_utf16().cmp(other.name().encode_utf16())
        });
    }
    columns.into_iter().map(member).collect()
}

fn object(members: &[Member], options: EncodeOptions, row: usize, out: &mut String) {
    out.push('{');
    let mut first = true;
    for Member { key, part } in members {
        if options.ignore_null_fields && part.is_null(row) {
            continue;
        }
        out.push_str(if first { "" } else { "," });
        first = false;
        out.push_str(key);
        part.write(row, out);
    }
    out.push('}');
}

fn range(offsets: &[i32], row: usize) -> Range<usize> {
    offsets[row] as usize..offsets[row + 1] as usize
}

fn integer(value: impl std::fmt::Display, out: &mut String) {
    write!(out, "{value}").expect("a String takes everything");
}

fn quoted_if(quoted: bool, out: &mut String, write: impl FnOnce(&mut String)) {
    let mark = if quoted { "\"" } else { "" };
    out.push_str(mark);
    write(out);
    out.push_str(mark);
}

/// Spark's default pattern `yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]`: always milliseconds.
fn time(us: i64, zone: &str, out: &mut String) {
    out.push('"');
    let fraction = write_date_time(us, 'T', out);
    write!(out, ".{:03}{zone}\"", fraction / 1000).expect("a String takes everything");
}
