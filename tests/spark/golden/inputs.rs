//! Spark's files of statements, from its jar of tests.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The bytes of the input files that were needed so far.
pub struct Texts {
    directory: PathBuf,
    read: HashMap<String, Vec<u8>>,
}

impl Texts {
    /// Of the files below `sql-tests/inputs` of
    /// [`directory`](millstream_testkit::spark_inputs::directory).
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
