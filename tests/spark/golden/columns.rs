//! Columns in Arrow of rows as Spark's answers have them: the way back from `values.py`.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, ListArray, MapArray, PrimitiveArray,
    RecordBatch, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Field, FieldRef, Fields, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
};
use millstream_sql::types::{COLLATIONS, is_variant, parse_column_ddl, quoted};
use serde_json::Value;

static NULL: Value = Value::Null;

/// The rows of a table; `None` where a column has a type that Parquet files of ours cannot have.
pub fn record_batch(columns: &[(String, String)], rows: &[Vec<Value>]) -> Option<RecordBatch> {
    let mut fields = Vec::with_capacity(columns.len());
    let mut arrays = Vec::with_capacity(columns.len());
    for (at, (name, spark_type)) in columns.iter().enumerate() {
        let data_type = parse_column_ddl(name, spark_type).ok()?.data_type().clone();
        let values: Vec<&Value> = rows.iter().map(|row| &row[at]).collect();
        arrays.push(column(&data_type, &values)?);
        fields.push(Field::new(name, data_type, true));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).ok()
}

/// The list of columns in a declaration, if some have collations, which files do not have.
pub fn declared(columns: &[(String, String)]) -> Option<String> {
    let has_collation = |(name, spark_type): &(String, String)| {
        let field = parse_column_ddl(name, spark_type);
        field.is_ok_and(|field| field.metadata().contains_key(COLLATIONS))
    };
    if !columns.iter().any(has_collation) {
        return None;
    }
    let column = |(name, spark_type): &(String, String)| format!("{} {spark_type}", quoted(name));
    Some(columns.iter().map(column).collect::<Vec<_>>().join(", "))
}

fn column(data_type: &DataType, values: &[&Value]) -> Option<ArrayRef> {
    let texts = || values.iter().map(|value| value.as_str());
    Some(match data_type {
        // The answers have only their texts.
        of if is_variant(of) => return None,
        DataType::Boolean => {
            Arc::new(BooleanArray::from_iter(values.iter().map(|value| value.as_bool())))
        }
        DataType::Int8 => whole::<Int8Type>(values, data_type),
        DataType::Int16 => whole::<Int16Type>(values, data_type),
        DataType::Int32 => whole::<Int32Type>(values, data_type),
        DataType::Int64 => whole::<Int64Type>(values, data_type),
        DataType::Date32 => whole::<Date32Type>(values, data_type),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            whole::<TimestampMicrosecondType>(values, data_type)
        }
        DataType::Float32 => {
            let numbers = texts().map(|text| text.and_then(|text| text.parse::<f32>().ok()));
            Arc::new(PrimitiveArray::<Float32Type>::from_iter(numbers))
        }
        DataType::Float64 => {
            let numbers = texts().map(|text| text.and_then(|text| text.parse::<f64>().ok()));
            Arc::new(PrimitiveArray::<Float64Type>::from_iter(numbers))
        }
        DataType::Decimal128(precision, scale) => {
            let numbers: Decimal128Array = texts().map(|text| text.and_then(unscaled)).collect();
            Arc::new(numbers.with_precision_and_scale(*precision, *scale).ok()?)
        }
        DataType::Utf8 => Arc::new(StringArray::from_iter(texts())),
        DataType::Binary => {
            let bytes: Vec<Option<Vec<u8>>> = texts().map(|text| text.map(bytes)).collect();
            Arc::new(BinaryArray::from_iter(bytes))
        }
        DataType::List(element) => Arc::new(list(element, values)?),
        DataType::Map(entries, _) => Arc::new(map(entries, values)?),
        DataType::Struct(fields) => Arc::new(structure(fields, values)?),
        _ => return None,
    })
}

fn whole<T>(values: &[&Value], data_type: &DataType) -> ArrayRef
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64>,
{
    let number = |value: &&Value| -> Option<T::Native> { value.as_i64()?.try_into().ok() };
    let numbers = PrimitiveArray::<T>::from_iter(values.iter().map(number));
    Arc::new(numbers.with_data_type(data_type.clone()))
}

/// `-1.50` as -150.
fn unscaled(text: &str) -> Option<i128> {
    text.replace('.', "").parse().ok()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.filter_map(byte).collect()
}

/// What arrays have in common: where each ends, which are NULL, and all their items.
fn items<'a>(values: &[&'a Value]) -> (OffsetBuffer<i32>, NullBuffer, Vec<&'a Value>) {
    let arrays: Vec<Option<&Vec<Value>>> = values.iter().map(|value| value.as_array()).collect();
    let lengths = arrays.iter().map(|array| array.map_or(0, Vec::len));
    let nulls = arrays.iter().map(Option::is_some).collect();
    let items = arrays.iter().copied().flatten().flatten().collect();
    (OffsetBuffer::from_lengths(lengths), nulls, items)
}

fn list(element: &FieldRef, values: &[&Value]) -> Option<ListArray> {
    let (offsets, nulls, items) = items(values);
    let items = column(element.data_type(), &items)?;
    ListArray::try_new(Arc::clone(element), offsets, items, Some(nulls)).ok()
}

fn map(entries: &FieldRef, values: &[&Value]) -> Option<MapArray> {
    let DataType::Struct(fields) = entries.data_type() else { return None };
    let (offsets, nulls, items) = items(values);
    let pairs = structure(fields, &items)?;
    MapArray::try_new(Arc::clone(entries), offsets, pairs, Some(nulls), false).ok()
}

fn structure(fields: &Fields, values: &[&Value]) -> Option<StructArray> {
    let nulls: NullBuffer = values.iter().map(|value| value.is_array()).collect();
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    let of_field = |at: usize, field: &FieldRef| {
        let values: Vec<&Value> =
            values.iter().map(|value| value.get(at).unwrap_or(&NULL)).collect();
        column(field.data_type(), &values)
    };
    let arrays = fields.iter().enumerate().map(|(at, field)| of_field(at, field));
    let arrays: Vec<ArrayRef> = arrays.collect::<Option<_>>()?;
    StructArray::try_new_with_length(fields.clone(), arrays, nulls, values.len()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cells::{of_array, of_json};

    /// Rows that are written to Arrow and read again are the same.
    #[test]
    fn rows_come_back() {
        let kind = "struct<a:array<decimal(5,2)>,b:map<string,double>,c:binary,d:timestamp>";
        let rows = [
            json!([["1.50", null], [["x", "1.5"], ["y", null]], "00FF", -1]),
            json!([null, [], "", 1_500]),
            Value::Null,
        ];
        let rows = rows.map(|row| vec![row]).to_vec();
        let columns = [("s".to_owned(), kind.to_owned())];
        let batch = record_batch(&columns, &rows).expect("all types are known");
        let data_type = parse_column_ddl("s", kind).expect("the type is known");
        let data_type = data_type.data_type();
        for (at, row) in rows.iter().enumerate() {
            let found = of_array(batch.column(0), at);
            assert!(found.is(&of_json(&row[0], Some(data_type)), false), "{found:?}");
        }
    }

    #[test]
    fn intervals_and_variants_have_no_column() {
        let columns = [("i".to_owned(), "interval day to second".to_owned())];
        assert!(record_batch(&columns, &[vec![json!(1)]]).is_none());
        let columns = [("v".to_owned(), "struct<a:variant>".to_owned())];
        assert!(record_batch(&columns, &[vec![json!(["1"])]]).is_none());
    }
}
