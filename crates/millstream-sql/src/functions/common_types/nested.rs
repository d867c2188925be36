//! Common types of ARRAYs, STRUCTs and MAPs: those of their parts.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields};
use datafusion::logical_expr::binary::type_union_resolution;

use super::with_decimals;
use crate::types::is_variant;

/// The common type of arrays, structs or maps, where parts of them become others than DataFusion
/// would make of them. The fields have the names of those of the first one.
pub(super) fn common_parts(types: &[DataType]) -> Option<DataType> {
    let types: Vec<&DataType> = types.iter().filter(|of| !of.is_null()).collect();
    match *types.first()? {
        DataType::List(_) => {
            let items = types.iter().map(|of| match of {
                DataType::List(item) => Some(item),
                _ => None,
            });
            let (item, changes) = common_part(&items.collect::<Option<Vec<_>>>()?)?;
            changes.then_some(DataType::List(item))
        }
        DataType::Struct(_) => {
            let all = types.iter().map(|of| match of {
                DataType::Struct(fields) if !is_variant(of) => Some(fields),
                _ => None,
            });
            common_fields(&all.collect::<Option<Vec<_>>>()?).map(DataType::Struct)
        }
        DataType::Map(first, sorted) => {
            let entries = types.iter().map(|of| match of {
                DataType::Map(entries, _) => Some(entries.data_type().clone()),
                _ => None,
            });
            let entries = common_parts(&entries.collect::<Option<Vec<_>>>()?)?;
            let entries = first.as_ref().clone().with_data_type(entries);
            Some(DataType::Map(Arc::new(entries), *sorted))
        }
        _ => None,
    }
}

fn common_fields(all: &[&Fields]) -> Option<Fields> {
    let first = *all.first()?;
    let has_same_names = |fields: &&Fields| {
        fields.iter().map(|field| field.name()).eq(first.iter().map(|field| field.name()))
    };
    if !all.iter().all(has_same_names) {
        return None;
    }
    let part = |at: usize| {
        let fields: Option<Vec<&FieldRef>> = all.iter().map(|fields| fields.get(at)).collect();
        common_part(&fields?)
    };
    let parts = (0..first.len()).map(part).collect::<Option<Vec<_>>>()?;
    let changes = parts.iter().any(|(_, changes)| *changes);
    changes.then(|| parts.into_iter().map(|(field, _)| field).collect())
}

/// The field of a common type that has the values of all `fields`, and whether it is another one
/// than DataFusion's.
fn common_part(fields: &[&FieldRef]) -> Option<(FieldRef, bool)> {
    let first = *fields.first()?;
    let types: Vec<DataType> = fields.iter().map(|field| field.data_type().clone()).collect();
    let becomes = |common: &DataType| types.iter().any(|of| of != common && !of.is_null());
    let changed = with_decimals(&types).filter(becomes);
    let changes = changed.is_some();
    let common = changed.or_else(|| type_union_resolution(&types))?;
    let nullable = fields.iter().any(|field| field.is_nullable());
    let mut field = first.as_ref().clone().with_nullable(nullable);
    if *field.data_type() != common {
        // What the metadata says is about the type that it was.
        field = field.with_metadata(HashMap::new()).with_data_type(common);
    }
    Some((Arc::new(field), changes))
}

/// Whether STRINGs in one stand for values of other types in the other. Neither operators nor
/// functions of two arrays cast them in Spark.
pub(in crate::functions) fn mix_text(left: &DataType, right: &DataType) -> bool {
    let part = |left: &DataType, right: &DataType| {
        let is_apart = left.is_string() != right.is_string();
        is_apart && !left.is_null() && !right.is_null() || mix_text(left, right)
    };
    match (left, right) {
        (DataType::List(left), DataType::List(right)) => part(left.data_type(), right.data_type()),
        (DataType::Map(left, _), DataType::Map(right, _)) => {
            mix_text(left.data_type(), right.data_type())
        }
        (DataType::Struct(left), DataType::Struct(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right);
            pairs.any(|(left, right)| part(left.data_type(), right.data_type()))
        }
        _ => false,
    }
}
