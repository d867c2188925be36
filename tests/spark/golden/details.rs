//! What is not equal, for whoever works on it: a file of JSON lines.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::outcomes::Found;

/// Writes a line for each query whose outcome is not Spark's.
pub fn write(found: &[Found], path: &Path) {
    let unequal = found.iter().filter_map(|query| Some((query, query.outcome.word()?)));
    let line = |(query, word): (&Found, &str)| {
        let place = format!("{}:{}", query.file, query.number);
        let detail = query.outcome.detail();
        format!("{}\n", json!({"at": place, "is": word, "why": detail, "query": query.text}))
    };
    let text: String = unequal.map(line).collect();
    fs::write(path, text).expect("the details can be written");
}
