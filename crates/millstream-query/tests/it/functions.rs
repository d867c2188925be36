//! Functions that are declared in SQL. Results are those that Spark gives for the same statements.

use crate::lake::{answer, session};

const TABLES: &str = "\
CREATE TEMPORARY VIEW t1 AS SELECT * FROM VALUES (0, 1), (0, 2), (1, 2) AS a(c1, c2);
CREATE TEMPORARY VIEW t2 AS SELECT * FROM VALUES (0, 2), (0, 3) AS b(c1, c2);
CREATE FUNCTION product(a DOUBLE, b DOUBLE) RETURNS DOUBLE RETURN a * b;
CREATE FUNCTION same(x INT) RETURNS INT RETURN x;
CREATE FUNCTION selected(x INT) RETURNS INT RETURN SELECT x;
CREATE FUNCTION total(x INT) RETURNS INT RETURN (SELECT SUM(c2) FROM t2 WHERE c1 = x);
CREATE FUNCTION words(a INT, b INT DEFAULT 7, c INT DEFAULT 8) RETURNS STRING
    RETURN a || ' ' || b || ' ' || c;
CREATE FUNCTION small(a TINYINT) RETURNS TINYINT RETURN CAST(a AS SMALLINT) + 1;
CREATE FUNCTION pair(a INT, b INT DEFAULT 7) RETURNS TABLE(a INT, b STRING) RETURN SELECT a, b;
CREATE FUNCTION inferred(a INT, b STRING) RETURNS TABLE RETURN SELECT a * 2 AS twice, b AS it;
CREATE FUNCTION names(a STRING, b STRING) RETURNS STRING RETURN
    SELECT a || b || names.b || t.b FROM VALUES ('t.b') AS t(b);
CREATE FUNCTION summed(x ARRAY<INT>) RETURNS INT RETURN aggregate(x, 0, (x, y) -> x + y);
CREATE FUNCTION twice(x DOUBLE) RETURNS DOUBLE RETURN x + x;
CREATE FUNCTION around(c2 INT) RETURNS INT RETURN (SELECT (SELECT c2) FROM VALUES (1) AS v(c2));
CREATE FUNCTION earlier(x INT) RETURNS INT RETURN (SELECT y FROM (SELECT 999 AS x, x + 1 AS y));
CREATE FUNCTION couple(a INT, b STRING) RETURN STRUCT(a, b);
CREATE FUNCTION renamed(s STRUCT<p: INT, q: STRING>) RETURNS STRUCT<p: INT, q: STRING> RETURN s;
CREATE FUNCTION found(x INT) RETURNS TABLE(a INT, n BIGINT)
    RETURN SELECT c1, COUNT(*) FROM t2 WHERE c1 = x GROUP BY c1;
";

/// The rows of a query, as `a,b` each.
async fn rows(query: &str) -> Result<Vec<String>, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let session = session(directory.path());
    let drawn = answer(&session, &format!("{TABLES}{query}")).await;
    let drawn = drawn.map_err(|error| match error {
        millstream_query::error::QueryError::Sql(found) => found.to_string(),
        millstream_query::error::QueryError::Failure(failure) => failure.to_string(),
    })?;
    let lines = drawn.lines().filter(|line| line.starts_with('|')).skip(1);
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        cells.collect::<Vec<_>>().join(",")
    };
    let mut rows: Vec<String> = lines.map(cells).collect();
    rows.sort();
    Ok(rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_what_its_body_says() {
    let cases: &[(&str, &[&str])] = &[
        ("SELECT words(1, 2, 3), words(1, 2), words(1)", &["1 2 3,1 2 8,1 7 8"]),
        ("SELECT words(c => 5, a => 1)", &["1 7 5"]),
        ("CREATE TEMPORARY FUNCTION f(x INT) RETURN x + 1; SELECT session.f(1)", &["2"]),
        ("CREATE TEMPORARY FUNCTION f(x INT) RETURN x + 1; SELECT system.session.f(1)", &["2"]),
        ("SELECT builtin.abs(-1), System.Builtin.abs(-2)", &["1,2"]),
        ("SELECT product(a + 1, b + 1) FROM t1 AS t(a, b)", &["2.0", "3.0", "6.0"]),
        ("SELECT c1, total(c1) FROM t1", &["0,5", "0,5", "1,"]),
        ("SELECT c1, total(selected(same(c1))) FROM t1", &["0,5", "0,5", "1,"]),
        ("SELECT product(MAX(c1), c2) FROM t1 GROUP BY c2", &["0.0", "2.0"]),
        ("SELECT same(c1), SUM(c2) FROM t1 GROUP BY 1", &["0,3", "1,2"]),
        ("SELECT c1, SUM(selected(c2)) FROM t1 GROUP BY c1", &["0,3", "1,2"]),
        ("SELECT c1, c2 FROM t1 WHERE same(c1) = 1", &["1,2"]),
        ("SELECT small(126)", &["127"]),
        ("SELECT * FROM pair(5)", &["5,7"]),
        ("SELECT * FROM pair(5, 5)", &["5,5"]),
        ("SELECT p.b FROM t1 JOIN pair(1, 2) AS p ON t1.c1 = p.a", &["2"]),
        ("SELECT t1.c1, c2, b FROM t1, LATERAL pair(t1.c2)", &["0,1,7", "0,2,7", "1,2,7"]),
        ("SELECT it, twice FROM inferred(5, 'x')", &["x,10"]),
        ("SELECT names('p.a ', 'p.b ')", &["p.a t.bp.b t.b"]),
        ("SELECT summed(array(1, 2, 3))", &["6"]),
        // A column of a query around is one before it is a parameter, and so is an earlier item.
        ("SELECT around(42), earlier(42)", &["1,1000"]),
        // The fields are called as the parameters.
        ("SELECT typeof(couple(1, 'x'))", &["struct<a:int,b:string>"]),
        ("SELECT renamed(struct(1, 'x')).q", &["x"]),
        ("SELECT c1, (SELECT MAX(n) FROM found(c1)) AS m FROM t1", &["0,2", "0,2", "1,"]),
        ("SELECT c1, n FROM t1, LATERAL (SELECT n FROM found(c1))", &["0,2", "0,2"]),
        ("SELECT mask(lowerChar => 'q', upperChar => 'Q', str => 'AbC1')", &["QqQn"]),
        ("SELECT * FROM explode(collection => array(1, 2))", &["1", "2"]),
    ];
    for (query, expected) in cases {
        let found = rows(query).await.unwrap_or_else(|problem| panic!("{query}: {problem}"));
        assert_eq!(found, *expected, "{query}");
    }
}

/// Functions and views that read each other in turns: each is read twice by the next one.
fn in_turns(count: usize) -> String {
    let pair = |at: usize| {
        format!(
            "CREATE TEMPORARY VIEW turn{at} AS SELECT a FROM step{at}();\n\
             CREATE FUNCTION step{}() RETURNS TABLE(a INT) RETURN SELECT a FROM turn{at};\n",
            at + 1
        )
    };
    let pairs: String = (0..count).map(pair).collect();
    let first = "CREATE FUNCTION step0() RETURNS TABLE(a INT) RETURN SELECT 1 AS a;\n";
    format!("{first}{pairs}SELECT a FROM step{count}()")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_be_answered_otherwise_is_refused() {
    let deep = (0..40).fold("1".to_owned(), |inner, _| format!("twice({inner})"));
    let cases = [
        ("SELECT words()".to_owned(), "needs a value for `a`"),
        ("SELECT words(1, 2, 3, 4)".to_owned(), "takes 3 arguments at most"),
        ("SELECT words(1, d => 2)".to_owned(), "no parameter `d`"),
        ("SELECT words(1, a => 2)".to_owned(), "`a` is given twice"),
        ("SELECT words(a => 1, 2)".to_owned(), "without a name"),
        ("SELECT small(127)".to_owned(), ""),
        ("SELECT pair(1)".to_owned(), "gives rows"),
        ("SELECT * FROM same(1)".to_owned(), "gives a value"),
        ("SELECT * FROM t1 ORDER BY same(c1)".to_owned(), "cannot stand in ORDER BY"),
        ("SELECT twice(rand())".to_owned(), "another value each time"),
        // `b.c2` would be the column of the table in the body.
        ("SELECT total(b.c2) FROM t1 b JOIN t1 c ON b.c1 = c.c1".to_owned(), "something else"),
        ("SELECT total(max(c1)) FROM t1".to_owned(), "an aggregate"),
        ("WITH t2 AS (SELECT 0 AS c1, 9 AS c2) SELECT total(0) FROM t2".to_owned(), "WITH hides"),
        ("CREATE FUNCTION f(x INT) RETURN f(x); SELECT f(1)".to_owned(), "calls itself"),
        (
            "CREATE FUNCTION f(grouping__id INT) RETURN grouping__id; SELECT f(1)".to_owned(),
            "is a function",
        ),
        ("CREATE FUNCTION f(x INT) RETURN c1; SELECT f(1) FROM t1".to_owned(), "no parameter"),
        ("CREATE FUNCTION f(x INT) RETURN sum(x); SELECT f(c1) FROM t1".to_owned(), "`sum`"),
        (format!("SELECT {deep}"), "too large"),
        (in_turns(14), "bodies of functions are read more than"),
    ];
    for (query, expected) in cases {
        match rows(&query).await {
            Ok(rows) => panic!("{query}: {rows:?}"),
            Err(message) => assert!(message.contains(expected), "{query}: {message}"),
        }
    }
}
