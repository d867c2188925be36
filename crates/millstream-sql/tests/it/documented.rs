//! The reference page of functions and the registered functions agree.

use std::collections::HashSet;

use datafusion::prelude::SessionConfig;
use millstream_sql::functions::BatchClock;
use millstream_sql::session::session;

/// What the page names that is syntax, not a function.
const SYNTAX: &[&str] = &[
    "count_if",
    "extract",
    "nullifzero",
    "percentile_disc",
    "timediff",
    "timestampadd",
    "timestampdiff",
    "zeroifnull",
];

#[test]
fn every_documented_function_exists() {
    let state = session(SessionConfig::new(), &BatchClock::default()).state();
    let mut known: HashSet<&str> = state.scalar_functions().keys().map(String::as_str).collect();
    known.extend(state.aggregate_functions().keys().map(String::as_str));
    known.extend(state.higher_order_functions().keys().map(String::as_str));
    let documented = documented();
    assert!(documented.len() > 150, "the page is not read rightly: {documented:?}");
    let is_missing =
        |name: &&String| !known.contains(name.as_str()) && !SYNTAX.contains(&name.as_str());
    let missing: Vec<_> = documented.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "documented and not there: {missing:?}");
}

/// The names in the first columns of the tables, and in the section that is a list of names.
fn documented() -> Vec<String> {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let path = std::path::Path::new(&here).join("../../docs/reference/functions.md");
    let page = std::fs::read_to_string(path).expect("the reference page can be read");
    let mut names = Vec::new();
    let mut is_list = false;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            is_list = title == "Conditions";
        }
        let cell = match line.strip_prefix("| ") {
            Some(row) => row.split(" | ").next().unwrap_or_default(),
            None if is_list => line,
            None => continue,
        };
        let quoted = cell.split('`').skip(1).step_by(2);
        let name = |code: &str| code.split('(').next().unwrap_or_default().to_owned();
        let is_name = |name: &String| {
            let plain =
                |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_';
            name.starts_with(|char: char| char.is_ascii_lowercase()) && name.chars().all(plain)
        };
        names.extend(quoted.map(name).filter(is_name));
    }
    names
}
