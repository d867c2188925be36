//! LATERAL subqueries as joins, where the rows before them need to be read only once.
//!
//! DataFusion plans `FROM l, LATERAL (SELECT ...)` as a join whose right side names columns of the
//! left. Here the operators of the right side are computed over the left's rows instead: `l` joined
//! with what the subquery reads, then its conditions, then its columns. That is done for
//! projections, conditions, inner joins and UNNEST, so that a chain of such subqueries is as long
//! as its text. What has other operators, and LEFT JOIN, where rows must stay that meet no
//! condition, is left to [`super::subqueries`], which read the left side twice.
//!
//! The subquery's columns get names of their own on the way, so that none of them can be taken for
//! a column of the left side.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, RecursionUnnestOption, Result, UnnestOptions};
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Unnest};

use super::subqueries::{is_correlated, of_join};

/// `plan` with joins in place of the LATERAL subqueries for which there is one.
pub(crate) fn lower(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut lowering = Lowering { names: 0 };
    let lowered = plan.transform_up_with_subqueries(|node| {
        let joined = match of_join(&node)? {
            Some((join, subquery)) if join.join_type == JoinType::Inner => {
                lowering.inner(join, &subquery)?
            }
            _ => None,
        };
        Ok(joined.map_or_else(|| Transformed::no(node), Transformed::yes))
    });
    Ok(lowered?.data)
}

struct Lowering {
    /// How many names have been given.
    names: usize,
}

/// The rows of the left side with those of the subquery, whose columns are `columns`.
struct Applied {
    plan: LogicalPlan,
    columns: Vec<Column>,
}

impl Lowering {
    fn inner(&mut self, join: &Join, subquery: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let left = join.left.as_ref().clone();
        let Some(applied) = self.apply(left, subquery)? else { return Ok(None) };
        let (left, own) = (join.left.schema(), join.right.schema());
        let names = Names { left, own, to: &applied.columns };
        let Some(conditions) = conditions(join, &names)? else { return Ok(None) };
        let filtered = filter(applied.plan, conditions)?;
        Ok(Some(named(filtered, join, applied.columns)?))
    }

    fn name(&mut self) -> Column {
        self.names += 1;
        Column::new_unqualified(format!("__lateral_{}", self.names))
    }

    /// The columns of a plan under names of their own.
    fn renamed(&mut self, plan: &LogicalPlan) -> Result<Applied> {
        let given = plan.schema().columns();
        if given.is_empty() {
            return Ok(Applied { plan: plan.clone(), columns: Vec::new() });
        }
        let columns: Vec<Column> = given.iter().map(|_| self.name()).collect();
        let pairs = given.into_iter().zip(&columns);
        let exprs = pairs.map(|(given, name)| Expr::Column(given).alias(&name.name));
        let plan = LogicalPlanBuilder::from(plan.clone()).project(exprs)?.build()?;
        Ok(Applied { plan, columns })
    }

    /// The rows of `left`, each with those of `right` that there are for it.
    fn apply(&mut self, left: LogicalPlan, right: &LogicalPlan) -> Result<Option<Applied>> {
        if is_one_row(right) {
            return Ok(Some(Applied { plan: left, columns: Vec::new() }));
        }
        if !is_correlated(right)? {
            let beside = self.renamed(right)?;
            let plan = LogicalPlanBuilder::from(left).cross_join(beside.plan)?.build()?;
            return Ok(Some(Applied { plan, columns: beside.columns }));
        }
        match right {
            LogicalPlan::SubqueryAlias(alias) => self.apply(left, &alias.input),
            LogicalPlan::Projection(projection) => {
                self.projected(left, &projection.expr, &projection.input)
            }
            LogicalPlan::Filter(filtered) => {
                let schema = left.schema().clone();
                let Some(below) = self.apply(left, &filtered.input)? else { return Ok(None) };
                let own = filtered.input.schema();
                let names = Names { left: &schema, own, to: &below.columns };
                let Some(condition) = names.put(&filtered.predicate)? else { return Ok(None) };
                let plan = filter(below.plan, vec![condition])?;
                Ok(Some(Applied { plan, columns: below.columns }))
            }
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => self.joined(left, join),
            LogicalPlan::Unnest(unnest) => self.unnested(left, unnest),
            _ => Ok(None),
        }
    }

    fn projected(
        &mut self,
        left: LogicalPlan,
        exprs: &[Expr],
        input: &LogicalPlan,
    ) -> Result<Option<Applied>> {
        let schema = left.schema().clone();
        let Some(below) = self.apply(left, input)? else { return Ok(None) };
        let names = Names { left: &schema, own: input.schema(), to: &below.columns };
        let mut all: Vec<Expr> = schema.columns().into_iter().map(Expr::Column).collect();
        let mut columns = Vec::with_capacity(exprs.len());
        for expr in exprs {
            let Some(expr) = names.put(expr)? else { return Ok(None) };
            let name = self.name();
            all.push(expr.unalias().alias(&name.name));
            columns.push(name);
        }
        let plan = LogicalPlanBuilder::from(below.plan).project(all)?.build()?;
        Ok(Some(Applied { plan, columns }))
    }

    fn joined(&mut self, left: LogicalPlan, join: &Join) -> Result<Option<Applied>> {
        let schema = left.schema().clone();
        let Some(first) = self.apply(left, &join.left)? else { return Ok(None) };
        let Some(second) = self.apply(first.plan, &join.right)? else { return Ok(None) };
        let columns = [first.columns, second.columns].concat();
        let names = Names { left: &schema, own: &join.schema, to: &columns };
        let Some(conditions) = conditions(join, &names)? else { return Ok(None) };
        Ok(Some(Applied { plan: filter(second.plan, conditions)?, columns }))
    }

    fn unnested(&mut self, left: LogicalPlan, unnest: &Unnest) -> Result<Option<Applied>> {
        if !unnest.struct_type_columns.is_empty() {
            return Ok(None);
        }
        let Some(below) = self.apply(left, &unnest.input)? else { return Ok(None) };
        let (mut columns, mut recursions) = (Vec::new(), Vec::new());
        for (field, input) in unnest.schema.fields().iter().zip(&unnest.dependency_indices) {
            let mut lists = unnest.list_type_columns.iter();
            let list =
                lists.find(|(at, list)| at == input && list.output_column.name == *field.name());
            let Some((_, list)) = list else {
                columns.push(below.columns[*input].clone());
                continue;
            };
            let name = self.name();
            recursions.push(RecursionUnnestOption {
                input_column: below.columns[*input].clone(),
                output_column: name.clone(),
                depth: list.depth,
            });
            columns.push(name);
        }
        let mut lists: Vec<Column> = Vec::new();
        for recursion in &recursions {
            if !lists.contains(&recursion.input_column) {
                lists.push(recursion.input_column.clone());
            }
        }
        let options = UnnestOptions { recursions, ..unnest.options.clone() };
        let plan = LogicalPlanBuilder::from(below.plan).unnest_columns_with_options(lists, options);
        Ok(Some(Applied { plan: plan?.build()?, columns }))
    }
}

/// What the columns in an expression of a subquery are called above the join.
struct Names<'a> {
    left: &'a DFSchema,
    /// The columns that the expression sees within the subquery.
    own: &'a DFSchema,
    /// What each of these is.
    to: &'a [Column],
}

impl Names<'_> {
    /// The expression over the columns of the join; `None` where it has a subquery, whose columns
    /// would need other names as well.
    fn put(&self, expr: &Expr) -> Result<Option<Expr>> {
        let mut has_subquery = false;
        let put = expr.clone().transform_down(|expr| {
            Ok(match expr {
                Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_) => {
                    has_subquery = true;
                    Transformed::new(expr, false, TreeNodeRecursion::Stop)
                }
                Expr::Column(column) => match self.own.maybe_index_of_column(&column) {
                    Some(at) => Transformed::yes(Expr::Column(self.to[at].clone())),
                    None => Transformed::no(Expr::Column(column)),
                },
                Expr::OuterReferenceColumn(_, column) if self.left.has_column(&column) => {
                    Transformed::yes(Expr::Column(column))
                }
                other => Transformed::no(other),
            })
        })?;
        Ok((!has_subquery).then_some(put.data))
    }
}

/// The conditions of a join, over other columns.
fn conditions(join: &Join, names: &Names<'_>) -> Result<Option<Vec<Expr>>> {
    let equal = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    let mut found = Vec::new();
    for condition in equal.chain(join.filter.clone()) {
        let Some(condition) = names.put(&condition)? else { return Ok(None) };
        found.push(condition);
    }
    Ok(Some(found))
}

fn filter(plan: LogicalPlan, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    match conditions.into_iter().reduce(Expr::and) {
        Some(condition) => LogicalPlanBuilder::from(plan).filter(condition)?.build(),
        None => Ok(plan),
    }
}

/// The columns of `join` under their names: those of its left side, and `columns`.
fn named(plan: LogicalPlan, join: &Join, columns: Vec<Column>) -> Result<LogicalPlan> {
    let right = join.right.schema();
    let left = join.left.schema().columns().into_iter().map(Expr::Column);
    let own = columns.into_iter().enumerate().map(|(at, column)| {
        let (table, field) = right.qualified_field(at);
        Expr::Column(column).alias_qualified(table.cloned(), field.name())
    });
    LogicalPlanBuilder::from(plan).project(left.chain(own))?.build()
}

/// A SELECT without FROM reads one row without columns.
fn is_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(empty) => {
            empty.produce_one_row && empty.schema.fields().is_empty()
        }
        _ => false,
    }
}
