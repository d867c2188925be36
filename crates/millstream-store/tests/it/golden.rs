//! Runs the scripts in `tests/golden/*.golden` and compares what they print.
//!
//! A script is a row of blocks, each commands, a line `---`, and what they print; an empty line
//! ends
//! a block. With `UPDATE_GOLDEN=1` in the environment the outputs are written anew, to be read in
//! review.

use std::path::{Path, PathBuf};

use crate::script::Script;

#[tokio::test]
async fn scripts_print_what_they_printed() {
    let _no_fork = crate::FORKING.read().await;
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let directory = Path::new(&here).join("../../tests/golden");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)
        .expect("the directory of the scripts")
        .map(|entry| entry.expect("listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "golden"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no scripts in {}", directory.display());

    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut differing = Vec::new();
    for file in files {
        let expected = std::fs::read_to_string(&file).expect("readable");
        let printed = run(&expected).await;
        if printed == expected {
            continue;
        }
        if update {
            std::fs::write(&file, printed).expect("written");
        } else {
            differing.push(format!("{}:\n{}", file.display(), difference(&expected, &printed)));
        }
    }
    assert!(differing.is_empty(), "{}\nUPDATE_GOLDEN=1 accepts this.", differing.join("\n"));
}

/// Runs a script; returns it with the outputs of this run.
async fn run(text: &str) -> String {
    let mut script = Script::new();
    let mut blocks = Vec::new();
    for block in text.split("\n\n").map(str::trim).filter(|block| !block.is_empty()) {
        let commands: Vec<&str> = block.lines().take_while(|line| *line != "---").collect();
        let mut lines = commands.clone();
        let mut output = Vec::new();
        for command in commands.iter().filter(|line| !line.starts_with('#')) {
            output.extend(script.run(command).await.lines().map(str::to_owned));
        }
        lines.push("---");
        lines.extend(output.iter().map(String::as_str));
        blocks.push(lines.join("\n"));
    }
    blocks.join("\n\n") + "\n"
}

/// The first line that differs, with what surrounds it.
fn difference(expected: &str, printed: &str) -> String {
    let (expected, printed): (Vec<_>, Vec<_>) =
        (expected.lines().collect(), printed.lines().collect());
    let same = expected.iter().zip(&printed).take_while(|(left, right)| left == right).count();
    let part = |lines: &[&str]| {
        lines[same.min(lines.len())..].iter().take(4).map(|line| format!("    {line}\n")).collect()
    };
    let (expected, printed): (String, String) = (part(&expected), part(&printed));
    format!("  line {}, expected:\n{expected}  printed:\n{printed}", same + 1)
}
