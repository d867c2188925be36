//! Whether an answer of ours is Spark's.
//!
//! Rows are a multiset. Where ORDER BY sorts them, the columns that they are sorted by must have
//! the same values row by row, so that rows that tie may stand in any order. Where LIMIT takes a
//! part of them, rows that tie with the first or the last one may be others.
//!
//! Floats are the same to the last bit, but for what depends on the order in which terms are added
//! up: in queries that call an aggregate function of floats, a relative difference of 1e-13 is
//! allowed.

use arrow::datatypes::DataType;
use millstream_sql::types::parse_column_ddl;

use crate::answers::Query;
use crate::cells::{Cell, by_rough_text, of_json};
use crate::engine::Answer;
use crate::outcomes::Outcome;

/// Aggregate functions whose floats depend on the order of rows.
const SUMS: &str =
    "sum avg mean std var corr covar regr_ skewness kurtosis percentile median vector_";

type Row = Vec<Cell>;

/// The outcome of a query with the text `text` that ours has an answer to.
pub fn compare(text: &str, expected: &Query, ours: &Answer) -> Outcome {
    if expected.error.is_some() {
        return Outcome::NoError;
    }
    if expected.columns.len() != ours.columns.len() {
        let (spark, ours) = (expected.columns.len(), ours.columns.len());
        return Outcome::Different(format!("{spark} columns in Spark, {ours} here"));
    }
    if let Some(count) = expected.count.filter(|_| expected.varies) {
        if count != ours.rows.len() {
            return Outcome::Different(format!("{count} rows in Spark, {} here", ours.rows.len()));
        }
    } else if expected.unshown.is_none() {
        let is_sum = has_sum(text);
        if let Some(how) = difference(expected, &spark_rows(expected), &ours.rows, is_sum) {
            return Outcome::Different(how);
        }
    }
    if let Some(types) = other_types(expected, ours) {
        return Outcome::Types(types);
    }
    expected.unshown.as_ref().map_or(Outcome::Equal, |why| Outcome::Unshown(why.clone()))
}

fn has_sum(text: &str) -> bool {
    let text = text.to_lowercase();
    SUMS.split(' ').any(|name| text.contains(name))
}

fn spark_rows(expected: &Query) -> Vec<Row> {
    let columns = expected.columns.iter();
    let parsed = columns.map(|(name, of)| parse_column_ddl(name, &with_counts(of)).ok());
    let types: Vec<Option<DataType>> =
        parsed.map(|field| field.map(|field| field.data_type().clone())).collect();
    let row = |row: &Vec<_>| -> Row {
        row.iter().zip(&types).map(|(value, kind)| of_json(value, kind.as_ref())).collect()
    };
    expected.rows.iter().map(row).collect()
}

/// A type in which INTERVALs, which columns of tables cannot be, are what the answers have of them:
/// whole numbers.
fn with_counts(spark_type: &str) -> String {
    let (mut counted, mut rest) = (String::new(), spark_type);
    while let Some((before, fields)) = rest.split_once("interval ") {
        counted.push_str(before);
        counted.push_str("bigint");
        rest = fields.trim_start_matches(|char: char| char.is_ascii_lowercase() || char == ' ');
    }
    counted + rest
}

/// Columns whose types are others, with both.
fn other_types(expected: &Query, ours: &Answer) -> Option<String> {
    let pairs = expected.columns.iter().zip(&ours.columns);
    let others = pairs.filter(|((_, spark), (_, ours))| plain(spark) != plain(ours));
    let shown = others.map(|((_, spark), (_, ours))| format!("{} for {spark}", plain(ours)));
    let shown: Vec<String> = shown.collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// A type without what its text may leave out or not.
fn plain(spark_type: &str) -> String {
    spark_type.to_lowercase().replace("not null", "").replace([' ', '`'], "")
}

/// How rows of ours differ from Spark's; `None` if they do not.
fn difference(expected: &Query, spark: &[Row], ours: &[Row], is_sum: bool) -> Option<String> {
    let keys = expected.keys.as_deref().unwrap_or_default();
    if spark.len() != ours.len() {
        return Some(format!("{} rows in Spark, {} here", spark.len(), ours.len()));
    }
    let key = |row: &[Cell]| keys.iter().map(|at| row[*at].clone()).collect::<Row>();
    let same_order =
        spark.iter().zip(ours).all(|(one, other)| is_same(&key(one), &key(other), is_sum));
    if !same_order {
        let sorted = first_difference(spark, ours, is_sum);
        return Some(sorted.unwrap_or_else(|| "the rows stand in another order".to_owned()));
    }
    if !expected.cut || keys.is_empty() {
        return first_difference(spark, ours, is_sum);
    }
    let ends = [spark.first(), spark.last()];
    let ends = ends.map(|row| row.map(|row| key(row)).unwrap_or_default());
    let is_inner = |row: &Row| !ends.iter().any(|end| is_same(end, &key(row), is_sum));
    let inner =
        |rows: &[Row]| -> Vec<Row> { rows.iter().filter(|row| is_inner(row)).cloned().collect() };
    first_difference(&inner(spark), &inner(ours), is_sum)
}

fn is_same(one: &[Cell], other: &[Cell], is_sum: bool) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is(other, is_sum))
}

/// The first two rows that are not the same, both sides sorted.
fn first_difference(spark: &[Row], ours: &[Row], is_sum: bool) -> Option<String> {
    let [mut spark, mut ours] = [spark, ours].map(|rows| rows.iter().collect::<Vec<_>>());
    spark.sort_by(|one, other| by_rough_text(one, other));
    ours.sort_by(|one, other| by_rough_text(one, other));
    let mut pairs = spark.iter().zip(&ours);
    let (spark, ours) = pairs.find(|(one, other)| !is_same(one, other, is_sum))?;
    Some(format!("{} in Spark, {} here", shown(spark), shown(ours)))
}

fn shown(row: &[Cell]) -> String {
    let cells = row.iter().map(|cell| match cell {
        Cell::Float(value) => format!("{value:?}"),
        cell => cell.rough(),
    });
    cells.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn query(answer: serde_json::Value) -> Query {
        let mut line =
            json!({"n": 0, "at": [0, 1], "sum": "", "columns": [["a", "int"], ["b", "int"]]});
        let fields = line.as_object_mut().expect("it is an object");
        fields.extend(answer.as_object().expect("it is an object").clone());
        serde_json::from_value(line).expect("it is a query")
    }

    fn ours(rows: &[[i128; 2]]) -> Answer {
        let column = |name: &str| (name.to_owned(), "INT".to_owned());
        let row = |row: &[i128; 2]| row.map(Cell::Whole).to_vec();
        Answer { columns: vec![column("a"), column("b")], rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn rows_have_an_order_where_one_is_asked_for() {
        let rows = json!({"rows": [[1, 1], [2, 2]]});
        let turned = ours(&[[2, 2], [1, 1]]);
        assert_eq!(compare("", &query(rows), &turned), Outcome::Equal);
        let sorted = query(json!({"rows": [[1, 1], [2, 2]], "keys": [0]}));
        assert!(matches!(compare("", &sorted, &turned), Outcome::Different(_)));
        let ties = query(json!({"rows": [[1, 1], [1, 2]], "keys": [0]}));
        assert_eq!(compare("", &ties, &ours(&[[1, 2], [1, 1]])), Outcome::Equal);
        assert!(matches!(compare("", &ties, &ours(&[[1, 2], [1, 2]])), Outcome::Different(_)));
    }

    #[test]
    fn the_last_of_limited_rows_may_tie_with_others() {
        let cut = query(json!({"rows": [[1, 1], [2, 2], [3, 3]], "keys": [0], "cut": true}));
        assert_eq!(compare("", &cut, &ours(&[[1, 1], [2, 2], [3, 4]])), Outcome::Equal);
        let inner = ours(&[[1, 1], [2, 3], [3, 3]]);
        assert!(matches!(compare("", &cut, &inner), Outcome::Different(_)));
    }

    #[test]
    fn doubles_beside_intervals_are_numbers() {
        let of = "array<struct<x:interval year to month,y:double,z:interval day>>";
        assert_eq!(with_counts(of), "array<struct<x:bigint,y:double,z:bigint>>");
        assert_eq!(with_counts("map<string,interval>"), "map<string,interval>");
    }

    #[test]
    fn types_and_errors_are_compared() {
        let rows = query(json!({"rows": [], "columns": [["a", "int"], ["b", "bigint"]]}));
        assert_eq!(compare("", &rows, &ours(&[])), Outcome::Types("int for bigint".to_owned()));
        let error = query(json!({"error": "DIVIDE_BY_ZERO"}));
        assert_eq!(compare("", &error, &ours(&[])), Outcome::NoError);
    }
}
