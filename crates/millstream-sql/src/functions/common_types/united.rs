//! The columns of UNION, INTERSECT and EXCEPT: which types go together, and the common type of
//! those that DataFusion would only find later on. And the values of IN, to which the same applies.

use arrow::datatypes::{DataType, Fields};
use datafusion::common::{Result, plan_err};

use crate::types::{is_variant, spark_type};

/// The common type of numbers, and of NULLs and others, where no decimal is among them. A UNION
/// around this one has to see it: to DataFusion a column has the type of the first query until all
/// types are made one.
pub(super) fn plain(types: &[DataType]) -> Option<DataType> {
    let mut known = types.iter().filter(|of| !of.is_null());
    let first = known.next()?;
    known.try_fold(first, plain_pair).cloned()
}

fn plain_pair<'a>(left: &'a DataType, right: &'a DataType) -> Option<&'a DataType> {
    if left == right {
        return Some(left);
    }
    if !left.is_signed_integer() || !right.is_signed_integer() {
        return None;
    }
    Some(if left.primitive_width() < right.primitive_width() { right } else { left })
}

/// Refuses STRUCTs in a column of UNION whose fields have other names and other types: only of
/// fields with the same names are there common types.
pub(super) fn check_structs(types: &[DataType]) -> Result<()> {
    let known: Vec<&DataType> = types.iter().filter(|of| !of.is_null()).collect();
    let Some((first, others)) = known.split_first() else { return Ok(()) };
    if others.iter().all(|other| is_same(first, other)) {
        return Ok(());
    }
    refuse_other_names(first, others)
}

/// Refuses STRUCTs in a column of INTERSECT or EXCEPT whose fields have other names.
pub(in crate::functions) fn check_names(left: &DataType, right: &DataType) -> Result<()> {
    refuse_other_names(left, &[right])
}

/// Refuses values of IN that are STRUCTs whose fields have other names than those of the value
/// before it and other types: only of fields with the same names are there common types.
pub(super) fn check_listed(types: &[DataType]) -> Result<()> {
    let Some((value, listed)) = types.split_first() else { return Ok(()) };
    if !listed.iter().any(|other| differ_in_names(value, other)) {
        return Ok(());
    }
    match listed.iter().find(|other| !is_same(value, other)) {
        None => Ok(()),
        Some(other) => plan_err!(
            "IN compares {} with {} (DATATYPE_MISMATCH): the fields have other names, so they must \
             be of the same types; cast each of them, also a NULL, or write named_struct with the \
             same names",
            spark_type(value),
            spark_type(other)
        ),
    }
}

fn refuse_other_names(first: &DataType, others: &[&DataType]) -> Result<()> {
    match others.iter().find(|other| differ_in_names(first, other)) {
        None => Ok(()),
        Some(other) => plan_err!(
            "{} and {} are no common type of one column (INCOMPATIBLE_COLUMN_TYPE): the fields \
             have other names; write named_struct with the same names in both queries",
            spark_type(first),
            spark_type(other)
        ),
    }
}

/// The parts of a type that has some of one kind.
fn parts(of: &DataType) -> Option<Fields> {
    match of {
        DataType::Struct(fields) if !is_variant(of) => Some(fields.clone()),
        DataType::List(item) => Some(vec![item.clone()].into()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => Some(fields.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether two types have the same parts, whatever these are called.
fn is_same(left: &DataType, right: &DataType) -> bool {
    if std::mem::discriminant(left) != std::mem::discriminant(right) {
        return false;
    }
    let (Some(left_parts), Some(right_parts)) = (parts(left), parts(right)) else {
        return left == right;
    };
    let mut pairs = left_parts.iter().zip(&right_parts);
    left_parts.len() == right_parts.len()
        && pairs.all(|(left, right)| is_same(left.data_type(), right.data_type()))
}

/// Whether STRUCTs in the same place have as many fields, and some of other names.
fn differ_in_names(left: &DataType, right: &DataType) -> bool {
    if std::mem::discriminant(left) != std::mem::discriminant(right) {
        return false;
    }
    let (Some(left_parts), Some(right_parts)) = (parts(left), parts(right)) else { return false };
    let is_struct = matches!(left, DataType::Struct(_));
    left_parts.len() == right_parts.len()
        && left_parts.iter().zip(&right_parts).any(|(left, right)| {
            (is_struct && !left.name().eq_ignore_ascii_case(right.name()))
                || differ_in_names(left.data_type(), right.data_type())
        })
}
