//! The schema of `from_json` and its like where a call of `schema_of_json` or its like gives it:
//! the type of the result depends on it, so that it is written out before the query is planned.

use datafusion::sql::sqlparser::ast::{Expr, Function, Spanned};

use super::ast::{arguments_mut, function_name, text};
use super::shapes::schema_literal;

/// Puts the schema in the place of the call. A call that is wrong stays, and is complained about
/// where it is planned.
pub(super) fn write_out(function: &mut Function) {
    if !matches!(function_name(function).as_str(), "from_json" | "from_csv" | "from_xml") {
        return;
    }
    if let Some(schema) = arguments_mut(function).nth(1)
        && matches!(schema, Expr::Function(_))
        && let Some(ddl) = schema_literal(schema)
    {
        *schema = text(ddl, schema.span());
    }
}
