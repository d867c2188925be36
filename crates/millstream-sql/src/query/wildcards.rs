//! `* EXCEPT (...)`, and `* REPLACE (...)`, which `|> SET` stands for.

use datafusion::sql::sqlparser::ast::{ReplaceSelectElement, WildcardAdditionalOptions};

use super::frame::{Column, Frame};
use super::numbers::as_int;
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Gives the columns that are named their declared spelling.
pub(crate) fn spell(
    lexed: &Lexed,
    frame: &Frame,
    options: &mut WildcardAdditionalOptions,
) -> Result<(), Diagnostic> {
    for item in options.opt_replace.iter_mut().flat_map(|replace| &mut replace.items) {
        spell_replaced(lexed, frame, item)?;
    }
    let Some(except) = &mut options.opt_except else { return Ok(()) };
    let names = std::iter::once(&mut except.first_element).chain(&mut except.additional_elements);
    for name in names {
        if let Some(found) = frame.resolve(std::slice::from_ref(name)) {
            name.value = found.parts[0].clone();
        }
    }
    Ok(())
}

/// DataFusion replaces all columns of the name, and passes over one that is not there.
fn spell_replaced(
    lexed: &Lexed,
    frame: &Frame,
    item: &mut ReplaceSelectElement,
) -> Result<(), Diagnostic> {
    let name = item.column_name.value.clone();
    let columns = frame.relations.iter().flat_map(|relation| relation.columns.iter().flatten());
    let named = columns.filter(|column| column.name.eq_ignore_ascii_case(&name));
    let named: Vec<&Column> = named.collect();
    let [column] = named.as_slice() else {
        let message = match named.len() {
            0 => format!("there is no column `{name}` that is known here"),
            _ => format!("`{name}` is more than one column here"),
        };
        let help = "SET gives a column another value; |> EXTEND adds one, and |> SELECT names all";
        let span = lexed.span(item.column_name.span);
        return Err(Diagnostic { span, ..Diagnostic::nowhere(message).help(help) });
    };
    item.column_name.value.clone_from(&column.name);
    as_int(&mut item.expr);
    Ok(())
}
