//! What a query is run in: the catalog and the database that tables without these are in, the time
//! zone of the session, the user, and the program.
//!
//! Catalog, database and zone are always the same here. Spark's user is that of the operating
//! system; here it is the one that the environment names, and without that the process's owner.

use std::os::unix::fs::MetadataExt;
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
    Function::new("version", &[], returns_text, |args| constant(args, VERSION)),
];

/// Not Spark's, which nobody could rely on here.
const VERSION: &str = concat!("Millstream ", env!("CARGO_PKG_VERSION"));

fn constant(args: &Arguments, value: &str) -> Result<ArrayRef> {
    Ok(Arc::new(StringArray::from_iter_values(std::iter::repeat_n(value, args.rows))))
}

/// Who runs this process, as a shell says it, or else as the operating system does.
fn user() -> String {
    let names = ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    let mut names = names.filter(|name| !name.is_empty());
    names.next().or_else(owner).unwrap_or_else(|| "unknown".to_owned())
}

/// The owner of this process, where files say who that is.
fn owner() -> Option<String> {
    let id = std::fs::metadata("/proc/self").ok()?.uid();
    name_of(id, &std::fs::read_to_string("/etc/passwd").ok()?)
}

/// The name of the user with a number, in lines of `name:password:number:...`.
fn name_of(id: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(id) && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_numbers() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n\n# local\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("ada"));
        assert_eq!(name_of(100, users), None);
    }
}
