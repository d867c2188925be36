//! The types of expressions, as far as the text tells them: what the fields of a computed struct
//! are called, and whether something is an array or a map. VOID stands for a type within another
//! that the text does not tell.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{AccessExpr, Expr, Function, Ident, Value, ValueWithSpan};

use super::ast::{arguments, function_name};
use super::frame::Frame;
use super::star_tokens::ALL_COLUMNS;
use crate::functions::binary_text::of_hex;
use crate::functions::collections::{NO_ENTRIES, map_of_texts};
use crate::functions::lambda_sorts::SORTED_BY;
use crate::functions::records::{decoded_type, schema_text};
use crate::functions::types::schema_of;
use crate::functions::zipped::ZIPPED;
use crate::types::planner::spark_type_of;
use crate::types::{list_of, map_of};

/// The type of an expression that is no name.
pub(crate) fn type_of(frame: &Frame, expr: &Expr) -> Option<DataType> {
    match expr {
        Expr::Cast { data_type, .. } => spark_type_of(data_type).ok(),
        Expr::Function(function) => of_call(frame, function),
        Expr::Struct { values, .. } => of_struct(frame, values),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let (lead, rest) = leading_name(root, access_chain)?;
            rest.iter().try_fold(frame.data_type(&lead)?, |of, access| match (access, of) {
                (AccessExpr::Subscript(_), DataType::List(item)) => Some(item.data_type().clone()),
                (AccessExpr::Subscript(_), DataType::Map(entries, _)) => value_of(&entries),
                (AccessExpr::Dot(Expr::Identifier(name)), of) => field_of(&of, &name.value),
                _ => None,
            })
        }
        _ => None,
    }
}

/// What stands before the first `[` as one name, and the rest.
pub(crate) fn leading_name<'a>(
    root: &Expr,
    chain: &'a [AccessExpr],
) -> Option<(Expr, &'a [AccessExpr])> {
    let mut parts: Vec<Ident> = match root {
        Expr::Identifier(ident) => vec![ident.clone()],
        Expr::CompoundIdentifier(parts) => parts.clone(),
        other => return Some((other.clone(), chain)),
    };
    let names = chain.iter().map_while(|access| match access {
        AccessExpr::Dot(Expr::Identifier(name)) => Some(name.clone()),
        _ => None,
    });
    let names: Vec<Ident> = names.collect();
    let rest = &chain[names.len()..];
    parts.extend(names);
    match parts.len() {
        1 => Some((Expr::Identifier(parts.remove(0)), rest)),
        _ => Some((Expr::CompoundIdentifier(parts), rest)),
    }
}

/// The field of a struct, or an array of the fields of an array of structs.
fn field_of(of: &DataType, name: &str) -> Option<DataType> {
    match of {
        DataType::Struct(fields) => {
            let mut found = fields.iter().filter(|field| field.name().eq_ignore_ascii_case(name));
            found.next().map(|field| field.data_type().clone())
        }
        DataType::List(item) => field_of(item.data_type(), name).map(list_of),
        DataType::Map(entries, _) => value_of(entries),
        _ => None,
    }
}

fn value_of(entries: &Field) -> Option<DataType> {
    match entries.data_type() {
        DataType::Struct(parts) => parts.get(1).map(|part| part.data_type().clone()),
        _ => None,
    }
}

fn key_of(entries: &Field) -> Option<DataType> {
    match entries.data_type() {
        DataType::Struct(parts) => parts.first().map(|part| part.data_type().clone()),
        _ => None,
    }
}

fn of_struct(frame: &Frame, values: &[Expr]) -> Option<DataType> {
    let fields = values.iter().enumerate().map(|(at, value)| {
        let (name, value) = match value {
            Expr::Named { expr, name } => (name.value.clone(), expr.as_ref()),
            Expr::Identifier(ident) => (named(ident)?, value),
            Expr::CompoundIdentifier(parts) => (named(parts.last()?)?, value),
            Expr::Function(call) if function_name(call) == ALL_COLUMNS => return None,
            other => (format!("col{}", at + 1), other),
        };
        Some(Field::new(name, or_unknown(frame, value), true))
    });
    Some(DataType::Struct(fields.collect::<Option<Vec<_>>>()?.into()))
}

/// The name of the field for an array among the arguments of `arrays_zip`.
pub(super) fn zipped_name(at: usize, array: &Expr) -> String {
    match array {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(parts) => {
            parts.last().map(|part| part.value.clone()).unwrap_or_default()
        }
        _ => at.to_string(),
    }
}

/// A struct of an element of each of the arrays, under their names.
fn zipped<'a>(frame: &Frame, arrays: impl IntoIterator<Item = (String, &'a Expr)>) -> DataType {
    let fields = arrays.into_iter().map(|(name, array)| match frame.data_type(array) {
        Some(DataType::List(item)) => Field::new(name, item.data_type().clone(), true),
        _ => Field::new(name, DataType::Null, true),
    });
    DataType::Struct(fields.collect())
}

/// The name of a field; none for `*`, which stands for several.
fn named(ident: &Ident) -> Option<String> {
    (ident.value != ALL_COLUMNS).then(|| ident.value.clone())
}

fn or_unknown(frame: &Frame, expr: &Expr) -> DataType {
    frame.data_type(expr).unwrap_or(DataType::Null)
}

fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text),
        _ => None,
    }
}

/// The text of a schema, written out or as a call of `schema_of_json` or its like gives it.
pub(super) fn schema_literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Function(function) => {
            let literals: Vec<_> = arguments(function).map(any_literal).collect();
            schema_text(&function_name(function), &literals)
        }
        other => literal(other).map(str::to_owned),
    }
}

/// A literal that is an argument of functions over records: text, bytes, or a map of texts.
fn any_literal(expr: &Expr) -> Option<ScalarValue> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
            Some(ScalarValue::from(text.as_str()))
        }
        Expr::Value(ValueWithSpan { value: Value::HexStringLiteral(digits), .. }) => {
            Some(ScalarValue::Binary(Some(of_hex(digits)?)))
        }
        Expr::Value(ValueWithSpan { value: Value::Null, .. }) => Some(ScalarValue::Null),
        Expr::Function(function) if is_map_without_entries(function) => Some(ScalarValue::Null),
        Expr::Function(function) if function_name(function) == "map" => {
            map_of_texts(&arguments(function).map(literal).collect::<Option<Vec<_>>>()?)
        }
        _ => None,
    }
}

/// Whether a call is `map()`, which says no options.
fn is_map_without_entries(function: &Function) -> bool {
    let name = function_name(function);
    (name == "map" || name == NO_ENTRIES) && arguments(function).next().is_none()
}

/// The type of what a function takes out of an array or a map.
fn of_part(name: &str, whole: DataType) -> Option<DataType> {
    Some(match (name, whole) {
        ("map_keys", DataType::Map(entries, _)) => list_of(key_of(&entries)?),
        ("map_values", DataType::Map(entries, _)) => list_of(value_of(&entries)?),
        ("map_entries", DataType::Map(entries, _)) => list_of(entries.data_type().clone()),
        ("element_at" | "try_element_at" | "get", DataType::Map(entries, _)) => value_of(&entries)?,
        ("element_at" | "try_element_at" | "get" | "flatten", DataType::List(item)) => {
            item.data_type().clone()
        }
        _ => return None,
    })
}

fn of_call(frame: &Frame, function: &Function) -> Option<DataType> {
    let args: Vec<&Expr> = arguments(function).collect();
    let of = |at: usize| args.get(at).and_then(|arg| frame.data_type(arg));
    let unknown = |at: usize| of(at).unwrap_or(DataType::Null);
    Some(match (function_name(function).as_str(), args.as_slice()) {
        ("from_json", [_, schema, ..]) => schema_of(&schema_literal(schema)?).ok()?,
        (name @ ("from_csv" | "from_xml"), [_, schema, literals @ ..]) => {
            let schema = schema_literal(schema).map(ScalarValue::from);
            let literals = literals.iter().map(|literal| any_literal(literal));
            decoded_type(name, &[None, schema].into_iter().chain(literals).collect::<Vec<_>>())?
        }
        (name @ ("from_avro" | "from_protobuf"), [_, literals @ ..]) => {
            let literals = literals.iter().map(|literal| any_literal(literal));
            decoded_type(name, &std::iter::once(None).chain(literals).collect::<Vec<_>>())?
        }
        ("named_struct", _) => {
            let fields = args.chunks(2).map(|pair| {
                let [name, value] = pair else { return None };
                Some(Field::new(literal(name)?, or_unknown(frame, value), true))
            });
            DataType::Struct(fields.collect::<Option<Vec<_>>>()?.into())
        }
        ("array", _) => list_of(unknown(0)),
        ("array_agg" | "collect_list" | "collect_set", [_]) => list_of(unknown(0)),
        ("map" | NO_ENTRIES, _) => map_of(unknown(0), unknown(1)),
        ("str_to_map", _) => map_of(DataType::Utf8, DataType::Utf8),
        ("map_from_arrays", [_, _]) => {
            let item = |at: usize| match of(at) {
                Some(DataType::List(item)) => item.data_type().clone(),
                _ => DataType::Null,
            };
            map_of(item(0), item(1))
        }
        ("map_from_entries", [_]) => map_of(DataType::Null, DataType::Null),
        ("map_concat", _) => of(0).unwrap_or_else(|| map_of(DataType::Null, DataType::Null)),
        (name @ ("map_keys" | "map_values" | "map_entries" | "flatten"), [_])
        | (name @ ("element_at" | "try_element_at" | "get"), [_, _]) => of_part(name, of(0)?)?,
        (
            SORTED_BY | "slice" | "sort_array" | "array_sort" | "array_distinct" | "array_union"
            | "array_remove" | "array_except" | "array_intersect" | "array_compact" | "reverse"
            | "shuffle" | "coalesce" | "nvl" | "ifnull" | "first" | "last" | "any_value" | "min"
            | "max",
            _,
        ) => of(0)?,
        ("arrays_zip", _) => {
            let arrays = args.iter().enumerate();
            list_of(zipped(frame, arrays.map(|(at, array)| (zipped_name(at, array), *array))))
        }
        (ZIPPED, _) => {
            let (pairs, []) = args.as_chunks::<2>() else { return None };
            let arrays =
                pairs.iter().map(|[name, array]| Some((literal(name)?.to_owned(), *array)));
            list_of(zipped(frame, arrays.collect::<Option<Vec<_>>>()?))
        }
        ("split", _) => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
        _ => return None,
    })
}
