//! Why a query gives no rows.

use millstream_sql::diagnostic::Diagnostics;
use millstream_store::error::Failure;

/// Why a query gives no rows.
#[derive(Debug)]
pub enum QueryError {
    /// The query is wrong; points into its text.
    Sql(Diagnostics),
    /// What it reads, or what it needs, failed.
    Failure(Failure),
}

impl From<Diagnostics> for QueryError {
    fn from(found: Diagnostics) -> Self {
        Self::Sql(found)
    }
}

impl From<Failure> for QueryError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}
