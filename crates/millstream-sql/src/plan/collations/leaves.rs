//! The collations of the STRINGs in a value, and which of several is meant.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Diagnostic, Result, plan_err};
use datafusion::logical_expr::Expr;

use crate::types::collation::Collation;
use crate::types::collations::strings_in;

/// How a STRING has come to its collation: the first wins over those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strength {
    /// By COLLATE.
    Explicit,
    /// By none of several.
    Indeterminate,
    /// It is a column's, or a subquery's.
    Implicit,
    /// It is that of any literal.
    Default,
}

/// The collation of one STRING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub collation: Collation,
    pub strength: Strength,
}

/// Those of all STRINGs in a value, in the order in which they stand in its type.
pub(super) type Leaves = Vec<Leaf>;

impl Leaf {
    /// A STRING that is compared byte by byte.
    pub fn plain(strength: Strength) -> Self {
        Self { collation: Collation::default(), strength }
    }

    fn is_plain(self) -> bool {
        self.strength != Strength::Indeterminate && self.collation.is_binary()
    }
}

/// Whether all are compared byte by byte.
pub(super) fn are_plain(leaves: &[Leaf]) -> bool {
    leaves.iter().all(|leaf| leaf.is_plain())
}

/// All STRINGs in a type, alike.
pub(super) fn of_type(data_type: &DataType, leaf: Leaf) -> Leaves {
    vec![leaf; strings_in(data_type)]
}

/// What a column has whose values have these.
pub(super) fn of_column(mut leaves: Leaves) -> Leaves {
    for leaf in leaves.iter_mut().filter(|leaf| leaf.strength != Strength::Indeterminate) {
        leaf.strength = Strength::Implicit;
    }
    leaves
}

/// What is meant where both are.
fn merged(one: Leaf, other: Leaf) -> Result<Leaf> {
    if one.strength != other.strength {
        return Ok(if one.strength < other.strength { one } else { other });
    }
    match one.collation == other.collation {
        true => Ok(one),
        false if one.strength == Strength::Explicit => plan_err!(
            "`{}` and `{}` are both named (COLLATION_MISMATCH.EXPLICIT); name one of them for all \
             that is compared",
            one.collation,
            other.collation
        ),
        false => Ok(Leaf { strength: Strength::Indeterminate, ..one }),
    }
}

/// What is meant where all are; `None` where there are none.
pub(super) fn all_merged(leaves: impl IntoIterator<Item = Leaf>) -> Result<Option<Leaf>> {
    let mut leaves = leaves.into_iter();
    let Some(mut all) = leaves.next() else { return Ok(None) };
    for leaf in leaves {
        all = merged(all, leaf)?;
    }
    Ok(Some(all))
}

/// What a value has that is one of several of one type. A NULL has no STRINGs.
pub(super) fn one_of(values: &[&Leaves]) -> Result<Leaves> {
    let mut values = values.iter().filter(|leaves| !leaves.is_empty());
    let Some(first) = values.next() else { return Ok(Leaves::new()) };
    let mut all = Leaves::clone(first);
    for leaves in values {
        if leaves.len() != all.len() {
            if are_plain(leaves) && are_plain(&all) {
                continue;
            }
            return plan_err!("values of several types have collations here; CAST them to one");
        }
        for (all, leaf) in all.iter_mut().zip(leaves.iter()) {
            *all = merged(*all, *leaf)?;
        }
    }
    Ok(all)
}

/// `error` at the first column in `expr`.
pub(super) fn pointed(expr: &Expr, error: DataFusionError) -> DataFusionError {
    let mut span = None;
    let visited = expr.apply(|part| {
        if let Expr::Column(column) = part {
            span = column.spans.first();
        }
        Ok(if span.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    match (visited, span) {
        (Ok(_), Some(span)) => {
            let diagnostic = Diagnostic::new_error(error.message().into_owned(), Some(span));
            error.with_diagnostic(diagnostic)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_wins_over_a_column_and_that_over_a_literal() {
        let lower = Collation::parse("utf8_lcase").expect("there is one of this name");
        let leaf = |collation, strength| Leaf { collation, strength };
        let plain = Leaf::plain;
        let (implicit, explicit) =
            (leaf(lower, Strength::Implicit), leaf(lower, Strength::Explicit));
        let both = |one, other| all_merged([one, other]).map(|all| all.expect("there are two"));
        assert_eq!(both(plain(Strength::Default), implicit).ok(), Some(implicit));
        assert_eq!(both(plain(Strength::Implicit), explicit).ok(), Some(explicit));
        let neither = both(plain(Strength::Implicit), implicit).expect("it may be that");
        assert_eq!(neither.strength, Strength::Indeterminate);
        assert!(!are_plain(&[neither]));
        assert_eq!(both(neither, explicit).ok(), Some(explicit));
        assert_eq!(both(neither, implicit).ok(), Some(neither));
        let error = both(plain(Strength::Explicit), explicit).expect_err("two are named");
        assert!(error.to_string().contains("COLLATION_MISMATCH.EXPLICIT"), "{error}");
        assert_eq!(of_column(vec![explicit, neither]), [implicit, neither]);
    }
}
