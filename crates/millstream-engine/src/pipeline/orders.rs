//! ORDER BY and LIMIT over a stream: they need all rows of the result, and only the output mode
//! `complete` has these, each time a micro-batch has rows.

use millstream_sql::diagnostic::Diagnostics;
use millstream_sql::query::prepared::PreparedQuery;

use crate::api::settings::OutputMode;

/// Refuses the ORDER BY and LIMIT of a flow's `queries` that its output mode does not have.
pub(super) fn check<'a>(
    mode: OutputMode,
    queries: impl Iterator<Item = &'a PreparedQuery>,
) -> Result<(), Diagnostics> {
    if mode == OutputMode::Complete {
        return Ok(());
    }
    Diagnostics(queries.flat_map(|query| query.orders.iter().cloned()).collect()).into_result()
}
