//! What Spark answered: a file of JSON lines for each input file, as `answers.py` describes them.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value;

/// The end of the names of files with answers.
const END: &str = ".jsonl.gz";

/// The answers to one input file.
pub struct Answers {
    /// The input file, by its path below `sql-tests/inputs`.
    pub name: String,
    /// Its lines, in order.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// A query and its answer.
    Query(Query),
    /// A table or a view as the next query finds it.
    Table(Table),
    /// All settings that are not the default from here on.
    Settings {
        /// By their names.
        set: serde_json::Map<String, Value>,
    },
}

/// A query and its answer.
#[derive(Deserialize)]
pub struct Query {
    /// Which statement of its file it is, from 0.
    pub n: usize,
    /// The imported file that it stands in, if it is not the file itself.
    pub file: Option<String>,
    /// The range of its bytes there.
    pub at: [usize; 2],
    /// The CRC-32 of these, in hexadecimal digits.
    pub sum: String,
    /// The condition of Spark's error.
    pub error: Option<String>,
    /// Why there are no rows here, although Spark has them.
    pub unshown: Option<String>,
    /// Names and types of its columns.
    #[serde(default)]
    pub columns: Vec<(String, String)>,
    /// Its rows.
    #[serde(default)]
    pub rows: Vec<Vec<Value>>,
    /// The columns that they are sorted by; the query may sort by others after these.
    pub keys: Option<Vec<usize>>,
    /// LIMIT or OFFSET takes a part of the sorted rows.
    #[serde(default)]
    pub cut: bool,
    /// The rows are others each time, so they are not here.
    #[serde(default)]
    pub varies: bool,
    /// Then, how many they are.
    pub count: Option<usize>,
}

/// A table or a view.
#[derive(Deserialize)]
pub struct Table {
    /// Its name, in lower case.
    pub table: String,
    /// Names and types of its columns; `None` where it is not there any more.
    pub columns: Option<Vec<(String, String)>>,
    /// Its rows, if they are few and of types that have a form.
    pub rows: Option<Vec<Vec<Value>>>,
    /// What it is a view of.
    pub view: Option<View>,
}

/// The query of a view.
#[derive(Deserialize)]
pub struct View {
    /// The file that it stands in.
    pub file: String,
    /// The range of its bytes.
    pub at: [usize; 2],
    /// The names of its columns, where they are listed.
    pub columns: Vec<String>,
}

/// All files with answers whose names have `wanted` in them, sorted by name.
pub fn files(directory: &Path, wanted: Option<&str>) -> Vec<Answers> {
    let mut paths = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(place) = left.pop() {
        for entry in fs::read_dir(&place).expect("there are answers") {
            let path = entry.expect("the directory is readable").path();
            if path.is_dir() { left.push(path) } else { paths.push(path) }
        }
    }
    let named = paths.into_iter().filter_map(|path| Some((name(directory, &path)?, path)));
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| name.contains(wanted));
    let mut named: Vec<(String, PathBuf)> = named.filter(|(name, _)| is_wanted(name)).collect();
    assert!(!named.is_empty(), "no file of answers in {}", directory.display());
    named.sort();
    named.into_iter().map(|(name, path)| Answers { lines: lines(&text(&path)), name }).collect()
}

fn name(directory: &Path, path: &Path) -> Option<String> {
    let path = path.strip_prefix(directory).expect("it was found there").to_str()?;
    path.strip_suffix(END).map(str::to_owned)
}

/// The lines of a file as they are.
pub fn text(path: &Path) -> String {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("it is a gzip file of text");
    text
}

fn lines(text: &str) -> Vec<Line> {
    let line = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(line).collect()
}
