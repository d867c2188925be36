//! `min` and `max` of structs and arrays, in which a NULL is less than all values.
//!
//! DataFusion takes such a NULL to be the greatest. `max_by(x, x)` is the same, and orders them as
//! Spark does. Over a stream the state has to be one column, as it was: there it is an aggregate of
//! its own ([`over_stream`]).

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable as _, WindowFunctionDefinition};

use super::aggregates::{extreme_by, extreme_of_rows};

/// `call` with Spark's order.
pub(crate) fn of_rows(mut call: AggregateFunction, schema: &DFSchema) -> Transformed<Expr> {
    let by = extreme_by(call.func.name()).filter(|_| is_nested(&call.params.args, schema));
    let changed = by.is_some();
    if let Some(by) = by {
        call.func = by;
        call.params.args = twice(call.params.args);
        call.params.distinct = false;
    }
    Transformed::new_transformed(Expr::AggregateFunction(call), changed)
}

/// The aggregate of this name with Spark's order, for arguments of `schema` that need it.
pub fn over_stream(name: &str, args: &[Expr], schema: &DFSchema) -> Option<Arc<AggregateUDF>> {
    extreme_of_rows(name).filter(|_| is_nested(args, schema))
}

/// Gives a window's call Spark's order; whether that has changed it.
pub(crate) fn of_window(call: &mut WindowFunction, schema: &DFSchema) -> bool {
    let WindowFunctionDefinition::AggregateUDF(function) = &call.fun else { return false };
    if !is_nested(&call.params.args, schema) {
        return false;
    }
    let Some(by) = extreme_by(function.name()) else { return false };
    call.fun = WindowFunctionDefinition::AggregateUDF(by);
    call.params.args = twice(std::mem::take(&mut call.params.args));
    true
}

fn is_nested(args: &[Expr], schema: &DFSchema) -> bool {
    let [value] = args else { return false };
    matches!(value.get_type(schema), Ok(DataType::Struct(_) | DataType::List(_)))
}

fn twice(args: Vec<Expr>) -> Vec<Expr> {
    args.into_iter().flat_map(|value| [value.clone(), value]).collect()
}
