//! What tests of several modules need: queries that read no tables.

use arrow::datatypes::SchemaRef;

use crate::diagnostic::{Diagnostic, Span};
use crate::query::prepared::{ReadMode, TableCatalog};

/// There are none.
pub(super) struct NoTables;

impl TableCatalog for NoTables {
    fn table(&self, _: &str) -> Option<String> {
        None
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn schema(&self, _: &str, _: ReadMode, span: Span) -> Result<SchemaRef, Diagnostic> {
        Err(Diagnostic::at(span, "there is no such table"))
    }
}
