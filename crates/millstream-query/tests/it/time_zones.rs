//! Sessions whose time zone is not UTC. What queries answer in them is in `tests/slt`; here are
//! what lasts, what is shown and what is refused.

use std::sync::Arc;

use millstream_engine::api::references::{Lookup, Nowhere};
use millstream_engine::pipeline::Pipeline;
use millstream_query::error::QueryError;
use millstream_query::session::QuerySession;
use millstream_query::setting_statements::{Change, TIME_ZONE};
use millstream_query::statements::{Statements, Step};

use crate::lake::session;
use crate::variables::{row, run, run_statements, shown};

fn zone(session: &mut QuerySession) -> String {
    match session.apply(&Change::Show(TIME_ZONE.to_owned())) {
        Ok(Some([_, value])) => value,
        _ => panic!("there is always a zone"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_lasts_until_another_one_is_set() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    let berlin = "SET TIME ZONE 'Europe/Berlin'; SELECT current_timezone() AS z, \
                  CAST(timestamp_seconds(0) AS STRING) AS t";
    let found = row(&mut session, berlin).await;
    assert_eq!(found.as_deref(), Ok("Europe/Berlin,1970-01-01 01:00:00"));
    assert_eq!(zone(&mut session), "Europe/Berlin");
    let next = "SELECT hour(timestamp_seconds(0)) AS h, current_timezone() AS z";
    assert_eq!(row(&mut session, next).await.as_deref(), Ok("1,Europe/Berlin"));
    let plain = "SET spark.sql.session.timeZone = +05:45; SELECT current_timezone() AS z, \
                 CAST(timestamp_seconds(0) AS STRING) AS t";
    let found = row(&mut session, plain).await;
    assert_eq!(found.as_deref(), Ok("+05:45,1970-01-01 05:45:00"));
    let interval = "SET TIME ZONE INTERVAL -3 HOURS; SELECT current_timezone() AS z";
    assert_eq!(row(&mut session, interval).await.as_deref(), Ok("-03:00"));
    assert_eq!(row(&mut session, &format!("RESET; {next}")).await.as_deref(), Ok("0,UTC"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_zone_is_refused_by_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    for (text, expected) in [
        ("SET TIME ZONE 'Europe/Nowhere'; SELECT 1", "Europe/Nowhere"),
        ("SET spark.sql.session.timeZone = europe/berlin; SELECT 1", "europe/berlin"),
        ("SET TIME ZONE LOCAL; SELECT 1", "LOCAL"),
        ("EXECUTE IMMEDIATE 'SET TIME ZONE ''+01:00'''; SELECT 1", "sets no time zone"),
    ] {
        match run(&mut session, text).await {
            Ok(rows) => panic!("{text}: {rows:?}"),
            Err(error) => {
                let message = shown(error);
                assert!(message.contains(expected), "{text}: {message}");
            }
        }
        assert_eq!(zone(&mut session), "UTC", "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_in_another_zone_is_made_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let view = "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT TIMESTAMP'2024-07-01 12:00:00' AS t;";
    let query = "SELECT unix_seconds(t) AS s FROM v";
    let set = |zone: &str| format!("SET TIME ZONE '{zone}';");
    let (berlin, tokyo) = (set("Europe/Berlin"), set("Asia/Tokyo"));
    for (text, expected) in [
        (format!("{view} {query}"), Some("1719835200")),
        (format!("{berlin} {view} {query}"), Some("1719828000")),
        (format!("{view} {berlin} {query}"), None),
        (format!("{berlin} {view} {tokyo} {query}"), None),
        (format!("{berlin} {view} {tokyo} {berlin} {query}"), Some("1719828000")),
        (format!("{berlin} {view} {tokyo} {view} {query}"), Some("1719802800")),
        (format!("{view} {} {query}", set("UTC")), Some("1719835200")),
    ] {
        let mut session = session(directory.path());
        let found = row(&mut session, &text).await;
        match expected {
            Some(expected) => assert_eq!(found.as_deref(), Ok(expected), "{text}"),
            None => {
                let refused = found.expect_err(&text);
                assert!(refused.contains("time zone was another one"), "{text}: {refused}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_earlier_texts_keep_to_their_zone() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    let texts = [
        ("CREATE FUNCTION f(x INT) RETURNS STRING RETURN CAST(timestamp_seconds(x) AS STRING)", ""),
        ("SELECT f(0) AS t", "1970-01-01 00:00:00"),
        ("SET TIME ZONE 'Asia/Tokyo'", ""),
        ("SELECT f(0) AS t", "another one"),
        (
            "CREATE OR REPLACE FUNCTION f(x INT) RETURNS STRING \
             RETURN CAST(timestamp_seconds(x) AS STRING); SELECT f(0) AS t",
            "1970-01-01 09:00:00",
        ),
        ("SELECT f(0) AS t", "1970-01-01 09:00:00"),
    ];
    for (text, expected) in texts {
        let read = session.read(text).unwrap_or_else(|found| panic!("{text}: {found}"));
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
async fn values_of_variables_are_moments() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    let text = "SET TIME ZONE 'Europe/Berlin'; DECLARE t TIMESTAMP DEFAULT '2024-07-01 12:00:00'; \
                SET TIME ZONE 'Asia/Tokyo'; SELECT unix_seconds(t) AS s, CAST(t AS STRING) AS x";
    let found = row(&mut session, text).await;
    assert_eq!(found.as_deref(), Ok("1719828000,2024-07-01 19:00:00"));
}

/// The rows of the only query in a text as records, and drawn: the first cell of each.
async fn written(session: &QuerySession, text: &str) -> Result<[String; 2], QueryError> {
    use arrow::array::{Array as _, AsArray as _};
    use arrow::compute::cast;
    use arrow::datatypes::DataType;
    use futures::TryStreamExt as _;
    let statements = Statements::parse(text)?;
    let [Step::Query(query)] = statements.steps.as_slice() else { panic!("{text} is no query") };
    let planned = session.plan(&statements, query).await?;
    let rows: Result<Vec<_>, _> = planned.run().await?.try_collect().await;
    let rows = rows.map_err(millstream_engine::failures::from_datafusion)?;
    let rows = rows.into_iter().find(|rows| rows.num_rows() > 0).expect("there is a row");
    let recorded = planned.recorded(rows.clone())?;
    let schema = planned.recorded_schema()?;
    assert_eq!(recorded.schema().field(0).data_type(), schema.field(0).data_type());
    let drawn = planned.drawn(rows)?;
    let cell = |column: &arrow::array::ArrayRef| {
        let texts = cast(column, &DataType::Utf8).expect("everything has a text");
        assert!(texts.is_valid(0));
        texts.as_string::<i32>().value(0).to_owned()
    };
    Ok([cell(recorded.column(0)), cell(drawn.column(0))])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_shown_in_the_zone() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = session(directory.path());
    assert!(session.set(TIME_ZONE, "Asia/Kolkata").is_ok());
    let found = written(&session, "SELECT timestamp_seconds(0) AS t").await.map_err(shown);
    let found = found.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(found[0], "1970-01-01T05:30:00.000+05:30");
    // It says UTC, and shows the clock of the zone, which the one who draws it leaves alone.
    assert!(found[1].starts_with("1970-01-01T05:30:00"), "{}", found[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_in_files_of_text_are_for_sessions_of_utc() {
    let directory = tempfile::tempdir().expect("a directory");
    let events = directory.path().join("events");
    std::fs::create_dir(&events).expect("it is new");
    let line = "{\"t\": \"2024-07-01 12:00:00\"}\n";
    std::fs::write(events.join("1.json"), line).expect("it is written");
    let mut session = session(directory.path());
    let registry = millstream_connectors::registry(directory.path());
    let text = "CREATE TABLE moments (t TIMESTAMP) USING json OPTIONS ('path' = 'events');
                CREATE TABLE texts (t STRING) USING json OPTIONS ('path' = 'events');";
    let lookup: Arc<dyn Lookup> = Arc::new(Nowhere);
    let pipeline = Pipeline::load("tables.sql", text, &registry, &[], &lookup);
    let pipeline = pipeline.unwrap_or_else(|found| panic!("{found:?}"));
    session.catalog().declare(&pipeline, directory.path());
    let moments = "SELECT unix_seconds(t) AS s FROM moments";
    let texts = "SELECT unix_seconds(CAST(t AS TIMESTAMP)) AS s FROM texts";
    assert_eq!(row(&mut session, moments).await.as_deref(), Ok("1719835200"));
    assert!(session.set(TIME_ZONE, "Asia/Kolkata").is_ok());
    let refused = row(&mut session, moments).await.expect_err("they are read in UTC");
    assert!(refused.contains("texts that are read in UTC"), "{refused}");
    assert_eq!(row(&mut session, texts).await.as_deref(), Ok("1719815400"));
}
