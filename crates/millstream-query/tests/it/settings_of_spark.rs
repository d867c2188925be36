//! Settings of Spark's that keep what earlier versions did. Results are those that Spark gives with
//! the same settings.

use millstream_query::error::QueryError;
use millstream_query::setting_statements::Change;

use crate::lake::{answer, session};

/// The only row of a query, as `a,b`, with settings of `spark.sql.` that are not the defaults.
async fn row(settings: &[(&str, &str)], query: &str) -> Result<String, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    for (key, value) in settings {
        let key = format!("spark.sql.{key}");
        assert!(session.set(&key, value).is_ok(), "{key} cannot be {value}");
    }
    let drawn = answer(&session, query).await.map_err(|error| match error {
        QueryError::Sql(found) => found.to_string(),
        QueryError::Failure(failure) => failure.to_string(),
    })?;
    let mut lines = drawn.lines().filter(|line| line.starts_with('|')).skip(1);
    let line = lines.next().expect("there is a row");
    let cells = line.trim_matches('|').split('|').map(str::trim);
    Ok(cells.collect::<Vec<_>>().join(","))
}

const DIGITS: (&str, &str) = ("decimalOperations.allowPrecisionLoss", "false");
const BANG: (&str, &str) = ("legacy.bangEqualsNot", "true");
const CHARSETS: (&str, &str) = ("legacy.javaCharsets", "true");
const MARKS: (&str, &str) = ("legacy.codingErrorAction", "true");
const QUOTES: (&str, &str) = ("legacy.consecutiveStringLiterals.enabled", "true");
const JOINED: (&str, &str) = ("function.concatBinaryAsString", "true");
const PICKED: (&str, &str) = ("function.eltOutputAsString", "true");
const PLACES: (&str, &str) = ("legacy.negativeIndexInArrayInsert", "true");
const NOTHING: (&str, &str) = ("legacy.allowParameterlessCount", "true");
const ONE_TABLE: (&str, &str) = ("legacy.allowStarWithSingleTableIdentifierInCount", "true");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_keeps_what_earlier_versions_did() {
    let rows = "FROM VALUES (1, 2), (NULL, 3), (4, 5) AS t(a, b)";
    let cases = [
        (DIGITS, "SELECT typeof(CAST(1 AS DECIMAL(38, 18)) * 10)".to_owned(), "decimal(38,18)"),
        (DIGITS, "SELECT typeof(CAST(1 AS DECIMAL(38, 18)) / 10)".to_owned(), "decimal(38,19)"),
        (DIGITS, "SELECT 10.3000 * 3.0".to_owned(), "30.90000"),
        (
            BANG,
            "SELECT 1 ! BETWEEN 0 AND 2, 1 ! IN (3, 4), 1 IS ! NULL".to_owned(),
            "false,true,true",
        ),
        (CHARSETS, "SELECT hex(encode('€', 'WINDOWS-1252'))".to_owned(), "80"),
        (MARKS, "SELECT hex(encode('渭a', 'US-ASCII'))".to_owned(), "3F61"),
        (MARKS, "SELECT decode(X'E561', 'US-ASCII')".to_owned(), "\u{FFFD}a"),
        (QUOTES, r"SELECT 'S''par''k', 'S\'par\'k'".to_owned(), "Spark,S'par'k"),
        (JOINED, "SELECT X'61' || X'62', concat(X'61', X'62')".to_owned(), "ab,ab"),
        (JOINED, "SELECT size(array(1) || array(2))".to_owned(), "2"),
        (PICKED, "SELECT elt(2, X'61', X'62')".to_owned(), "b"),
        (PLACES, "SELECT array_insert(array(1, 3, 4), -2, 2)[1]".to_owned(), "2"),
        (NOTHING, format!("SELECT count() {rows}"), "0"),
        (ONE_TABLE, format!("SELECT count(t.*) {rows}"), "2"),
    ];
    for (setting, query, expected) in cases {
        let found = row(&[setting], &query).await;
        assert_eq!(found.as_deref(), Ok(expected), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_it_spark_refuses_or_answers_otherwise() {
    for query in [
        "SELECT 1 ! IN (3, 4)",
        "SELECT encode('a', 'WINDOWS-1252')",
        "SELECT encode('渭', 'US-ASCII')",
        "SELECT count() FROM VALUES (1) AS t(a)",
    ] {
        let found = row(&[], query).await;
        assert!(found.is_err(), "{query}: {found:?}");
    }
    let cases = [
        ("SELECT 'S''par''k'", "S'par'k"),
        ("SELECT array_insert(array(1, 3, 4), -2, 2)[1]", "3"),
        ("SELECT count(t.*, t.*) FROM VALUES (1, 2), (NULL, 3) AS t(a, b)", "1"),
        ("SELECT nanvl(2.5D, 1 / 0)", "2.5"),
    ];
    for (query, expected) in cases {
        assert_eq!(row(&[], query).await.as_deref(), Ok(expected), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_set_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    for (key, value, expected) in [
        (
            "spark.sql.parser.escapedStringLiterals",
            "true",
            "it is 'false' here and stays so; write r'",
        ),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN", "it is 'EXCEPTION' here"),
        ("spark.sql.legacy.charVarcharAsString", "true", "it is 'false' here and stays so"),
        ("spark.sql.ofMine", "1", "leave the statement out"),
        ("spark.executor.memory", "1g", "leave the statement out"),
    ] {
        let message = match session.set(key, value) {
            Ok(()) => panic!("{key} = {value} is taken"),
            Err(error) => crate::variables::shown(error),
        };
        assert!(message.contains(expected), "{key} = {value}: {message}");
        assert!(!message.contains("millstream.remote"), "{key} = {value}: {message}");
    }
    for (key, value) in [
        ("spark.sql.parser.escapedStringLiterals", "false"),
        ("spark.sql.legacy.timeParserPolicy", "EXCEPTION"),
        ("spark.sql.legacy.createHiveTableByDefault", "false"),
        ("spark.sql.autoBroadcastJoinThreshold", "-1"),
        ("spark.sql.adaptive.enabled", "false"),
    ] {
        assert!(session.set(key, value).is_ok(), "{key} cannot be {value}");
        let reset = Change::Reset(Some(key.to_owned()));
        assert!(matches!(session.apply(&reset), Ok(None)), "{key} cannot be reset");
    }
}
