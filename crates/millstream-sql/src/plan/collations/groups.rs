//! Groups by STRINGs with a collation: by their keys, with the first of the STRINGs as the group's.

use std::sync::Arc;

use datafusion::common::{Column, Result, TableReference, plan_err};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Projection};

use super::aggregates::is_extreme;
use super::leaves::{Leaves, are_plain, of_column};
use super::scope::Scope;
use super::{Resolved, Resolver, Typed};

/// The name of a column, with that of its table.
pub(super) type Name = (Option<TableReference>, String);

/// An aggregate, its name, and what stands for it above the groups, if that is more than it.
pub(super) struct Value {
    typed: Typed,
    name: Name,
    above: Option<Expr>,
}

/// `expr` under a name.
pub(super) fn named(expr: Expr, (relation, name): Name) -> Expr {
    match expr.qualified_name() == (relation.clone(), name.clone()) {
        true => expr,
        false => expr.alias_qualified(relation, name),
    }
}

impl Resolver<'_> {
    pub(super) fn aggregated(
        &self,
        aggregate: Aggregate,
        around: Option<&Scope<'_>>,
    ) -> Result<Resolved> {
        let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
        let input = self.plan(Arc::unwrap_or_clone(input), around)?;
        let scope = Scope::of(&[&input], around);
        let typed = |expr: Expr| -> Result<(Typed, Name)> {
            let name = expr.qualified_name();
            Ok((self.expr(expr, &scope)?, name))
        };
        let value = |(at, expr): (usize, Expr)| -> Result<Value> {
            let name = expr.qualified_name();
            Ok(match self.distinct_list(at, &expr, &scope)? {
                Some((typed, joined)) => Value { typed, name, above: Some(joined) },
                None => Value { typed: self.expr(expr, &scope)?, name, above: None },
            })
        };
        let aggregates = aggr_expr.into_iter().enumerate().map(value);
        let aggregates = aggregates.collect::<Result<Vec<_>>>()?;
        if aggregates.iter().any(|value| is_extreme(&value.typed.expr)) {
            self.check_batch(&input.plan, "`min` or `max`")?;
        }
        if let [Expr::GroupingSet(_)] = group_expr.as_slice() {
            let columns = self.in_sets(&group_expr, &scope)?;
            if aggregates.iter().any(|value| value.above.is_some()) {
                return plan_err!(
                    "`listagg` of DISTINCT STRINGs with a collation has no such sets"
                );
            }
            let none = std::iter::once(Leaves::new());
            let own = aggregates.iter().map(|value| of_column(value.typed.leaves.clone()));
            let columns = columns.into_iter().chain(none).chain(own).collect();
            let aggregates =
                aggregates.into_iter().map(|value| named(value.typed.expr, value.name));
            let aggregates = aggregates.collect();
            let plan = Aggregate::try_new(Arc::new(input.plan), group_expr, aggregates)?;
            return Ok(Resolved { plan: LogicalPlan::Aggregate(plan), columns });
        }
        let mut groups: Vec<Expr> = Vec::with_capacity(group_expr.len());
        for expr in group_expr {
            if !groups.contains(&expr) {
                groups.push(expr);
            }
        }
        let groups = groups.into_iter().map(typed).collect::<Result<Vec<_>>>()?;
        let columns = groups.iter().map(|(group, _)| group);
        let columns = columns.chain(aggregates.iter().map(|value| &value.typed));
        let columns = columns.map(|typed| of_column(typed.leaves.clone())).collect();
        let plan = self.grouped(input.plan, groups, aggregates)?;
        Ok(Resolved { plan, columns })
    }

    /// What the groups in sets have, which are compared byte by byte.
    fn in_sets(&self, groups: &[Expr], scope: &Scope<'_>) -> Result<Vec<Leaves>> {
        let mut columns = Vec::new();
        for group in grouping_set_to_exprlist(groups)? {
            let typed = self.expr(group.clone(), scope)?;
            if !are_plain(&typed.leaves) || typed.expr != *group {
                return plan_err!(
                    "a collation has no place in GROUPING SETS, ROLLUP and CUBE; group by \
                     collation in a subquery, or by x COLLATE UTF8_BINARY of one"
                );
            }
            columns.push(of_column(typed.leaves));
        }
        Ok(columns)
    }

    /// The rows of `input` in groups. The columns are the groups and the aggregates, by their
    /// names.
    pub(super) fn grouped(
        &self,
        input: LogicalPlan,
        groups: Vec<(Typed, Name)>,
        aggregates: Vec<Value>,
    ) -> Result<LogicalPlan> {
        let by_keys = groups.iter().any(|(group, _)| !are_plain(&group.leaves))
            || aggregates.iter().any(|value| value.above.is_some());
        if by_keys {
            self.check_batch(&input, "grouping")?;
        }
        let (mut keys, mut values, mut shown) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (group, (relation, name))) in groups.into_iter().enumerate() {
            if are_plain(&group.leaves) {
                shown.push(Expr::Column(Column::new(relation.clone(), name.clone())));
                keys.push(named(group.expr, (relation, name)));
                continue;
            }
            let first = Column::new_unqualified(format!("__collation_first_{at}"));
            values.push(self.first_of(group.expr.clone())?.alias(&first.name));
            let of = group.expr.get_type(input.schema());
            keys.push(self.key_of(group, of)?.alias(format!("__collation_group_{at}")));
            shown.push(Expr::Column(first).alias_qualified(relation, name));
        }
        for Value { typed, name: (relation, name), above } in aggregates {
            if let Some(above) = above {
                shown.push(above.alias_qualified(relation, name));
                values.push(typed.expr);
                continue;
            }
            shown.push(Expr::Column(Column::new(relation.clone(), name.clone())));
            values.push(named(typed.expr, (relation, name)));
        }
        let plan = LogicalPlan::Aggregate(Aggregate::try_new(Arc::new(input), keys, values)?);
        match by_keys {
            false => Ok(plan),
            true => Ok(LogicalPlan::Projection(Projection::try_new(shown, Arc::new(plan))?)),
        }
    }

    /// The value of some row of a group.
    fn first_of(&self, value: Expr) -> Result<Expr> {
        let function = self.aggregate_function("first_value")?;
        let call = AggregateFunction::new_udf(function, vec![value], false, None, Vec::new(), None);
        Ok(Expr::AggregateFunction(call))
    }
}
