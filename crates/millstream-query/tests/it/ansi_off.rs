//! Sessions without ANSI mode. What queries answer in them is in `tests/slt`; here are what lasts,
//! what is shown and what is refused.

use std::sync::Arc;

use millstream_engine::api::references::{Lookup, Nowhere};
use millstream_engine::pipeline::Pipeline;
use millstream_query::session::QuerySession;
use millstream_query::setting_statements::{ANSI, Change};

use crate::lake::session;
use crate::variables::{row, run, run_statements, shown};

const OFF: &str = "SET spark.sql.ansi.enabled = false;";
const ON: &str = "SET spark.sql.ansi.enabled = true;";

fn mode(session: &mut QuerySession) -> String {
    match session.apply(&Change::Show(ANSI.to_owned())) {
        Ok(Some([_, value])) => value,
        _ => panic!("there is always a mode"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mode_lasts_until_the_other_one_is_set() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    assert_eq!(mode(&mut session), "true");
    let query = "SELECT CAST(CAST('1.5' AS INT) AS STRING) AS a, CAST(size(NULL) AS STRING) AS b";
    let found = row(&mut session, &format!("{OFF} {query}")).await;
    assert_eq!(found.as_deref(), Ok("1,-1"));
    assert_eq!(mode(&mut session), "false");
    assert_eq!(row(&mut session, query).await.as_deref(), Ok("1,-1"));
    for reset in [ON, "RESET spark.sql.ansi.enabled;", "RESET;"] {
        let found = row(&mut session, &format!("{OFF} {reset} {query}")).await;
        let refused = found.expect_err(reset);
        assert!(refused.contains("1.5"), "{reset}: {refused}");
        assert_eq!(mode(&mut session), "true", "{reset}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mode_is_true_or_false() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    for (text, expected) in [
        ("SET spark.sql.ansi.enabled = maybe; SELECT 1", "maybe"),
        ("EXECUTE IMMEDIATE 'SET spark.sql.ansi.enabled = false'; SELECT 1", "ANSI mode"),
    ] {
        match run(&mut session, text).await {
            Ok(rows) => panic!("{text}: {rows:?}"),
            Err(error) => {
                let message = shown(error);
                assert!(message.contains(expected), "{text}: {message}");
            }
        }
        assert_eq!(mode(&mut session), "true", "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_in_the_other_mode_is_made_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let view = "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT size(NULL) AS n;";
    let query = "SELECT coalesce(CAST(n AS STRING), 'none') AS n FROM v";
    for (text, expected) in [
        (format!("{view} {query}"), Some("none")),
        (format!("{OFF} {view} {query}"), Some("-1")),
        (format!("{view} {OFF} {query}"), None),
        (format!("{OFF} {view} {ON} {query}"), None),
        (format!("{OFF} {view} {ON} {OFF} {query}"), Some("-1")),
        (format!("{OFF} {view} {ON} {view} {query}"), Some("none")),
        (format!("{view} {ON} {query}"), Some("none")),
    ] {
        let mut session = session(directory.path());
        let found = row(&mut session, &text).await;
        match expected {
            Some(expected) => assert_eq!(found.as_deref(), Ok(expected), "{text}"),
            None => {
                let refused = found.expect_err(&text);
                assert!(refused.contains("ANSI mode was another one"), "{text}: {refused}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_earlier_texts_keep_to_their_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    let function = "FUNCTION f(x STRING) RETURNS STRING RETURN CAST(CAST(x AS INT) AS STRING)";
    let texts = [
        (format!("CREATE {function}"), ""),
        ("SELECT f('1') AS t".to_owned(), "1"),
        (OFF.to_owned(), ""),
        ("SELECT f('1') AS t".to_owned(), "another one"),
        (format!("CREATE OR REPLACE {function}; SELECT f('1.5') AS t"), "1"),
        ("SELECT f('1.5') AS t".to_owned(), "1"),
    ];
    for (text, expected) in texts {
        let read = session.read(&text).unwrap_or_else(|found| panic!("{text}: {found}"));
        let found = run_statements(&mut session, &read).await;
        let found = match found {
            Ok(lines) => lines.last().cloned().unwrap_or_default(),
            Err(error) => shown(error),
        };
        assert!(found.contains(expected), "{text}: {found}");
        session.keep_functions(&read);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_variables_fit_their_types_in_both_modes() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    let text = format!("{OFF} DECLARE t TINYINT; SET VAR t = 300; SELECT t");
    let refused = row(&mut session, &text).await.expect_err("it does not fit");
    assert!(refused.contains("300"), "{refused}");
    let cast = "DECLARE u TINYINT; SET VAR u = CAST(300 AS TINYINT); SELECT CAST(u AS STRING) AS v";
    assert_eq!(row(&mut session, &format!("{OFF} {cast}")).await.as_deref(), Ok("44"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_known_is_refused_with_the_way_around_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    for query in ["SELECT greatest(CAST(1 AS FLOAT), 1) AS a", "SELECT '1' + 1 AS a"] {
        let refused = row(&mut session, &format!("{OFF} {query}")).await.expect_err(query);
        assert!(refused.contains("SET spark.sql.ansi.enabled = true"), "{query}: {refused}");
        assert!(row(&mut session, &format!("{ON} {query}")).await.is_ok(), "{query}");
    }
}

#[test]
fn a_pipeline_has_ansi_mode() {
    let directory = tempfile::tempdir().expect("a directory");
    let registry = millstream_connectors::registry(directory.path());
    let lookup: Arc<dyn Lookup> = Arc::new(Nowhere);
    let refused = match Pipeline::load("a.sql", OFF, &registry, &[], &lookup) {
        Ok(_) => panic!("it has no mode"),
        Err(found) => format!("{found:?}"),
    };
    assert!(refused.contains("a pipeline has ANSI mode"), "{refused}");
    assert!(refused.contains("try_cast"), "{refused}");
}
