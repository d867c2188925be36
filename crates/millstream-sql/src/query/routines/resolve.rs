//! How the tables of a function's body are found.

use std::collections::HashMap;

use datafusion::sql::sqlparser::ast::Query;

use super::super::prepared::{TableCatalog, TableRead};
use super::super::streams::{Mark, SubqueryWatermark};
use crate::diagnostic::Diagnostics;
use crate::syntax::lexer::Lexed;

/// Finds the tables that a query reads, and renames them. Views have functions put in by it, so it
/// is named by the caller.
pub(crate) type Resolve = fn(
    &Lexed,
    &mut Query,
    HashMap<usize, Mark>,
    &mut Vec<SubqueryWatermark>,
    &dyn TableCatalog,
    &[String],
) -> Result<Vec<TableRead>, Diagnostics>;
