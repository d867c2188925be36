//! The examples of functions: the records after `# Example: NAME` in `tests/slt/examples_*.slt`.
//!
//! Here they are only read: the test of these files runs each of them, and so does Spark.

use std::path::PathBuf;

use crate::slt;

/// An example of a function.
pub struct Example {
    /// The function or operator.
    pub name: String,
    /// A query with it.
    pub query: String,
    /// The rows that the query gives, as the file has them.
    pub rows: Vec<String>,
}

impl Example {
    /// Whether the query has the function in it.
    pub fn has_its_function(&self) -> bool {
        let is_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
        if !self.name.contains(is_word) {
            return self.query.contains(&self.name);
        }
        let mut words = self.query.split(|char: char| !is_word(char));
        words.any(|word| word.eq_ignore_ascii_case(&self.name))
    }
}

/// All examples, in the order of their names.
pub fn examples() -> Vec<Example> {
    let has_examples = |path: &PathBuf| {
        path.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with("examples_"))
    };
    let mut examples = Vec::new();
    for file in slt::files().into_iter().filter(has_examples) {
        let text = std::fs::read_to_string(&file).expect("the file can be read");
        examples.extend(text.split("\n\n").filter_map(example));
    }
    examples.sort_by(|one, other| one.name.cmp(&other.name));
    examples
}

fn example(record: &str) -> Option<Example> {
    let record = record.trim();
    let name = record.lines().find_map(|line| line.strip_prefix("# Example: "))?;
    let mut lines = record.lines().skip_while(|line| line.starts_with('#'));
    // A record for one engine alone, or an error, is no example of what both do.
    let header = lines.next().unwrap_or_default();
    let gives_rows = header.starts_with("query ") && !header.starts_with("query error");
    assert!(gives_rows, "the example of {name} is no query with rows: {header}");
    let query: Vec<&str> = lines.by_ref().take_while(|line| *line != "----").collect();
    let rows: Vec<String> = lines.map(str::to_owned).collect();
    assert!(!rows.is_empty(), "the example of {name} has no result");
    Some(Example { name: name.to_owned(), query: query.join(" "), rows })
}
