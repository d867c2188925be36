//! Names of fields that DataFusion does not read as they are meant: of the structs in an array, of
//! a column of a query around the one that they stand in, and those like `t.u.a` where there is a
//! table `u` with a column `a` as well, which it would take for that of a schema `t`. They become
//! calls.

use datafusion::sql::sqlparser::ast::{Expr, Ident};

use super::ast::nested_calls;
use super::frame::{Column, Frame};

/// The calls that take the place of `parts`, a name of a column of `frame` or of fields in it; none
/// where DataFusion reads the name. `frames` are those in sight, the innermost last, and `array_at`
/// says how many parts are the name of an array of structs.
pub(super) fn in_calls(
    frames: &[Frame],
    frame: &Frame,
    parts: &[Ident],
    array_at: Option<usize>,
) -> Option<Expr> {
    let (function, at) = match array_at {
        Some(at) => ("field_of", at),
        None => ("get_field", other_column(frames, frame, parts)?),
    };
    let (of, fields) = parts.split_at_checked(at)?;
    let of = match of {
        [only] => Expr::Identifier(only.clone()),
        several => Expr::CompoundIdentifier(several.to_vec()),
    };
    Some(nested_calls(function, of, fields.to_vec()))
}

/// How many parts are the name of a column, where the others are read otherwise.
fn other_column(frames: &[Frame], frame: &Frame, parts: &[Ident]) -> Option<usize> {
    // A column of a LATERAL VIEW has the name of the subquery that makes its rows by now.
    let is_table = |name: &str| {
        let mut subqueries = frame.relations.iter().filter_map(|one| one.within.as_deref());
        frame.relation(name).is_some() || subqueries.any(|within| within == name)
    };
    let length = 1 + usize::from(parts.len() > 1 && is_table(&parts[0].value));
    let is_outer = !std::ptr::eq(frames.last()?, frame);
    (length < parts.len() && (is_outer || is_of_schema(frames, parts))).then_some(length)
}

/// Whether DataFusion would take the first part for a schema, or the first two for a catalog and a
/// schema: a table is called by the next part, and one of its columns by that behind it.
fn is_of_schema(frames: &[Frame], parts: &[Ident]) -> bool {
    let is_column = |table: &Ident, column: &Ident| {
        frames.iter().filter_map(|frame| frame.relation(&table.value)).any(|relation| {
            let is_meant = |known: &Column| known.name.eq_ignore_ascii_case(&column.value);
            relation.columns.as_ref().is_none_or(|columns| columns.iter().any(is_meant))
        })
    };
    let mut pairs = parts.windows(2).skip(1).take(2);
    pairs.any(|pair| is_column(&pair[0], &pair[1]))
}
