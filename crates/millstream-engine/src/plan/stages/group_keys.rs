//! Whether each group has keys of its own.
//!
//! A sink that replaces a row by a later one with the same keys has the latest row of each group
//! only where no two groups have the same keys. Otherwise they take each other's place, in an order
//! that nobody knows.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable as _, LogicalPlan};

/// A window as a whole follows from either of these parts of it, since all windows of an
/// expression have one length.
const ENDS: [&str; 2] = ["start", "end"];

/// The columns that `plan` groups by and that do not follow from its columns `keys`, by name. None
/// for a plan whose rows are no groups. What is followed are columns as they are, casts that keep
/// values apart, and windows by their ends: another expression may have one value for several
/// groups.
pub fn groups_beside(plan: &LogicalPlan, keys: impl IntoIterator<Item = usize>) -> Vec<String> {
    beside(plan, &keys.into_iter().collect())
}

fn beside(plan: &LogicalPlan, keys: &BTreeSet<usize>) -> Vec<String> {
    match plan {
        // Grouping sets are one expression; their keys and the set's number are the first columns.
        LogicalPlan::Aggregate(node) => (0..node.schema.fields().len() - node.aggr_expr.len())
            .filter(|index| !keys.contains(index))
            .map(|index| match node.schema.field(index).name().as_str() {
                Aggregate::INTERNAL_GROUPING_ID => "the grouping set".to_owned(),
                name => name.to_owned(),
            })
            .collect(),
        LogicalPlan::Projection(node) => {
            let below = keys.iter().filter_map(|index| {
                let column = determined(node.expr.get(*index)?, node.input.schema())?;
                node.input.schema().maybe_index_of_column(column)
            });
            beside(&node.input, &below.collect())
        }
        LogicalPlan::Filter(node) => beside(&node.input, keys),
        LogicalPlan::SubqueryAlias(node) => beside(&node.input, keys),
        _ => Vec::new(),
    }
}

/// The column that has one value for each value of `expr`, which is over columns of `schema`.
fn determined<'a>(expr: &'a Expr, schema: &DFSchema) -> Option<&'a Column> {
    let cast = |inner: &'a Expr| {
        let (from, to) = (inner.get_type(schema).ok()?, expr.get_type(schema).ok()?);
        if keeps_apart(&from, &to) { determined(inner, schema) } else { None }
    };
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => determined(&alias.expr, schema),
        Expr::Cast(of) => cast(&of.expr),
        Expr::ScalarFunction(call) if call.name() == "spark_cast" => cast(call.args.first()?),
        Expr::ScalarFunction(call) if call.name() == "get_field" => {
            let [Expr::Column(column), Expr::Literal(field, _)] = &call.args[..] else {
                return None;
            };
            let field = field.try_as_str().flatten()?;
            ENDS.contains(&field).then_some(column)
        }
        _ => None,
    }
}

/// Whether a cast gives different values for different ones. A number that does not fit is an
/// error; the text of a timestamp may be that of another hour, where clocks are set back.
fn keeps_apart(from: &DataType, to: &DataType) -> bool {
    let of_text =
        |of: &DataType| matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let is_text = of_text(to);
    match from {
        _ if from == to => true,
        from if of_text(from) => is_text,
        DataType::Float32 => *to == DataType::Float64,
        from if from.is_integer() => to.is_integer() || is_text,
        DataType::Boolean | DataType::Date32 => is_text,
        _ => false,
    }
}
