//! INTERSECT and EXCEPT as in Spark.
//!
//! DataFusion plans both as semi joins and anti joins over all columns. So INTERSECT ALL and EXCEPT
//! ALL would look only at whether the other side has a row, where it matters how often it has it.
//! Here the equal rows of each side are numbered, and the numbers are compared with the columns:
//! the third of five equal rows meets only a third. And columns of both sides get common types.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Column, NullEquality, Result, TableReference};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
};

use super::common_types::{check_columns, check_names, common_type, with_key_types, with_types};
use super::one_zero::{holds_float, one_zero};

/// The names of the numbers of both sides' rows.
const NUMBERS: [&str; 2] = ["__occurrence", "__other_occurrence"];

/// `join` with Spark's meaning: a set operation, or a join by keys of several types.
pub(super) fn with_meaning(join: Join) -> Result<LogicalPlan> {
    if !is_set_operation(&join) {
        return with_key_types(join).map(LogicalPlan::Join);
    }
    let join = with_common_types(join)?;
    if matches!(join.left.as_ref(), LogicalPlan::Distinct(_)) {
        return Ok(LogicalPlan::Join(join));
    }
    of_all(join)
}

fn is_set_operation(join: &Join) -> bool {
    let (left, right): (Vec<&Expr>, Vec<&Expr>) =
        join.on.iter().map(|(left, right)| (left, right)).unzip();
    let compares_all = |side: &LogicalPlan, keys: &[&Expr]| {
        let is_key =
            |column| keys.iter().any(|key| matches!(key, Expr::Column(key) if key == column));
        side.schema().columns().iter().all(is_key)
    };
    let is_numbered = join.left.schema().has_column_with_unqualified_name(NUMBERS[0]);
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && !is_numbered
        && compares_all(&join.left, &left)
        && compares_all(&join.right, &right)
}

/// Casts the columns of both sides to their common types.
fn with_common_types(join: Join) -> Result<Join> {
    let (left, right) = (Arc::clone(&join.left), Arc::clone(&join.right));
    let type_in = |side: &LogicalPlan, key: &Expr| -> Result<(usize, DataType)> {
        let Expr::Column(column) = key else { return Ok((0, DataType::Null)) };
        let at = side.schema().index_of_column(column)?;
        Ok((at, side.schema().field(at).data_type().clone()))
    };
    let wanted = |side: &LogicalPlan| vec![None; side.schema().fields().len()];
    let (mut left_types, mut right_types) = (wanted(&left), wanted(&right));
    for (one, other) in &join.on {
        let ((at, one), (other_at, other)) = (type_in(&left, one)?, type_in(&right, other)?);
        if one != other {
            check_names(&one, &other)?;
            let types = [one, other];
            check_columns(&types)?;
            let common = common_type(&types);
            left_types[at].clone_from(&common);
            right_types[other_at] = common;
        }
    }
    if left_types.iter().chain(&right_types).all(Option::is_none) {
        return Ok(join);
    }
    let cast = |side: &Arc<LogicalPlan>, types: &[Option<DataType>]| -> Result<LogicalPlan> {
        match side.as_ref() {
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = Arc::new(with_types(input, types)?);
                Ok(LogicalPlan::Distinct(Distinct::All(input)))
            }
            _ => with_types(side, types),
        }
    };
    rebuilt(cast(&left, &left_types)?, cast(&right, &right_types)?, join.on.clone(), &join)
}

fn rebuilt(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    join: &Join,
) -> Result<Join> {
    Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )
}

/// Each row meets one row of the other side at most.
fn of_all(join: Join) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = join.left.schema().iter().map(of_group).collect();
    let left = numbered(&join.left, NUMBERS[0])?;
    let right = numbered(&join.right, NUMBERS[1])?;
    let numbers = NUMBERS.map(|name| Expr::Column(Column::new_unqualified(name)));
    let on = join.on.iter().cloned().chain([numbers.into()]).collect();
    let joined = rebuilt(left, right, on, &join)?;
    LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
}

/// A column of the result as a key of a group has it: to Spark equal rows are one.
fn of_group((table, field): (Option<&TableReference>, &FieldRef)) -> Expr {
    let column = Expr::Column(Column::from((table, field)));
    match holds_float(field.data_type()) {
        true => one_zero().call(vec![column]).alias_qualified(table.cloned(), field.name()),
        false => column,
    }
}

/// `rows` with the number of each among its equals.
fn numbered(rows: &LogicalPlan, name: &str) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
    let number = row_number().partition_by(columns).build()?.alias(name);
    LogicalPlanBuilder::from(rows.clone()).window([number])?.build()
}
