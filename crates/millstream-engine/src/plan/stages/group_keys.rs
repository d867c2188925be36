//! Whether each group has keys of its own.
//!
//! A sink that replaces a row by a later one with the same keys has the latest row of each group
//! only where no two groups have the same keys. Otherwise they take each other's place, in an order
//! that nobody knows.

use std::collections::BTreeSet;

use datafusion::logical_expr::{Expr, LogicalPlan};

/// A window as a whole follows from either of these parts of it, since all windows of an
/// expression have one length.
const ENDS: [&str; 2] = ["start", "end"];

/// The columns that `plan` groups by and that do not follow from its columns `keys`, by name. None
/// for a plan whose rows are no groups. Only columns as they are, and windows by their ends, are
/// followed: another expression may have one value for several groups.
pub fn groups_beside(plan: &LogicalPlan, keys: impl IntoIterator<Item = usize>) -> Vec<String> {
    beside(plan, &keys.into_iter().collect())
}

fn beside(plan: &LogicalPlan, keys: &BTreeSet<usize>) -> Vec<String> {
    match plan {
        LogicalPlan::Aggregate(node) => (0..node.group_expr.len())
            .filter(|index| !keys.contains(index))
            .map(|index| node.schema.field(index).name().clone())
            .collect(),
        LogicalPlan::Projection(node) => {
            let below = keys.iter().filter_map(|index| {
                let column = determined(node.expr.get(*index)?)?;
                node.input.schema().maybe_index_of_column(column)
            });
            beside(&node.input, &below.collect())
        }
        LogicalPlan::Filter(node) => beside(&node.input, keys),
        LogicalPlan::SubqueryAlias(node) => beside(&node.input, keys),
        _ => Vec::new(),
    }
}

/// The column that has one value for each value of `expr`.
fn determined(expr: &Expr) -> Option<&datafusion::common::Column> {
    match expr {
        Expr::Column(column) => Some(column),
        Expr::Alias(alias) => determined(&alias.expr),
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
