//! What is downloaded once: `${XDG_CACHE_HOME:-$HOME/.cache}/millstream/NAME`. The end-to-end tests
//! keep theirs there, too, by the same recipes under the same names.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;

/// What to do where Java is missing.
pub const JAVA_REMEDY: &str = "install a Java runtime, 17 or newer: apt-get install \
                               openjdk-17-jre-headless; or name a broker with --brokers";

/// The directory called `name`, filled by `fill` if it is not there yet.
///
/// A marker is written last and holds the `recipe`: a broken download and one by another recipe
/// are made again. A lock keeps processes apart.
pub fn prepared(
    name: &str,
    recipe: &str,
    fill: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<PathBuf, Error> {
    let cache = home()?.join("millstream");
    let directory = cache.join(name);
    fs::create_dir_all(&cache).map_err(Error::file("create", &cache))?;
    let lock_path = cache.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).map_err(Error::file("create", &lock_path))?;
    lock.lock().map_err(Error::file("lock", &lock_path))?;

    let marker = directory.join("complete");
    if fs::read_to_string(&marker).is_ok_and(|made_by| made_by == recipe) {
        return Ok(directory);
    }
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(Error::file("remove", &directory))?;
    }
    fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    eprintln!("downloading {name} into {}", directory.display());
    fill(&directory)?;
    fs::write(&marker, recipe).map_err(Error::file("write", &marker))?;
    Ok(directory)
}

/// A directory with the jars that `pom` asks for.
pub fn jars(name: &str, pom: &str) -> Result<PathBuf, Error> {
    prepared(name, pom, |directory| add_jars(directory, pom))
}

/// Downloads the jars that `pom` asks for into `directory`.
pub fn add_jars(directory: &Path, pom: &str) -> Result<(), Error> {
    let file = directory.join("pom.xml");
    fs::write(&file, pom).map_err(Error::file("write", &file))?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--file"]).arg(&file);
    maven.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
    maven.arg(format!("-DoutputDirectory={}", directory.display()));
    run("downloading jars with Maven", maven, "install Maven: apt-get install maven")
}

/// A Python with what `requirements` asks for.
pub fn python(name: &str, requirements: &str) -> Result<PathBuf, Error> {
    let environment = prepared(name, requirements, |directory| {
        let remedy = "install Python: apt-get install python3 python3-venv";
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(directory);
        run("making a virtual environment", venv, remedy)?;
        let file = directory.join("requirements.txt");
        fs::write(&file, requirements).map_err(Error::file("write", &file))?;
        let mut pip = Command::new(directory.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
        run(
            "installing with pip",
            {
                pip.arg(file);
                pip
            },
            remedy,
        )
    })?;
    Ok(environment.join("bin/python"))
}

/// Runs a helper program to its end. `remedy` is for the case that it is not installed.
pub fn run(what: &'static str, mut command: Command, remedy: &str) -> Result<(), Error> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| Error::Program {
        program: command.get_program().to_string_lossy().into_owned(),
        remedy: remedy.into(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&said).into_owned();
    Err(Error::Helper { what, status: output.status, output: output_text })
}

fn home() -> Result<PathBuf, Error> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (variable("XDG_CACHE_HOME"), variable("HOME")) {
        (Some(cache), _) => Ok(PathBuf::from(cache)),
        (None, Some(home)) => Ok(PathBuf::from(home).join(".cache")),
        (None, None) => Err(Error::Flags {
            problem: "neither XDG_CACHE_HOME nor HOME says where downloads can be kept; set one"
                .into(),
        }),
    }
}
