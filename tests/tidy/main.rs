//! The repository checks itself: what a reviewer would say mechanically, a test says instead.
//!
//! An exception is a line in a list below, with its reason.

mod imports;
mod layers;
mod oracles;
mod runner;

use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

/// Functions that may be longer than a screen.
const LONG_FUNCTIONS: &[(&str, &str, &str)] = &[];

/// Files that may be longer than the limit: tests grow by cases, not by ideas.
fn may_be_long(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Lines of the check in the command; experiments are `millstream-bench`.
const CHECK_LINES_MAX: usize = 600;

/// What only benchmarks and tests need, and no crate of the product depends on.
const NOT_IN_THE_PRODUCT: &[&str] =
    &["millstream-bench", "millstream-testkit", "millstream-fuzz", "nexmark"];

/// Words that must stand nowhere, split here so that this file passes its own test.
const BANNED: &[(&str, &str)] = &[
    (concat!("todo", "!("), "finish it, or leave it out"),
    (concat!("unimplemented", "!("), "finish it, or leave it out"),
    (concat!("#[ig", "nore"), "a test runs or does not exist"),
    (concat!("dbg", "!("), "use tracing"),
    (concat!("../sha", "red"), "the project stands alone"),
    (concat!("/wo", "rk/"), "no paths of one machine"),
    (concat!("struct Ba", "tch "), "say micro-batch or record batch"),
];

fn root() -> PathBuf {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let store = Path::new(&here);
    store.ancestors().nth(2).expect("crates/<crate> stands two levels down").to_owned()
}

fn files(extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("the repository is readable") {
            let path = entry.expect("the repository is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    directories.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).expect("source files are UTF-8");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "no .{extension} file found: the walk looks in the wrong place");
    found
}

fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

fn place(path: &Path, line: usize) -> String {
    format!("{}:{}", path.strip_prefix(root()).unwrap_or(path).display(), line + 1)
}

#[test]
fn lines_are_short_and_banned_words_stand_nowhere() {
    let mut complaints = Vec::new();
    for (path, text) in files("rs") {
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !has_text(line) {
                complaints.push(format!("{}: {columns} columns", place(&path, number)));
            }
            for (word, instead) in BANNED {
                if line.contains(word) {
                    complaints.push(format!("{}: {word} ({instead})", place(&path, number)));
                }
            }
        }
    }
    report(&complaints);
}

/// Texts stand on one line, so that a search for their words finds them.
fn has_text(line: &str) -> bool {
    line.contains('"') || line.trim_end().ends_with('\\')
}

#[test]
fn files_and_functions_have_a_readable_size() {
    let mut complaints = Vec::new();
    for (path, text) in files("rs") {
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > FILE_LINES_MAX && !may_be_long(&path) {
            complaints.push(format!("{}: {} lines", place(&path, 0), lines.len()));
        }
        for (number, name, length) in functions(&lines) {
            let file = path.to_string_lossy();
            let excepted = |(known, function, _): &(&str, &str, &str)| {
                file.ends_with(known) && name == *function
            };
            let allowed = LONG_FUNCTIONS.iter().any(excepted) || may_be_long(&path);
            if length > FUNCTION_LINES_MAX && !allowed {
                complaints.push(format!("{}: {name} has {length} lines", place(&path, number)));
            }
        }
    }
    report(&complaints);
}

/// Functions as rustfmt lays them out: from the line with `fn` to the closing brace below it.
fn functions<'a>(lines: &[&'a str]) -> Vec<(usize, &'a str, usize)> {
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let code = line.trim_start();
        let modifiers = ["pub ", "pub(crate) ", "pub(super) ", "async ", "const ", "unsafe "];
        let rest =
            modifiers.iter().fold(code, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        let Some(signature) = rest.strip_prefix("fn ") else { continue };
        let name = signature.split(['(', '<']).next().unwrap_or(signature);
        let body = lines[number..].iter().find(|line| line.ends_with(['{', ';', '}']));
        if body.is_none_or(|line| !line.ends_with('{')) {
            continue;
        }
        let closing = format!("{}}}", " ".repeat(indent));
        let end = lines[number..].iter().position(|line| *line == closing);
        found.push((number, name, end.unwrap_or(0)));
    }
    found
}

/// The manifests in `crates`, without what their tests depend on.
fn product_manifests() -> Vec<(PathBuf, String)> {
    let in_product = |path: &Path| path.starts_with(root().join("crates"));
    let manifests = files("toml").into_iter().filter(|(path, _)| in_product(path));
    let for_users = |text: String| text.split("[dev-dependencies]").next().map(str::to_owned);
    manifests.map(|(path, text)| (path, for_users(text).unwrap_or_default())).collect()
}

#[test]
fn the_product_has_no_benchmarks_in_it() {
    let mut complaints = Vec::new();
    for (path, manifest) in product_manifests() {
        for name in NOT_IN_THE_PRODUCT {
            if manifest.lines().any(|line| line.starts_with(&format!("{name} "))) {
                complaints.push(format!("{} depends on {name}", place(&path, 0)));
            }
        }
    }
    let kit = fs::read_to_string(root().join("testkit/Cargo.toml")).expect("there is a kit");
    if kit
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .any(|line| line.contains("millstream"))
    {
        complaints.push("testkit depends on the product, whose tests depend on it".to_owned());
    }
    let check = root().join("crates/millstream/src/bench");
    let of_check = files("rs").into_iter().filter(|(path, _)| path.starts_with(&check));
    let lines: usize = of_check.map(|(_, text)| text.lines().count()).sum();
    if !(1..CHECK_LINES_MAX).contains(&lines) {
        complaints.push(format!("`millstream bench` has {lines} lines: move experiments to bench"));
    }
    report(&complaints);
}

#[test]
fn every_module_says_what_it_is() {
    let mut complaints = Vec::new();
    for (path, text) in files("rs") {
        let first = text.lines().next().unwrap_or_default();
        if !first.starts_with("//!") && !path.ends_with("tests.rs") {
            complaints.push(format!("{}: no module documentation", place(&path, 0)));
        }
    }
    report(&complaints);
}

#[test]
fn a_module_with_children_is_a_file_in_their_directory() {
    let mut complaints = Vec::new();
    for (path, _) in files("rs") {
        if path.with_extension("").is_dir() {
            let file = place(&path, 0);
            complaints.push(format!("{file}: there is a directory of this name; move it there"));
        }
    }
    report(&complaints);
}

#[test]
fn files_of_tests_are_recognisable_by_name() {
    let mut complaints = Vec::new();
    for (path, text) in files("rs") {
        if is_of_tests(&path) {
            continue;
        }
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let declares = lines.windows(2).enumerate().filter(|(_, pair)| pair[0] == "#[cfg(test)]");
        for (number, pair) in declares {
            let module = pair[1].strip_suffix(';').and_then(|line| line.split_once("mod "));
            if module.is_some_and(|(_, name)| name != "tests" && name != "testing") {
                let place = place(&path, number + 1);
                complaints.push(format!("{place}: move the module's tests into `tests`"));
            }
        }
        let tests = lines.iter().position(|line| *line == "#[test]" || *line == "#[tokio::test]");
        if let Some(number) = tests.filter(|_| !lines.contains(&"#[cfg(test)]")) {
            complaints.push(format!("{}: a test among the product's code", place(&path, number)));
        }
    }
    report(&complaints);
}

/// Files that only tests are compiled from: `tests.rs`, all in `tests/`, and `testing.rs` or all in
/// `testing/`, which have what several of a crate's tests need.
fn is_of_tests(path: &Path) -> bool {
    let path = path.strip_prefix(root()).unwrap_or(path);
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "testing")
        || path.ends_with("tests.rs")
        || path.ends_with("testing.rs")
}

#[test]
fn the_map_names_files_that_exist() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("there is a map");
    let mut complaints = Vec::new();
    let linked = map.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let quoted = map.split('`').skip(1).step_by(2).filter(|word| word.starts_with("crates/"));
    for path in linked.chain(quoted) {
        if !root().join(path).exists() {
            complaints.push(format!("ARCHITECTURE.md names {path}, which does not exist"));
        }
    }
    report(&complaints);
}
