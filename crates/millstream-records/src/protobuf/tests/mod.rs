//! Tests that use several parts together.

mod decoding;
mod encoding;
mod hostile;
mod mapping;
mod oracle;
mod renumbered;
mod roundtrip;
mod schemas;
mod text;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Schema as Columns, TimestampMicrosecondType,
};
use serde_json::{Value as Json, json};

use super::{Decoder, Options, Plan, RecordError, Schema, wire};

/// The first message of a proto3 text without its first line.
fn proto3(text: &str) -> Schema {
    Schema::from_text(&format!("syntax = \"proto3\"; {text}"), &[], None).unwrap()
}

fn proto2(text: &str) -> Schema {
    Schema::from_text(&format!("syntax = \"proto2\"; {text}"), &[], None).unwrap()
}

fn all(columns: &Columns) -> Vec<usize> {
    (0..columns.fields().len()).collect()
}

/// Rows of records, which must be well-formed, with the columns that Spark would make.
fn decode(schema: &Schema, options: &Options, records: &[Vec<u8>]) -> RecordBatch {
    let columns = schema.columns(options).unwrap();
    let mut decoder = Decoder::new(&columns, &all(&columns)).unwrap();
    let plan = Plan::new(schema, options, &columns, &all(&columns)).unwrap();
    records.iter().for_each(|record| decoder.append(&plan, record).unwrap());
    decoder.finish()
}

/// The row of a record, or what is wrong with it.
fn decode_one(schema: &Schema, options: &Options, record: &[u8]) -> Result<Json, RecordError> {
    let columns = schema.columns(options).unwrap();
    let mut decoder = Decoder::new(&columns, &all(&columns)).unwrap();
    let plan = Plan::new(schema, options, &columns, &all(&columns)).unwrap();
    decoder.append(&plan, record)?;
    Ok(row(&decoder.finish(), 0))
}

/// The row of a record in declared columns.
fn decode_as(schema: &Schema, fields: Vec<Field>, record: &[u8]) -> Result<Json, RecordError> {
    let columns = Columns::new(fields);
    let mut decoder = Decoder::new(&columns, &all(&columns)).unwrap();
    let plan = Plan::new(schema, &Options::default(), &columns, &all(&columns)).unwrap();
    decoder.append(&plan, record)?;
    Ok(row(&decoder.finish(), 0))
}

/// A row as JSON: floats by their bits, maps sorted.
fn row(batch: &RecordBatch, row: usize) -> Json {
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns());
    Json::Object(fields.map(|(f, array)| (f.name().clone(), value(array, row))).collect())
}

fn value(array: &dyn Array, row: usize) -> Json {
    if array.is_null(row) {
        return Json::Null;
    }
    match array.data_type() {
        DataType::Boolean => json!(array.as_boolean().value(row)),
        DataType::Int8 => json!(array.as_primitive::<Int8Type>().value(row)),
        DataType::Int16 => json!(array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 => json!(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => json!(array.as_primitive::<Int64Type>().value(row)),
        DataType::Date32 => json!(array.as_primitive::<Date32Type>().value(row)),
        DataType::Float32 => float(f64::from(array.as_primitive::<Float32Type>().value(row))),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal128(..) => {
            json!(array.as_primitive::<Decimal128Type>().value(row).to_string())
        }
        DataType::Timestamp(..) => {
            json!(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Binary => json!(array.as_binary::<i32>().value(row)),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            (0..items.len()).map(|item| value(&items, item)).collect()
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let part = |at: usize, item| value(entries.column(at), item);
            let entry = |item| (part(0, item).to_string(), part(1, item));
            let map: std::collections::BTreeMap<_, _> = (0..entries.len()).map(entry).collect();
            assert_eq!(map.len(), entries.len(), "keys are unique");
            json!(map)
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let parts = fields.iter().zip(columns);
            Json::Object(parts.map(|(f, array)| (f.name().clone(), value(array, row))).collect())
        }
        other => panic!("no column has the type {other}"),
    }
}

/// A float by its bits, so that NaN equals itself.
fn float(value: f64) -> Json {
    json!(format!("{value}:{:x}", value.to_bits()))
}

/// A record from numbers, bytes and nested records.
#[derive(Default, Clone)]
struct Raw(Vec<u8>);

impl Raw {
    fn varint(mut self, number: u32, value: u64) -> Self {
        wire::put_tag(number, wire::VARINT, &mut self.0);
        wire::put_varint(value, &mut self.0);
        self
    }

    fn int(self, number: u32, value: i64) -> Self {
        self.varint(number, value as u64)
    }

    fn fixed32(mut self, number: u32, value: u32) -> Self {
        wire::put_tag(number, wire::FIXED32, &mut self.0);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn fixed64(mut self, number: u32, value: u64) -> Self {
        wire::put_tag(number, wire::FIXED64, &mut self.0);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, number: u32, value: impl AsRef<[u8]>) -> Self {
        wire::put_tag(number, wire::DELIMITED, &mut self.0);
        wire::put_varint(value.as_ref().len() as u64, &mut self.0);
        self.0.extend(value.as_ref());
        self
    }

    fn nested(self, number: u32, value: Raw) -> Self {
        self.bytes(number, value.0)
    }

    fn group(mut self, number: u32, value: Raw) -> Self {
        wire::put_tag(number, wire::START_GROUP, &mut self.0);
        self.0.extend(value.0);
        wire::put_tag(number, wire::END_GROUP, &mut self.0);
        self
    }
}

fn raw() -> Raw {
    Raw::default()
}
