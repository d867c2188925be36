//! Tests of the whole way, from schema texts and bytes to columns and back.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema as ArrowSchema, TimestampMicrosecondType,
};
use serde_json::{Map, Value as Json, json};

use super::*;

mod declared;
mod encoding;
mod malformed;
mod random;
mod resolution;
mod schemas;

fn parse(text: &str) -> Schema {
    Schema::parse(text, &[]).unwrap()
}

fn record_of(fields: &str) -> Schema {
    parse(&format!(r#"{{"type": "record", "name": "R", "fields": [{fields}]}}"#))
}

/// A record with one field `f` of a type.
fn field_of(kind: &str) -> Schema {
    record_of(&format!(r#"{{"name": "f", "type": {kind}}}"#))
}

/// A decoder of all columns, and a plan for a reader schema.
fn reading(writer: &Schema, reader: &Schema) -> Result<(Decoder, Plan), PlanError> {
    let columns = reader.columns(0).unwrap();
    let all: Vec<usize> = (0..columns.fields().len()).collect();
    let decoder = Decoder::new(&columns, &all).unwrap();
    let target = Target::Reader { schema: reader, recursion: 0 };
    let plan = Plan::new(writer, target, decoder.layout())?;
    Ok((decoder, plan))
}

fn declaring(writer: &Schema, columns: &ArrowSchema) -> Result<(Decoder, Plan), PlanError> {
    let all: Vec<usize> = (0..columns.fields().len()).collect();
    let decoder = Decoder::new(columns, &all).unwrap();
    let plan = Plan::new(writer, Target::Declared, decoder.layout())?;
    Ok((decoder, plan))
}

/// Decodes one record by a reader schema; the row as JSON.
fn read(writer: &Schema, reader: &Schema, record: &[u8]) -> Json {
    let (mut decoder, plan) = reading(writer, reader).unwrap();
    decoder.append(&plan, record).unwrap();
    rows(&decoder.finish()).remove(0)
}

fn rows(batch: &RecordBatch) -> Vec<Json> {
    let row = |row: usize| {
        let schema = batch.schema();
        let cells = schema.fields().iter().zip(batch.columns());
        Json::Object(cells.map(|(f, column)| (f.name().clone(), cell(column, row))).collect())
    };
    (0..batch.num_rows()).map(row).collect()
}

fn hex(bytes: &[u8]) -> Json {
    Json::String(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A value as JSON: bytes as hexadecimal digits, floats by their bits, decimals as text.
fn cell(array: &ArrayRef, row: usize) -> Json {
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
        DataType::Timestamp(..) => {
            json!(array.as_primitive::<TimestampMicrosecondType>().value(row))
        }
        DataType::Float32 => json!(array.as_primitive::<Float32Type>().value(row).to_bits()),
        DataType::Float64 => json!(array.as_primitive::<Float64Type>().value(row).to_bits()),
        DataType::Decimal128(..) => {
            json!(array.as_primitive::<Decimal128Type>().value(row).to_string())
        }
        DataType::Utf8 => json!(array.as_string::<i32>().value(row)),
        DataType::Binary => hex(array.as_binary::<i32>().value(row)),
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            Json::Array((0..items.len()).map(|at| cell(&items, at)).collect())
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let key = |at| entries.column(0).as_string::<i32>().value(at).to_owned();
            let entries = (0..entries.len()).map(|at| (key(at), cell(entries.column(1), at)));
            Json::Object(entries.collect())
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().zip(array.as_struct().columns());
            let cells: Map<_, _> =
                columns.map(|(field, column)| (field.name().clone(), cell(column, row))).collect();
            Json::Object(cells)
        }
        other => panic!("no cell of {other}"),
    }
}

/// Avro bytes of a long.
fn long(value: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    super::default::long(value, &mut bytes);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    [long(text.len() as i64), text.as_bytes().to_vec()].concat()
}
