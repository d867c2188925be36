//! Tables as Parquet files: those that all files of Spark's suite read, and those that one makes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};

use crate::columns::record_batch;

/// The columns of PostgreSQL's `onek` and `tenk1`.
const WIDE: &str = "unique1 unique2 two four ten twenty hundred thousand twothousand fivethous \
                    tenthous odd even stringu1 stringu2 string4";
/// Of these, so many are whole numbers; the others are texts.
const WIDE_WHOLE: usize = 13;

/// The names of tables and the directories of their files.
pub type Places = Vec<(String, PathBuf)>;
/// Names and types of columns, as Spark's answers have them.
type Columns = Vec<(String, String)>;
/// Rows, as Spark's answers have them.
type Rows = Vec<Vec<Value>>;

/// Writes the tables that the suite makes before it runs a file, as `session.py` does.
pub fn common(inputs: &Path, directory: &Path) -> Places {
    let data = |name| inputs.join("test-data/postgresql").join(name);
    let kind = |at: usize| if at < WIDE_WHOLE { "int" } else { "string" };
    let wide = WIDE.split_whitespace().enumerate();
    let wide: Vec<(&str, &str)> = wide.map(|(at, name)| (name, kind(at))).collect();
    let tables = [
        ("testdata", columns(&[("key", "int"), ("value", "string")]), numbers()),
        ("arraydata", arrays(), array_rows()),
        ("mapdata", columns(&[("mapcol", "map<int,string>")]), maps()),
        ("aggtest", columns(&[("a", "int"), ("b", "float")]), separated(&data("agg.data"), 1)),
        ("onek", columns(&wide), separated(&data("onek.data"), WIDE_WHOLE)),
        ("tenk1", columns(&wide), separated(&data("tenk.data"), WIDE_WHOLE)),
    ];
    let write_table = |(name, columns, rows): (&str, Columns, Rows)| {
        let rows = record_batch(&columns, &rows).expect("the types are known");
        let place = directory.join(name);
        write(&rows, &place);
        (name.to_owned(), place)
    };
    tables.into_iter().map(write_table).collect()
}

fn columns(pairs: &[(&str, &str)]) -> Columns {
    pairs.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
}

fn numbers() -> Rows {
    (1..=100).map(|number| vec![json!(number), json!(number.to_string())]).collect()
}

fn arrays() -> Columns {
    columns(&[("arraycol", "array<int>"), ("nestedarraycol", "array<array<int>>")])
}

fn array_rows() -> Rows {
    [[1, 2, 3], [2, 3, 4]].map(|row| vec![json!(row), json!([row])]).to_vec()
}

fn maps() -> Rows {
    let entry = |key: usize, row: usize| json!([key, format!("{}{row}", &"abcde"[key - 1..key])]);
    let map = |row: usize| (1..=6 - row).map(|key| entry(key, row)).collect::<Vec<_>>();
    (1..=5).map(|row| vec![json!(map(row))]).collect()
}

/// The rows of a file with tabs; the first columns are whole numbers.
fn separated(path: &Path, whole: usize) -> Rows {
    let text = fs::read_to_string(path).expect("the suite's data are there");
    let value = |(at, text): (usize, &str)| match text.parse::<i64>() {
        Ok(number) if at < whole => json!(number),
        _ => json!(text),
    };
    text.lines().map(|line| line.split('\t').enumerate().map(value).collect()).collect()
}

/// Writes rows as the only file of the directory `place`.
pub fn write(rows: &RecordBatch, place: &Path) {
    fs::create_dir_all(place).expect("a temporary directory is writable");
    let file = File::create(place.join("part-0.parquet")).expect("it is writable");
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).expect("a writer");
    writer.write(rows).expect("rows can be written");
    writer.close().expect("the file can be closed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_those_of_the_suite() {
        let first = json!([[1, "a1"], [2, "b1"], [3, "c1"], [4, "d1"], [5, "e1"]]);
        let maps = maps();
        assert_eq!((&maps[0][0], &maps[4][0]), (&first, &json!([[1, "a5"]])));
    }
}
