//! How the tables of a function's body are found.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use datafusion::sql::sqlparser::ast::Query;

use super::super::prepared::{TableCatalog, TableRead};
use super::super::streams::{Mark, SubqueryWatermark};
use crate::diagnostic::Diagnostics;
use crate::syntax::lexer::Lexed;

/// The functions in whose bodies a query stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Within {
    /// Outermost first, in lower case.
    pub(super) names: Vec<String>,
    /// How many bodies were read so far: all clones count together, since functions and views that
    /// read each other are read again in each of these places.
    pub(super) readings: Rc<Cell<usize>>,
}

/// Finds the tables that a query reads, and renames them. Views have functions put in by it, so it
/// is named by the caller.
pub(crate) type Resolve = fn(
    &Lexed,
    &mut Query,
    HashMap<usize, Mark>,
    &mut Vec<SubqueryWatermark>,
    &dyn TableCatalog,
    &Within,
) -> Result<Vec<TableRead>, Diagnostics>;
