//! The columns of inline tables, which are called `col1`, `col2` and so on where no alias names
//! them. DataFusion has other names for them.
//!
//! One in FROM gets an alias that names its columns. Any other, as one side of a UNION or all of a
//! query, becomes `SELECT *` from one that has such an alias.
//!
//! A STRUCT that is written out in the place of a row is one: `((1, 2))` and `(struct(1, 2))` have
//! two columns, as `(1, 2)` has.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, Values,
    VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{plain_alias, quoted_ident};
use super::rows::{query_around, query_of};

/// Names the columns of the inline tables in `query`.
pub(crate) fn name_columns(query: &mut Query) {
    let _: ControlFlow<()> = VisitMut::visit(query, &mut Rows);
    let mut naming = Naming { is_named: false, aliases: 0 };
    let _: ControlFlow<()> = VisitMut::visit(query, &mut naming);
}

/// Takes STRUCTs in the places of rows apart, which tells how many columns there are to name.
struct Rows;

impl VisitorMut for Rows {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let mut bodies = vec![query.body.as_mut()];
        while let Some(body) = bodies.pop() {
            match body {
                SetExpr::SetOperation { left, right, .. } => {
                    bodies.extend([&mut **left, &mut **right]);
                }
                SetExpr::Values(values) => {
                    for row in &mut values.rows {
                        if let [only] = row.content.as_slice()
                            && let Some(cells) = cells_of(only)
                        {
                            row.content = cells;
                        }
                    }
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }
}

/// The values of a STRUCT that is written out.
fn cells_of(value: &Expr) -> Option<Vec<Expr>> {
    let cell = |value: &Expr| match value {
        Expr::Named { expr, .. } => expr.as_ref().clone(),
        other => other.clone(),
    };
    match value {
        Expr::Nested(inner) => cells_of(inner),
        Expr::Tuple(values) => Some(values.clone()),
        Expr::Struct { values, fields } if fields.is_empty() && !values.is_empty() => {
            Some(values.iter().map(cell).collect())
        }
        _ => None,
    }
}

struct Naming {
    /// The query that is visited next is an inline table whose columns have names.
    is_named: bool,
    /// How many aliases were made.
    aliases: usize,
}

impl VisitorMut for Naming {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias, .. } = factor
            && subquery.order_by.is_none()
            && let SetExpr::Values(values) = subquery.body.as_ref()
        {
            if alias.as_ref().is_none_or(|alias| alias.columns.is_empty()) {
                let name = alias.take().map(|alias| alias.name);
                *alias = Some(self.alias(values, name));
            }
            self.is_named = true;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if std::mem::take(&mut self.is_named) {
            return ControlFlow::Continue(());
        }
        // The names of a set operation are those of its first query.
        let mut body = query.body.as_mut();
        while let SetExpr::SetOperation { left, .. } = body {
            body = left.as_mut();
        }
        if let SetExpr::Values(values) = body {
            let alias = self.alias(values, None);
            *body = selected(values.clone(), alias);
        }
        ControlFlow::Continue(())
    }
}

impl Naming {
    fn alias(&mut self, values: &Values, name: Option<Ident>) -> TableAlias {
        let name = name.unwrap_or_else(|| {
            self.aliases += 1;
            quoted_ident(format!("__values_{}", self.aliases), Span::empty())
        });
        let width = values.rows.first().map_or(0, |row| row.content.len());
        let columns = (1..=width).map(|at| TableAliasColumnDef {
            name: quoted_ident(format!("col{at}"), Span::empty()),
            data_type: None,
        });
        TableAlias { columns: columns.collect(), ..plain_alias(name) }
    }
}

/// `SELECT * FROM (VALUES ...) AS alias`
fn selected(values: Values, alias: TableAlias) -> SetExpr {
    let inner = Query { body: Box::new(SetExpr::Values(values)), ..query_of(vec![], vec![]) };
    let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
    *query_around(vec![all], inner, alias).body
}
