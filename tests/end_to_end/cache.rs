//! What is downloaded once: `${XDG_CACHE_HOME:-$HOME/.cache}/millstream/<name>`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository's root.
pub fn repository() -> PathBuf {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&here).join("../..");
    root.canonicalize().expect("the crate lies in the repository")
}

/// The directory called `name` in the cache, filled by `fill` if it is not there yet.
///
/// A marker is written last and holds the `recipe`: a broken download and one by another recipe
/// are made again. A lock keeps test processes apart.
pub fn prepared(name: &str, recipe: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let cache = home().join("millstream");
    fs::create_dir_all(&cache).expect("the cache directory can be made");
    let lock = File::create(cache.join(format!("{name}.lock"))).expect("a lock file can be made");
    lock.lock().expect("a lock file can be locked");

    let directory = cache.join(name);
    let marker = directory.join("complete");
    if fs::read_to_string(&marker).is_ok_and(|made_by| made_by == recipe) {
        return directory;
    }
    if directory.exists() {
        fs::remove_dir_all(&directory).expect("a broken download can be removed");
    }
    fs::create_dir_all(&directory).expect("the cache directory can be written");
    fill(&directory);
    fs::write(&marker, recipe).expect("the cache directory can be written");
    directory
}

fn home() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match variable("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(variable("HOME").expect("HOME is set")).join(".cache"),
    }
}

/// The jars that `pom` (relative to the repository) asks for, in the cache under `name`.
pub fn jars(name: &str, pom: &str) -> PathBuf {
    let pom = repository().join(pom);
    let recipe = fs::read_to_string(&pom).expect("the pom is in the repository");
    prepared(name, &recipe, |directory| {
        require("java", "-version", "apt-get install openjdk-17-jre-headless");
        require("mvn", "--version", "apt-get install maven");
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "--file"]).arg(&pom);
        maven.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
        maven.arg(format!("-DoutputDirectory={}", directory.display()));
        run("downloading jars with Maven", maven);
    })
}

/// Fails with what to install if `program` cannot be started.
pub fn require(program: &str, version_flag: &str, install: &str) {
    let mut probe = Command::new(program);
    probe.arg(version_flag).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let works = probe.status().is_ok_and(|status| status.success());
    assert!(works, "`{program}` does not run, and this test needs it: {install}");
}

/// Runs `command` to its end and fails with its output if it fails.
pub fn run(what: &str, command: Command) {
    output_of(what, command);
}

/// Runs `command` to its end, as [`run`] does; gives what it printed.
pub fn output_of(what: &str, mut command: Command) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = crate::process::spawn(command).unwrap_or_else(|error| panic!("{what}: {error}"));
    let output = child.wait_with_output().expect("a child can be waited for");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} failed ({}):\n{printed}{said}", output.status);
    printed
}
