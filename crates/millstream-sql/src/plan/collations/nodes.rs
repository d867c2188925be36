//! Plans, node by node, from the tables up.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::logical_expr::{
    Expr, Filter, Limit, LogicalPlan, Projection, RecursiveQuery, Sort, Subquery, SubqueryAlias,
    TableScan, Unnest, Values, Window,
};

use super::groups::named;
use super::leaves::{Leaf, Leaves, Strength, are_plain, of_column, of_type, one_of};
use super::scope::Scope;
use super::{Resolved, Resolver};
use crate::types::collation::Collation;
use crate::types::collations::strings_in;

impl Resolver<'_> {
    /// `plan` without collations, and what its columns have. `around` are the columns that a
    /// subquery sees of the query around it.
    pub(super) fn plan(&self, plan: LogicalPlan, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let resolved = match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Projection(projection) => self.projection(projection, around),
            LogicalPlan::Filter(filter) => self.filter(filter, around),
            LogicalPlan::Window(window) => self.window(window, around),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate, around),
            LogicalPlan::Sort(sort) => self.sort(sort, around),
            LogicalPlan::Join(join) => self.joined(join, around),
            LogicalPlan::Union(union) => self.union(union, around),
            LogicalPlan::Distinct(distinct) => self.distinct(distinct, around),
            LogicalPlan::Values(values) => self.values(values, around),
            LogicalPlan::Unnest(unnest) => self.unnest(unnest, around),
            LogicalPlan::RecursiveQuery(query) => self.recursive(query, around),
            LogicalPlan::Subquery(Subquery { subquery, outer_ref_columns, spans }) => {
                let Resolved { plan, columns } =
                    self.plan(Arc::unwrap_or_clone(subquery), around)?;
                let subquery = Subquery { subquery: Arc::new(plan), outer_ref_columns, spans };
                Ok(Resolved { plan: LogicalPlan::Subquery(subquery), columns })
            }
            LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
                let Resolved { plan, columns } = self.plan(Arc::unwrap_or_clone(input), around)?;
                let alias = SubqueryAlias::try_new(Arc::new(plan), alias)?;
                Ok(Resolved { plan: LogicalPlan::SubqueryAlias(alias), columns })
            }
            LogicalPlan::Limit(Limit { skip, fetch, input }) => {
                let Resolved { plan, columns } = self.plan(Arc::unwrap_or_clone(input), around)?;
                let limit = Limit { skip, fetch, input: Arc::new(plan) };
                Ok(Resolved { plan: LogicalPlan::Limit(limit), columns })
            }
            other => self.other_node(other, around),
        }?;
        let (found, wanted) = (resolved.columns.len(), resolved.plan.schema().fields().len());
        match found == wanted {
            true => Ok(resolved),
            false => internal_err!("collations of {found} columns, of which there are {wanted}"),
        }
    }

    fn scan(&self, scan: TableScan) -> Result<Resolved> {
        let name = scan.table_name.table();
        let of_table = self.tables.get(name).copied().unwrap_or_default();
        if !of_table.is_empty() {
            self.seen.borrow_mut().insert(name.to_owned());
        }
        let columns = scan.projected_schema.fields().iter().map(|field| {
            let declared = of_table.iter().find(|(name, _)| name == field.name());
            match declared {
                None => of_type(field.data_type(), Leaf::plain(Strength::Implicit)),
                Some((_, collations)) => {
                    let strength = Strength::Implicit;
                    let leaf = |collation: &Collation| Leaf { collation: *collation, strength };
                    collations.iter().map(leaf).collect()
                }
            }
        });
        Ok(Resolved { columns: columns.collect(), plan: LogicalPlan::TableScan(scan) })
    }

    fn projection(&self, projection: Projection, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let Projection { expr, input, .. } = projection;
        let input = self.plan(Arc::unwrap_or_clone(input), around)?;
        let (exprs, columns) = self.columns(expr, &Scope::of(&[&input], around))?;
        let plan = Projection::try_new(exprs, Arc::new(input.plan))?;
        Ok(Resolved { plan: LogicalPlan::Projection(plan), columns })
    }

    /// Expressions that are columns, under the names that they have, and what they have.
    fn columns(&self, exprs: Vec<Expr>, scope: &Scope<'_>) -> Result<(Vec<Expr>, Vec<Leaves>)> {
        let (mut made, mut columns) = (Vec::with_capacity(exprs.len()), Vec::new());
        for expr in exprs {
            let name = expr.qualified_name();
            let typed = self.expr(expr, scope)?;
            made.push(named(typed.expr, name));
            columns.push(of_column(typed.leaves));
        }
        Ok((made, columns))
    }

    fn filter(&self, filter: Filter, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let Filter { predicate, input, .. } = filter;
        let input = self.plan(Arc::unwrap_or_clone(input), around)?;
        let predicate = self.expr(predicate, &Scope::of(&[&input], around))?.expr;
        let plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input.plan))?);
        Ok(Resolved { plan, columns: input.columns })
    }

    fn window(&self, window: Window, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let Window { input, window_expr, .. } = window;
        let input = self.plan(Arc::unwrap_or_clone(input), around)?;
        let (exprs, own) = self.columns(window_expr, &Scope::of(&[&input], around))?;
        let plan = LogicalPlan::Window(Window::try_new(exprs, Arc::new(input.plan))?);
        let columns = input.columns.into_iter().chain(own).collect();
        Ok(Resolved { plan, columns })
    }

    fn sort(&self, sort: Sort, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let Sort { expr, input, fetch } = sort;
        let input = self.plan(Arc::unwrap_or_clone(input), around)?;
        let scope = Scope::of(&[&input], around);
        let keys = expr.iter().cloned().map(|sort| self.sort_key(sort, &scope));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        if keys != expr {
            self.check_batch(&input.plan, "ORDER BY")?;
        }
        let Resolved { plan, columns } = input;
        let sort = Sort { expr: keys, input: Arc::new(plan), fetch };
        Ok(Resolved { plan: LogicalPlan::Sort(sort), columns })
    }

    fn values(&self, values: Values, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let Values { schema, values } = values;
        let scope = Scope::of(&[], around);
        let mut columns = vec![Leaves::new(); schema.fields().len()];
        let mut rows = Vec::with_capacity(values.len());
        for row in values {
            let mut cells = Vec::with_capacity(row.len());
            for (cell, column) in row.into_iter().zip(&mut columns) {
                let typed = self.expr(cell, &scope)?;
                *column = one_of(&[&*column, &typed.leaves])?;
                cells.push(typed.expr);
            }
            rows.push(cells);
        }
        // A column of which all cells are NULL has no STRINGs; as the column of a table it has.
        let fields = schema.fields().iter();
        let plain = fields.map(|field| of_type(field.data_type(), Leaf::plain(Strength::Implicit)));
        let columns = columns.into_iter().zip(plain);
        let columns = columns.map(|(own, plain)| match own.len() == plain.len() {
            true => of_column(own),
            false => plain,
        });
        let columns = columns.collect();
        let plan = LogicalPlan::Values(Values { schema, values: rows });
        Ok(Resolved { plan, columns })
    }

    fn unnest(&self, unnest: Unnest, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let input = self.plan(Arc::unwrap_or_clone(Arc::clone(&unnest.input)), around)?;
        let mut taken = vec![0; input.columns.len()];
        let mut columns = Vec::with_capacity(unnest.dependency_indices.len());
        for (field, of) in unnest.schema.fields().iter().zip(&unnest.dependency_indices) {
            let (all, own) = (&input.columns[*of], strings_in(field.data_type()));
            // The columns of a struct are its fields, one after the other; an element of an array
            // has as many STRINGs as the array's type has.
            let leaves = match unnest.struct_type_columns.contains(of) {
                true => {
                    let leaves = all.iter().skip(taken[*of]).take(own).copied().collect();
                    taken[*of] += own;
                    leaves
                }
                false => all.clone(),
            };
            if leaves.len() != own && !are_plain(all) {
                return plan_err!("rows of such a value with collations are not supported");
            }
            columns.push(match leaves.len() == own {
                true => leaves,
                false => of_type(field.data_type(), Leaf::plain(Strength::Implicit)),
            });
        }
        let unnest = Unnest { input: Arc::new(input.plan), ..unnest };
        Ok(Resolved { plan: LogicalPlan::Unnest(unnest), columns })
    }

    fn recursive(&self, query: RecursiveQuery, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let first = self.plan(Arc::unwrap_or_clone(Arc::clone(&query.static_term)), around)?;
        let next = self.plan(Arc::unwrap_or_clone(Arc::clone(&query.recursive_term)), around)?;
        if !first.columns.iter().chain(&next.columns).all(|leaves| are_plain(leaves)) {
            return plan_err!(
                "a recursive query has no columns with collations; CAST them to STRING in it"
            );
        }
        let (static_term, recursive_term) = (Arc::new(first.plan), Arc::new(next.plan));
        let query = RecursiveQuery { static_term, recursive_term, ..query };
        Ok(Resolved { plan: LogicalPlan::RecursiveQuery(query), columns: first.columns })
    }

    /// A node that compares nothing that is known here.
    fn other_node(&self, node: LogicalPlan, around: Option<&Scope<'_>>) -> Result<Resolved> {
        let mut plain = true;
        let node = node.map_children(|input| {
            let input = self.plan(input, around)?;
            plain &= input.columns.iter().all(|leaves| are_plain(leaves));
            Ok(Transformed::yes(input.plan))
        })?;
        if !plain {
            return plan_err!("a collation has no place in this kind of query");
        }
        let fields = node.data.schema().fields().iter();
        let leaf = Leaf::plain(Strength::Implicit);
        let columns = fields.map(|field| of_type(field.data_type(), leaf)).collect();
        Ok(Resolved { plan: node.data, columns })
    }
}
