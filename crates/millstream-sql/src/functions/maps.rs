//! Maps of other collections: `map_concat` makes one of several maps, `map_from_arrays` of an array
//! of keys and one of values, `map_from_entries` of an array of pairs.
//!
//! Both zeros are one key, which stands in the map without a sign; but for `map_from_arrays`, which
//! keeps the keys as they are.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{interleave, take};
use arrow::datatypes::{DataType, Fields};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::ColumnarValue;

use super::common_types::common_type;
use super::define::{Arguments, Function, Param};
use super::map_lambdas::{Parts, as_map, common_key, entry_fields, refuse_key_type, refuse_keys};
use super::one_zero::ones;
use crate::types::{is_variant, map_of, spark_type};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("map_concat", &[Param::Any], type_of_concat, concat).required(0).variadic(),
    Function::new("map_from_arrays", &[Param::Array, Param::Array], type_of_arrays, from_arrays),
    Function::new("map_from_entries", &[Param::Array], type_of_entries, from_entries),
];

fn type_of_concat(args: &[DataType]) -> Result<DataType> {
    if args.is_empty() {
        return Ok(map_of(DataType::Utf8, DataType::Utf8));
    }
    let fields = args.iter().map(entry_fields).collect::<Result<Vec<_>>>()?;
    let common = |at: usize, common: fn(&[DataType]) -> Option<DataType>| {
        let types: Vec<DataType> =
            fields.iter().map(|fields| fields[at].data_type().clone()).collect();
        match common(&types) {
            Some(common) => Ok(common),
            None => {
                let types: Vec<String> = args.iter().map(spark_type).collect();
                plan_err!("map_concat takes maps of one type, not {}", types.join(", "))
            }
        }
    };
    Ok(map_of(common(0, common_key)?, common(1, common_type)?))
}

fn concat(args: &Arguments) -> Result<ArrayRef> {
    let maps = (0..args.len())
        .map(|at| {
            let map = super::cast::cast(&args.expanded(at)?, &args.returns, true)?;
            Parts::of(&ColumnarValue::Array(map), args.rows)
        })
        .collect::<Result<Vec<_>>>()?;
    let valid = |row: usize| maps.iter().all(|map| map.is_valid(row));
    let mut places = Vec::new();
    let mut lengths = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        let before = places.len();
        if valid(row) {
            for (at, map) in maps.iter().enumerate() {
                places.extend(map.range(row).map(|entry| (at, entry)));
            }
        }
        lengths.push(places.len() - before);
    }
    let column = |at: usize| -> Result<ArrayRef> {
        let columns = maps.iter().map(|map| map.column(at)).collect::<Result<Vec<_>>>()?;
        let columns: Vec<&dyn Array> = columns.iter().map(|column| column.as_ref()).collect();
        if columns.is_empty() {
            let entries = entry_fields(&args.returns)?;
            return Ok(arrow::array::new_empty_array(entries[at].data_type()));
        }
        Ok(interleave(&columns, &places)?)
    };
    let nulls: NullBuffer = (0..args.rows).map(valid).collect();
    let keys = column(0)?;
    refuse_keys(&keys, &lengths)?;
    as_map(&args.returns, lengths, vec![with_one_zero(keys)?, column(1)?], Some(nulls))
}

/// Keys as Spark keeps them: a number without the sign of its zero, an array or a struct as it is.
fn with_one_zero(keys: ArrayRef) -> Result<ArrayRef> {
    if keys.data_type().is_nested() { Ok(keys) } else { ones(&keys) }
}

fn type_of_arrays(args: &[DataType]) -> Result<DataType> {
    let [DataType::List(key), DataType::List(value)] = args else {
        return plan_err!("map_from_arrays takes an ARRAY of keys and an ARRAY of values");
    };
    refuse_key_type(key.data_type())?;
    Ok(map_of(key.data_type().clone(), value.data_type().clone()))
}

fn from_arrays(args: &Arguments) -> Result<ArrayRef> {
    let part = |at: usize| Parts::of(&ColumnarValue::Array(args.expanded(at)?), args.rows);
    let (keys, values) = (part(0)?, part(1)?);
    let valid = |row: usize| keys.is_valid(row) && values.is_valid(row);
    let mut places: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
    let mut lengths = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        let sides = [keys.range(row), values.range(row)];
        let counts = sides.each_ref().map(|side| side.len());
        if !valid(row) {
            lengths.push(0);
            continue;
        }
        if counts[0] != counts[1] {
            let [keys, values] = counts;
            return exec_err!("map_from_arrays got {keys} keys and {values} values for them");
        }
        for (places, side) in places.iter_mut().zip(sides) {
            places.extend(side.map(|at| at as u32));
        }
        lengths.push(counts[0]);
    }
    let [of_keys, of_values] = places.map(UInt32Array::from);
    let all_keys = take(keys.column(0)?, &of_keys, None)?;
    let all_values = take(values.column(0)?, &of_values, None)?;
    refuse_keys(&all_keys, &lengths)?;
    let nulls: NullBuffer = (0..args.rows).map(valid).collect();
    as_map(&args.returns, lengths, vec![all_keys, all_values], Some(nulls))
}

fn type_of_entries(args: &[DataType]) -> Result<DataType> {
    let pair = match args {
        [DataType::List(entry)] => pair_of(entry.data_type()),
        _ => None,
    };
    let Some(pair) = pair else {
        let given = args.first().map(spark_type).unwrap_or_default();
        return plan_err!(
            "map_from_entries takes an ARRAY of pairs, as array(struct('a', 1)), not {given}"
        );
    };
    refuse_key_type(pair[0].data_type())?;
    Ok(map_of(pair[0].data_type().clone(), pair[1].data_type().clone()))
}

/// The fields of a struct that has two.
fn pair_of(of: &DataType) -> Option<&Fields> {
    match of {
        DataType::Struct(fields) if fields.len() == 2 && !is_variant(of) => Some(fields),
        _ => None,
    }
}

/// A NULL among the pairs makes the map NULL.
fn from_entries(args: &Arguments) -> Result<ArrayRef> {
    let lists = Parts::of(&ColumnarValue::Array(args.expanded(0)?), args.rows)?;
    let entries = lists.column(0)?.as_struct();
    let valid =
        |row: usize| lists.is_valid(row) && lists.range(row).all(|entry| entries.is_valid(entry));
    let mut places: Vec<u32> = Vec::new();
    let mut lengths = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        let before = places.len();
        if valid(row) {
            places.extend(lists.range(row).map(|entry| entry as u32));
        }
        lengths.push(places.len() - before);
    }
    let places = UInt32Array::from(places);
    let keys = take(entries.column(0), &places, None)?;
    let values = take(entries.column(1), &places, None)?;
    refuse_keys(&keys, &lengths)?;
    let nulls: NullBuffer = (0..args.rows).map(valid).collect();
    as_map(&args.returns, lengths, vec![with_one_zero(keys)?, values], Some(nulls))
}
