//! What is downloaded once: `${XDG_CACHE_HOME:-$HOME/.cache}/millstream/NAME`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::program;

/// What to do where Java is missing.
pub const JAVA_REMEDY: &str =
    "install a Java runtime, 17 or newer: apt-get install openjdk-17-jre-headless";
/// What to do where Python is missing.
pub const PYTHON_REMEDY: &str = "install Python: apt-get install python3 python3-venv";

/// The repository's root, for a test.
///
/// # Panics
/// When this is not run by Cargo in the repository.
pub fn repository() -> PathBuf {
    // As the build directory may be shared, where this was compiled need not be where it runs.
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut above = Path::new(&here).ancestors();
    let root = above.find(|directory| directory.join("Cargo.lock").exists());
    root.expect("the crate lies in the repository").to_owned()
}

/// The directory called `name` in the cache, filled by `fill` if it is not there yet.
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

/// A directory with the jars that the text of `pom` asks for.
pub fn jars(name: &str, pom: &str) -> Result<PathBuf, Error> {
    prepared(name, pom, |directory| add_jars(directory, pom))
}

/// Downloads the jars that the text of `pom` asks for into `directory`.
pub fn add_jars(directory: &Path, pom: &str) -> Result<(), Error> {
    let file = directory.join("pom.xml");
    fs::write(&file, pom).map_err(Error::file("write", &file))?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--file"]).arg(&file);
    maven.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
    maven.arg(format!("-DoutputDirectory={}", directory.display()));
    program::run("downloading jars with Maven", maven, "install Maven: apt-get install maven")
}

/// A virtual environment of Python with what the text of `requirements` asks for.
pub fn python(name: &str, requirements: &str) -> Result<PathBuf, Error> {
    prepared(name, requirements, |directory| fill_python(directory, requirements))
}

/// Makes `directory` a virtual environment with what the text of `requirements` asks for.
pub fn fill_python(directory: &Path, requirements: &str) -> Result<(), Error> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(directory);
    program::run("making a virtual environment", venv, PYTHON_REMEDY)?;
    let file = directory.join("requirements.txt");
    fs::write(&file, requirements).map_err(Error::file("write", &file))?;
    let mut pip = Command::new(directory.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(file);
    program::run("installing with pip", pip, PYTHON_REMEDY)
}

fn home() -> Result<PathBuf, Error> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (variable("XDG_CACHE_HOME"), variable("HOME")) {
        (Some(cache), _) => Ok(PathBuf::from(cache)),
        (None, Some(home)) => Ok(PathBuf::from(home).join(".cache")),
        (None, None) => Err(Error::NoHome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_download_is_made_again() {
        let name = format!("harness-{}", std::process::id());
        let mut fills = 0;
        let mut prepare = |recipe| {
            let fill = |_: &Path| {
                fills += 1;
                Ok(())
            };
            let directory = prepared(&name, recipe, fill).unwrap();
            (directory, fills)
        };
        assert_eq!(["a", "a", "b", "b"].map(|recipe| prepare(recipe).1), [1, 1, 2, 2]);
        let (directory, _) = prepare("b");
        fs::remove_file(directory.join("complete")).expect("there is a marker");
        assert_eq!(prepare("b").1, 3);
        fs::remove_dir_all(&directory).expect("it can be removed");
        fs::remove_file(directory.with_extension("lock")).expect("it can be removed");
    }
}
