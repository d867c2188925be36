//! Columns of INTERVALs in inline tables.
//!
//! DataFusion takes such a column only where the types of all its cells say the same fields. In
//! Spark the column has the fields of all of them, from the largest to the smallest. So each cell
//! gets these, and a NULL too.

use datafusion::sql::sqlparser::ast::{Expr, SetExpr, Spanned, Value, ValueWithSpan, Values};

use super::ast::{arguments, call, function_name, text};
use crate::values::interval_literal::{INTERVAL_OF, NO_COUNT, common_fields};

/// Gives the cells of each column of INTERVALs the same fields, once they are calls of
/// [`INTERVAL_OF`].
pub(super) fn alike(body: &mut SetExpr) {
    let mut bodies = vec![body];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::SetOperation { left, right, .. } => bodies.extend([&mut **left, &mut **right]),
            SetExpr::Values(values) => alike_in(values),
            _ => {}
        }
    }
}

fn alike_in(values: &mut Values) {
    let width = values.rows.iter().map(|row| row.content.len()).min().unwrap_or(0);
    for column in 0..width {
        let cells = values.rows.iter().map(|row| &row.content[column]);
        let mut fields = cells.filter_map(parts).map(|(_, fields)| fields);
        let Some(first) = fields.next() else { continue };
        let common = fields.try_fold(first, |all, more| common_fields(&all, &more));
        let Some(common) = common else { continue };
        for row in &mut values.rows {
            let cell = &mut row.content[column];
            let count = match parts(cell) {
                Some((count, _)) => count,
                None if is_null(cell) => NO_COUNT.to_owned(),
                None => continue,
            };
            let span = cell.span();
            *cell = call(INTERVAL_OF, vec![text(count, span), text(common.clone(), span)], span);
        }
    }
}

/// The count and the fields of an INTERVAL.
fn parts(cell: &Expr) -> Option<(String, String)> {
    let Expr::Function(function) = cell else { return None };
    if function_name(function) != INTERVAL_OF {
        return None;
    }
    let mut texts = arguments(function).map(|argument| match argument {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => {
            Some(text.clone())
        }
        _ => None,
    });
    let found = (texts.next()??, texts.next()??);
    texts.next().is_none().then_some(found)
}

fn is_null(cell: &Expr) -> bool {
    matches!(cell, Expr::Value(ValueWithSpan { value: Value::Null, .. }))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Parens;
    use datafusion::sql::sqlparser::tokenizer::Span;

    use super::*;

    fn interval(count: &str, fields: &str) -> Expr {
        let text = |content: &str| text(content.to_owned(), Span::empty());
        call(INTERVAL_OF, vec![text(count), text(fields)], Span::empty())
    }

    fn column(cells: Vec<Expr>) -> Values {
        let row = |cell: Expr| Parens::with_empty_span(vec![cell]);
        let rows = cells.into_iter().map(row).collect();
        Values { explicit_row: false, value_keyword: false, rows }
    }

    #[test]
    fn cells_of_a_column_get_the_fields_of_all() {
        let null = Expr::Value(ValueWithSpan { value: Value::Null, span: Span::empty() });
        let mut values = column(vec![interval("1", "day"), null.clone(), interval("2", "minute")]);
        alike_in(&mut values);
        let all = "day to minute";
        let wanted = [interval("1", all), interval(NO_COUNT, all), interval("2", all)];
        let found: Vec<&Expr> = values.rows.iter().map(|row| &row.content[0]).collect();
        assert_eq!(found, wanted.iter().collect::<Vec<_>>());
        // Months and days have no common fields, and a column without an INTERVAL is none of them.
        for cells in [vec![interval("1", "day"), interval("1", "month")], vec![null]] {
            let mut values = column(cells.clone());
            alike_in(&mut values);
            assert_eq!(values.rows[0].content[0], cells[0]);
        }
    }
}
