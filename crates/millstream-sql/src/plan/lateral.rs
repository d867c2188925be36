//! LATERAL subqueries as joins, where the rows before them need to be read only once.
//!
//! DataFusion plans `FROM l, LATERAL (SELECT ...)` as a join whose right side names columns of the
//! left. Here the operators of the right side are computed over the left's rows instead: `l` joined
//! with what the subquery reads, then its conditions, then its columns. That is done for
//! projections, conditions, inner joins and UNNEST, so that a chain of such subqueries is as long
//! as its text; what has other operators stays for [`super::subqueries`], which read the left side
//! twice.
//!
//! The subquery's columns get names of their own on the way, so that none of them can be taken for
//! a column of the left side.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, RecursionUnnestOption, Result, UnnestOptions};
use datafusion::logical_expr::{
    Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Subquery, Unnest, lit, when,
};

/// `plan` with joins in place of the LATERAL subqueries for which there is one.
pub(crate) fn lower(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut lowering = Lowering { names: 0 };
    let lowered = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) => lowering.join(join),
        other => Ok(Transformed::no(other)),
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

/// A subquery as what it reads, its conditions and its columns, which may name the left's.
struct Parts {
    reads: LogicalPlan,
    conditions: Vec<Expr>,
    columns: Vec<Expr>,
}

impl Lowering {
    fn join(&mut self, join: Join) -> Result<Transformed<LogicalPlan>> {
        let lowered = match (subquery_of(&join.right), join.join_type) {
            (Some(subquery), JoinType::Inner) => self.inner(&join, &subquery.subquery)?,
            (Some(subquery), JoinType::Left) => self.left(&join, &subquery.subquery)?,
            _ => None,
        };
        Ok(match lowered {
            Some(plan) => Transformed::yes(plan),
            None => Transformed::no(LogicalPlan::Join(join)),
        })
    }

    fn inner(&mut self, join: &Join, subquery: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let left = join.left.as_ref().clone();
        let Some(applied) = self.apply(left, subquery)? else { return Ok(None) };
        let columns: Vec<Expr> = applied.columns.into_iter().map(Expr::Column).collect();
        let names = Names { left: join.left.schema(), own: join.right.schema(), to: &columns };
        let Some(conditions) = conditions(join, &names)? else { return Ok(None) };
        let filtered = filter(applied.plan, conditions)?;
        Ok(Some(named(filtered, join, columns)?))
    }

    /// Rows of the left without a partner stay, with NULL in the subquery's columns.
    fn left(&mut self, join: &Join, subquery: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let Some(parts) = self.parts(join.left.schema(), subquery)? else { return Ok(None) };
        let names =
            Names { left: join.left.schema(), own: join.right.schema(), to: &parts.columns };
        let Some(more) = conditions(join, &names)? else { return Ok(None) };
        let is_there = self.name();
        let reads = parts.reads.schema().columns().into_iter().map(Expr::Column);
        let reads = reads.chain([lit(true).alias(&is_there.name)]).collect::<Vec<_>>();
        let reads = LogicalPlanBuilder::from(parts.reads).project(reads)?.build()?;
        let mut on = parts.conditions;
        on.extend(more);
        if on.is_empty() {
            on.push(lit(true));
        }
        let left = LogicalPlanBuilder::from(join.left.as_ref().clone());
        let joined = left.join_on(reads, JoinType::Left, on)?.build()?;
        let value = |column: Expr| when(Expr::Column(is_there.clone()).is_not_null(), column).end();
        let columns = parts.columns.into_iter().map(value).collect::<Result<Vec<_>>>()?;
        Ok(Some(named(joined, join, columns)?))
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
                let columns: Vec<Expr> = below.columns.iter().cloned().map(Expr::Column).collect();
                let own = filtered.input.schema();
                let names = Names { left: &schema, own, to: &columns };
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
        let given: Vec<Expr> = below.columns.into_iter().map(Expr::Column).collect();
        let names = Names { left: &schema, own: input.schema(), to: &given };
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
        let to: Vec<Expr> = columns.iter().cloned().map(Expr::Column).collect();
        let names = Names { left: &schema, own: &join.schema, to: &to };
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

    /// Takes a subquery apart where it has nothing but projections and conditions.
    fn parts(&mut self, left: &DFSchema, right: &LogicalPlan) -> Result<Option<Parts>> {
        if !is_correlated(right)? {
            let Applied { plan: reads, columns } = self.renamed(right)?;
            let columns = columns.into_iter().map(Expr::Column).collect();
            return Ok(Some(Parts { reads, conditions: Vec::new(), columns }));
        }
        match right {
            LogicalPlan::SubqueryAlias(alias) => self.parts(left, &alias.input),
            LogicalPlan::Projection(projection) => {
                let Some(parts) = self.parts(left, &projection.input)? else { return Ok(None) };
                let names = Names { left, own: projection.input.schema(), to: &parts.columns };
                let mut columns = Vec::with_capacity(projection.expr.len());
                for expr in &projection.expr {
                    let Some(expr) = names.put(expr)? else { return Ok(None) };
                    columns.push(expr.unalias());
                }
                Ok(Some(Parts { columns, ..parts }))
            }
            LogicalPlan::Filter(filtered) => {
                let Some(mut parts) = self.parts(left, &filtered.input)? else { return Ok(None) };
                let names = Names { left, own: filtered.input.schema(), to: &parts.columns };
                let Some(condition) = names.put(&filtered.predicate)? else { return Ok(None) };
                parts.conditions.push(condition);
                Ok(Some(parts))
            }
            _ => Ok(None),
        }
    }
}

/// What the columns in an expression of a subquery are called above the join.
struct Names<'a> {
    left: &'a DFSchema,
    /// The columns that the expression sees within the subquery.
    own: &'a DFSchema,
    /// What each of these is.
    to: &'a [Expr],
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
                    // What takes its place is not looked into.
                    Some(at) => {
                        Transformed::new(self.to[at].clone(), true, TreeNodeRecursion::Jump)
                    }
                    None => Transformed::no(Expr::Column(column)),
                },
                Expr::OuterReferenceColumn(_, column) if self.left.has_column(&column) => {
                    Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump)
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
fn named(plan: LogicalPlan, join: &Join, columns: Vec<Expr>) -> Result<LogicalPlan> {
    let right = join.right.schema();
    let left = join.left.schema().columns().into_iter().map(Expr::Column);
    let own = columns.into_iter().enumerate().map(|(at, column)| {
        let (table, field) = right.qualified_field(at);
        column.alias_qualified(table.cloned(), field.name())
    });
    LogicalPlanBuilder::from(plan).project(left.chain(own))?.build()
}

fn subquery_of(right: &LogicalPlan) -> Option<&Subquery> {
    match right {
        LogicalPlan::Subquery(subquery) => Some(subquery),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => Some(subquery),
            // `AS t(a, b)` is a projection.
            _ => None,
        },
        _ => None,
    }
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

fn is_correlated(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
