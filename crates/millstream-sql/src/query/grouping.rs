//! `GROUP BY a, b WITH ROLLUP` as `GROUP BY ROLLUP(a, b)`, which is how DataFusion reads it, and
//! `GROUP BY a, b GROUPING SETS (a, b)` as `GROUP BY GROUPING SETS (a, b)`.

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, GroupByWithModifier, Select};

/// Puts what WITH ROLLUP, WITH CUBE and GROUPING SETS say into the grouping itself. A key that is
/// in no set cannot be selected then; in Spark it is NULL.
pub(crate) fn modifiers_into_sets(select: &mut Select) {
    let GroupByExpr::Expressions(groups, modifiers) = &mut select.group_by else { return };
    if let [GroupByWithModifier::GroupingSets(sets)] = modifiers.as_slice() {
        *groups = vec![sets.clone()];
        return modifiers.clear();
    }
    let into_sets = match modifiers.as_slice() {
        [GroupByWithModifier::Rollup] => Expr::Rollup,
        [GroupByWithModifier::Cube] => Expr::Cube,
        _ => return,
    };
    modifiers.clear();
    let columns = std::mem::take(groups).into_iter().map(|group| vec![group]);
    groups.push(into_sets(columns.collect()));
}
