//! Variables of a session, and statements that are texts. Results are those that Spark gives for
//! the same statements.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use futures::TryStreamExt as _;
use millstream_query::error::QueryError;
use millstream_query::session::{PlannedQuery, QuerySession};
use millstream_query::statements::{Statements, Step};

use crate::lake::session;

/// The rows of a query, as `a,b` each, with the names of the columns first.
async fn lines(planned: PlannedQuery) -> Result<Vec<String>, QueryError> {
    let rows: Result<Vec<RecordBatch>, _> = planned.run().await?.try_collect().await;
    let rows = rows.map_err(millstream_engine::failures::from_datafusion)?;
    let drawn = pretty_format_batches(&rows).expect("they can be drawn").to_string();
    let lines = drawn.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|').map(str::trim);
        cells.collect::<Vec<_>>().join(",")
    };
    Ok(lines.map(cells).collect())
}

/// What the last query of a text gives, after all that stands before it.
pub async fn run(session: &mut QuerySession, text: &str) -> Result<Vec<String>, QueryError> {
    run_statements(session, &Statements::parse(text)?).await
}

/// The cells of the only row of the last query of a text.
pub async fn row(session: &mut QuerySession, text: &str) -> Result<String, String> {
    let lines = run(session, text).await.map_err(shown)?;
    lines.last().cloned().ok_or_else(|| format!("{text} has no rows"))
}

pub async fn run_statements(
    session: &mut QuerySession,
    statements: &Statements,
) -> Result<Vec<String>, QueryError> {
    let mut found = Vec::new();
    for step in &statements.steps {
        match step {
            Step::Query(query) => found = lines(session.plan(statements, query).await?).await?,
            Step::Variable(statement) => session.change(statements, statement).await?,
            Step::Immediate(statement) => {
                if let Some(planned) = session.execute(statements, statement).await? {
                    found = lines(planned).await?;
                }
            }
            Step::Setting(change) => drop(session.apply(change)?),
            Step::Describe { query, span } => {
                let schema = session.describe(statements, query, *span).await?;
                found = schema.fields().iter().map(|field| field.name().clone()).collect();
            }
            other => panic!("{other:?} is none of these"),
        }
    }
    Ok(found)
}

pub fn shown(error: QueryError) -> String {
    match error {
        QueryError::Sql(found) => found.to_string(),
        QueryError::Failure(failure) => failure.to_string(),
    }
}

async fn check_all(cases: &[(&str, &[&str])]) {
    let directory = tempfile::tempdir().expect("a directory");
    for (text, expected) in cases {
        let mut session = session(directory.path());
        let found = run(&mut session, text).await;
        let found = found.unwrap_or_else(|error| panic!("{text}: {}", shown(error)));
        assert_eq!(found, *expected, "{text}");
    }
}

async fn check_refused(cases: &[(&str, &str)]) {
    let directory = tempfile::tempdir().expect("a directory");
    for (text, expected) in cases {
        let mut session = session(directory.path());
        match run(&mut session, text).await {
            Ok(rows) => panic!("{text}: {rows:?}"),
            Err(error) => {
                let message = shown(error);
                assert!(message.contains(expected), "{text}: {message}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_there_for_the_texts_behind_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    let texts: [(&str, &[&str]); 5] = [
        ("CREATE FUNCTION twice(x INT) RETURNS INT RETURN 2 * x", &[]),
        ("CREATE FUNCTION row_of(n INT) RETURNS TABLE(i INT) RETURN SELECT n", &[]),
        ("SELECT twice(i) AS n FROM row_of(3) -- and no semicolon", &["n", "6"]),
        ("EXECUTE IMMEDIATE 'SELECT twice(4) AS n'", &["n", "8"]),
        ("SELECT twice(1) AS a; CREATE OR REPLACE FUNCTION twice(x INT) RETURN x", &["a", "2"]),
    ];
    for (text, expected) in texts {
        let read = session.read(text).unwrap_or_else(|found| panic!("{text}: {found}"));
        let found = run_statements(&mut session, &read).await;
        let found = found.unwrap_or_else(|error| panic!("{text}: {}", shown(error)));
        assert_eq!(found, expected, "{text}");
        session.keep_functions(&read);
    }
    let read = session.read("DROP FUNCTION row_of; SELECT twice(5) AS n").expect("both are there");
    let found = run_statements(&mut session, &read).await.map_err(shown);
    assert_eq!(found, Ok(vec!["n".to_owned(), "5".to_owned()]));
    session.keep_functions(&read);
    let read = session.read(
        "DECLARE v = 7; CREATE TEMPORARY FUNCTION of_session(x INT) RETURNS INT RETURN x + v; \
         SELECT of_session(1) AS n",
    );
    let read = read.expect("a temporary function sees variables");
    let found = run_statements(&mut session, &read).await.map_err(shown);
    assert_eq!(found, Ok(vec!["n".to_owned(), "8".to_owned()]));
    let read = session.read("SELECT * FROM row_of(1)").expect("it is a query");
    let refused = run_statements(&mut session, &read).await.map_err(shown);
    let message = refused.expect_err("the function was dropped");
    assert!(message.contains("row_of"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_variable_has_the_value_that_it_was_set_to() {
    check_all(&[
        ("DECLARE a INT; SELECT a IS NULL AS none", &["none", "true"]),
        ("DECLARE VARIABLE a INT = 5; SELECT a", &["a", "5"]),
        ("DECLARE a INT = 5; SET VAR a = a + 1; SELECT A", &["A", "6"]),
        ("DECLARE a = 'x'; SELECT typeof(a) AS t, a || 'y' AS v", &["t,v", "string,xy"]),
        ("DECLARE a, b INT = 1; SET VAR a = 2, b = a; SELECT a, b", &["a,b", "2,1"]),
        ("DECLARE a INT = 1; SET VAR a = (SELECT 2.5); SELECT a", &["a", "2"]),
        (
            "DECLARE a INT = 1; SET VAR a = (SELECT 1 WHERE 1 = 0); SELECT a IS NULL AS n",
            &["n", "true"],
        ),
        ("DECLARE a = 1; SET VAR a = 2; SET VAR a = DEFAULT; SELECT a", &["a", "1"]),
        (
            "DECLARE a INT; DECLARE b STRING; SET VAR (a, b) = (SELECT 10, 11); SELECT a, b",
            &["a,b", "10,11"],
        ),
        (
            "DECLARE a INT; DECLARE b = 1; SET VAR (a, b) = (SELECT 1, 2 WHERE 1 = 0); \
             SELECT a IS NULL AND b IS NULL AS n",
            &["n", "true"],
        ),
        (
            "DECLARE a = 'one'; SET VAR a = 'two'; SET VAR (a) = (SELECT DEFAULT FROM VALUES (1)); \
             SELECT a",
            &["a", "one"],
        ),
        (
            "DECLARE OR REPLACE a MAP<STRING, DOUBLE> = map('x', 5.1); SELECT a['x'] AS x",
            &["x", "5.1"],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_a_column_before_it_is_a_variable() {
    check_all(&[
        ("DECLARE a = 1; SELECT a, session.a AS b FROM VALUES (2) AS t(a)", &["a,b", "2,1"]),
        ("DECLARE id = 9; SELECT id FROM range(2, 3)", &["id", "2"]),
        ("DECLARE user = 'x'; SELECT session.user AS b", &["b", "x"]),
        ("DECLARE user = 'x'; SELECT user FROM VALUES (1) AS t(user)", &["user", "1"]),
        ("DECLARE a = 1; SELECT System.SESSION.A", &["A", "1"]),
        (
            "DECLARE a = 1; SELECT c FROM VALUES (2) AS t(a), LATERAL (SELECT a) AS u(c)",
            &["c", "2"],
        ),
        ("DECLARE a = 1; SELECT * FROM (SELECT a) AS t", &["a", "1"]),
        ("DECLARE a = 1; WITH t AS (SELECT a) SELECT a + 1 AS b FROM t", &["b", "2"]),
        ("DECLARE a = 1; SELECT * FROM VALUES (5) AS t(x), (SELECT a AS y) AS u", &["x,y", "5,1"]),
        ("DECLARE a = 1; SELECT filter(array(0, 1, 2), a -> a > 1) AS f", &["f", "[2]"]),
        ("DECLARE a = 1; SELECT filter(array(0, 1, 2), x -> x > a) AS f", &["f", "[2]"]),
        (
            "DECLARE day = 7; SELECT timestampdiff(DAY, DATE '2026-01-01', DATE '2026-01-03') AS d",
            &["d", "2"],
        ),
        (
            "DECLARE b = 1; SELECT s[0].b AS x FROM VALUES (array(named_struct('b', 9))) AS t(s)",
            &["x", "9"],
        ),
        ("DECLARE a = named_struct('B', 4); SELECT a.b", &["b", "4"]),
        ("DECLARE a = 1; SELECT x FROM VALUES (1), (2) AS t(x) WHERE x IN (a)", &["x", "1"]),
        ("DECLARE a = 1; SELECT x FROM VALUES (2), (3) AS t(x) ORDER BY a, x LIMIT 1", &["x", "2"]),
        ("DECLARE a = 1; SELECT 9 AS nine FROM VALUES (4) AS t(x) GROUP BY x + a", &["nine", "9"]),
        ("DECLARE a = 2; SELECT array(5, 6, 7)[a] AS x", &["x", "7"]),
        ("DECLARE a = 1; SELECT CAST(a AS STRING) AS a", &["a", "1"]),
        ("DECLARE a = 1; SELECT a + 1 AS b, 5 AS a, a AS c", &["b,a,c", "2,5,5"]),
        ("DECLARE a = 1; SELECT a + x AS a FROM VALUES (2) AS t(x) ORDER BY a", &["a", "3"]),
        ("DECLARE a = 'b INT'; SELECT from_json('{\"b\": 3}', a).b AS x", &["x", "3"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_are_called_as_spark_calls_them() {
    check_all(&[
        ("DECLARE a = 1; SELECT sum(a)", &["sum(variablereference(system.session.a=1))", "1"]),
        (
            "DECLARE a = 'x'; SELECT length(a)",
            &["length(variablereference(system.session.a='x'))", "1"],
        ),
        (
            "DECLARE a INT; SELECT typeof(a)",
            &["typeof(variablereference(system.session.a=CAST(NULL AS INT)))", "int"],
        ),
        (
            "DECLARE a = X'01AB'; SELECT hex(a)",
            &["hex(variablereference(system.session.a=X'01AB'))", "01AB"],
        ),
        (
            "DECLARE a FLOAT = 1.5; SELECT typeof(a)",
            &["typeof(variablereference(system.session.a=CAST('1.5' AS FLOAT)))", "float"],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    let declared = run(&mut session, "DECLARE a INT = 1; DECLARE b = 2").await;
    declared.unwrap_or_else(|error| panic!("{}", shown(error)));
    for wrong in [
        "SET VAR b = 3, a = 1e10",
        "SET VAR b = 3, a = (SELECT x FROM VALUES (1), (2) AS t(x))",
        "SET VAR b = 3, a = 'x'",
        "SET VAR (b, a) = (SELECT 3, 4 UNION ALL SELECT 5, 6)",
        "DECLARE OR REPLACE a SMALLINT = 100000",
        "DECLARE OR REPLACE b INT = 1 / 0",
    ] {
        assert!(run(&mut session, wrong).await.is_err(), "{wrong}");
        let kept = run(&mut session, "SELECT a, b").await;
        assert_eq!(kept.unwrap_or_else(|error| vec![shown(error)]), ["a,b", "1,2"], "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_refused() {
    check_refused(&[
        ("SELECT a", "there is no column `a`"),
        ("SET VAR a = 1", "UNRESOLVED_VARIABLE"),
        ("DECLARE a, b, c STRING DEFAULT repeat('x', 30000000)", "more than 67108864 bytes"),
        (
            "DECLARE a, b STRING DEFAULT repeat('x', 30000000); DECLARE c STRING; \
             SET VAR c = a",
            "more than 67108864 bytes",
        ),
        ("DECLARE a = 1; DECLARE a = 2", "VARIABLE_ALREADY_EXISTS"),
        ("DECLARE a = 1; DROP TEMPORARY VARIABLE a; SELECT a", "there is no column"),
        ("DROP TEMPORARY VARIABLE a", "UNRESOLVED_VARIABLE"),
        ("DECLARE a INT = (SELECT 1)", "INVALID_DEFAULT_VALUE"),
        ("DECLARE a = max(1)", "INVALID_DEFAULT_VALUE"),
        ("DECLARE a, b INT; SET VAR (a, b) = (SELECT 1)", "ASSIGNMENT_ARITY_MISMATCH"),
        ("DECLARE a INT; SET VAR (a) = (VALUES (1), (2))", "ROW_SUBQUERY_TOO_MANY_ROWS"),
        ("DECLARE a = 'x'; SET VAR a = 'y' || DEFAULT", "there is no column"),
        ("DECLARE a = 1; SET a = 2", "SET_VARIABLE_IN_SET"),
        ("DECLARE a = NULL; SET VAR a = 1", "VOID"),
        ("DECLARE a = 1; SELECT struct(a)", "without a name"),
        ("DECLARE extend = 4; SELECT 1 | extend AS x", "begins a step"),
        ("DECLARE a = named_struct('b', 1); SELECT a.c", "no one field"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_run_as_statements() {
    check_all(&[
        ("EXECUTE IMMEDIATE 'SELECT 1 AS one'", &["one", "1"]),
        ("EXECUTE IMMEDIATE 'SELECT ? + ? AS sum' USING 1, 2", &["sum", "3"]),
        (
            "EXECUTE IMMEDIATE 'SELECT ?, ? + 1, ?' USING 1.5, -3, DATE '2024-01-01'",
            &["1.5,(-3 + 1),DATE '2024-01-01'", "1.5,-2,2024-01-01"],
        ),
        ("EXECUTE IMMEDIATE 'SELECT struct(?, 1).col1 AS x' USING 1.5", &["x", "1.5"]),
        ("EXECUTE IMMEDIATE 'SELECT ? AS x' USING 1, 2", &["x", "1"]),
        ("EXECUTE IMMEDIATE 'SELECT :b - :a AS d' USING 1 AS a, 5 AS b", &["d", "4"]),
        ("DECLARE a INT; EXECUTE IMMEDIATE 'SELECT \\'42\\'' INTO a; SELECT a", &["a", "42"]),
        (
            "DECLARE a = 1; EXECUTE IMMEDIATE 'SELECT 2 WHERE 1 = 0' INTO a; SELECT a IS NULL AS n",
            &["n", "true"],
        ),
        (
            "DECLARE a = 'SELECT ? AS x'; EXECUTE IMMEDIATE a USING DATE '2026-01-31'",
            &["x", "2026-01-31"],
        ),
        (
            "DECLARE a = ''; EXECUTE IMMEDIATE 'SET VAR a = ?' USING 'it''s'; SELECT a",
            &["a", "it's"],
        ),
        (
            "CREATE TEMPORARY VIEW v AS SELECT * FROM VALUES (1), (2) AS t(x); \
             CREATE FUNCTION next(x INT) RETURNS INT RETURN x + 1; \
             EXECUTE IMMEDIATE 'SELECT max(next(x)) AS m FROM v'",
            &["m", "3"],
        ),
        (
            "EXECUTE IMMEDIATE 'SELECT IDENTIFIER(:c ''1'') FROM VALUES (7) AS t(c1)' \
             USING 'c' AS c",
            &["c1", "7"],
        ),
    ])
    .await;
    check_refused(&[
        ("DECLARE a = 1; EXECUTE IMMEDIATE a", "INVALID_EXPR_TYPE"),
        ("EXECUTE IMMEDIATE 'SELECT ?' USING (SELECT 1)", "UNSUPPORTED_EXPR_FOR_PARAMETER"),
        ("EXECUTE IMMEDIATE 'SELECT ?'", "UNBOUND_SQL_PARAMETER"),
        ("EXECUTE IMMEDIATE 'SELECT ?, :a' USING 1 AS a, 2 AS b", "MIXED"),
        ("DECLARE a INT; EXECUTE IMMEDIATE 'SELECT 1, 2' INTO a", "ASSIGNMENT_ARITY_MISMATCH"),
        ("DECLARE a INT; EXECUTE IMMEDIATE 'SET VAR a = 1' INTO a", "EXECUTE_INTO"),
        ("EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE ''SELECT 1'''", "runs a query"),
        ("EXECUTE IMMEDIATE 'SELECT 1; SELECT 2'", "one statement"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_is_the_one_before_the_query() {
    let first = "CREATE TEMPORARY VIEW v AS SELECT 1 AS a; ";
    let second = "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT 2 AS b; ";
    let both = format!("{first}SELECT * FROM v; {second}");
    check_all(&[
        (&format!("{first}SELECT * FROM v"), &["a", "1"]),
        (&format!("{both}SELECT * FROM V"), &["b", "2"]),
        (&format!("{both}EXECUTE IMMEDIATE 'SELECT * FROM v'"), &["b", "2"]),
        (&format!("{first}DESCRIBE v"), &["a"]),
        (&format!("{both}DESCRIBE v"), &["b"]),
    ])
    .await;
    check_refused(&[
        (&format!("SELECT * FROM v; {first}"), "there is no table"),
        (&format!("{first}{first}"), "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS"),
        ("DESCRIBE nope", "nope"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_name_columns_tables_and_functions() {
    check_all(&[
        ("DECLARE c = 'x'; SELECT IDENTIFIER(c) FROM VALUES (3) AS t(x)", &["x", "3"]),
        ("DECLARE c = 'x'; SELECT IDENTIFIER('t.' || c) FROM VALUES (3) AS t(x)", &["x", "3"]),
        (
            "DECLARE t = 'v'; DECLARE f = 'MAX'; CREATE TEMPORARY VIEW v AS SELECT 4 AS x; \
             SELECT IDENTIFIER(f)(x) AS m FROM IDENTIFIER(t)",
            &["m", "4"],
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_session_has_variables_of_its_own() {
    let mut session = session(Path::new("."));
    let declared = run(&mut session, "DECLARE a = 1").await;
    declared.unwrap_or_else(|error| panic!("{}", shown(error)));
    let mut copy = session.clone();
    let changed = run(&mut copy, "SET VAR a = 2; SELECT a").await;
    assert_eq!(changed.unwrap_or_else(|error| vec![shown(error)]), ["a", "2"]);
    let kept = run(&mut session, "SELECT a").await;
    assert_eq!(kept.unwrap_or_else(|error| vec![shown(error)]), ["a", "1"]);
}
