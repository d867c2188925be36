//! Values of several types in one column, before types are coerced.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, NullEquality, Result};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Union};

use super::super::common_types::with_types;
use super::WithoutAnsi;
use super::kinds::{Beside, check_kind, common, compared, refused};

/// A UNION whose columns are of the types that they have without ANSI mode.
pub(in crate::functions) fn united(union: Union, options: &ConfigOptions) -> Result<Union> {
    if !WithoutAnsi::is_in(options) {
        return Ok(union);
    }
    let width = union.schema.fields().len();
    let of_column = |at: usize| {
        let fields = union.inputs.iter().filter_map(|input| input.schema().fields().get(at));
        let types: Vec<DataType> = fields.map(|field| field.data_type().clone()).collect();
        common(&types)
    };
    let types: Vec<Option<DataType>> = (0..width).map(of_column).collect::<Result<_>>()?;
    let is_fit = |input: &Arc<LogicalPlan>| input.schema().fields().len() == width;
    if types.iter().all(Option::is_none) || !union.inputs.iter().all(is_fit) {
        return Ok(union);
    }
    let inputs = union.inputs.iter().map(|input| with_types(input, &types).map(Arc::new));
    Union::try_new_with_loose_types(inputs.collect::<Result<_>>()?)
}

/// Refuses a node that brings values of several kinds into one column.
pub(in crate::functions) fn check_columns(
    plan: &LogicalPlan,
    options: &ConfigOptions,
) -> Result<()> {
    if !WithoutAnsi::is_in(options) {
        return Ok(());
    }
    match plan {
        LogicalPlan::RecursiveQuery(query) => {
            let fields = query.static_term.schema().fields().iter();
            let mut pairs = fields.zip(query.recursive_term.schema().fields());
            pairs.try_for_each(|(one, other)| check_kind([one.data_type(), other.data_type()]))
        }
        LogicalPlan::Values(values) => {
            let mut columns = values.schema.fields().iter().enumerate();
            columns.try_for_each(|(at, column)| {
                let cells = values.values.iter().filter_map(|row| row.get(at));
                let types = cells.map(|cell| of_cell(cell, column.data_type(), &values.schema));
                check_kind(&types.collect::<Result<Vec<_>>>()?)
            })
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (join.left.schema(), join.right.schema());
            // INTERSECT and EXCEPT have common types, and do not compare as `=` does.
            let is_set = join.null_equality == NullEquality::NullEqualsNull;
            join.on.iter().try_for_each(|(one, other)| {
                let (one, other) = (type_in(one, left)?, type_in(other, right)?);
                match compared(&one, &other) {
                    Beside::Same if !is_set => Ok(()),
                    Beside::Same => check_kind([&one, &other]),
                    _ => Err(refused(&one, &other)),
                }
            })
        }
        _ => Ok(()),
    }
}

fn type_in(expr: &Expr, schema: &DFSchema) -> Result<DataType> {
    expr.get_type(schema)
}

/// The type of a cell of VALUES, without the cast to the type of its column that is added to it
/// while the query is planned. One in the text, to that type, cannot be told from it.
fn of_cell(cell: &Expr, column: &DataType, schema: &DFSchema) -> Result<DataType> {
    match cell {
        Expr::Cast(Cast { expr, field }) if field.data_type() == column => expr.get_type(schema),
        // It has been given the type of its column.
        Expr::Literal(value, _) if value.is_null() => Ok(DataType::Null),
        cell => cell.get_type(schema),
    }
}
