//! Between which values the keys of a commit are, to leave out files that cannot have them.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::compute::{max, max_string, min, min_string};
use arrow::datatypes::{
    DataType, Date32Type, Int64Type, SchemaRef, TimeUnit, TimestampMicrosecondType,
};

use crate::read::{Comparison, Predicate, Value};

/// The least and the greatest value of each key column, where that is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    columns: Option<Vec<Option<(Value, Value)>>>,
    schema: Option<SchemaRef>,
}

impl Bounds {
    /// Widens them to key columns of further rows.
    pub(super) fn add(&mut self, rows: &RecordBatch) {
        let columns = Some(rows.columns().iter().map(|column| bounds(column)).collect());
        self.widen(Self { columns, schema: Some(rows.schema()) });
    }

    /// Widens them to those of others.
    pub(super) fn widen(&mut self, other: Self) {
        match (&mut self.columns, other.columns) {
            (_, None) => {}
            (None, found) => (self.columns, self.schema) = (found, other.schema),
            (Some(columns), Some(found)) => {
                for (before, found) in columns.iter_mut().zip(found) {
                    *before = match (before.take(), found) {
                        (Some((least, greatest)), Some((less, greater))) => {
                            Some((lesser(least, less), greater_of(greatest, greater)))
                        }
                        _ => None,
                    };
                }
            }
        }
    }

    /// What holds for all rows with these keys.
    pub(super) fn predicate(&self) -> Option<Predicate> {
        let (columns, schema) = (self.columns.as_ref()?, self.schema.as_ref()?);
        let within = columns.iter().zip(schema.fields()).filter_map(|(bounds, field)| {
            let (least, greatest) = bounds.clone()?;
            let compare = |comparison, value| Predicate::compare(field.name(), comparison, value);
            Some([
                compare(Comparison::GreaterOrEqual, least),
                compare(Comparison::LessOrEqual, greatest),
            ])
        });
        Some(Predicate::And(within.flatten().collect()))
    }
}

fn lesser(one: Value, other: Value) -> Value {
    if is_less(&other, &one) { other } else { one }
}

fn greater_of(one: Value, other: Value) -> Value {
    if is_less(&one, &other) { other } else { one }
}

fn is_less(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Integer(one), Value::Integer(other))
        | (Value::Timestamp(one), Value::Timestamp(other)) => one < other,
        (Value::Text(one), Value::Text(other)) => one < other,
        (Value::Date(one), Value::Date(other)) => one < other,
        _ => false,
    }
}

fn bounds(column: &dyn Array) -> Option<(Value, Value)> {
    match column.data_type() {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let column = cast(column, &DataType::Int64).ok()?;
            let column = column.as_primitive::<Int64Type>();
            Some((Value::Integer(min(column)?), Value::Integer(max(column)?)))
        }
        DataType::Date32 => {
            let column = column.as_primitive::<Date32Type>();
            Some((Value::Date(min(column)?), Value::Date(max(column)?)))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let column = column.as_primitive::<TimestampMicrosecondType>();
            Some((Value::Timestamp(min(column)?), Value::Timestamp(max(column)?)))
        }
        DataType::Utf8 => {
            let column = column.as_string::<i32>();
            let value = |text: &str| Value::Text(text.to_owned());
            Some((value(min_string(column)?), value(max_string(column)?)))
        }
        _ => None,
    }
}
