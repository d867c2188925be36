//! SORT BY, CLUSTER BY and DISTRIBUTE BY.
//!
//! They say how rows are sorted within the partitions of a result, and which rows share one. A
//! result here is one sequence of rows: where it is sorted as a whole, each part of it is.

use datafusion::sql::sqlparser::ast::{
    OrderBy, OrderByExpr, OrderByKind, OrderByOptions, Query, SetExpr,
};

/// Makes an ORDER BY of these.
pub(crate) fn into_order(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_mut() else { return };
    select.distribute_by.clear();
    let options = OrderByOptions { asc: None, nulls_first: None };
    let clusters = std::mem::take(&mut select.cluster_by).into_iter();
    let clusters = clusters.map(|expr| OrderByExpr { expr, options, with_fill: None });
    let mut keys: Vec<OrderByExpr> = clusters.collect();
    keys.append(&mut select.sort_by);
    if query.order_by.is_none() && !keys.is_empty() {
        let kind = OrderByKind::Expressions(keys);
        query.order_by = Some(OrderBy { kind, interpolate: None });
    }
}
