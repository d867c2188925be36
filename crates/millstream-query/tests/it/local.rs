//! Queries in this process.

use std::path::Path;

use crate::lake::{FILES, ROWS, answer, copied, events, session};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_parquet_is_counted_filtered_and_grouped() {
    let directory = events();
    let session = session(directory.path());
    let counted = answer(&session, "SELECT count(*) AS n FROM parquet.`events`").await;
    assert!(counted.expect("it runs").contains(&format!("| {} |", FILES * ROWS)));
    let text = "SELECT country, sum(amount) AS total FROM parquet.`events` WHERE id < 8 \
                GROUP BY country ORDER BY country";
    let expected = "\
+---------+-------+
| country | total |
+---------+-------+
| de      | 4     |
| fr      | 6     |
| jp      | 8     |
| kr      | 10    |
+---------+-------+";
    assert_eq!(answer(&session, text).await.expect("it runs"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_sees_what_is_written_between_two_of_them() {
    let directory = events();
    let session = session(directory.path());
    let text = "SELECT count(*) AS n FROM parquet.`events`";
    let before = answer(&session, text).await.expect("it runs");
    let from = directory.path().join("events/part-0.parquet");
    std::fs::copy(from, directory.path().join("events/part-9.parquet")).expect("copied");
    let after = answer(&session, text).await.expect("it runs");
    assert_ne!(before, after);
    assert!(after.contains(&format!("| {} |", (FILES + 1) * ROWS)), "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_is_one_throughout_a_query() {
    let directory = events();
    let session = session(directory.path());
    let text = "SELECT count(DISTINCT t) AS n, max(t) > TIMESTAMP '2026-01-01 00:00:00' AS late \
                FROM (SELECT current_timestamp() AS t FROM parquet.`events`)";
    let found = answer(&session, text).await.expect("it runs");
    assert!(found.contains("| 1 | true |"), "{found}");
    let types = "SELECT typeof(unix_timestamp()) AS s, unix_timestamp() > 1700000000 AS late, \
                 typeof(current_time()) AS c, typeof(localtimestamp()) AS l";
    let found = answer(&session, types).await.expect("it runs");
    assert!(found.contains("| bigint | true | time(6) | timestamp_ntz |"), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_that_differ_in_case_are_different_tables() {
    let directory = events();
    let at = |name: &str| directory.path().join(name);
    copied(&at("events"), &at("EVENTS"));
    std::fs::remove_file(at("EVENTS/part-0.parquet")).expect("removed");
    let session = session(directory.path());
    let text = "SELECT (SELECT count(*) FROM parquet.`events`) AS a, \
                (SELECT count(*) FROM parquet.`EVENTS`) AS b";
    let answer = answer(&session, text).await.expect("it runs");
    let expected = format!("| {} | {} |", FILES * ROWS, (FILES - 1) * ROWS);
    assert!(answer.contains(&expected), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_are_checked_in_the_order_of_the_text() {
    let directory = events();
    let session = session(directory.path());
    // The column of the second is the cheaper one to read.
    let text = "SELECT count(*) AS n FROM parquet.`events` \
                WHERE country <> 'fr' AND 1 / (id % 4 - 1) > 0";
    let answer = answer(&session, text).await.expect("nothing is divided by zero");
    assert!(answer.contains(&format!("| {} |", FILES * ROWS / 2)), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_tells_scans_its_keys_by_columns_and_not_by_names() {
    let directory = events();
    let session = session(directory.path());
    // `b.id` is the second column of its name in what is joined with the keys.
    let text = "SELECT a.id AS a, b.id AS b FROM parquet.`events` a \
                JOIN parquet.`events` b ON a.id + 1 = b.id \
                LEFT JOIN parquet.`events` c ON a.id = c.id AND a.country <> b.country \
                JOIN VALUES (5) AS v(x) ON b.id = v.x";
    let answer = answer(&session, text).await.expect("it runs");
    assert!(answer.contains("| 4 | 5 |"), "{answer}");
}

/// A Delta table whose columns have other names in its files, with deletion vectors.
fn mapped() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let table = Path::new(&here).join("../millstream-lake/tests/data/mapped");
    copied(&table, &directory.path().join("mapped"));
    directory
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mapped_columns_and_deleted_rows_are_read_by_the_connector() {
    let directory = mapped();
    let session = session(directory.path());
    let count = |of: &str| format!("SELECT {of} AS n FROM delta.`mapped`");
    let all = answer(&session, &count("count(*)")).await.expect("it runs");
    let ids = answer(&session, &count("count(DISTINCT id)")).await.expect("it runs");
    assert_eq!(all, ids, "deleted rows are not counted");
    let plan = "SELECT count(*) AS n FROM delta.`mapped` a JOIN delta.`mapped` b ON a.id = b.id";
    assert_eq!(answer(&session, plan).await.expect("it runs"), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_say_whether_group_by_sees_aliases_and_what_begins_a_step() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    let other = session.clone();
    let by_alias = "SELECT x AS k, count(*) AS n FROM VALUES (1), (1) AS t(x) GROUP BY k";
    // The column is meant, not the alias.
    let by_column = "SELECT 'a' AS x, count(*) AS n FROM VALUES (1), (2) AS t(x) GROUP BY x";
    let by_place = "SELECT x AS k, count(*) AS n FROM VALUES (1), (1) AS t(x) GROUP BY 1";
    let steps = "SELECT 1 AS a | EXTEND 2 AS b";
    let answers = [answer(&session, by_column).await, answer(&session, by_place).await];
    let [column, place] = answers.map(|answer| answer.expect("it runs"));
    assert!(answer(&session, by_alias).await.is_ok() && answer(&session, steps).await.is_ok());

    session.set("spark.sql.groupByAliases", "false").expect("a setting");
    let refused = answer(&session, by_alias).await.expect_err("the alias is not seen");
    assert!(format!("{refused:?}").contains("spark.sql.groupByAliases"), "{refused:?}");
    assert_eq!(answer(&session, by_column).await.expect("it runs"), column);
    assert_eq!(answer(&session, by_place).await.expect("it runs"), place);
    assert!(answer(&other, by_alias).await.is_ok(), "the other session has its own settings");

    session.set("spark.sql.parser.singleCharacterPipeOperator.enabled", "false").expect("set");
    assert!(answer(&session, steps).await.is_err());
    assert!(answer(&session, "SELECT 1 AS a |> EXTEND 2 AS b").await.is_ok());
    assert!(answer(&session, "SELECT 1 | 2 AS a").await.is_ok());
    assert!(session.set("spark.sql.groupByAliases", "maybe").is_err());

    let others = "SELECT `(a|b)?+.+` FROM VALUES (1, 2, 3) AS t(a, B, c)";
    assert!(answer(&session, others).await.is_err());
    session.set("spark.sql.parser.quotedRegexColumnNames", "true").expect("set");
    let named = answer(&session, "SELECT c FROM VALUES (1, 2, 3) AS t(a, B, c)").await;
    assert_eq!(answer(&session, others).await.expect("it runs"), named.expect("it runs"));
    assert!(answer(&session, "SELECT `(d|e)` FROM VALUES (1) AS t(a)").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_say_of_which_file_they_are() {
    let directory = events();
    let session = session(directory.path());
    let text = "SELECT _metadata.file_name AS file, count(*) AS n, min(id) AS least \
                FROM parquet.`events` WHERE _metadata.file_name < 'part-2' \
                GROUP BY _metadata.file_name ORDER BY file";
    let expected = "\
+----------------+------+-------+
| file           | n    | least |
+----------------+------+-------+
| part-0.parquet | 5000 | 0     |
| part-1.parquet | 5000 | 5000  |
+----------------+------+-------+";
    assert_eq!(answer(&session, text).await.expect("it runs"), expected);
    // `*` shows the table's own columns.
    let text = "SELECT * FROM (SELECT *, e._metadata.file_size > 0 AS has \
                FROM parquet.`events` AS e WHERE id = 3)";
    let expected = "\
+----+---------+--------+---------+------+
| id | user_id | amount | country | has  |
+----+---------+--------+---------+------+
| 3  | 9       | 3      | kr      | true |
+----+---------+--------+---------+------+";
    assert_eq!(answer(&session, text).await.expect("it runs"), expected);
    let text = "SELECT count(DISTINCT _metadata.file_path) AS n, count_if( \
                _metadata.file_modification_time > TIMESTAMP '2026-01-01 00:00:00') AS new \
                FROM parquet.`events`";
    let counted = answer(&session, text).await.expect("it runs");
    assert!(counted.contains(&format!("| {FILES} | {} |", FILES * ROWS)), "{counted}");
    for refused in ["_metadata.row_index", "_metadata.*", "_metadata"] {
        let text = format!("SELECT {refused} FROM parquet.`events`");
        assert!(answer(&session, &text).await.is_err(), "{refused}");
    }
}
