//! The reference pages of functions and the registered functions agree.
//!
//! `functions.md` is written by hand: what it names has to exist. `function-list.md` is written
//! here, from the examples in `tests/slt`, the list of Spark's functions, and the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::prelude::SessionConfig;
use millstream_sql::functions::BatchClock;
use millstream_sql::query::routines::built_in::WORDS;
use millstream_sql::session::session;

use crate::examples::{Example, examples};

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

/// Functions without an example here, since Spark needs another jar for them. Their tests are those
/// of the module that they are in.
const IN_ANOTHER_JAR: [&str; 2] = ["from_protobuf", "to_protobuf"];

/// Writes the list of functions.
const REWRITE: &str = "MILLSTREAM_FUNCTIONS_REWRITE";

/// Columns of the list's text.
const COLUMNS: usize = 100;

#[test]
fn every_documented_function_exists() {
    let known = registered(&state());
    let documented = documented();
    assert!(documented.len() > 150, "the page is not read rightly: {documented:?}");
    let is_missing =
        |name: &&String| !known.contains(name.as_str()) && !SYNTAX.contains(&name.as_str());
    let missing: Vec<_> = documented.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "documented and not there: {missing:?}");
}

#[test]
fn every_function_of_spark_has_an_example() {
    let (known, sparks, examples) = (registered(&state()), sparks(), examples());
    let mut complaints: Vec<_> =
        examples.iter().filter_map(|example| complaint(example, &known, &sparks)).collect();
    for pair in examples.windows(2).filter(|pair| pair[0].name == pair[1].name) {
        complaints.push(format!("{}: there are two examples", pair[0].name));
    }
    let has_example = |name: &str| examples.iter().any(|example| example.name == name);
    let without: BTreeSet<&str> = IN_ANOTHER_JAR.into_iter().collect();
    for name in sparks.keys().filter(|name| known.contains(*name)) {
        if !has_example(name) && !without.contains(name.as_str()) {
            complaints.push(format!("{name}: Spark's and registered, without an example"));
        }
    }
    for name in without {
        if has_example(name) || !known.contains(name) {
            complaints.push(format!("{name}: in a list of what has no example, for no reason"));
        }
    }
    for name in WORDS.iter().filter(|name| !has_example(name)) {
        complaints.push(format!("{name}: in the list of words, without an example"));
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn the_list_of_functions_is_that_of_the_registry() {
    let page = page();
    let path = repository().join("docs/reference/function-list.md");
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).expect("the page can be read");
    let is_different = |(found, wanted): &(&str, &str)| found != wanted;
    let first = found.lines().zip(page.lines()).find(is_different);
    assert!(
        found == page,
        "{} is old; {REWRITE}=1 writes it. The first difference: {first:?}",
        path.display(),
    );
}

fn state() -> SessionState {
    session(SessionConfig::new(), &BatchClock::default()).state()
}

/// The names of all functions.
fn registered(state: &SessionState) -> BTreeSet<String> {
    let names = state.scalar_functions().keys();
    let names = names.chain(state.aggregate_functions().keys());
    let names = names.chain(state.higher_order_functions().keys());
    let names = names.chain(state.window_functions().keys());
    names.chain(state.table_functions().keys()).cloned().collect()
}

/// What is wrong with an example; that its result is right, another test says.
fn complaint(
    example: &Example,
    known: &BTreeSet<String>,
    sparks: &BTreeMap<String, Option<String>>,
) -> Option<String> {
    let name = example.name.as_str();
    let is_word = name.starts_with(|char: char| char.is_ascii_alphabetic());
    match sparks.get(name) {
        None => return Some(format!("{name}: an example of what Spark has not")),
        Some(Some(kind)) => return Some(format!("{name}: left out as {kind}, with an example")),
        Some(None) => {}
    }
    if is_word && !known.contains(name) && !WORDS.contains(&name) {
        return Some(format!("{name}: an example of what is not there"));
    }
    (!example.has_its_function()).then(|| format!("{name}: not in its example"))
}

/// Spark's functions, and of what is left out on purpose the kind.
fn sparks() -> BTreeMap<String, Option<String>> {
    let path = repository().join("tests/spark/functions.txt");
    let text = std::fs::read_to_string(path).expect("there is a list of Spark's functions");
    let lines = text.lines().filter(|line| !line.starts_with("# "));
    let sparks: BTreeMap<_, _> = lines
        .map(|line| match line.split_once(' ') {
            Some((name, kind)) => (name.to_owned(), Some(kind.to_owned())),
            None => (line.to_owned(), None),
        })
        .collect();
    assert!(sparks.len() > 500, "the list is not read rightly: {sparks:?}");
    sparks
}

/// What `function-list.md` has to be.
fn page() -> String {
    let (sparks, examples) = (sparks(), examples());
    let shown: BTreeSet<&str> = examples.iter().map(|example| example.name.as_str()).collect();
    let wanted = sparks.iter().filter(|(_, kind)| kind.is_none()).map(|(name, _)| name);
    let missing = wanted
        .filter(|name| !shown.contains(name.as_str()) && !IN_ANOTHER_JAR.contains(&name.as_str()));
    let theirs = registered(&SessionStateBuilder::new_with_default_features().build());
    let known = registered(&state());
    let theirs = theirs.iter().filter(|name| known.contains(*name) && !sparks.contains_key(*name));
    let rows: String = examples.iter().map(row).collect();
    format!(
        "{HEAD}{rows}{MISSING}{missing}{THEIRS}{theirs}",
        missing = listed(missing),
        theirs = listed(theirs)
    )
}

const HEAD: &str = "\
# List of functions

<!-- Tests of millstream-sql write this page with MILLSTREAM_FUNCTIONS_REWRITE=1. -->

The functions and operators of Spark 4.2 that are here, each with an example. Millstream's tests and
Spark itself run the examples, which are in `tests/slt/examples_*.slt`, and both give these results.
What differs for other arguments is in the notes of [functions](functions.md), which also has
`from_protobuf`, `to_protobuf` and what is not in Spark.

| name | example | result |
| --- | --- | --- |
";

const MISSING: &str = "
## Functions of Spark that are missing

A call of one of them is an error, or has the meaning that
[DataFusion](https://datafusion.apache.org/user-guide/sql/index.html) gives to the name. Not in this
list are functions of other sketches, of geospatial values, and those that call Java; Millstream has
none of them.

";

const THEIRS: &str = "
## Functions of DataFusion

These are not in Spark. They work with the meaning that DataFusion's
[documentation](https://datafusion.apache.org/user-guide/sql/index.html) gives, and have no tests
here.

";

/// The row of an example in the table.
fn row(example: &Example) -> String {
    let rows: Vec<String> = example.rows.iter().map(|row| code(row)).collect();
    format!("| {} | {} | {} |\n", code(&example.name), code(&example.query), rows.join("<br>"))
}

/// Text as code in a cell of a table, where a bar would end the cell.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('|', "\\|"))
}

/// Names with commas between them, in lines that are not too long.
fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for name in names {
        let name = format!("`{name}`,");
        let gap = match column {
            0 => "",
            _ if column + name.len() < COLUMNS => " ",
            _ => "\n",
        };
        column = name.len() + if gap == "\n" { 0 } else { column + gap.len() };
        text.push_str(gap);
        text.push_str(&name);
    }
    format!("{}.\n", text.trim_end_matches(','))
}

fn repository() -> PathBuf {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    PathBuf::from(here).join("../..")
}

/// The names in the first columns of the tables, and in the section that is a list of names.
fn documented() -> Vec<String> {
    let path = repository().join("docs/reference/functions.md");
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
