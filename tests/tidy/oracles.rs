//! Files of expected results say who confirmed them. Most of them can be written anew by one
//! variable in the environment, and then they have what the engine gives, right or wrong.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{files, place, report, root};

/// Formats of expected results, whose first line is a comment with the oracle.
const FORMATS: [&str; 3] = ["slt", "golden", "txt"];
/// The beginning of that line. What follows is the oracle, a colon, and how it confirmed them; or
/// `none` and what stands in its place.
const ORACLE: &str = "# Oracle: ";
/// The same in the page of a directory whose results are data, without comments.
const ORACLE_OF_DATA: &str = "Oracle: ";

#[test]
fn expected_results_say_who_confirmed_them() {
    let mut complaints = Vec::new();
    for (path, text) in FORMATS.into_iter().flat_map(files) {
        let is_expected = path.extension().is_none_or(|format| format != "txt")
            || path.parent().is_some_and(|parent| parent.ends_with("testdata"));
        let first = text.lines().next().unwrap_or_default();
        if is_expected && !names_an_oracle(first, ORACLE) {
            complaints.push(format!("{}: begin with `{ORACLE}WHO: HOW`", place(&path, 0)));
        }
    }
    let directories = directories_of_expected_data();
    assert!(!directories.is_empty(), "the walk looks in the wrong place");
    for directory in directories {
        let page = page_of(&directory);
        let text = page.as_ref().and_then(|page| fs::read_to_string(page).ok()).unwrap_or_default();
        if !text.lines().any(|line| names_an_oracle(line, ORACLE_OF_DATA)) {
            let directory = place(&directory, 0);
            complaints
                .push(format!("{directory}: no README.md has a line `{ORACLE_OF_DATA}WHO: HOW`"));
        }
    }
    report(&complaints);
}

fn names_an_oracle(line: &str, begin: &str) -> bool {
    let named = line.strip_prefix(begin).and_then(|rest| rest.split_once(": "));
    named.is_some_and(|(who, how)| !who.trim().is_empty() && !how.trim().is_empty())
}

/// The directories `expected` of examples and tests.
fn directories_of_expected_data() -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![root().join("examples"), root().join("tests")]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("the repository is readable") {
            let path = entry.expect("the repository is readable").path();
            if path.is_dir() && path.ends_with("expected") {
                found.push(path);
            } else if path.is_dir() {
                left.push(path);
            }
        }
    }
    found
}

/// The nearest page above a directory.
fn page_of(directory: &Path) -> Option<PathBuf> {
    let above = directory.ancestors().take_while(|path| **path != *root());
    above.map(|path| path.join("README.md")).find(|page| page.exists())
}
