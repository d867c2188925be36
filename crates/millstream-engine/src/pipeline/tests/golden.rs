//! Reads cases from a file and compares, or rewrites, what comes out.

use std::fmt::Write as _;
use std::path::Path;

/// Runs every case of `testdata/<file>` through `run`.
pub fn check(file: &str, run: impl Fn(&str) -> String) {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let path = Path::new(&here).join("src/pipeline/testdata").join(file);
    let text = std::fs::read_to_string(&path).expect("the golden file can be read");
    // What comes before the first case says who confirmed the file.
    let (head, cases) = text.split_at(text.find("### ").expect("there is a case"));
    let (mut rewritten, mut wrong) = (head.to_owned(), Vec::new());
    for case in cases.split("### ").skip(1) {
        let (name, rest) = case.split_once('\n').expect("a case has a name on a line");
        let (input, wanted) = rest.split_once("\n---\n").unwrap_or((rest.trim_end(), ""));
        let output = run(input);
        let _ = write!(rewritten, "### {name}\n{input}\n---\n{}\n\n", output.trim_end());
        if output.trim_end() != wanted.trim_end() {
            wrong.push(format!("{name}\n--- wanted\n{wanted}\n--- got\n{output}"));
        }
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, rewritten).expect("the golden file can be written");
        return;
    }
    assert!(wrong.is_empty(), "{} in {file}:\n\n{}", wrong.len(), wrong.join("\n\n"));
}
