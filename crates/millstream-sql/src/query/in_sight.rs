//! What an expression means by the columns in sight, before it is looked at by itself.

use datafusion::sql::sqlparser::ast::Expr;

use super::frame::Frame;
use super::settings::Settings;
use super::{aggregates, blocks, grouping, legacy, window_calls};
use crate::diagnostic::Diagnostic;
use crate::syntax::lexer::Lexed;

/// Rewrites one expression; those within it are not looked at.
pub(super) fn rewrite(
    lexed: &Lexed,
    frame: &Frame,
    settings: Settings,
    expr: &mut Expr,
) -> Result<(), Diagnostic> {
    window_calls::put_in(lexed, frame, expr)?;
    legacy::rewrite(settings, expr);
    grouping::named_id(frame, expr);
    window_calls::fields_of_values(lexed, expr)?;
    if let Expr::Function(function) = expr {
        aggregates::columns_of_tables(frame, function, settings.counts_columns_of_one_table);
        grouping::check_call(lexed, frame, function)?;
        blocks::named_window(lexed, function)?;
    }
    Ok(())
}
