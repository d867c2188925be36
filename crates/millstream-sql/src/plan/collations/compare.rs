//! Comparisons, which become those of keys.

use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, plan_datafusion_err, plan_err};
use datafusion::logical_expr::expr::{Between, BinaryExpr, Case, InList, Sort as SortExpr};
use datafusion::logical_expr::{Expr, Operator, lit};

use super::leaves::{Leaf, Leaves, Strength, all_merged, are_plain, one_of, pointed};
use super::scope::Scope;
use super::{Resolver, Typed};
use crate::functions::collated::KEY;
use crate::functions::operators::is_comparison;
use crate::types::collation::Collation;

impl Resolver<'_> {
    /// What `expr` is compared by, if its bytes are not.
    pub(super) fn key(&self, expr: Expr, collation: Collation) -> Result<Expr> {
        self.called(KEY, vec![expr, lit(collation.to_string())])
    }

    /// The key of what is grouped or sorted by, which has the type `of`; what is compared byte by
    /// byte as it is.
    pub(super) fn key_of(&self, typed: Typed, of: Result<DataType>) -> Result<Expr> {
        if are_plain(&typed.leaves) {
            return Ok(typed.expr);
        }
        let is_text = of?.is_string();
        match typed.leaves.as_slice() {
            [leaf] if is_text => {
                let collation = determined(*leaf).map_err(|error| pointed(&typed.expr, error))?;
                self.key(typed.expr, collation)
            }
            _ => Err(pointed(&typed.expr, nested())),
        }
    }

    /// The same of an expression in a scope.
    pub(super) fn key_in(&self, typed: Typed, scope: &Scope<'_>) -> Result<Expr> {
        let of = scope.type_of(&typed.expr);
        self.key_of(typed, of)
    }

    /// The collation that all sides are compared by, each given by its type and what it has; none
    /// where bytes are compared.
    pub(super) fn collation_of(&self, sides: &[(DataType, &Leaves)]) -> Result<Option<Collation>> {
        if sides.iter().all(|(_, leaves)| are_plain(leaves)) {
            return Ok(None);
        }
        if sides.iter().any(|(of, _)| of.is_nested()) {
            return Err(nested());
        }
        // Beside a number a STRING is one.
        if sides.iter().any(|(of, _)| !of.is_string() && !of.is_null()) {
            return Ok(None);
        }
        let leaves = sides.iter().flat_map(|(_, leaves)| leaves.iter().copied());
        let Some(leaf) = all_merged(leaves)? else { return Ok(None) };
        determined(leaf).map(|collation| Some(collation).filter(|found| !found.is_binary()))
    }

    /// Both sides of a comparison as they are to be compared.
    fn sides(&self, sides: Vec<Typed>, scope: &Scope<'_>) -> Result<Vec<Expr>> {
        match self.common(&sides.iter().collect::<Vec<_>>(), scope)? {
            None => Ok(sides.into_iter().map(|side| side.expr).collect()),
            Some(collation) => {
                sides.into_iter().map(|side| self.key(side.expr, collation)).collect()
            }
        }
    }

    fn common(&self, sides: &[&Typed], scope: &Scope<'_>) -> Result<Option<Collation>> {
        if sides.iter().all(|side| are_plain(&side.leaves)) {
            return Ok(None);
        }
        let mut typed = Vec::with_capacity(sides.len());
        for side in sides {
            typed.push((scope.type_of(&side.expr)?, &side.leaves));
        }
        let found = self.collation_of(&typed);
        let column = sides.iter().map(|side| &side.expr).find(|side| side.any_column_refs());
        found.map_err(|error| match column {
            Some(column) => pointed(column, error),
            None => error,
        })
    }

    pub(super) fn binary(&self, binary: BinaryExpr, scope: &Scope<'_>) -> Result<Typed> {
        let BinaryExpr { left, op, right } = binary;
        let (left, right) = (self.expr(*left, scope)?, self.expr(*right, scope)?);
        let made = |left, right| {
            Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) })
        };
        if is_comparison(op) {
            let mut sides = self.sides(vec![left, right], scope)?;
            let (right, left) = (sides.pop(), sides.pop());
            let both = left.zip(right);
            let (left, right) = both.ok_or_else(|| plan_datafusion_err!("`{op}` has two sides"))?;
            return Ok(Typed { expr: made(left, right), leaves: Leaves::new() });
        }
        let are_all_plain = are_plain(&left.leaves) && are_plain(&right.leaves);
        if !are_all_plain && !is_of_numbers(op) {
            let error = plan_datafusion_err!(
                "`{op}` of a STRING with a collation is not supported; write x COLLATE UTF8_BINARY"
            );
            return Err(pointed(&left.expr, error));
        }
        let leaf = all_merged(left.leaves.into_iter().chain(right.leaves))?;
        self.alike(made(left.expr, right.expr), leaf, scope)
    }

    pub(super) fn between(&self, between: Between, scope: &Scope<'_>) -> Result<Typed> {
        let Between { expr, negated, low, high } = between;
        let value = self.expr(*expr, scope)?;
        let (low, high) = (self.expr(*low, scope)?, self.expr(*high, scope)?);
        let found = self.common(&[&value, &low], scope)?;
        if found != self.common(&[&value, &high], scope)? {
            return Err(pointed(&value.expr, several()));
        }
        let keyed = |side: Typed| -> Result<Box<Expr>> {
            Ok(Box::new(match found {
                None => side.expr,
                Some(collation) => self.key(side.expr, collation)?,
            }))
        };
        let (expr, low, high) = (keyed(value)?, keyed(low)?, keyed(high)?);
        let expr = Expr::Between(Between { expr, negated, low, high });
        Ok(Typed { expr, leaves: Leaves::new() })
    }

    pub(super) fn in_list(&self, list: InList, scope: &Scope<'_>) -> Result<Typed> {
        let InList { expr, list, negated } = list;
        let sides = std::iter::once(*expr).chain(list).map(|side| self.expr(side, scope));
        let mut sides = self.sides(sides.collect::<Result<_>>()?, scope)?;
        let expr = Box::new(sides.remove(0));
        let expr = Expr::InList(InList { expr, list: sides, negated });
        Ok(Typed { expr, leaves: Leaves::new() })
    }

    pub(super) fn case(&self, case: Case, scope: &Scope<'_>) -> Result<Typed> {
        let Case { expr, when_then_expr, else_expr } = case;
        let base = expr.map(|base| self.expr(*base, scope)).transpose()?;
        let (mut whens, mut results) = (Vec::new(), Vec::new());
        for (when, then) in when_then_expr {
            whens.push(self.expr(*when, scope)?);
            results.push(self.expr(*then, scope)?);
        }
        let otherwise = else_expr.map(|value| self.expr(*value, scope)).transpose()?;
        let (base, whens) = match base {
            None => (None, whens.into_iter().map(|when| when.expr).collect()),
            Some(base) => self.looked_up(base, whens, scope)?,
        };
        let values = results.iter().chain(&otherwise).map(|value| &value.leaves);
        let leaves = one_of(&values.collect::<Vec<_>>())?;
        let pairs = whens.into_iter().zip(results);
        let pairs = pairs.map(|(when, then)| (Box::new(when), Box::new(then.expr)));
        let otherwise = otherwise.map(|value| Box::new(value.expr));
        Ok(Typed { expr: Expr::Case(Case::new(base, pairs.collect(), otherwise)), leaves })
    }

    /// What a CASE looks up, and where: it is compared with each by itself.
    fn looked_up(
        &self,
        base: Typed,
        whens: Vec<Typed>,
        scope: &Scope<'_>,
    ) -> Result<(Option<Box<Expr>>, Vec<Expr>)> {
        let found = whens.iter().map(|when| self.common(&[&base, when], scope));
        let found = found.collect::<Result<Vec<_>>>()?;
        let first = found.first().copied().flatten();
        if found.iter().any(|collation| *collation != first) {
            return Err(pointed(&base.expr, several()));
        }
        let keyed = |side: Typed| match first {
            None => Ok(side.expr),
            Some(collation) => self.key(side.expr, collation),
        };
        let whens = whens.into_iter().map(keyed).collect::<Result<_>>()?;
        Ok((Some(Box::new(keyed(base)?)), whens))
    }

    pub(super) fn sort_key(&self, sort: SortExpr, scope: &Scope<'_>) -> Result<SortExpr> {
        let SortExpr { expr, asc, nulls_first } = sort;
        let expr = self.key_in(self.expr(expr, scope)?, scope)?;
        Ok(SortExpr { expr, asc, nulls_first })
    }
}

/// The collation, if it is not one of several.
pub(super) fn determined(leaf: Leaf) -> Result<Collation> {
    match leaf.strength {
        Strength::Indeterminate => plan_err!(
            "what is compared here has two collations, of which none is named \
             (INDETERMINATE_COLLATION_IN_EXPRESSION); name one: x COLLATE name"
        ),
        _ => Ok(leaf.collation),
    }
}

fn nested() -> DataFusionError {
    plan_datafusion_err!(
        "an ARRAY, a MAP or a STRUCT of STRINGs with a collation cannot be compared, grouped or \
         sorted here; take its parts one by one"
    )
}

fn several() -> DataFusionError {
    plan_datafusion_err!(
        "what is compared here has several collations; name one for all: x COLLATE name"
    )
}

/// Whether STRINGs beside the operator are numbers or conditions.
fn is_of_numbers(op: Operator) -> bool {
    matches!(
        op,
        Operator::And
            | Operator::Or
            | Operator::Plus
            | Operator::Minus
            | Operator::Multiply
            | Operator::Divide
            | Operator::Modulo
    )
}
