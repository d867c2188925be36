//! `GROUP BY a, b WITH ROLLUP` as `GROUP BY ROLLUP(a, b)`, which is how DataFusion reads it.

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, GroupByWithModifier, Select};

/// Puts what WITH ROLLUP and WITH CUBE say into the grouping itself.
pub(crate) fn modifiers_into_sets(select: &mut Select) {
    let GroupByExpr::Expressions(groups, modifiers) = &mut select.group_by else { return };
    let into_sets = match modifiers.as_slice() {
        [GroupByWithModifier::Rollup] => Expr::Rollup,
        [GroupByWithModifier::Cube] => Expr::Cube,
        _ => return,
    };
    modifiers.clear();
    let columns = std::mem::take(groups).into_iter().map(|group| vec![group]);
    groups.push(into_sets(columns.collect()));
}
