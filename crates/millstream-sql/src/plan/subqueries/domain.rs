//! A subquery for all rows of the query around it at once.
//!
//! The values that the subquery refers to, each combination once, are its domain. A subquery that
//! refers to them becomes one over the domain and its own tables: the domain's columns are carried
//! through each of its operators, and whatever works on all rows of the subquery (an aggregate, a
//! LIMIT, a window) works on those of one combination. Its result then has the domain's columns
//! beside its own, so that a plain join finds the rows for each row of the query around it. This is
//! the way of Neumann and Kemper, "Unnesting arbitrary queries" (BTW 2015).

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column, NullEquality, Result, plan_err};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{AggregateFunction, Alias, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprFunctionExt, FetchType, Filter, Join,
    JoinConstraint, JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection,
    SkipType, Sort, SortExpr, SubqueryAlias, Union, Unnest, Window, binary_expr, lit,
};

use super::Walk;
use super::references::{bound, is_correlated, outer_columns_of_expr};

/// The values that a subquery refers to.
pub(super) struct Domain<'a> {
    walk: &'a Walk,
    plan: LogicalPlan,
    /// Its columns.
    columns: Vec<Column>,
    /// Its columns by those of the query around.
    of: HashMap<Column, Column>,
}

impl<'a> Domain<'a> {
    /// The values that `outer` has in `columns`.
    pub(super) fn new(outer: &LogicalPlan, columns: &[Column], walk: &'a Walk) -> Result<Self> {
        let own: Vec<Column> = columns.iter().map(|_| walk.names.column()).collect();
        let pairs = columns.iter().zip(&own);
        let exprs = pairs.map(|(outer, own)| Expr::Column(outer.clone()).alias(&own.name));
        let plan = LogicalPlanBuilder::from(outer.clone()).project(exprs)?.distinct()?.build()?;
        let of = columns.iter().cloned().zip(own.iter().cloned()).collect();
        Ok(Self { walk, plan, columns: own, of })
    }

    /// Its rows, which are read once more.
    fn read(&self) -> Result<LogicalPlanBuilder> {
        Ok(LogicalPlanBuilder::from(self.walk.copies.copy(&self.plan)?))
    }

    /// Its columns, in the order of those that it was made of.
    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn exprs(&self) -> impl Iterator<Item = Expr> {
        self.columns.iter().cloned().map(Expr::Column)
    }

    /// The rows of `plan` for each combination of the domain, with the domain's columns.
    pub(super) fn rows(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        if !is_correlated(plan)? {
            return self.read()?.cross_join(plan.clone())?.build();
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                let predicate = bound(filter.predicate.clone(), filter.input.schema(), &self.of)?;
                let input = Arc::new(self.rows(&filter.input)?);
                Filter::try_new(predicate, input).map(LogicalPlan::Filter)
            }
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Sort(sort) => self.sort(sort),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(self.rows(input)?))))
            }
            LogicalPlan::Distinct(Distinct::On(on)) => self.distinct_on(on),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::SubqueryAlias(alias) => self.alias(alias),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            other => {
                let what = other.display().to_string();
                let what = what.split(':').next().unwrap_or_default().to_owned();
                plan_err!("a subquery cannot refer to columns outside of it within a {what}")
            }
        }
    }

    fn bound_all(&self, exprs: &[Expr], input: &LogicalPlan) -> Result<Vec<Expr>> {
        let names = NamePreserver::new_for_projection();
        let one = |expr: &Expr| {
            let name = names.save(expr);
            bound(expr.clone(), input.schema(), &self.of).map(|expr| name.restore(expr))
        };
        exprs.iter().map(one).collect()
    }

    fn projection(&self, projection: &Projection) -> Result<LogicalPlan> {
        let own = self.bound_all(&projection.expr, &projection.input)?;
        let exprs = self.exprs().chain(own).collect();
        let input = Arc::new(self.rows(&projection.input)?);
        Projection::try_new(exprs, input).map(LogicalPlan::Projection)
    }

    fn aggregate(&self, aggregate: &Aggregate) -> Result<LogicalPlan> {
        let groups = &aggregate.group_expr;
        if groups.iter().any(|group| matches!(group, Expr::GroupingSet(_))) {
            return plan_err!(
                "a subquery with GROUPING SETS, ROLLUP or CUBE cannot refer to columns outside of \
                 it"
            );
        }
        for expr in aggregate.aggr_expr.iter().chain(groups) {
            if !outer_columns_of_expr(expr, aggregate.input.schema())?.is_empty() {
                return plan_err!(
                    "a subquery cannot refer to columns outside of it in an aggregate or in GROUP \
                     BY"
                );
            }
        }
        let aggregates = self.bound_all(&aggregate.aggr_expr, &aggregate.input)?;
        let input = self.rows(&aggregate.input)?;
        if groups.is_empty() {
            return self.of_all_rows(input, aggregates);
        }
        let groups = self.bound_all(groups, &aggregate.input)?;
        let groups = self.exprs().chain(groups).collect();
        Aggregate::try_new(Arc::new(input), groups, aggregates).map(LogicalPlan::Aggregate)
    }

    /// Aggregates without GROUP BY have a value where there is no row, too. So each combination of
    /// the domain has a row, which is not counted if it is the only one.
    fn of_all_rows(&self, input: LogicalPlan, aggregates: Vec<Expr>) -> Result<LogicalPlan> {
        let is_there = self.walk.names.column();
        let (input, keys) = self.with_other_names(input, Some(&is_there))?;
        let same = self.exprs().zip(keys).map(|(own, key)| is_same(own, Expr::Column(key)));
        let all = self.read()?.join_on(input, JoinType::Left, same.collect::<Vec<_>>())?.build()?;
        let names = NamePreserver::new_for_projection();
        let counted = aggregates.into_iter().map(|aggregate| {
            let name = names.save(&aggregate);
            name.restore(only_where(aggregate, &Expr::Column(is_there.clone())))
        });
        let counted = counted.collect();
        Aggregate::try_new(Arc::new(all), self.exprs().collect(), counted)
            .map(LogicalPlan::Aggregate)
    }

    /// `rows` with other names for the domain's columns, and one that is true.
    fn with_other_names(
        &self,
        rows: LogicalPlan,
        is_there: Option<&Column>,
    ) -> Result<(LogicalPlan, Vec<Column>)> {
        let keys: Vec<Column> = self.columns.iter().map(|_| self.walk.names.column()).collect();
        let renamed = self.exprs().zip(&keys).map(|(own, key)| own.alias(&key.name));
        let others = rows.schema().columns().into_iter();
        let others = others.filter(|column| !self.columns.contains(column)).map(Expr::Column);
        let there = is_there.map(|column| lit(true).alias(&column.name));
        let exprs: Vec<Expr> = renamed.chain(others).chain(there).collect();
        Ok((LogicalPlanBuilder::from(rows).project(exprs)?.build()?, keys))
    }

    fn sort_exprs(&self, exprs: &[SortExpr], input: &LogicalPlan) -> Result<Vec<SortExpr>> {
        let one = |sort: &SortExpr| {
            let expr = bound(sort.expr.clone(), input.schema(), &self.of)?;
            Ok(SortExpr { expr, ..sort.clone() })
        };
        exprs.iter().map(one).collect()
    }

    fn sort(&self, sort: &Sort) -> Result<LogicalPlan> {
        let expr = self.sort_exprs(&sort.expr, &sort.input)?;
        let input = Arc::new(self.rows(&sort.input)?);
        Ok(LogicalPlan::Sort(Sort { expr, input, fetch: None }))
    }

    /// The first rows of each combination, by their numbers.
    fn limit(&self, limit: &Limit) -> Result<LogicalPlan> {
        // What is computed of the rows is computed of those that are left.
        if let LogicalPlan::Projection(projection) = limit.input.as_ref() {
            let input = Limit { input: Arc::clone(&projection.input), ..limit.clone() };
            let input = Arc::new(LogicalPlan::Limit(input));
            return self.projection(&Projection::try_new(projection.expr.clone(), input)?);
        }
        if decided_outside(&limit.input)? {
            return plan_err!(
                "a subquery with LIMIT cannot have a condition that is about columns outside of it \
                 alone"
            );
        }
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return plan_err!("LIMIT and OFFSET of a subquery must be literals");
        };
        let (rows, order) = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) => {
                (self.rows(&sort.input)?, self.sort_exprs(&sort.expr, &sort.input)?)
            }
            other => (self.rows(other)?, Vec::new()),
        };
        let number = self.walk.names.column();
        let numbered = row_number().partition_by(self.exprs().collect());
        let numbered = if order.is_empty() { numbered } else { numbered.order_by(order) };
        let numbered = numbered.build()?;
        let count = |rows: usize| lit(u64::try_from(rows).unwrap_or(u64::MAX));
        let is_number = |op, rows| binary_expr(Expr::Column(number.clone()), op, count(rows));
        let mut is_left = is_number(Operator::Gt, skip);
        if let Some(fetch) = fetch {
            is_left = is_left.and(is_number(Operator::LtEq, skip.saturating_add(fetch)));
        }
        let columns: Vec<Expr> = rows.schema().columns().into_iter().map(Expr::Column).collect();
        LogicalPlanBuilder::from(rows)
            .window([numbered.alias(&number.name)])?
            .filter(is_left)?
            .project(columns)?
            .build()
    }

    fn distinct_on(&self, on: &DistinctOn) -> Result<LogicalPlan> {
        let keys = self.exprs().chain(self.bound_all(&on.on_expr, &on.input)?).collect();
        let items = self.exprs().chain(self.bound_all(&on.select_expr, &on.input)?).collect();
        let order = match &on.sort_expr {
            Some(order) => {
                let own = self.exprs().map(|expr| expr.sort(true, true));
                Some(own.chain(self.sort_exprs(order, &on.input)?).collect())
            }
            None => None,
        };
        let input = Arc::new(self.rows(&on.input)?);
        let on = DistinctOn::try_new(keys, items, order, input)?;
        Ok(LogicalPlan::Distinct(Distinct::On(on)))
    }

    fn window(&self, window: &Window) -> Result<LogicalPlan> {
        let names = NamePreserver::new_for_projection();
        let exprs = self.bound_all(&window.window_expr, &window.input)?.into_iter().map(|expr| {
            let name = names.save(&expr);
            name.restore(partitioned(expr, &self.columns))
        });
        let exprs = exprs.collect();
        let input = Arc::new(self.rows(&window.input)?);
        Window::try_new(exprs, input).map(LogicalPlan::Window)
    }

    fn alias(&self, alias: &SubqueryAlias) -> Result<LogicalPlan> {
        let columns = alias.input.schema().columns().into_iter().zip(alias.schema.columns());
        let renamed = columns
            .map(|(from, to)| Expr::Column(from).alias_qualified(to.relation.clone(), to.name));
        let exprs: Vec<Expr> = self.exprs().chain(renamed).collect();
        LogicalPlanBuilder::from(self.rows(&alias.input)?).project(exprs)?.build()
    }

    fn union(&self, union: &Union) -> Result<LogicalPlan> {
        let one = |input: &Arc<LogicalPlan>| {
            let own = input.schema().columns().into_iter().map(Expr::Column);
            let exprs: Vec<Expr> = self.exprs().chain(own).collect();
            let rows = LogicalPlanBuilder::from(self.rows(input)?).project(exprs)?.build()?;
            Ok(Arc::new(rows))
        };
        let inputs = union.inputs.iter().map(one).collect::<Result<Vec<_>>>()?;
        Ok(LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?))
    }

    fn unnest(&self, unnest: &Unnest) -> Result<LogicalPlan> {
        LogicalPlanBuilder::from(self.rows(&unnest.input)?)
            .unnest_columns_with_options(unnest.exec_columns.clone(), unnest.options.clone())?
            .build()
    }

    fn join(&self, join: &Join) -> Result<LogicalPlan> {
        use JoinType::{Inner, Left, LeftAnti, LeftSemi, Right};
        let kind = join.join_type;
        if !matches!(kind, Inner | Left | LeftAnti | LeftSemi | Right) {
            return plan_err!(
                "a subquery cannot refer to columns outside of it within a {kind} JOIN"
            );
        }
        // INTERSECT and EXCEPT compare all columns, and the domain's with them.
        let is_set_operation = matches!(kind, LeftAnti | LeftSemi)
            && join.null_equality == NullEquality::NullEqualsNull;
        let (in_left, in_right) = (is_correlated(&join.left)?, is_correlated(&join.right)?);
        if !in_right && !is_set_operation && kind != Right {
            let left = self.rows(&join.left)?;
            return self.joined(join, left, LogicalPlan::clone(&join.right), Vec::new());
        }
        if !in_left && matches!(kind, Inner | Right) {
            let right = self.rows(&join.right)?;
            return self.joined(join, LogicalPlan::clone(&join.left), right, Vec::new());
        }
        let (left, right) = (self.rows(&join.left)?, self.rows(&join.right)?);
        let own = || self.columns.iter().cloned();
        let (left, right, pairs) = if kind == Right {
            let (left, keys) = self.with_other_names(left, None)?;
            (left, right, keys.into_iter().zip(own()).collect())
        } else {
            let (right, keys) = self.with_other_names(right, None)?;
            (left, right, own().zip(keys).collect())
        };
        self.joined(join, left, right, pairs)
    }

    /// `join` of other sides, in which also `pairs` are the same.
    fn joined(
        &self,
        join: &Join,
        left: LogicalPlan,
        right: LogicalPlan,
        pairs: Vec<(Column, Column)>,
    ) -> Result<LogicalPlan> {
        let here = join.left.schema().join(join.right.schema())?;
        let bound = |expr: &Expr| bound(expr.clone(), &here, &self.of);
        let on = join.on.iter().map(|(left, right)| Ok((bound(left)?, bound(right)?)));
        let mut on = on.collect::<Result<Vec<_>>>()?;
        let mut filter = join.filter.as_ref().map(bound).transpose()?;
        let pairs = pairs.into_iter().map(|(left, right)| (left.into(), right.into()));
        if join.null_equality == NullEquality::NullEqualsNull {
            on.extend(pairs);
        } else {
            let same = pairs.map(|(left, right)| is_same(left, right));
            filter = filter.into_iter().chain(same).reduce(Expr::and);
        }
        let joined = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            filter,
            join.join_type,
            JoinConstraint::On,
            join.null_equality,
            false,
        )?;
        let own = join.schema.columns().into_iter().map(Expr::Column);
        let exprs: Vec<Expr> = self.exprs().chain(own).collect();
        LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(exprs)?.build()
    }
}

/// Whether two values are the same, NULLs among them.
pub(super) fn is_same(left: Expr, right: Expr) -> Expr {
    binary_expr(left, Operator::IsNotDistinctFrom, right)
}

/// An aggregate over the rows where `condition` is true.
fn only_where(aggregate: Expr, condition: &Expr) -> Expr {
    match aggregate {
        Expr::Alias(Alias { expr, relation, name, metadata }) => {
            let expr = Box::new(only_where(*expr, condition));
            Expr::Alias(Alias { expr, relation, name, metadata })
        }
        Expr::AggregateFunction(AggregateFunction { func, mut params }) => {
            let filter = match params.filter.take() {
                Some(filter) => condition.clone().and(*filter),
                None => condition.clone(),
            };
            params.filter = Some(Box::new(filter));
            Expr::AggregateFunction(AggregateFunction { func, params })
        }
        other => other,
    }
}

/// A window function over rows that have the same values in `columns`.
fn partitioned(window: Expr, columns: &[Column]) -> Expr {
    match window {
        Expr::Alias(Alias { expr, relation, name, metadata }) => {
            let expr = Box::new(partitioned(*expr, columns));
            Expr::Alias(Alias { expr, relation, name, metadata })
        }
        Expr::WindowFunction(function) => {
            let WindowFunction { fun, mut params } = *function;
            params.partition_by.extend(columns.iter().cloned().map(Expr::Column));
            Expr::WindowFunction(Box::new(WindowFunction { fun, params }))
        }
        other => other,
    }
}

/// Whether a condition of `plan` has no columns but those of the query around it.
fn decided_outside(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        let LogicalPlan::Filter(filter) = node else { return Ok(false) };
        let is_outside =
            |condition: &&Expr| condition.contains_outer() && condition.column_refs().is_empty();
        Ok(split_conjunction(&filter.predicate).iter().any(is_outside))
    })
}
