//! Casts of arrays, maps and structs whose parts are cast as Spark does it: fields by their places,
//! whatever they are called before.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray};
use arrow::datatypes::{DataType, Fields};
use datafusion::common::{Result, internal_err};

/// Whether a value of one type is cast to another by Spark's rules and not by Arrow's.
type IsSparks = fn(&DataType, &DataType) -> bool;

/// Whether a part of such a value is cast by Spark's rules and not by Arrow's.
pub(super) fn casts(from: &DataType, to: &DataType, is_sparks: IsSparks) -> bool {
    match (from, to) {
        (DataType::List(from), DataType::List(to)) => is_sparks(from.data_type(), to.data_type()),
        (DataType::Map(from, _), DataType::Map(to, _)) => {
            is_sparks(from.data_type(), to.data_type())
        }
        (DataType::Struct(from), DataType::Struct(to)) => {
            let mut pairs = from.iter().zip(to);
            from.len() == to.len()
                && !is_another_order(from, to)
                && pairs.any(|(from, to)| {
                    !from.name().eq_ignore_ascii_case(to.name())
                        || is_sparks(from.data_type(), to.data_type())
                })
        }
        _ => false,
    }
}

/// Whether both have the same fields in another order: then DataFusion has cast by names.
pub(crate) fn is_another_order(from: &Fields, to: &Fields) -> bool {
    let names = |fields: &Fields| fields.iter().map(|field| field.name().to_lowercase()).collect();
    let [mut from, mut to]: [Vec<String>; 2] = [names(from), names(to)];
    if from == to {
        return false;
    }
    from.sort_unstable();
    to.sort_unstable();
    from == to
}

/// Does the casts that [`casts`] accepts. Parts are cast by `cast`: those that cannot be cast are
/// errors if it is strict.
pub(super) fn cast_nested(
    values: &ArrayRef,
    to: &DataType,
    strict: bool,
    cast: impl Fn(&ArrayRef, &DataType, bool) -> Result<ArrayRef>,
) -> Result<ArrayRef> {
    Ok(match (values.data_type(), to) {
        (DataType::List(_), DataType::List(item)) => {
            let list = values.as_list::<i32>();
            let items = cast(list.values(), item.data_type(), strict)?;
            let item = Arc::clone(item);
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(ListArray::try_new(item, offsets, items, nulls)?)
        }
        (DataType::Map(..), DataType::Map(entry, sorted)) => {
            let map = values.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let entries = cast(&entries, entry.data_type(), strict)?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            let entries = entries.as_struct().clone();
            Arc::new(MapArray::try_new(Arc::clone(entry), offsets, entries, nulls, *sorted)?)
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let of = values.as_struct();
            let columns = of.columns().iter().zip(fields);
            let columns = columns.map(|(column, to)| cast(column, to.data_type(), strict));
            let columns = columns.collect::<Result<Vec<_>>>()?;
            let (nulls, length) = (of.nulls().cloned(), of.len());
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, length)?)
        }
        (from, to) => return internal_err!("{from} to {to} is no cast of parts"),
    })
}
