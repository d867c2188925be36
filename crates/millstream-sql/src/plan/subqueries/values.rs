//! What a subquery is worth for each row of the query around it: columns that joins add.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, plan_err};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::{Case, Exists, InSubquery};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, FetchType, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery,
    cast, lit,
};

use super::Walk;
use super::copies::check_steady;
use super::domain::{Domain, is_same};
use super::references::{is_correlated, outer_columns};
use super::{negations, rows};
use crate::functions::common_types::compared_as;
use crate::functions::only_row::only_row;

/// The input of a node whose expressions have subqueries.
pub(super) struct Input<'a> {
    walk: &'a Walk,
    /// What it was.
    before: LogicalPlan,
    /// The same rows, with a column or two for each subquery.
    pub(super) plan: LogicalPlan,
    /// IN may be NULL.
    knows_null: bool,
}

/// The rows of a subquery, and by which columns they are found.
struct Rows {
    plan: LogicalPlan,
    /// Columns of the query around it, and those of `plan` that are the same.
    keys: Vec<(Column, Column)>,
    /// The subquery's own columns.
    columns: Vec<Column>,
}

impl<'a> Input<'a> {
    pub(super) fn new(walk: &'a Walk, plan: LogicalPlan) -> Self {
        Self { walk, before: plan.clone(), plan, knows_null: false }
    }

    /// A side of an outer join, whose condition Spark makes no join of.
    pub(super) fn of_outer_join(walk: &'a Walk, plan: LogicalPlan) -> Self {
        Self { knows_null: true, ..Self::new(walk, plan) }
    }

    /// Whether `columns` are all its own.
    pub(super) fn has_all(&self, columns: &[Column]) -> bool {
        columns.iter().all(|one| self.plan.schema().has_column(one))
    }

    /// `expr` with columns in the place of subqueries.
    pub(super) fn expr(&mut self, expr: Expr) -> Result<Expr> {
        let changed = negations::within(expr)?.transform_up(|expr| {
            Ok(match expr {
                Expr::Exists(Exists { subquery, negated }) => {
                    Transformed::yes(self.exists(&subquery, negated)?)
                }
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    Transformed::yes(self.is_in(*expr, &subquery, negated)?)
                }
                Expr::ScalarSubquery(subquery) if is_correlated(&subquery.subquery)? => {
                    Transformed::yes(self.value(&subquery)?)
                }
                other => Transformed::yes(self.walk.within(other)?),
            })
        })?;
        Ok(changed.data)
    }

    fn rows(&self, plan: &LogicalPlan) -> Result<Rows> {
        let outer = outer_columns(plan)?;
        if outer.is_empty() {
            let plan = self.walk.plan(plan.clone())?;
            let columns = plan.schema().columns();
            return Ok(Rows { plan, keys: Vec::new(), columns });
        }
        if let Some(unknown) = outer.iter().find(|column| !self.before.schema().has_column(column))
        {
            return plan_err!("a subquery cannot refer to `{}` here", unknown.name);
        }
        let domain = Domain::new(&self.before, &outer, self.walk)?;
        let rows = self.walk.plan(domain.rows(plan)?)?;
        let keys = outer.into_iter().zip(domain.columns().iter().cloned()).collect();
        Ok(Rows { plan: rows, keys, columns: plan.schema().columns() })
    }

    /// Adds the columns of `right` to the input, found by `keys` and `conditions`.
    fn join(&mut self, right: LogicalPlan, same: Vec<(Expr, Column)>) -> Result<()> {
        let same = same.into_iter().map(|(own, key)| is_same(own, Expr::Column(key)));
        let condition = same.reduce(Expr::and).unwrap_or_else(|| lit(true));
        let left = LogicalPlanBuilder::from(self.plan.clone());
        self.plan = left.join_on(right, JoinType::Left, [condition])?.build()?;
        Ok(())
    }

    fn names(&self, count: usize) -> Vec<Column> {
        (0..count).map(|_| self.walk.names.column()).collect()
    }

    /// The columns of `exprs` under new names, each combination once, and a column that is true.
    fn combinations(
        &self,
        rows: LogicalPlan,
        exprs: Vec<Expr>,
    ) -> Result<(LogicalPlan, Vec<Column>, Column)> {
        let (names, hit) = (self.names(exprs.len()), self.walk.names.column());
        let renamed = exprs.into_iter().zip(&names).map(|(expr, name)| expr.alias(&name.name));
        let rows = LogicalPlanBuilder::from(rows);
        let rows = if names.is_empty() {
            rows.limit(0, Some(1))?
        } else {
            rows.project(renamed.collect::<Vec<_>>())?.distinct()?
        };
        let columns = names.iter().cloned().map(Expr::Column);
        let columns: Vec<Expr> = columns.chain([lit(true).alias(&hit.name)]).collect();
        Ok((rows.project(columns)?.build()?, names, hit))
    }

    fn exists(&mut self, subquery: &Subquery, negated: bool) -> Result<Expr> {
        let Rows { plan, keys, .. } = self.rows(&subquery.subquery)?;
        let (outer, own): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
        let (right, names, hit) = self.combinations(plan, columns(own))?;
        self.join(right, columns(outer).into_iter().zip(names).collect())?;
        let hit = Expr::Column(hit);
        Ok(if negated { hit.is_null() } else { hit.is_not_null() })
    }

    /// `expr IN (subquery)`, or NOT IN. Where nothing is equal and something is NULL both are
    /// false: Spark makes a join of either that has no third answer, but in the condition of an
    /// outer join.
    fn is_in(&mut self, expr: Expr, subquery: &Subquery, negated: bool) -> Result<Expr> {
        let (values, plan) = match rows::parts(&expr) {
            Some(values) => (values, rows::of_subquery(&subquery.subquery)?),
            None => (vec![expr], LogicalPlan::clone(&subquery.subquery)),
        };
        check_steady(&values)?;
        let rows = self.rows(&plan)?;
        if rows.columns.len() != values.len() {
            let (left, right) = (values.len(), rows.columns.len());
            return plan_err!("IN compares {left} values with a subquery that has {right} columns");
        }
        let is_equal = self.equal(&values, &rows)?;
        if !negated && !self.knows_null {
            return Ok(is_equal);
        }
        let is_unknown = match values.as_slice() {
            [value] => self.null_among(value, &rows)?,
            values => self.undecided(values, &rows)?,
        };
        let unknown = if self.knows_null { None } else { Some(false) };
        let unknown = Expr::Literal(ScalarValue::Boolean(unknown), None);
        Ok(case(vec![(is_equal, lit(!negated)), (is_unknown, unknown)], lit(negated)))
    }

    /// Whether a row of the subquery is equal to `values`.
    fn equal(&mut self, values: &[Expr], rows: &Rows) -> Result<Expr> {
        let (outer, own): (Vec<_>, Vec<_>) = rows.keys.iter().cloned().unzip();
        let there = columns(rows.columns.clone()).into_iter().map(Expr::is_not_null);
        let there = there.reduce(Expr::and).unwrap_or_else(|| lit(true));
        let plan = self.walk.copies.copy(&rows.plan)?;
        let plan = LogicalPlanBuilder::from(plan).filter(there)?.build()?;
        let compared = columns(own).into_iter().chain(self.compared(values, rows)?).collect();
        let (right, names, hit) = self.combinations(plan, compared)?;
        let left = columns(outer).into_iter().chain(values.iter().cloned());
        self.join(right, left.zip(names).collect())?;
        Ok(Expr::Column(hit).is_not_null())
    }

    /// The subquery's columns with the types that they have beside `values`: several texts are the
    /// same number, and a row of the input must meet one of them.
    fn compared(&self, values: &[Expr], rows: &Rows) -> Result<Vec<Expr>> {
        let outer: &DFSchema = self.plan.schema();
        let own: &DFSchema = rows.plan.schema();
        let one = |(value, column): (&Expr, &Column)| {
            let column = Expr::Column(column.clone());
            let (Ok(beside), Ok(of)) = (value.get_type(outer), column.get_type(own)) else {
                return Ok(column);
            };
            Ok(match compared_as(&of, &beside)? {
                Some(common) => cast(column, common),
                None => column,
            })
        };
        values.iter().zip(&rows.columns).map(one).collect()
    }

    /// Whether `value` or a row of the subquery is NULL, and there is a row.
    fn null_among(&mut self, value: &Expr, rows: &Rows) -> Result<Expr> {
        let (outer, own): (Vec<_>, Vec<_>) = rows.keys.iter().cloned().unzip();
        let names = self.names(own.len());
        let (all, known) = (self.walk.names.column(), self.walk.names.column());
        let own = columns(own).into_iter().zip(&names).map(|(key, name)| key.alias(&name.name));
        let counts = [
            count(lit(1)).alias(&all.name),
            count(Expr::Column(rows.columns[0].clone())).alias(&known.name),
        ];
        let right = LogicalPlanBuilder::from(rows.plan.clone());
        let right = right.aggregate(own.collect::<Vec<_>>(), counts)?.build()?;
        self.join(right, columns(outer).into_iter().zip(names).collect())?;
        let (all, known) = (Expr::Column(all), Expr::Column(known));
        let is_any = all.clone().gt(lit(0_i64));
        Ok(is_any.and(value.clone().is_null().or(known.lt(all))))
    }

    /// Whether a row of the subquery might be equal to `values` if no NULL was among them.
    fn undecided(&mut self, values: &[Expr], rows: &Rows) -> Result<Expr> {
        let (outer, own): (Vec<_>, Vec<_>) = rows.keys.iter().cloned().unzip();
        let left = columns(outer).into_iter().chain(values.iter().cloned()).collect::<Vec<_>>();
        let (domain, names, _) =
            self.combinations(self.walk.copies.copy(&self.plan)?, left.clone())?;
        let (keys, compared) = names.split_at(own.len());
        let of_keys = columns(keys.to_vec()).into_iter().zip(columns(own));
        let same = of_keys.map(|(left, right)| is_same(left, right));
        let pairs = columns(compared.to_vec()).into_iter().zip(columns(rows.columns.clone()));
        let open = pairs.map(|(left, right)| {
            let is_equal = left.clone().eq(right.clone());
            left.is_null().or(right.is_null()).or(is_equal)
        });
        let condition = same.chain(open).collect::<Vec<_>>();
        let met = LogicalPlanBuilder::from(domain);
        let met = met.join_on(rows.plan.clone(), JoinType::Inner, condition)?.build()?;
        let (right, found, hit) = self.combinations(met, columns(names))?;
        self.join(right, left.into_iter().zip(found).collect())?;
        Ok(Expr::Column(hit).is_not_null())
    }

    /// The subquery's value, NULL where it has no row.
    fn value(&mut self, subquery: &Subquery) -> Result<Expr> {
        let Rows { plan, keys, columns: own_columns } = self.rows(&subquery.subquery)?;
        let [column] = own_columns.as_slice() else {
            return plan_err!("a subquery that is a value must have one column");
        };
        let (outer, own): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
        let (names, value) = (self.names(own.len()), self.walk.names.column());
        let own = columns(own).into_iter().zip(&names).map(|(key, name)| key.alias(&name.name));
        let own: Vec<Expr> = own.collect();
        let column = Expr::Column(column.clone());
        let right = LogicalPlanBuilder::from(plan);
        let same = columns(outer).into_iter().zip(names.iter().cloned()).collect();
        if is_one_row(&subquery.subquery)? {
            let exprs: Vec<Expr> = own.into_iter().chain([column.alias(&value.name)]).collect();
            self.join(right.project(exprs)?.build()?, same)?;
            return Ok(Expr::Column(value));
        }
        let rows = self.walk.names.column();
        let first = first_value(column, Vec::new()).alias(&value.name);
        let counted = [first, count(lit(1)).alias(&rows.name)];
        self.join(right.aggregate(own, counted)?.build()?, same)?;
        Ok(only_row().call(vec![Expr::Column(value), Expr::Column(rows)]))
    }
}

fn columns(columns: Vec<Column>) -> Vec<Expr> {
    columns.into_iter().map(Expr::Column).collect()
}

fn case(when_then: Vec<(Expr, Expr)>, otherwise: Expr) -> Expr {
    let boxed = when_then.into_iter().map(|(when, then)| (Box::new(when), Box::new(then)));
    Expr::Case(Case {
        expr: None,
        when_then_expr: boxed.collect(),
        else_expr: Some(Box::new(otherwise)),
    })
}

/// Whether the subquery has one row at most, whatever its tables have.
fn is_one_row(plan: &LogicalPlan) -> Result<bool> {
    Ok(match plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Filter(_) => is_one_row(plan.inputs()[0])?,
        LogicalPlan::Aggregate(Aggregate { group_expr, .. }) => group_expr.is_empty(),
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type()?, FetchType::Literal(Some(0 | 1)))
        }
        LogicalPlan::EmptyRelation(_) => true,
        _ => false,
    })
}
