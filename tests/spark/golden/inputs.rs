//! Spark's files of statements, from its jar of tests.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use millstream_testkit::{cache, program};

/// A directory with `sql-tests/inputs` and `test-data` of Spark's jar, downloaded once.
pub fn directory() -> PathBuf {
    let pom = include_str!("inputs.xml");
    let made = cache::prepared("spark-golden-4.2.0", pom, |directory| {
        let file = directory.join("pom.xml");
        fs::write(&file, pom).expect("the new directory is writable");
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "--file"]).arg(&file);
        maven.args(["dependency:unpack-dependencies", "-DincludeScope=runtime"]);
        maven.arg("-Dmdep.unpack.includes=sql-tests/inputs/**,test-data/postgresql/**");
        maven.arg(format!("-DoutputDirectory={}", directory.display()));
        let remedy = "install Maven: apt-get install maven";
        program::run("unpacking Spark's test inputs with Maven", maven, remedy)
    });
    made.expect("Spark's test inputs can be downloaded")
}

/// The bytes of the input files that were needed so far.
pub struct Texts {
    directory: PathBuf,
    read: HashMap<String, Vec<u8>>,
}

impl Texts {
    /// Of the files below `sql-tests/inputs` of [`directory`].
    pub fn new(inputs: &Path) -> Self {
        Self { directory: inputs.join("sql-tests/inputs"), read: HashMap::new() }
    }

    /// The bytes from `start` to `end` of a file.
    ///
    /// # Panics
    /// There are none, as the answers are of another version of Spark.
    pub fn get(&mut self, file: &str, [start, end]: [usize; 2]) -> &str {
        let read = || fs::read(self.directory.join(file)).expect("the answers name a file");
        let bytes = self.read.entry(file.to_owned()).or_insert_with(read);
        let text = bytes.get(start..end).expect("the answers are of this file");
        std::str::from_utf8(text).expect("statements are UTF-8")
    }
}
