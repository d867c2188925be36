//! `min` and `max` of structs and arrays, in which a NULL is less than all values.
//!
//! DataFusion takes such a NULL to be the greatest. So they are computed by aggregates of our own,
//! whose state is that of DataFusion's: checkpoints go on with it.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{AggregateUDF, Expr, ExprSchemable as _, WindowFunctionDefinition};

use super::aggregates::extreme_of_rows;

/// `call` with Spark's order.
pub(crate) fn of_rows(mut call: AggregateFunction, schema: &DFSchema) -> Transformed<Expr> {
    let ours = in_order(call.func.name(), &call.params.args, schema);
    let changed = ours.is_some();
    if let Some(ours) = ours {
        call.func = ours;
        call.params.distinct = false;
    }
    Transformed::new_transformed(Expr::AggregateFunction(call), changed)
}

/// The aggregate of this name with Spark's order, for arguments of `schema` that need it.
pub fn in_order(name: &str, args: &[Expr], schema: &DFSchema) -> Option<Arc<AggregateUDF>> {
    extreme_of_rows(name).filter(|_| is_nested(args, schema))
}

/// Gives a window's call Spark's order; whether that has changed it.
pub(crate) fn of_window(call: &mut WindowFunction, schema: &DFSchema) -> bool {
    let WindowFunctionDefinition::AggregateUDF(function) = &call.fun else { return false };
    let ours = in_order(function.name(), &call.params.args, schema);
    let Some(ours) = ours else { return false };
    call.fun = WindowFunctionDefinition::AggregateUDF(ours);
    true
}

fn is_nested(args: &[Expr], schema: &DFSchema) -> bool {
    let [value] = args else { return false };
    matches!(value.get_type(schema), Ok(DataType::Struct(_) | DataType::List(_)))
}
