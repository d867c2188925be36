//! What `*` stands for: `* EXCEPT (...)`, and `* REPLACE (...)`, which `|> SET` is.

use arrow::datatypes::Fields;
use datafusion::sql::sqlparser::ast::{
    ExceptSelectItem, Expr, Ident, ReplaceSelectElement, SelectItem, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use super::ast::{qualified, quoted_ident};
use super::casts::as_int;
use super::frame::{Column, Frame, Relation, Visible};
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
    check_brackets(lexed, except)?;
    let names = std::iter::once(&mut except.first_element).chain(&mut except.additional_elements);
    for name in names {
        if let Some(found) = frame.resolve(std::slice::from_ref(name)) {
            name.value = found.parts[0].clone();
        }
    }
    Ok(())
}

/// What `.*` stands for behind the column or field `path`, a STRUCT of these fields.
pub(super) fn of_struct(
    path: &[Ident],
    fields: &Fields,
    options: &WildcardAdditionalOptions,
) -> Vec<SelectItem> {
    let kept = fields.iter().filter(|field| !excepts(options, field.name()));
    let items = kept.map(|field| {
        let alias = quoted_ident(field.name().clone(), path[0].span);
        let path = path.iter().cloned().chain([alias.clone()]);
        SelectItem::ExprWithAlias { expr: Expr::CompoundIdentifier(path.collect()), alias }
    });
    items.collect()
}

/// `* EXCEPT (a)` has brackets.
fn check_brackets(lexed: &Lexed, except: &ExceptSelectItem) -> Result<(), Diagnostic> {
    let Some(first) = lexed.span(except.first_element.span) else { return Ok(()) };
    let mut before = lexed.lexemes.iter().rev();
    let before = before.find(|lexeme| lexeme.span.end <= first.start);
    // Before the names of `|> DROP` and PIVOT, which stand for an EXCEPT, are other words.
    if before.is_some_and(|before| before.is_word("EXCEPT")) {
        let help = format!("write * EXCEPT ({})", except.first_element.value);
        return Err(Diagnostic::at(first, "EXCEPT in a SELECT list needs brackets").help(help));
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

/// Whether `* EXCEPT (...)` leaves a column out.
pub(crate) fn excepted(options: &WildcardAdditionalOptions, column: &Column) -> bool {
    excepts(options, &column.name)
}

/// Whether `* EXCEPT (...)` leaves out what is called `column`.
pub(crate) fn excepts(options: &WildcardAdditionalOptions, column: &str) -> bool {
    options.opt_except.as_ref().is_some_and(|except| {
        std::iter::once(&except.first_element)
            .chain(&except.additional_elements)
            .any(|name| name.value.eq_ignore_ascii_case(column))
    })
}

/// The columns of `t.*` where `t` is part of a NATURAL JOIN, whose query DataFusion would take for
/// one without those of them that the join compares.
pub(crate) fn of_natural_join(
    frame: &Frame,
    relation: &Relation,
    options: &WildcardAdditionalOptions,
) -> Option<Vec<SelectItem>> {
    if frame.merged.is_some() || options.opt_replace.is_some() {
        return None;
    }
    let (name, columns) = (relation.name.as_ref()?, relation.columns.as_ref()?);
    let kept = columns.iter().filter(|column| !excepted(options, column));
    Some(kept.map(|column| SelectItem::UnnamedExpr(qualified(name, &column.name))).collect())
}

/// The columns of `v.*` and `t.*` where one subquery has those of the table `t` and those of its
/// LATERAL VIEW `v`. Over a stream `t.*` keeps the columns that it had, which are all of them.
pub(super) fn of_lateral_view(
    frame: &Frame,
    relation: &Relation,
    options: &WildcardAdditionalOptions,
    is_batch: bool,
) -> Option<Vec<SelectItem>> {
    let has_views = frame.relations.iter().any(|other| other.within.is_some());
    let is_part = relation.within.is_some() || (is_batch && has_views);
    if !is_part || options.opt_replace.is_some() {
        return None;
    }
    let subquery = relation.within.as_ref().or(relation.name.as_ref())?;
    let columns = relation.columns.iter().flatten();
    let kept = columns.filter(|column| !excepted(options, column));
    let items = kept.map(|column| SelectItem::UnnamedExpr(qualified(subquery, &column.name)));
    relation.columns.as_ref().map(|_| items.collect())
}

/// The expression that takes the place of a column.
pub(crate) fn replacement<'a>(
    options: &'a WildcardAdditionalOptions,
    column: &str,
) -> Option<&'a Expr> {
    let mut items = options.opt_replace.iter().flat_map(|replace| &replace.items);
    let item = items.find(|item| item.column_name.value.eq_ignore_ascii_case(column));
    item.map(|item| &item.expr)
}

impl Frame {
    /// The items that `*` stands for, where joins make columns that DataFusion would not.
    pub(super) fn all_items(&self, options: &WildcardAdditionalOptions) -> Option<Vec<SelectItem>> {
        let visible = self.visible.as_ref()?;
        // Beside semi joins alone each is a column of its table as it is.
        let are_plain = self.merged.as_ref().is_some_and(Vec::is_empty);
        let kept = visible.iter().filter(|one| !excepted(options, &one.column));
        let item = |one: &Visible| {
            let replacement = replacement(options, &one.column.name);
            let expr = replacement.unwrap_or(&one.value).clone();
            if (are_plain || !one.is_merged) && replacement.is_none() {
                return SelectItem::UnnamedExpr(expr);
            }
            let alias = quoted_ident(one.column.name.clone(), Span::empty());
            SelectItem::ExprWithAlias { expr, alias }
        };
        Some(kept.map(item).collect())
    }
}
