//! Columns with the schema of their table before them: `default.t.a`, and with the catalog before
//! that `spark_catalog.default.t.a`.
//!
//! To DataFusion a table that has no schema is in any, so that it would take `nope.t.a` for `t.a`.

use datafusion::sql::sqlparser::ast::Ident;

use super::frame::Frame;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// The catalog and the schema that tables are in.
const OWN: [&str; 2] = ["spark_catalog", "default"];

/// How many parts of a name are those of the catalog and the schema; the name as it stands is none
/// of what `frames` have.
///
/// # Errors
/// A schema before the name of a relation that is in no such schema.
pub(super) fn before(
    lexed: &Lexed,
    frames: &[Frame],
    parts: &[Ident],
) -> Result<usize, Diagnostic> {
    let are = |names: &[&str]| {
        let mut pairs = names.iter().zip(parts);
        parts.len() > names.len() && pairs.all(|(name, part)| part.value.eq_ignore_ascii_case(name))
    };
    let is_there = |count: usize| parts.get(count..).is_some_and(|rest| is_column(frames, rest));
    for own in [&OWN[..], &OWN[1..]] {
        if are(own) && is_there(own.len()) {
            return Ok(own.len());
        }
    }
    let Some(count) = [1, 2].into_iter().find(|count| is_there(*count)) else { return Ok(0) };
    let written = |parts: &[Ident]| {
        let parts: Vec<&str> = parts.iter().map(|part| part.value.as_str()).collect();
        parts.join(".")
    };
    let message = format!(
        "there is no table `{}` here, and no column `{}`",
        written(&parts[..=count]),
        parts[0].value
    );
    let diagnostic =
        Diagnostic::nowhere(message).help(format!("write {}", written(&parts[count..])));
    Err(Diagnostic { span: lexed.span(parts[0].span), ..diagnostic })
}

/// Whether `parts` are the name of a relation and that of a column of it, or of one that could be.
fn is_column(frames: &[Frame], parts: &[Ident]) -> bool {
    let [table, column, ..] = parts else { return false };
    frames.iter().filter_map(|frame| frame.relation(&table.value)).any(|relation| {
        let mut columns = relation.columns.iter().flatten();
        relation.columns.is_none()
            || columns.any(|known| known.name.eq_ignore_ascii_case(&column.value))
    })
}
