//! Queries in this process.

use crate::lake::{FILES, ROWS, answer, events, session};

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
    let answer = answer(&session, text).await.expect("it runs");
    assert!(answer.contains("| 1 | true |"), "{answer}");
}
