//! Whatever a flow or a pipeline file is called: its checkpoint is its own, below where checkpoints
//! are, and nobody else's to read.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::millstream::{Pipeline, table};
use crate::{process, wait};

/// All below a directory, directories among them.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.expect("it is readable").path();
        found.extend(if path.is_dir() { below(&path) } else { Vec::new() });
        found.push(path);
    }
    found
}

/// A flow of rows that are generated and thrown away.
fn generated(flow: &str, more: &[(&str, &str)]) -> String {
    let number = flow.bytes().map(usize::from).sum::<usize>() * 1000 + flow.len();
    let (source, sink) = (format!("source_{number}"), format!("sink_{number}"));
    format!(
        "{}{}CREATE FLOW `{flow}` AS INSERT INTO {sink} SELECT value FROM STREAM {source};\n",
        table(&source, "", "rate", &[("rowsPerSecond", "100")]),
        table(&sink, "", "noop", more),
    )
}

#[test]
fn a_flow_whose_name_is_a_path_stays_in_its_own_directory() {
    // As many characters as a name may have, and more bytes than a file system's may.
    let long = "я".repeat(255);
    let names = ["../../x", "..", ".", "a/b", "a", "a%2Fb", "/etc", "e\u{301}", "é", &long];
    let sql: String = names.iter().map(|name| generated(name, &[])).collect();
    let pipeline = Pipeline::new("");
    let home = pipeline.path("a/b/c");
    fs::create_dir_all(&home).expect("it is writable");
    fs::write(home.join("...sql"), sql).expect("it is writable");

    for flags in [&[][..], &["--checkpoint", "given"]] {
        let mut command = pipeline.bare_command(&["run", "...sql", "--for", "2s"]);
        command.args(flags).current_dir(&home);
        pipeline.spawn(command).wait(wait::SOON).expect_success();
    }
    for checkpoints in [home.join(".millstream/%2E."), home.join("given")] {
        let count = fs::read_dir(&checkpoints).expect("they are there").count();
        assert_eq!(count, names.len(), "{:?}", below(&checkpoints));
        for checkpoint in fs::read_dir(&checkpoints).expect("they are there") {
            let metadata = checkpoint.expect("it is readable").path().join("metadata");
            assert!(metadata.is_file(), "{metadata:?} is missing");
        }
    }
    let known = [".millstream", "given", "...sql"].map(|name| home.join(name));
    let all = below(&pipeline.path("a"));
    let strays: Vec<_> = all
        .iter()
        .filter(|path| {
            !home.starts_with(path) && !known.iter().any(|known| path.starts_with(known))
        })
        .collect();
    assert!(strays.is_empty(), "{strays:?}");
}

#[test]
fn two_flows_with_one_checkpoint_are_refused() {
    let at = |location: &str| [("checkpointLocation", location.to_owned())];
    let other = |location: &str| {
        let (one, two) = (at("ck"), at(location));
        let one = one.each_ref().map(|(key, value)| (*key, value.as_str()));
        let two = two.each_ref().map(|(key, value)| (*key, value.as_str()));
        Pipeline::new(&format!("{}{}", generated("one", &one), generated("two", &two)))
    };
    for location in ["ck", "./ck/", "x/../ck", "ck/offsets", "link", "link/state/x"] {
        let pipeline = other(location);
        fs::create_dir(pipeline.path("ck")).expect("it is writable");
        symlink(pipeline.path("ck"), pipeline.path("link")).expect("it is writable");
        let run = pipeline.bare_command(&["run", "pipeline.sql", "--for", "1s"]);
        let finished = pipeline.spawn(run).wait(wait::SOON);
        finished.expect_exit(2).says(&["share the checkpoint", "checkpointLocation"]);
        assert!(below(&pipeline.path("ck")).is_empty(), "{location}");
    }
    let absolute = other("ck");
    let location = format!("file://{}", absolute.path("ck").display());
    let (one, two) = (at("ck"), at(&location));
    let one = one.each_ref().map(|(key, value)| (*key, value.as_str()));
    let two = two.each_ref().map(|(key, value)| (*key, value.as_str()));
    absolute.rewrite(&format!("{}{}", generated("one", &one), generated("two", &two)));
    let run = absolute.bare_command(&["run", "pipeline.sql", "--for", "1s"]);
    absolute.spawn(run).wait(wait::SOON).expect_exit(2).says(&["share the checkpoint"]);
}

#[test]
fn a_location_that_is_empty_is_refused() {
    let pipeline = Pipeline::new(&generated("one", &[("checkpointLocation", " ")]));
    let run = pipeline.bare_command(&["run", "pipeline.sql", "--for", "1s"]);
    pipeline.spawn(run).wait(wait::SOON).expect_exit(2).says(&["'checkpointLocation' is empty"]);

    let pipeline = Pipeline::new(&generated("one", &[]));
    let run = pipeline.bare_command(&["run", "pipeline.sql", "--for", "1s", "--checkpoint", ""]);
    pipeline.spawn(run).wait(wait::SOON).expect_exit(2).says(&["--checkpoint is empty"]);
}

#[test]
fn files_that_differ_in_their_ending_have_checkpoints_of_their_own() {
    let pipeline = Pipeline::new(&generated("one", &[]));
    let run = |file: &str| {
        fs::copy(pipeline.path("pipeline.sql"), pipeline.path(file)).expect("it is writable");
        let run = pipeline.bare_command(&["run", file, "--for", "1s", "-v"]);
        pipeline.spawn(run).wait(wait::SOON).expect_success()
    };
    run("orders.sql").says(&[".millstream/orders/one"]);
    let earlier = pipeline.path(".millstream/old/one");
    fs::create_dir_all(&earlier).expect("it is writable");
    run("old.txt").says(&[".millstream/old/one"]);
    assert!(earlier.join("metadata").is_file(), "what was there is gone on from");
    fs::rename(pipeline.path(".millstream/orders"), pipeline.path("aside")).expect("it is there");
    run("orders.txt").says(&[".millstream/orders%.txt/one"]);
}

#[test]
fn a_checkpoint_is_for_its_owner_alone() {
    let letters = table("bad", "", "json", &[("path", "bad")]);
    let source = [("path", "input"), ("deadLetter", "bad")];
    let sql = format!(
        "{letters}{}{}INSERT INTO target SELECT k, count(*) AS n FROM STREAM source GROUP BY k;\n",
        table("source", "(k STRING)", "json", &source),
        table("target", "", "console", &[("outputMode", "update"), ("memoryLimit", "1mb")]),
    );
    let pipeline = Pipeline::new(&sql);
    fs::create_dir(pipeline.path("input")).expect("it is writable");
    fs::write(pipeline.path("input/a.json"), "{\"k\":\"a\"}\nnot json\n").expect("writable");
    let arguments = ["run", "pipeline.sql", "--trigger", "availableNow", "--checkpoint", "new/ck"];
    for _ in 0..2 {
        let mut command = pipeline.bare_command(&arguments);
        process::allow_all_modes(&mut command);
        pipeline.spawn(command).wait(wait::SOON).expect_success();
        fs::write(pipeline.path("input/b.json"), "{\"k\":\"b\"}\n").expect("writable");
    }
    let new = pipeline.path("new");
    let mut all = below(&new);
    assert!(all.iter().any(|path| path.ends_with("state/millstream-state")), "{all:?}");
    assert!(all.iter().any(|path| path.ends_with("dead-letters/0")), "{all:?}");
    all.push(new);
    for path in all {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        let mode = fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode, wanted, "{} is {mode:o}", path.display());
    }
}
