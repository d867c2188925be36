//! What a query is run in: the catalog and the database that tables without these are in, the time
//! zone of the session, and the user.
//!
//! Catalog, database and zone are always the same here. Spark's user is that of the operating
//! system; here it is the one that the environment names.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use datafusion::common::Result;

use super::define::{Arguments, Function, returns_text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new("current_catalog", &[], returns_text, |args| constant(args, "spark_catalog")),
    Function::new("current_database", &[], returns_text, |args| constant(args, "default"))
        .aliases(&["current_schema"]),
    Function::new("current_timezone", &[], returns_text, |args| constant(args, "UTC")),
    Function::new("current_user", &[], returns_text, |args| constant(args, &user()))
        .aliases(&["session_user", "user"]),
];

fn constant(args: &Arguments, value: &str) -> Result<ArrayRef> {
    Ok(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, args.rows))))
}

/// Who runs this process, as a shell says it.
fn user() -> String {
    let names = ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let mut names = names.filter(|name| !name.is_empty());
    names.next().unwrap_or_else(|| "unknown".to_owned())
}
