//! Keys of maps in what `to_json` writes. For a date or a time Spark writes the number that it
//! keeps it as: the days or the microseconds since 1970, of a TIME the nanoseconds since midnight.
//!
//! For a STRUCT it writes what Java makes of the row, `[1,a]`, as long as that is the row that the
//! query has made. Rows of a table, and those that went from one machine to another, are kept in
//! another form, of which it would write the bytes. So the keys have to be made in the call.

use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StringArray, StructArray};
use arrow::compute::cast as arrow_cast;
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Time64MicrosecondType, TimeUnit};
use datafusion::common::{DFSchema, DataFusionError, Result, plan_err};
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::define::within_column;
use crate::json;
use crate::types::is_variant;

/// Refuses keys for which Spark writes what is no value of theirs.
///
/// # Errors
/// There are keys that are BINARY, or STRUCTs with other values than numbers, texts and times.
pub(super) fn check(of: &DataType) -> Result<()> {
    if has_keys(of, &|key: &DataType| *key == DataType::Binary) {
        return plan_err!(
            "to_json has no form for a MAP whose keys are BINARY; make texts of them, as in \
             transform_keys(m, (k, v) -> base64(k))"
        );
    }
    if has_keys(of, &|key: &DataType| is_row(key) && !is_plain(key)) {
        return plan_err!(
            "to_json has no form for a MAP whose keys are STRUCTs with BINARY, an INTERVAL, an \
             ARRAY or a MAP in them; make texts of them, as in transform_keys(m, (k, v) -> k.name)"
        );
    }
    Ok(())
}

/// Refuses keys that are STRUCTs of a table, or of a part of the query that may have moved them.
///
/// # Errors
/// `value`, an argument of `to_json`, has such keys.
pub(super) fn check_made(value: &Expr, schema: &DFSchema) -> Result<()> {
    match are_made(value, schema) {
        true => Ok(()),
        false => plan_err!(
            "to_json takes a MAP whose keys are STRUCTs only where the call makes it, as in \
             to_json(map(struct(a, b), c)): of others Spark writes the bytes that it keeps them \
             in; make texts of the keys, as in transform_keys(m, (k, v) -> to_json(k))"
        ),
    }
}

fn are_made(value: &Expr, schema: &DFSchema) -> bool {
    if value.get_type(schema).is_ok_and(|of| !has_keys(&of, &is_row)) {
        return true;
    }
    let Expr::ScalarFunction(call) = value else { return false };
    match call.name() {
        "map" => call.args.iter().enumerate().all(|(at, part)| match at % 2 {
            0 => is_made(part, schema),
            _ => are_made(part, schema),
        }),
        "array" | "make_array" | "named_struct" | "struct" => {
            call.args.iter().all(|part| are_made(part, schema))
        }
        _ => false,
    }
}

/// Whether a key is a STRUCT that is made there, or none.
fn is_made(key: &Expr, schema: &DFSchema) -> bool {
    if key.get_type(schema).is_ok_and(|of| !of.is_nested()) {
        return true;
    }
    match key {
        Expr::ScalarFunction(call) if matches!(call.name(), "named_struct" | "struct") => {
            call.args.iter().all(|part| is_made(part, schema))
        }
        _ => false,
    }
}

fn is_row(of: &DataType) -> bool {
    matches!(of, DataType::Struct(_)) && !is_variant(of)
}

/// Whether a value has a text of its own in Java.
fn is_plain(of: &DataType) -> bool {
    match of {
        of if is_variant(of) => false,
        DataType::Struct(fields) => fields.iter().all(|field| is_plain(field.data_type())),
        DataType::Binary | DataType::Interval(_) | DataType::Duration(_) => false,
        other => !other.is_nested(),
    }
}

fn is_time(of: &DataType) -> bool {
    matches!(of, DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_))
}

/// Whether there is a map with such keys in values of a type.
fn has_keys(of: &DataType, is_meant: &dyn Fn(&DataType) -> bool) -> bool {
    match of {
        DataType::List(item) => has_keys(item.data_type(), is_meant),
        DataType::Struct(fields) => {
            fields.iter().any(|field| has_keys(field.data_type(), is_meant))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(parts) => {
                parts.first().is_some_and(|key| is_meant(key.data_type()))
                    || parts.iter().any(|part| has_keys(part.data_type(), is_meant))
            }
            _ => false,
        },
        _ => false,
    }
}

/// `values`, in which keys of maps that are dates or times are numbers, and STRUCTs texts.
pub(super) fn as_written(values: &ArrayRef) -> Result<ArrayRef> {
    if !has_keys(values.data_type(), &|key: &DataType| is_time(key) || is_row(key)) {
        return Ok(Arc::clone(values));
    }
    Ok(match values.data_type() {
        DataType::List(item) => {
            let list = values.as_list::<i32>();
            let items = as_written(list.values())?;
            let item = item.as_ref().clone().with_data_type(items.data_type().clone());
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(ListArray::try_new(Arc::new(item), offsets, items, nulls)?)
        }
        DataType::Map(entries, sorted) => {
            let map = values.as_map();
            let columns = vec![of_keys(map.keys())?, as_written(map.values())?];
            let fields = typed(map.entries().fields(), &columns);
            let pairs = StructArray::try_new(fields.clone(), columns, None)?;
            let entry = Arc::new(Field::new(entries.name(), DataType::Struct(fields), false));
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(MapArray::try_new(entry, offsets, pairs, nulls, *sorted)?)
        }
        _ => {
            let of = values.as_struct();
            let columns = of.columns().iter().map(as_written).collect::<Result<Vec<_>>>()?;
            let fields = typed(of.fields(), &columns);
            let (nulls, length) = (of.nulls().cloned(), of.len());
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, length)?)
        }
    })
}

/// The fields, with the types of the columns.
fn typed(fields: &Fields, columns: &[ArrayRef]) -> Fields {
    let typed = fields.iter().zip(columns).map(|(field, column)| {
        Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone()))
    });
    typed.collect()
}

fn of_keys(keys: &ArrayRef) -> Result<ArrayRef> {
    Ok(match keys.data_type() {
        of if is_row(of) => Arc::new(of_rows(keys.as_struct())?),
        DataType::Date32 => arrow_cast(keys, &DataType::Int32)?,
        DataType::Timestamp(_, zone) => {
            let us = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            arrow_cast(&arrow_cast(keys, &us)?, &DataType::Int64)?
        }
        DataType::Time64(_) => {
            let us = arrow_cast(keys, &DataType::Time64(TimeUnit::Microsecond))?;
            let us = us.as_primitive::<Time64MicrosecondType>();
            Arc::new(us.unary::<_, Int64Type>(|us| us * 1000))
        }
        _ => Arc::clone(keys),
    })
}

/// What Java makes of rows.
fn of_rows(rows: &StructArray) -> Result<StringArray> {
    let parts = rows.columns().iter().map(of_part).collect::<Result<Vec<_>>>()?;
    let (mut out, mut text, mut total) = (StringBuilder::new(), String::new(), 0);
    for row in 0..rows.len() {
        if rows.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        text.push('[');
        for (at, part) in parts.iter().enumerate() {
            text.push_str(if at > 0 { "," } else { "" });
            text.push_str(if part.is_valid(row) { part.value(row) } else { "null" });
        }
        text.push_str(if parts.is_empty() { "empty row]" } else { "]" });
        within_column(&mut total, text.len())?;
        out.append_value(&text);
    }
    Ok(out.finish())
}

fn of_part(values: &ArrayRef) -> Result<StringArray> {
    match values.data_type() {
        of if is_row(of) => of_rows(values.as_struct()),
        _ => {
            let texts = json::plain_texts(&of_keys(values)?);
            texts.map_err(|error| DataFusionError::External(error.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Int32Array};
    use arrow::buffer::OffsetBuffer;

    use super::*;
    use crate::types::map_of;

    #[test]
    fn a_date_as_a_key_is_its_days() {
        let keys: ArrayRef = Arc::new(Date32Array::from(vec![20_454]));
        let values: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        let DataType::Map(entry, sorted) = map_of(DataType::Date32, DataType::Int32) else {
            panic!("a map is one")
        };
        let DataType::Struct(fields) = entry.data_type().clone() else {
            panic!("a map has entries")
        };
        let pairs = StructArray::new(fields, vec![keys, values], None);
        let offsets = OffsetBuffer::from_lengths([1]);
        let map: ArrayRef = Arc::new(MapArray::new(entry, offsets, pairs, None, sorted));
        let made = as_written(&map).expect("it is a map of numbers");
        assert_eq!(*made.data_type(), map_of(DataType::Int32, DataType::Int32));
        assert!(check(map.data_type()).is_ok());
        assert!(check(&map_of(DataType::Binary, DataType::Int32)).is_err());
    }

    #[test]
    fn rows_are_written_as_java_writes_them() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b,]"]));
        let inner = Fields::from(vec![Field::new("t", DataType::Utf8, true)]);
        let inner: ArrayRef = Arc::new(StructArray::new(inner, vec![texts], None));
        let fields = Fields::from(vec![
            Field::new("n", DataType::Int32, true),
            Field::new("s", inner.data_type().clone(), true),
        ]);
        let rows = StructArray::new(fields, vec![numbers, inner], None);
        let texts = of_rows(&rows).expect("they are written");
        assert_eq!(texts.iter().flatten().collect::<Vec<_>>(), ["[1,[a]]", "[null,[b,]]]"]);
        let empty = of_rows(&StructArray::new_empty_fields(1, None)).expect("it is written");
        assert_eq!(empty.value(0), "[empty row]");
        assert!(check(&map_of(rows.data_type().clone(), DataType::Int32)).is_ok());
        let bytes = Fields::from(vec![Field::new("b", DataType::Binary, true)]);
        assert!(check(&map_of(DataType::Struct(bytes), DataType::Int32)).is_err());
    }
}
