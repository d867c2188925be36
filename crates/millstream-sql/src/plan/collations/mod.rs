//! Collations of STRINGs in a plan: found out for each expression, and put into what is compared.
//!
//! To DataFusion, and to Arrow, a STRING is a STRING. So before a plan is made ready to run, each
//! expression's collations are found out, from columns that are declared with one and from
//! `x COLLATE name` ([`exprs`], [`calls`], [`aggregates`], [`nodes`]). Which of several is meant is
//! as in Spark: what is named wins, then what a column has, then what a literal has ([`leaves`]).
//! What is compared, grouped or sorted by another collation than UTF8_BINARY becomes a comparison
//! of keys ([`compare`], [`groups`], [`sets`]), and functions that look for one text in another
//! become functions that know the collation. The plan that comes of it compares bytes alone.
//!
//! What is not known to be right with such a collation is refused, as are groups, joins and orders
//! over a stream. A plan in which no collation is named is left as it is.

mod aggregates;
mod calls;
mod compare;
mod exprs;
mod groups;
mod leaves;
mod nodes;
mod parts;
mod scope;
mod sets;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, internal_datafusion_err, plan_err};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, ScalarUDF, lit};

use crate::functions::collated::{COLLATE, COLLATION, SHOWN};
use crate::query::prepared::TableRead;
use crate::types::COLLATIONS;
use crate::types::collation::Collation;
use crate::types::collations::text_of;
use leaves::{Leaves, Strength, are_plain};

/// `plan` without collations, which compares as they say. The tables that it reads are `reads`;
/// `is_stream` tells a plan that reads a stream.
pub(super) fn resolved(
    state: &SessionState,
    plan: LogicalPlan,
    reads: &[TableRead],
    is_stream: fn(&LogicalPlan) -> bool,
) -> Result<LogicalPlan> {
    let tables: HashMap<&str, &[(String, Vec<Collation>)]> = reads
        .iter()
        .filter(|read| !read.collations.is_empty())
        .map(|read| (read.registered_as.as_str(), read.collations.as_slice()))
        .collect();
    if tables.is_empty() && !names_collations(&plan)? {
        return Ok(plan);
    }
    let streams = is_stream(&plan);
    let resolver = Resolver { state, tables, seen: RefCell::default(), is_stream };
    let resolved = resolver.plan(plan, None)?;
    // A scan under a name that is not known here would be compared byte by byte.
    let seen = resolver.seen.borrow();
    if let Some(name) = resolver.tables.keys().find(|name| !seen.contains(**name)) {
        return plan_err!(
            "`{name}` has columns with collations, and the query makes nothing of it"
        );
    }
    drop(seen);
    // A sink takes STRINGs, whatever they are compared by.
    if streams { Ok(resolved.plan) } else { resolver.shown(resolved) }
}

/// Whether an expression of the plan names a collation, or asks for one.
fn names_collations(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                found |= match expr {
                    Expr::ScalarFunction(call) => {
                        matches!(call.func.name(), COLLATE | COLLATION)
                    }
                    Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
                        field.metadata().contains_key(COLLATIONS)
                    }
                    _ => false,
                };
                Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
            })
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

struct Resolver<'a> {
    state: &'a SessionState,
    /// By the names in the plan, the collations of tables' columns.
    tables: HashMap<&'a str, &'a [(String, Vec<Collation>)]>,
    /// Those of them that the plan was seen to read.
    seen: RefCell<HashSet<String>>,
    is_stream: fn(&LogicalPlan) -> bool,
}

/// An expression without collations, and what its value has.
struct Typed {
    expr: Expr,
    leaves: Leaves,
}

/// A plan without collations, and what its columns have.
struct Resolved {
    plan: LogicalPlan,
    columns: Vec<Leaves>,
}

impl Resolver<'_> {
    /// The call of a function that is registered.
    fn called(&self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        let found: Option<&Arc<ScalarUDF>> = self.state.scalar_functions().get(name);
        let function = found.ok_or_else(|| internal_datafusion_err!("there is no {name}"))?;
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args)))
    }

    /// Refuses what needs state or an order of all rows, if the plan reads a stream.
    fn check_batch(&self, plan: &LogicalPlan, what: &str) -> Result<()> {
        match (self.is_stream)(plan) {
            false => Ok(()),
            true => plan_err!(
                "{what} by a collation over a stream is not supported; for UTF8_LCASE write \
                 lower(x COLLATE UTF8_BINARY) instead of x"
            ),
        }
    }

    /// The result, with fields that say which collations it has.
    fn shown(&self, resolved: Resolved) -> Result<LogicalPlan> {
        if resolved.columns.iter().all(|leaves| are_plain(leaves)) {
            return Ok(resolved.plan);
        }
        let columns = resolved.plan.schema().columns().into_iter().zip(resolved.columns);
        let column = |(column, leaves): (Column, Leaves)| -> Result<Expr> {
            let Column { relation, name, .. } = &column;
            if leaves.iter().any(|leaf| leaf.strength == Strength::Indeterminate) {
                return plan_err!(
                    "the column `{name}` has two collations (INDETERMINATE_COLLATION); name one: \
                     x COLLATE name"
                );
            }
            let collations: Vec<Collation> = leaves.iter().map(|leaf| leaf.collation).collect();
            match text_of(&collations) {
                None => Ok(Expr::Column(column)),
                Some(names) => {
                    let (relation, name) = (relation.clone(), name.clone());
                    let shown = self.called(SHOWN, vec![Expr::Column(column), lit(names)])?;
                    Ok(shown.alias_qualified(relation, name))
                }
            }
        };
        let columns = columns.map(column).collect::<Result<Vec<_>>>()?;
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(resolved.plan))?))
    }
}
