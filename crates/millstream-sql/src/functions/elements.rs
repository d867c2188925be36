//! What stands beside an array as an element of it, or beside a map as a key: which types Spark
//! takes there, and which of its casts DataFusion does not make.

use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, cast};

use super::collections::element_at;
use super::one_zero::holds_float;
use crate::types::spark_type;

/// Where a call of `name` with `of`, an array or a map, has its element or key.
fn place(name: &str, of: &DataType) -> Option<usize> {
    Some(match name {
        "array_append" | "array_contains" | "array_has" | "array_position" | "array_prepend"
        | "array_remove" | "array_remove_all" | "map_contains_key" => 1,
        "element_at" | "try_element_at" if matches!(of, DataType::Map(..)) => 1,
        "array_insert" => 2,
        _ => return None,
    })
}

/// The name in Spark of a function that has another one in plans.
pub(crate) fn known_as(name: &str) -> &str {
    match name {
        "__no_entries" => "map",
        "__sorted_by" => "array_sort",
        "__time_of_day" => "current_time",
        "__zipped" => "arrays_zip",
        "array_has" => "array_contains",
        "array_remove_all" => "array_remove",
        name => name,
    }
}

/// Whether both may be cast to any type that has the digits of both, and not only to one of them.
fn takes_wider(name: &str) -> bool {
    matches!(name, "array_contains" | "array_has" | "map_contains_key")
}

/// Refuses elements and keys of types that have none in common with those beside them.
pub(super) fn check(name: &str, types: &[DataType]) -> Result<()> {
    check_nulls(name, types)?;
    let Some(of) = types.first() else { return Ok(()) };
    let Some(given) = place(name, of).and_then(|at| types.get(at)) else { return Ok(()) };
    let Some(item) = item_of(of) else { return Ok(()) };
    if item.is_null() || given.is_null() || given.is_nested() || fits(name, &item, given) {
        return Ok(());
    }
    let parts = if matches!(of, DataType::Map(..)) { "keys" } else { "elements" };
    let (name, item, given) = (known_as(name), spark_type(&item), spark_type(given));
    plan_err!("{name}: {given} is not of the type of the {parts}, {item}; cast it")
}

/// Refuses NULLs without a type where Spark gives them none: `array_position` and `array_remove`
/// give such an element the type of those of the array.
fn check_nulls(name: &str, types: &[DataType]) -> Result<()> {
    let name = known_as(name);
    let (is_wrong, wanted) = match (name, types) {
        ("array_contains" | "array_position" | "array_remove", [of, _]) if of.is_null() => {
            (true, "ARRAY<INT>")
        }
        ("map_contains_key", [of, _]) if of.is_null() => (true, "MAP<INT, INT>"),
        ("array_contains" | "map_contains_key", [_, given]) => (given.is_null(), "INT"),
        _ => (false, ""),
    };
    if is_wrong {
        return plan_err!(
            "{name} got a NULL without a type (DATATYPE_MISMATCH); cast it, as in CAST(NULL AS \
             {wanted})"
        );
    }
    Ok(())
}

/// The type of the elements of an array, or of the keys of a map.
fn item_of(of: &DataType) -> Option<DataType> {
    match of {
        DataType::List(item) => Some(item.data_type().clone()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => fields.first().map(|key| key.data_type().clone()),
            _ => None,
        },
        _ => None,
    }
}

#[derive(PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Boolean,
    Time,
    Bytes,
}

fn kind(of: &DataType) -> Option<Kind> {
    Some(match of {
        DataType::Boolean => Kind::Boolean,
        DataType::Date32 | DataType::Timestamp(..) => Kind::Time,
        of if of.is_string() => Kind::Text,
        of if of.is_numeric() => Kind::Number,
        of if of.is_binary() => Kind::Bytes,
        _ => return None,
    })
}

fn fits(name: &str, item: &DataType, given: &DataType) -> bool {
    match (kind(item), kind(given)) {
        (Some(Kind::Number), Some(Kind::Number)) => takes_wider(name) || one_has_all(item, given),
        (Some(item), Some(given)) => item == given,
        (Some(Kind::Text), None) | (None, Some(Kind::Text)) => false,
        // What other types have in common is looked at where the types are checked.
        _ => true,
    }
}

/// Whether one of two types of numbers has all digits of the other, as Spark sees it.
fn one_has_all(one: &DataType, other: &DataType) -> bool {
    match (one, other) {
        (DataType::Decimal128(..), DataType::Decimal128(..)) => one == other,
        (DataType::Decimal128(digits, scale), other)
        | (other, DataType::Decimal128(digits, scale)) => {
            let whole = i16::from(*digits) - i16::from(*scale);
            digits_of(other).is_some_and(|needed| whole >= needed)
        }
        _ => true,
    }
}

/// The digits of the DECIMAL that Spark has for whole numbers.
fn digits_of(of: &DataType) -> Option<i16> {
    Some(match of {
        DataType::Int8 => 3,
        DataType::Int16 => 5,
        DataType::Int32 => 10,
        DataType::Int64 => 20,
        _ => return None,
    })
}

/// `map[key]` with a key of another type than those of the map, which is cast to it.
pub(super) fn at_key(mut call: ScalarFunction, types: &[DataType]) -> Result<Expr> {
    let own = match types {
        [of @ DataType::Map(..), _] => item_of(of),
        _ => None,
    };
    let (Some(own), [_, given]) = (own, types) else { return Ok(Expr::ScalarFunction(call)) };
    // DataFusion looks for a key with the same bits, and both zeros are one key.
    if holds_float(&own) && (own == *given || given.is_nested()) {
        return Ok(element_at().call(call.args));
    }
    let are_texts = own.is_string() && given.is_string();
    if own == *given || are_texts || given.is_null() || given.is_nested() || own.is_nested() {
        return Ok(Expr::ScalarFunction(call));
    }
    let is_cast = match (kind(&own), kind(given)) {
        (Some(Kind::Text), _) => true,
        (Some(Kind::Bytes), Some(Kind::Text)) => false,
        (Some(_), Some(Kind::Text)) => true,
        (own, given) => own == given,
    };
    if !is_cast {
        let (own, given) = (spark_type(&own), spark_type(given));
        return plan_err!(
            "the keys of the MAP are of the type {own}, and its `[]` got {given}; cast it"
        );
    }
    let key = call.args.remove(1);
    call.args.push(cast(key, own));
    Ok(element_at().call(call.args))
}
