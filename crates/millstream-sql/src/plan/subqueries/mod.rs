//! Subqueries within expressions become joins.
//!
//! DataFusion makes joins of the plain ones ([`simple`]): conditions of WHERE, and aggregates over
//! rows that equal a column outside. The others become joins here, before types are checked, so
//! that what is compared gets its common types as in any join: each node with subqueries in its
//! expressions reads its input with columns for their values ([`values`]), which are found for all
//! rows at once ([`domain`]). [`copies`] bounds what this reads twice, [`references`] says what a
//! subquery refers to, [`rows`] what `(a, b) IN (...)` compares, and [`lateral`] is about
//! subqueries in FROM, which are made joins of before. Values that are no joins may be [`absent`].
//!
//! A node that reads a stream stays as it is: its rows would have to be read twice.

mod absent;
mod copies;
mod domain;
mod lateral;
mod negations;
mod references;
mod rows;
mod simple;
mod values;

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, plan_err};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery,
};

use copies::Copies;
use references::{has_subquery, node_has_subquery};
use values::Input;

pub(super) use lateral::of_join;
pub(super) use references::{is_correlated, outer_columns, subquery_of};

/// Makes joins of subqueries. `is_stream` tells a plan that reads a stream.
pub(super) fn joined(
    plan: LogicalPlan,
    is_stream: fn(&LogicalPlan) -> bool,
) -> Result<LogicalPlan> {
    let walk = Walk { is_stream, names: Names::default(), copies: Copies::default() };
    absent::nullable(walk.plan(walk.laterals(plan)?)?)
}

/// Names that no query has.
#[derive(Default)]
struct Names(Cell<usize>);

impl Names {
    /// A column of a new name.
    fn column(&self) -> Column {
        self.0.set(self.0.get() + 1);
        Column::new_unqualified(format!("__subquery_{}", self.0.get()))
    }
}

struct Walk {
    is_stream: fn(&LogicalPlan) -> bool,
    names: Names,
    copies: Copies,
}

impl Walk {
    fn plan(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        Ok(plan.transform_up(|node| self.after_its_inputs(node))?.data)
    }

    fn after_its_inputs(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if !node_has_subquery(&node)? {
            return Ok(Transformed::no(node));
        }
        if (self.is_stream)(&node) {
            refuse_over_stream(&node)?;
            return Ok(Transformed::no(node));
        }
        self.node(node).map(Transformed::yes)
    }

    /// The plan of a subquery that stays.
    fn within(&self, expr: Expr) -> Result<Expr> {
        let inner = |subquery: Subquery| -> Result<Subquery> {
            let plan = self.plan(Arc::unwrap_or_clone(subquery.subquery))?;
            Ok(Subquery { subquery: Arc::new(plan), ..subquery })
        };
        Ok(match expr {
            Expr::Exists(mut exists) => {
                exists.subquery = inner(exists.subquery)?;
                Expr::Exists(exists)
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Expr::InSubquery(InSubquery { expr, subquery: inner(subquery)?, negated })
            }
            Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(inner(subquery)?),
            other => other,
        })
    }

    fn all_within(&self, expr: Expr) -> Result<Expr> {
        Ok(expr.transform_up(|expr| self.within(expr).map(Transformed::yes))?.data)
    }

    fn node(&self, node: LogicalPlan) -> Result<LogicalPlan> {
        match node {
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Projection(ref projection) => {
                let mut simple = true;
                for expr in &projection.expr {
                    simple &= simple::has_simple_values(expr)?;
                }
                if simple { self.unchanged(node) } else { self.expressions(node) }
            }
            LogicalPlan::Aggregate(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_) => {
                self.expressions(node)
            }
            other => self.unchanged(other),
        }
    }

    /// The node with its subqueries; those within them are made joins of.
    fn unchanged(&self, node: LogicalPlan) -> Result<LogicalPlan> {
        let names = NamePreserver::new(&node);
        let changed = node.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(Transformed::yes(name.restore(self.all_within(expr)?)))
        })?;
        Ok(changed.data)
    }

    fn filter(&self, filter: Filter) -> Result<LogicalPlan> {
        let Filter { predicate, input, .. } = filter;
        let (mut stay, mut change) = (Vec::new(), Vec::new());
        for condition in split_conjunction_owned(predicate) {
            if simple::is_simple_condition(&condition)? {
                stay.push(self.all_within(condition)?);
            } else {
                change.push(condition);
            }
        }
        let mut plan = Arc::unwrap_or_clone(input);
        if let Some(stay) = conjunction(stay) {
            plan = LogicalPlan::Filter(Filter::try_new(stay, Arc::new(plan))?);
        }
        if change.is_empty() { Ok(plan) } else { self.filtered(plan, change) }
    }

    /// The rows of `plan` that meet `conditions`.
    fn filtered(&self, plan: LogicalPlan, conditions: Vec<Expr>) -> Result<LogicalPlan> {
        let columns = plan.schema().columns();
        let mut input = Input::new(self, plan);
        let conditions = conditions.into_iter().map(|condition| input.expr(condition));
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        let plan = LogicalPlanBuilder::from(input.plan);
        let plan = match conjunction(conditions) {
            Some(condition) => plan.filter(condition)?,
            None => plan,
        };
        plan.project(columns.into_iter().map(Expr::Column).collect::<Vec<_>>())?.build()
    }

    /// A node with one input, some of whose expressions have subqueries.
    fn expressions(&self, node: LogicalPlan) -> Result<LogicalPlan> {
        let adds_columns = matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Window(_));
        let columns = node.schema().columns();
        let Some(input) = node.inputs().first().map(|input| LogicalPlan::clone(input)) else {
            return Ok(node);
        };
        let names = NamePreserver::new(&node);
        let mut input = Input::new(self, input);
        let node = node.map_expressions(|expr| {
            if !has_subquery(&expr) {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            Ok(Transformed::yes(name.restore(input.expr(expr)?)))
        })?;
        let plan = input.plan;
        let node = node.data.map_children(|_| Ok(Transformed::yes(plan.clone())))?.data;
        let node = node.recompute_schema()?;
        if !adds_columns {
            return Ok(node);
        }
        let columns: Vec<Expr> = columns.into_iter().map(Expr::Column).collect();
        LogicalPlanBuilder::from(node).project(columns)?.build()
    }

    /// A condition of a join is one of its result, if it is an inner join. Else a side that it is
    /// about alone has a column for it.
    fn join(&self, join: Join) -> Result<LogicalPlan> {
        let filter = join.filter.clone();
        let conditions = filter.map(split_conjunction_owned).unwrap_or_default();
        let (change, stay): (Vec<_>, Vec<_>) = conditions.into_iter().partition(has_subquery);
        if change.is_empty() {
            return plan_err!("a subquery cannot be one of the keys of a JOIN");
        }
        if join.join_type == JoinType::Inner {
            let join = Join { filter: conjunction(stay), ..join };
            let node = LogicalPlan::Join(join);
            return self.filter(Filter::try_new(
                change.into_iter().reduce(Expr::and).expect("there is one"),
                Arc::new(node),
            )?);
        }
        self.sides(join, stay, change)
    }

    fn sides(&self, join: Join, stay: Vec<Expr>, change: Vec<Expr>) -> Result<LogicalPlan> {
        let columns = join.schema.columns();
        let mut left = Input::of_outer_join(self, Arc::unwrap_or_clone(join.left));
        let mut right = Input::of_outer_join(self, Arc::unwrap_or_clone(join.right));
        let mut conditions = stay;
        for condition in change {
            let used = used_columns(&condition)?;
            conditions.push(if right.has_all(&used) {
                right.expr(condition)?
            } else if left.has_all(&used) {
                left.expr(condition)?
            } else {
                of_both(condition, &mut left, &mut right)?
            });
        }
        let joined = Join::try_new(
            Arc::new(left.plan),
            Arc::new(right.plan),
            join.on,
            conjunction(conditions),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            false,
        )?;
        let columns: Vec<Expr> = columns.into_iter().map(Expr::Column).collect();
        LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
    }
}

/// A condition about both sides of a join, each of whose subqueries is about one of them.
fn of_both<'a>(condition: Expr, left: &mut Input<'a>, right: &mut Input<'a>) -> Result<Expr> {
    let changed = condition.transform_up(|expr| {
        if references::subquery_of(&expr).is_none() {
            return Ok(Transformed::no(expr));
        }
        let used = used_columns(&expr)?;
        let side = match (right.has_all(&used), left.has_all(&used)) {
            (true, _) => &mut *right,
            (false, true) => &mut *left,
            (false, false) => {
                return plan_err!(
                    "a subquery in the condition of an outer JOIN can refer to columns of one \
                     side only"
                );
            }
        };
        side.expr(expr).map(Transformed::yes)
    })?;
    Ok(changed.data)
}

/// The columns that `expr` is about, also those that its subqueries refer to.
fn used_columns(expr: &Expr) -> Result<Vec<Column>> {
    let mut used: Vec<Column> = expr.column_refs().into_iter().cloned().collect();
    expr.apply(|expr| {
        if let Some(subquery) = references::subquery_of(expr) {
            used.extend(references::outer_columns(&subquery.subquery)?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(used)
}

/// What has no plan over a stream, or one with another answer.
fn refuse_over_stream(node: &LogicalPlan) -> Result<()> {
    let (mut has_rows, mut has_casts) = (false, false);
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            match expr {
                Expr::InSubquery(InSubquery { expr, .. }) => has_rows |= rows::is_row(expr),
                Expr::ScalarSubquery(subquery) => {
                    has_casts |= simple::has_equal_cast(&subquery.subquery)?;
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if has_rows {
        return plan_err!(
            "over a stream IN compares one value with a subquery; write EXISTS (SELECT ... WHERE \
             a = x AND b = y)"
        );
    }
    if has_casts {
        return plan_err!(
            "over a stream a subquery that is a value cannot compare a CAST of a column of its own \
             with a column outside of it; compute the CAST in a subquery in its FROM"
        );
    }
    Ok(())
}
