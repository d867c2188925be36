//! What Spark tests itself with: the files of queries in its jar of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::error::Error;
use crate::program;

/// The jar, and what of it is unpacked.
const POM: &str = include_str!("../../tests/spark/golden/inputs.xml");

/// A directory with `sql-tests/inputs` and `test-data` of Spark's jar, and the queries of TPC-DS in
/// `tpcds` and `tpcds-v2.7.0`; downloaded once.
pub fn directory() -> Result<PathBuf, Error> {
    cache::prepared("spark-inputs-4.2.0", POM, unpack)
}

fn unpack(directory: &Path) -> Result<(), Error> {
    let file = directory.join("pom.xml");
    fs::write(&file, POM).map_err(Error::file("write", &file))?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--file"]).arg(&file);
    maven.args(["dependency:unpack-dependencies", "-DincludeScope=runtime"]);
    maven.arg(format!("-DoutputDirectory={}", directory.display()));
    let remedy = "install Maven: apt-get install maven";
    program::run("unpacking Spark's test inputs with Maven", maven, remedy)
}
