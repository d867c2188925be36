//! Expressions, one by one.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::logical_expr::expr::{Alias, Cast, Exists, InSubquery, SetComparison, TryCast};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, Subquery};

use super::leaves::{Leaf, Leaves, Strength, all_merged, are_plain, of_column, of_type, pointed};
use super::scope::Scope;
use super::{Resolver, Typed};
use crate::types::collations::{self, without};

impl Resolver<'_> {
    /// `expr` without collations, and what its value has.
    pub(super) fn expr(&self, expr: Expr, scope: &Scope<'_>) -> Result<Typed> {
        match expr {
            Expr::Alias(Alias { expr, relation, name, metadata }) => {
                let Typed { expr, leaves } = self.expr(*expr, scope)?;
                let alias = Alias { expr: Box::new(expr), relation, name, metadata };
                Ok(Typed { expr: Expr::Alias(alias), leaves })
            }
            Expr::Column(column) => {
                let leaves = scope.leaves_of(&column)?;
                Ok(Typed { expr: Expr::Column(column), leaves })
            }
            Expr::OuterReferenceColumn(field, column) => {
                let leaves = scope.outer_leaves_of(&column)?;
                Ok(Typed { expr: Expr::OuterReferenceColumn(field, column), leaves })
            }
            literal @ Expr::Literal(..) => {
                self.alike(literal, Some(Leaf::plain(Strength::Default)), scope)
            }
            Expr::BinaryExpr(binary) => self.binary(binary, scope),
            Expr::Between(between) => self.between(between, scope),
            Expr::InList(list) => self.in_list(list, scope),
            Expr::Case(case) => self.case(case, scope),
            Expr::Cast(Cast { expr, field }) => {
                let value = self.expr(*expr, scope)?;
                let leaves = of_cast(&value.leaves, &field);
                let field = Arc::new(without(&field));
                let expr = Expr::Cast(Cast { expr: Box::new(value.expr), field });
                Ok(Typed { expr, leaves })
            }
            Expr::TryCast(TryCast { expr, field }) => {
                let value = self.expr(*expr, scope)?;
                let leaves = of_cast(&value.leaves, &field);
                let field = Arc::new(without(&field));
                let expr = Expr::TryCast(TryCast { expr: Box::new(value.expr), field });
                Ok(Typed { expr, leaves })
            }
            Expr::ScalarFunction(call) => self.call(call, scope),
            Expr::AggregateFunction(call) => self.aggregate(call, scope),
            Expr::WindowFunction(call) => self.window_call(*call, scope),
            Expr::ScalarSubquery(subquery) => {
                let (subquery, columns) = self.subquery(subquery, scope)?;
                let leaves = of_column(columns.into_iter().next().unwrap_or_default());
                Ok(Typed { expr: Expr::ScalarSubquery(subquery), leaves })
            }
            Expr::Exists(Exists { subquery, negated }) => {
                let (subquery, _) = self.subquery(subquery, scope)?;
                let expr = Expr::Exists(Exists { subquery, negated });
                Ok(Typed { expr, leaves: Leaves::new() })
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let (expr, subquery) = self.with_subquery(*expr, subquery, scope)?;
                let expr = Expr::InSubquery(InSubquery { expr, subquery, negated });
                Ok(Typed { expr, leaves: Leaves::new() })
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                let (expr, subquery) = self.with_subquery(*expr, subquery, scope)?;
                let expr = Expr::SetComparison(SetComparison { expr, subquery, op, quantifier });
                Ok(Typed { expr, leaves: Leaves::new() })
            }
            other => self.by_parts(other, scope),
        }
    }

    /// `expr`, all of whose STRINGs have what `leaf` has.
    pub(super) fn alike(&self, expr: Expr, leaf: Option<Leaf>, scope: &Scope<'_>) -> Result<Typed> {
        // What has no type yet is refused elsewhere.
        let of = scope.type_of(&expr).unwrap_or(DataType::Null);
        let leaves = of_type(&of, leaf.unwrap_or(Leaf::plain(Strength::Default)));
        Ok(Typed { expr, leaves })
    }

    /// An expression that is none of those above. Where it looks at more of a text than whether it
    /// is NULL, it has none with a collation.
    fn by_parts(&self, expr: Expr, scope: &Scope<'_>) -> Result<Typed> {
        let is_blind = matches!(
            expr,
            Expr::Not(_)
                | Expr::IsNotNull(_)
                | Expr::IsNull(_)
                | Expr::IsTrue(_)
                | Expr::IsFalse(_)
                | Expr::IsUnknown(_)
                | Expr::IsNotTrue(_)
                | Expr::IsNotFalse(_)
                | Expr::IsNotUnknown(_)
                | Expr::Negative(_)
        );
        let mut leaves = Leaves::new();
        let changed = expr.map_children(|part| {
            let part = self.expr(part, scope)?;
            leaves.extend(part.leaves);
            Ok(Transformed::yes(part.expr))
        })?;
        let expr = changed.data;
        if !is_blind && !are_plain(&leaves) {
            let what = match &expr {
                Expr::Like(_) | Expr::SimilarTo(_) => "LIKE",
                _ => "this",
            };
            let error = plan_datafusion_err!(
                "{what} is not supported for a STRING with a collation; write x COLLATE \
                 UTF8_BINARY for it"
            );
            return Err(pointed(&expr, error));
        }
        let leaf = if is_blind { None } else { all_merged(leaves)? };
        self.alike(expr, leaf, scope)
    }

    fn subquery(&self, subquery: Subquery, scope: &Scope<'_>) -> Result<(Subquery, Vec<Leaves>)> {
        let plan = Arc::unwrap_or_clone(subquery.subquery);
        let resolved = self.plan(plan, Some(scope))?;
        let subquery = Subquery { subquery: Arc::new(resolved.plan), ..subquery };
        Ok((subquery, resolved.columns))
    }

    /// A value and a subquery whose rows it is compared with.
    fn with_subquery(
        &self,
        expr: Expr,
        subquery: Subquery,
        scope: &Scope<'_>,
    ) -> Result<(Box<Expr>, Subquery)> {
        let value = self.expr(expr, scope)?;
        let (mut subquery, columns) = self.subquery(subquery, scope)?;
        let columns: Vec<Leaves> = columns.into_iter().map(of_column).collect();
        if are_plain(&value.leaves) && columns.iter().all(|leaves| are_plain(leaves)) {
            return Ok((Box::new(value.expr), subquery));
        }
        let names = subquery.subquery.schema().columns();
        let ([leaves], [column]) = (columns.as_slice(), names.as_slice()) else {
            return plan_err!(
                "several columns with collations cannot be compared with a subquery at once; join \
                 it instead"
            );
        };
        let of = subquery.subquery.schema().field(0).data_type().clone();
        let sides = [(scope.type_of(&value.expr)?, &value.leaves), (of, leaves)];
        let found = self.collation_of(&sides).map_err(|error| pointed(&value.expr, error))?;
        let Some(collation) = found else { return Ok((Box::new(value.expr), subquery)) };
        let key = self.key(Expr::Column(column.clone()), collation)?;
        let plan = Arc::unwrap_or_clone(subquery.subquery);
        subquery.subquery = Arc::new(LogicalPlanBuilder::from(plan).project([key])?.build()?);
        Ok((Box::new(self.key(value.expr, collation)?), subquery))
    }
}

/// What a value has that is cast to the type of `field`: what that names, or nothing.
fn of_cast(value: &Leaves, field: &Field) -> Leaves {
    let strength = if value.is_empty() { Strength::Default } else { Strength::Implicit };
    match collations::of_field(field) {
        Some(named) => named.into_iter().map(|collation| Leaf { collation, strength }).collect(),
        None => of_type(field.data_type(), Leaf::plain(strength)),
    }
}
