//! Which functions are known, and what becomes of queries in another zone.

use std::collections::HashSet;

use datafusion::prelude::{SessionConfig, SessionContext};

use super::{classes, times_in};
use crate::functions::zoned::OF_DAYS;
use crate::functions::{BatchClock, SessionZone};
use crate::plan::logical::to_logical;
use crate::plan::tests::NoTables;
use crate::query::prepare::prepare_query;
use crate::session::session;
use crate::types::{list_of, timestamp};

fn context(zone: &str) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(1);
    let zone = SessionZone::parse(zone).expect("there is such a zone");
    config.options_mut().extensions.insert(zone);
    config.options_mut().sql_parser.dialect = datafusion::config::Dialect::Databricks;
    session(config, &BatchClock::default())
}

/// The plan of a query, or what is wrong with it.
fn planned(query: &str, zone: &str) -> Result<String, String> {
    let state = context(zone).state();
    let prepared = prepare_query(query, &NoTables).map_err(|found| found.to_string())?;
    let plan = to_logical(&state, &prepared).map_err(|found| found.to_string())?;
    Ok(plan.display_indent().to_string())
}

#[test]
fn the_functions_that_are_known_are_there() {
    let state = context("UTC").state();
    let scalar: HashSet<&String> = state.scalar_functions().keys().collect();
    let known = [classes::STILL, classes::OF_ONE_TYPE, classes::OF_CLOCKS, OF_DAYS];
    let others = [
        "convert_timezone",
        "current_date",
        "current_timezone",
        "date_format",
        "date_trunc",
        "from_unixtime",
        "localtimestamp",
        "make_timestamp",
        "months_between",
        "time_add",
        "to_char",
        "to_date",
        "to_timestamp",
        "to_timestamp_ntz",
        "to_unix_timestamp",
        "try_add",
        "try_make_timestamp",
        "try_subtract",
        "try_to_date",
        "try_to_timestamp",
        "unix_timestamp",
    ];
    for name in known.into_iter().flatten().chain(&others) {
        assert!(scalar.contains(&(*name).to_owned()), "there is no function {name}");
    }
    let aggregates = state.aggregate_functions();
    let windows = state.window_functions();
    for name in classes::ROWS {
        let is_there = aggregates.contains_key(*name) || windows.contains_key(*name);
        assert!(is_there, "there is no aggregate {name}");
    }
    let lambdas = state.higher_order_functions();
    for name in classes::LAMBDAS {
        assert!(lambdas.contains_key(*name), "there is no function {name} of functions");
    }
}

#[test]
fn each_function_is_in_one_class() {
    let classes = [classes::STILL, classes::OF_ONE_TYPE, classes::OF_CLOCKS, OF_DAYS];
    let mut known = HashSet::new();
    for class in classes {
        assert!(class.is_sorted(), "{class:?} can be read");
        for name in class {
            assert!(known.insert(name), "{name} is known twice");
        }
    }
    assert!(classes::ROWS.is_sorted() && classes::LAMBDAS.is_sorted());
}

#[test]
fn what_does_not_depend_on_the_zone_stays() {
    for query in [
        "SELECT timestamp_seconds(1) = timestamp_millis(1000)",
        "SELECT unix_micros(timestamp_seconds(1)), hash(timestamp_seconds(1))",
        "SELECT array(timestamp_seconds(1)), struct(timestamp_seconds(1) AS a)",
        "SELECT max(timestamp_seconds(id)) FROM range(3)",
        "SELECT transform(array(1), x -> timestamp_seconds(x))",
        "SELECT DATE'2024-01-01' + 1, year(DATE'2024-01-01')",
        "SELECT window(timestamp_seconds(1), '1 day')",
    ] {
        let plan = planned(query, "Europe/Berlin").unwrap_or_else(|found| panic!("{found}"));
        assert!(!plan.contains("_in_zone"), "{query}: {plan}");
    }
}

#[test]
fn what_depends_on_the_zone_is_computed_in_it() {
    for query in [
        "SELECT TIMESTAMP'2024-01-01 00:00:00'",
        "SELECT hour(timestamp_seconds(1))",
        "SELECT CAST(timestamp_seconds(1) AS STRING)",
        "SELECT CAST(array(timestamp_seconds(1)) AS STRING)",
        "SELECT CAST(timestamp_seconds(1) AS DATE)",
        "SELECT current_date()",
        "SELECT current_time()",
        "SELECT timestamp_seconds(1) + INTERVAL '1' DAY",
        "SELECT timestamp_seconds(1) - timestamp_seconds(2)",
        "SELECT transform(array(timestamp_seconds(1)), x -> hour(x))",
        "SELECT from_unixtime(0)",
        "SELECT id FROM range(3) WHERE day(timestamp_seconds(id)) = 1",
        "SELECT id FROM range(3) WHERE id IN (SELECT day(timestamp_seconds(id)) FROM range(2))",
    ] {
        let plan = planned(query, "Europe/Berlin").unwrap_or_else(|found| panic!("{found}"));
        assert!(plan.contains("_in_zone") || plan.contains(" IN Utf8"), "{query}: {plan}");
        let plan = planned(query, "UTC").unwrap_or_else(|found| panic!("{found}"));
        assert!(!plan.contains("_in_zone") && !plan.contains(" IN Utf8"), "{query}: {plan}");
    }
}

#[test]
fn what_is_not_known_is_refused_with_the_way_around_it() {
    for query in [
        "SELECT CAST(timestamp_seconds(1) AS VARIANT)",
        "SELECT CAST(parse_json('1') AS TIMESTAMP)",
        "SELECT time_bucket(INTERVAL '1' DAY, timestamp_seconds(1))",
        "SELECT sequence(timestamp_seconds(1), timestamp_seconds(2), INTERVAL '1' DAY)",
    ] {
        let refused = planned(query, "Europe/Berlin").expect_err(query);
        assert!(refused.contains("Europe/Berlin"), "{refused}");
        assert!(refused.contains("from_utc_timestamp"), "{refused}");
        assert!(planned(query, "UTC").is_ok(), "{query}");
    }
}

#[test]
fn types_are_told_apart_by_their_times() {
    use arrow::datatypes::DataType;
    assert_eq!(times_in(&timestamp()), times_in(&list_of(timestamp())));
    assert_ne!(times_in(&timestamp()), times_in(&DataType::Date32));
    assert_eq!(times_in(&DataType::Int32), 0);
}
