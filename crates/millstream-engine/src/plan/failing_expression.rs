//! The smallest expression of a plan that fails with a row.
//!
//! It is searched for once a row is known to fail by itself. From the top of the plan downwards,
//! the node that fails although its input can be computed has the expression; within it, the part
//! that fails although its own parts can be computed is the smallest. The result is for the message
//! only: where no expression is found the error still names the row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, Literal, NegativeExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, collect_partitioned};
use millstream_sql::types::spark_type;

use super::query_plan::QueryPlan;
use super::row_error::{Culprit, Operation, shortened};
use crate::api::source::Split;

/// The longest value that is shown.
const VALUE_CHARACTERS: usize = 60;
/// The most columns whose values are shown.
const VALUES_MAX: usize = 4;

impl QueryPlan {
    /// The expression that fails with the row that `inputs` gives; it is called before each run.
    pub(super) async fn culprit(
        &self,
        inputs: impl Fn() -> Vec<Vec<Box<dyn Split>>>,
    ) -> Option<Culprit> {
        culprit_in(self.physical(), self.context(), || self.refill(inputs())).await
    }
}

/// The expression of `plan` that fails; `refill` gives its scans their rows before each run.
pub(super) async fn culprit_in(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    refill: impl Fn(),
) -> Option<Culprit> {
    let mut node = Arc::clone(plan);
    'descent: loop {
        let children: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
        let mut given = Vec::new();
        for child in children {
            refill();
            match collected(&child, context).await {
                Ok(rows) => given.extend(rows),
                Err(_) => {
                    node = child;
                    continue 'descent;
                }
            }
        }
        return culprit_of(&node, &given);
    }
}

async fn collected(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<Vec<RecordBatch>> {
    let plan = reset_plan_states(Arc::clone(plan))?;
    let partitions = collect_partitioned(plan, Arc::clone(context)).await?;
    Ok(partitions.into_iter().flatten().collect())
}

/// Which of the node's expressions fails with the rows it is given.
fn culprit_of(node: &Arc<dyn ExecutionPlan>, given: &[RecordBatch]) -> Option<Culprit> {
    let expressions = expressions_of(node);
    let mut rows = given.iter().filter(|rows| rows.num_rows() > 0);
    rows.find_map(|rows| {
        let failing = expressions.iter().find(|expression| fails(expression, rows))?;
        let smallest = smallest(failing, rows);
        Some(Culprit {
            operation: operation_of(&smallest, rows),
            leaves: leaves_of(&smallest, node),
            values: values_of(&smallest, rows),
            text: smallest.to_string(),
        })
    })
}

fn expressions_of(node: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn PhysicalExpr>> {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return vec![Arc::clone(filter.predicate())];
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return projection.expr().iter().map(|column| Arc::clone(&column.expr)).collect();
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let groups = aggregate.group_expr().expr().iter().map(|(group, _)| Arc::clone(group));
        let arguments = aggregate.aggr_expr().iter().flat_map(|function| function.expressions());
        return groups.chain(arguments).collect();
    }
    Vec::new()
}

fn fails(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> bool {
    let value = expression.evaluate(rows);
    value.and_then(|value| value.into_array(rows.num_rows())).is_err()
}

/// The part of `failing` that fails, though all of its own parts can be computed.
fn smallest(failing: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Arc<dyn PhysicalExpr> {
    let mut failing = Arc::clone(failing);
    loop {
        let next = parts(&failing, rows).into_iter().find(|part| fails(part, rows));
        match next {
            Some(part) => failing = part,
            None => return failing,
        }
    }
}

/// The parts of an expression in the order in which they are computed, without those of a CASE
/// whose condition does not hold.
fn parts(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Vec<Arc<dyn PhysicalExpr>> {
    let Some(case) = expression.downcast_ref::<CaseExpr>() else {
        return expression.children().into_iter().map(Arc::clone).collect();
    };
    if case.expr().is_some() {
        return expression.children().into_iter().map(Arc::clone).collect();
    }
    let mut parts = Vec::new();
    for (when, then) in case.when_then_expr() {
        parts.push(Arc::clone(when));
        let holds = when.evaluate(rows).and_then(|holds| holds.into_array(rows.num_rows()));
        // The condition itself fails: nothing after it is computed.
        let Ok(holds) = holds else { return parts };
        let holds = holds.as_boolean_opt();
        if holds.is_some_and(|holds| holds.true_count() > 0) {
            parts.push(Arc::clone(then));
            return parts;
        }
    }
    parts.extend(case.else_expr().cloned());
    parts
}

fn operation_of(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Operation {
    let data_type = || expression.data_type(rows.schema_ref()).unwrap_or(DataType::Null);
    if let Some(call) = expression.downcast_ref::<ScalarFunctionExpr>() {
        return match call.fun().name() {
            "spark_cast" => Operation::Cast(spark_type(&data_type())),
            "checked_add" => Operation::Operator("+".to_owned()),
            "checked_subtract" => Operation::Operator("-".to_owned()),
            "checked_multiply" => Operation::Operator("*".to_owned()),
            "divide" => Operation::Operator("/".to_owned()),
            name => Operation::Call(name.to_owned()),
        };
    }
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        return Operation::Cast(spark_type(cast.cast_type()));
    }
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        return Operation::Operator(match binary.op() {
            Operator::Modulo => "%".to_owned(),
            other => other.to_string(),
        });
    }
    if expression.is::<NegativeExpr>() {
        Operation::Operator("-".to_owned())
    } else {
        Operation::Other
    }
}

/// Names of columns, and constants, of which an expression of `node` is made. What the planner
/// computes beforehand, in the node below, is taken apart as well.
fn leaves_of(expression: &Arc<dyn PhysicalExpr>, node: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let children = node.children();
    let below = children.first().and_then(|below| below.downcast_ref::<ProjectionExec>());
    let made = |column: &Column| {
        let column = below?.expr().get(column.index())?;
        column.alias.starts_with("__common_expr").then(|| Arc::clone(&column.expr))
    };
    let mut leaves = Vec::new();
    let mut rest = vec![Arc::clone(expression)];
    while let Some(part) = rest.pop() {
        if let Some(column) = part.downcast_ref::<Column>() {
            match made(column) {
                // Columns in it are those of its own input.
                Some(made) => leaves.extend(leaves_of(&made, children[0])),
                None => leaves.push(column.name().to_owned()),
            }
        } else if let Some(literal) = part.downcast_ref::<Literal>() {
            leaves.push(literal.value().to_string());
        }
        rest.extend(part.children().into_iter().map(Arc::clone));
    }
    leaves.sort();
    leaves.dedup();
    leaves
}

/// The first value, as it may stand in SQL.
fn shown(values: &ArrayRef) -> Option<String> {
    let as_text = || match values.data_type() {
        DataType::Utf8 => Some(values.as_string::<i32>().value(0).to_owned()),
        DataType::Utf8View => Some(values.as_string_view().value(0).to_owned()),
        DataType::Binary => String::from_utf8(values.as_binary::<i32>().value(0).to_vec()).ok(),
        _ => None,
    };
    if let Some(text) = values.is_valid(0).then(as_text).flatten() {
        return Some(format!("'{}'", shortened(&text, VALUE_CHARACTERS)));
    }
    let options = FormatOptions::default().with_null("NULL");
    let text = ArrayFormatter::try_new(values, &options).ok()?.value(0).to_string();
    Some(shortened(&text, VALUE_CHARACTERS))
}

fn values_of(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Vec<(String, String)> {
    let mut columns: Vec<Column> = collect_columns(expression).into_iter().collect();
    columns.sort_by_key(Column::index);
    columns.dedup_by_key(|column| column.index());
    let value = |column: &Column| {
        let values = rows.columns().get(column.index())?;
        let text = shown(values)?;
        // A name that the planner made up says nothing to the user.
        let name = column.name();
        let is_own = name.starts_with("__") || name.contains('(');
        Some((if is_own { "its argument" } else { name }.to_owned(), text))
    };
    columns.iter().filter_map(value).take(VALUES_MAX).collect()
}
