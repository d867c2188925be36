//! DISTINCT, and rows of one side with those of the other: joins, UNION, INTERSECT and EXCEPT.

use std::sync::Arc;

use datafusion::common::{Column, JoinConstraint, JoinType, NullEquality, Result, plan_err};
use datafusion::functions_window::expr_fn::{first_value, row_number};
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder, Union,
};

use super::groups::Name;
use super::leaves::{Leaves, Strength, are_plain};
use super::scope::Scope;
use super::{Resolved, Resolver, Typed};

/// The names of the numbers of both sides' rows.
const NUMBERS: [&str; 2] = ["__collation_number", "__collation_other_number"];

impl Resolver<'_> {
    pub(super) fn distinct(
        &self,
        distinct: Distinct,
        around: Option<&Scope<'_>>,
    ) -> Result<Resolved> {
        let Distinct::All(input) = distinct else {
            return plan_err!("DISTINCT ON has no collations; write GROUP BY");
        };
        let Resolved { plan, columns } = self.plan(Arc::unwrap_or_clone(input), around)?;
        if columns.iter().all(|leaves| are_plain(leaves)) {
            let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(plan)));
            return Ok(Resolved { plan, columns });
        }
        let group = |(column, leaves): (Column, &Leaves)| -> (Typed, Name) {
            let name = (column.relation.clone(), column.name.clone());
            (Typed { expr: Expr::Column(column), leaves: leaves.clone() }, name)
        };
        let groups = plan.schema().columns().into_iter().zip(&columns).map(group).collect();
        Ok(Resolved { plan: self.grouped(plan, groups, Vec::new())?, columns })
    }

    /// The rows of several plans, whose columns have the same collations.
    pub(super) fn union(&self, union: Union, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let Union { inputs, schema } = union;
        let inputs = inputs.into_iter().map(|input| self.plan(Arc::unwrap_or_clone(input), around));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let mut columns = vec![Leaves::new(); schema.fields().len()];
        for input in &inputs {
            for (all, own) in columns.iter_mut().zip(&input.columns) {
                if all.is_empty() {
                    all.clone_from(own);
                }
                check_same(all, own)?;
            }
        }
        let inputs = inputs.into_iter().map(|input| Arc::new(input.plan)).collect();
        Ok(Resolved { plan: LogicalPlan::Union(Union { inputs, schema }), columns })
    }

    pub(super) fn joined(&self, join: Join, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let is_distinct = matches!(join.left.as_ref(), LogicalPlan::Distinct(_));
        let left = self.plan(Arc::unwrap_or_clone(join.left), around)?;
        let of_left = Scope::of(&[&left], around);
        // A LATERAL subquery on the right names columns of the left.
        let right = self.plan(Arc::unwrap_or_clone(join.right), Some(&of_left))?;
        let (of_right, of_both) =
            (Scope::of(&[&right], around), Scope::of(&[&left, &right], around));
        let is_set = join.null_equality == NullEquality::NullEqualsNull
            && join.filter.is_none()
            && matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
            && join.on.len() == left.columns.len();
        let (mut on, mut by_keys) = (Vec::with_capacity(join.on.len()), false);
        for (one, other) in join.on {
            let (one, other) = (self.expr(one, &of_left)?, self.expr(other, &of_right)?);
            if is_set {
                check_same(&one.leaves, &other.leaves)?;
            }
            let sides = [
                (of_left.type_of(&one.expr)?, &one.leaves),
                (of_right.type_of(&other.expr)?, &other.leaves),
            ];
            match self.collation_of(&sides)? {
                None => on.push((one.expr, other.expr)),
                Some(collation) => {
                    by_keys = true;
                    on.push((self.key(one.expr, collation)?, self.key(other.expr, collation)?));
                }
            }
        }
        let before = join.filter.clone();
        let filter = join.filter.map(|filter| self.expr(filter, &of_both)).transpose()?;
        if by_keys || filter.as_ref().map(|filter| &filter.expr) != before.as_ref() {
            self.check_batch(&left.plan, "joining")?;
            self.check_batch(&right.plan, "joining")?;
        }
        let (join_type, constraint) = (join.join_type, join.join_constraint);
        if is_set && by_keys {
            return set_of(left, right, on, join_type, is_distinct);
        }
        let columns = match join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => left.columns,
            JoinType::RightSemi | JoinType::RightAnti => right.columns,
            JoinType::LeftMark => with_mark(left.columns),
            JoinType::RightMark => with_mark(right.columns),
            _ => left.columns.into_iter().chain(right.columns).collect(),
        };
        let plan = Join::try_new(
            Arc::new(left.plan),
            Arc::new(right.plan),
            on,
            filter.map(|filter| filter.expr),
            join_type,
            constraint,
            join.null_equality,
            join.null_aware,
        )?;
        Ok(Resolved { plan: LogicalPlan::Join(plan), columns })
    }
}

/// Columns with one that says whether there is a row.
fn with_mark(mut columns: Vec<Leaves>) -> Vec<Leaves> {
    columns.push(Leaves::new());
    columns
}

/// Refuses columns of a set operation whose collations differ. A NULL has none.
fn check_same(one: &Leaves, other: &Leaves) -> Result<()> {
    let is_same = one.is_empty()
        || other.is_empty()
        || (are_plain(one) && are_plain(other))
        || (one.len() == other.len()
            && one.iter().zip(other).all(|(one, other)| {
                one.collation == other.collation
                    && one.strength != Strength::Indeterminate
                    && other.strength != Strength::Indeterminate
            }));
    if is_same {
        return Ok(());
    }
    plan_err!(
        "both sides of a UNION, an INTERSECT or an EXCEPT must have the same collation in each \
         column (INCOMPATIBLE_COLUMN_TYPE); write x COLLATE name"
    )
}

/// INTERSECT and EXCEPT: rows of the left side for which there is one on the right, or none. Rows
/// that are `distinct` are compared as they are. Else equal rows are numbered on both sides, and
/// each is the first of its equals, as in Spark, which counts them.
fn set_of(
    left: Resolved,
    right: Resolved,
    on: Vec<(Expr, Expr)>,
    join_type: JoinType,
    distinct: bool,
) -> Result<Resolved> {
    let types = |side: &Resolved| -> Vec<_> {
        side.plan.schema().fields().iter().map(|field| field.data_type().clone()).collect()
    };
    if types(&left) != types(&right) {
        return plan_err!(
            "both sides of an INTERSECT or an EXCEPT by a collation must have the same types; CAST \
             the columns that differ"
        );
    }
    let joined = |left: LogicalPlan, right: LogicalPlan, on: Vec<(Expr, Expr)>| {
        let (left, right) = (Arc::new(left), Arc::new(right));
        let (constraint, equality) = (JoinConstraint::On, NullEquality::NullEqualsNull);
        Join::try_new(left, right, on, None, join_type, constraint, equality, false)
    };
    let columns = left.columns.clone();
    if distinct {
        let plan = LogicalPlan::Join(joined(left.plan, right.plan, on)?);
        return Ok(Resolved { plan, columns });
    }
    let (keys, others): (Vec<Expr>, Vec<Expr>) = on.iter().cloned().unzip();
    let names = left.plan.schema().columns();
    let mut shown = Vec::with_capacity(names.len());
    let mut firsts = Vec::new();
    for (at, (column, leaves)) in names.into_iter().zip(&columns).enumerate() {
        if are_plain(leaves) {
            shown.push(Expr::Column(column));
            continue;
        }
        let first = Column::new_unqualified(format!("__collation_first_{at}"));
        let value = first_value(Expr::Column(column.clone())).partition_by(keys.clone()).build()?;
        firsts.push(value.alias(&first.name));
        shown.push(Expr::Column(first).alias_qualified(column.relation, column.name));
    }
    let number = |keys: Vec<Expr>, name: &str| -> Result<Expr> {
        Ok(row_number().partition_by(keys).build()?.alias(name))
    };
    firsts.push(number(keys, NUMBERS[0])?);
    let left = LogicalPlanBuilder::from(left.plan).window(firsts)?.build()?;
    let right = LogicalPlanBuilder::from(right.plan);
    let right = right.window([number(others, NUMBERS[1])?])?.build()?;
    let numbers = NUMBERS.map(|name| Expr::Column(Column::new_unqualified(name)));
    let on = on.into_iter().chain([numbers.into()]).collect();
    let joined = LogicalPlan::Join(joined(left, right, on)?);
    let plan = LogicalPlanBuilder::from(joined).project(shown)?.build()?;
    Ok(Resolved { plan, columns })
}
