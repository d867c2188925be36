//! `map_concat`: several maps as one.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::ColumnarValue;

use super::common_types::common_type;
use super::define::{Arguments, Function, Param};
use super::map_lambdas::{Parts, as_map, common_key, entry_fields, refuse_keys};
use crate::types::{map_of, spark_type};

pub(super) const FUNCTIONS: &[Function] =
    &[Function::new("map_concat", &[Param::Any], type_of_concat, concat).required(0).variadic()];

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
    as_map(&args.returns, lengths, vec![keys, column(1)?], Some(nulls))
}
