//! The fields of INTERVALs that a function, CASE or UNION gives back: those of all its values.
//!
//! DataFusion says of such a result what its type is, not which fields it has.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Union, cast};

use super::interval_casts::{fields_of, fields_of_type, with_fields};
use crate::types::INTERVAL_FIELDS;
use crate::values::interval_literal::common_fields;

/// `expr`, with the fields of the INTERVALs that it takes its value from.
pub(super) fn kept(expr: Expr, schema: &DFSchema) -> Expr {
    let expr = match expr {
        Expr::Cast(Cast { expr, field }) if *field.data_type() == DataType::Utf8 => {
            Expr::Cast(Cast { expr: Box::new(of_texts(*expr, schema)), field })
        }
        other => other,
    };
    let Some(fields) = taken_from(&expr, schema) else { return expr };
    let Ok((_, field)) = expr.to_field(schema) else { return expr };
    let are_said = field.metadata().contains_key(INTERVAL_FIELDS);
    match fields_of_type(field.data_type()) {
        Some(whole) if !are_said && whole != fields => with_fields(expr, &fields),
        _ => expr,
    }
}

/// A UNION, of which each column of INTERVALs has the fields of those of all parts.
pub(super) fn of_union(union: Union) -> Result<Union> {
    let widths = union.inputs.iter().map(|input| input.schema().fields().len());
    let (Some(columns), Some(most)) = (widths.clone().min(), widths.max()) else {
        return Ok(union);
    };
    let wanted: Vec<Option<String>> = (0..columns).map(|at| differing(&union, at)).collect();
    if columns != most || wanted.iter().all(Option::is_none) {
        return Ok(union);
    }
    let inputs = union.inputs.iter().map(|input| with_columns(input, &wanted).map(Arc::new));
    Ok(Union { inputs: inputs.collect::<Result<_>>()?, ..union.clone() })
}

/// The fields of a column of INTERVALs, where the parts of a UNION have others each.
fn differing(union: &Union, column: usize) -> Option<String> {
    let mut found = Vec::with_capacity(union.inputs.len());
    for input in &union.inputs {
        let field = input.schema().field(column);
        if !field.data_type().is_null() {
            let whole = fields_of_type(field.data_type())?;
            found.push(field.metadata().get(INTERVAL_FIELDS).map_or(whole, String::as_str));
        }
    }
    let (first, others) = found.split_first()?;
    if others.iter().all(|other| other == first) {
        return None;
    }
    others.iter().try_fold((*first).to_owned(), |all, other| common_fields(&all, other))
}

fn with_columns(input: &Arc<LogicalPlan>, wanted: &[Option<String>]) -> Result<LogicalPlan> {
    let columns = input.schema().iter().zip(wanted).map(|((table, field), wanted)| {
        let column = Expr::Column((table, field).into());
        match wanted {
            Some(fields) => {
                with_fields(column, fields).alias_qualified(table.cloned(), field.name())
            }
            None => column,
        }
    });
    LogicalPlanBuilder::from(LogicalPlan::clone(input))
        .project(columns.collect::<Vec<_>>())?
        .build()
}

/// An array, a map or a struct that is made there and becomes a text: its INTERVALs are texts
/// before, since in it their fields are not known.
fn of_texts(expr: Expr, schema: &DFSchema) -> Expr {
    let Expr::ScalarFunction(mut call) = expr else { return expr };
    let count = call.args.len();
    let groups = match call.func.name() {
        "array" | "make_array" => 1,
        "map" => 2,
        "named_struct" | "struct" => count,
        _ => 0,
    };
    for group in 0..groups {
        let places = || (group..count).step_by(groups);
        let Some(fields) = common(places().map(|at| &call.args[at]), schema) else { continue };
        for at in places() {
            let text = cast(with_fields(call.args[at].clone(), &fields), DataType::Utf8);
            call.args[at] = text;
        }
    }
    Expr::ScalarFunction(call)
}

fn taken_from(expr: &Expr, schema: &DFSchema) -> Option<String> {
    match expr {
        Expr::Case(case) => {
            let values = case.when_then_expr.iter().map(|(_, then)| &**then);
            common(values.chain(case.else_expr.as_deref()), schema)
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => match func.name() {
            "coalesce" | "nvl" | "greatest" | "least" => common(args, schema),
            "nvl2" => common(args.iter().skip(1), schema),
            "nullif" | "positive" => common(args.first(), schema),
            "array_min" | "array_max" => common(elements(args.first()?)?, schema),
            _ => None,
        },
        _ => None,
    }
}

/// The elements of an array that is made there.
fn elements(array: &Expr) -> Option<&[Expr]> {
    match array {
        Expr::ScalarFunction(call) if matches!(call.func.name(), "array" | "make_array") => {
            Some(&call.args)
        }
        _ => None,
    }
}

/// The fields of all of `values`, if they are INTERVALs, or NULL.
fn common<'a>(values: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema) -> Option<String> {
    let mut all: Option<String> = None;
    for value in values {
        if is_null(value, schema)? {
            continue;
        }
        let fields = fields_of(value, schema)?;
        all = match all {
            Some(all) => Some(common_fields(&all, &fields)?),
            None => Some(fields),
        };
    }
    all
}

/// Whether `value` is the word NULL, which may have been cast to the type beside it.
fn is_null(value: &Expr, schema: &DFSchema) -> Option<bool> {
    match value {
        Expr::Literal(value, None) => Some(value.is_null()),
        // One with fields of its own was written by somebody, who meant them.
        Expr::Cast(Cast { expr, field }) if !field.metadata().contains_key(INTERVAL_FIELDS) => {
            is_null(expr, schema)
        }
        other => Some(other.get_type(schema).ok()?.is_null()),
    }
}
