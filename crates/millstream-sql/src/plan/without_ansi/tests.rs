//! Which functions are known, and what becomes of queries without ANSI mode.

use std::collections::HashSet;

use arrow::datatypes::{DataType, Field};
use datafusion::prelude::{SessionConfig, SessionContext};

use super::casts::{Form, form};
use super::{classes, scalars};
use crate::functions::{BatchClock, WithoutAnsi};
use crate::plan::logical::to_logical;
use crate::plan::tests::NoTables;
use crate::query::prepare::prepare_query;
use crate::session::session;
use crate::types::{list_of, timestamp};

fn context(has_ansi: bool) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(1);
    if !has_ansi {
        config.options_mut().extensions.insert(WithoutAnsi);
    }
    config.options_mut().sql_parser.dialect = datafusion::config::Dialect::Databricks;
    session(config, &BatchClock::default())
}

/// The plan of a query, or what is wrong with it.
fn planned(query: &str, has_ansi: bool) -> Result<String, String> {
    let state = context(has_ansi).state();
    let prepared = prepare_query(query, &NoTables).map_err(|found| found.to_string())?;
    let plan = to_logical(&state, &prepared).map_err(|found| found.to_string())?;
    Ok(plan.display_indent().to_string())
}

#[test]
fn functions_can_be_found() {
    for class in [scalars::SCALARS, classes::ROWS, classes::LAMBDAS] {
        assert!(class.is_sorted(), "{class:?} can be searched");
        let names: HashSet<&&str> = class.iter().collect();
        assert_eq!(names.len(), class.len(), "each is there once");
    }
    assert!(classes::is_known("upper") && classes::is_known("__variable_0"));
    assert!(!classes::is_known("arrow_cast") && !classes::is_of_rows("upper"));
}

#[test]
fn forms_that_stand_in_the_place_of_others_are_there() {
    let state = context(false).state();
    for name in [
        "get",
        "try_element_at",
        "try_make_timestamp",
        "try_make_timestamp_ntz",
        "try_parse_url",
        "try_to_date",
        "try_to_timestamp",
    ] {
        assert!(state.scalar_functions().contains_key(name), "there is no function {name}");
    }
    let types = [DataType::Int64, DataType::Decimal128(3, 1)];
    let names = ["sum", "avg"]
        .into_iter()
        .flat_map(|name| types.iter().filter_map(move |of| classes::without_error(name, of)));
    for name in names {
        assert!(state.aggregate_functions().contains_key(name), "there is no aggregate {name}");
    }
}

#[test]
fn what_is_the_same_in_both_modes_stays() {
    for query in [
        "SELECT upper('a'), coalesce(1, 2)",
        "SELECT CAST(1 AS BIGINT), CAST(1 AS DOUBLE), CAST(1 AS STRING), try_cast('x' AS INT)",
        "SELECT count(*), max(id), avg(id) FROM range(3) WHERE id > 1",
        "SELECT id IN (1, 2), id BETWEEN 1 AND 2, CASE WHEN id = 1 THEN 1 ELSE 2 END FROM range(3)",
        "SELECT get(array(1), 5), map_keys(map('a', 1)), filter(array(1), x -> x > 1)",
    ] {
        let plan = planned(query, false).unwrap_or_else(|found| panic!("{query}: {found}"));
        assert_eq!(planned(query, true).as_ref(), Ok(&plan), "{query}");
    }
}

#[test]
fn what_fails_with_ansi_mode_has_another_form() {
    for query in [
        "SELECT id + 1 FROM range(3)",
        "SELECT -id, abs(id), id % 2, id / 2, id DIV 2, pmod(id, 2) FROM range(3)",
        "SELECT CAST('1' AS INT)",
        "SELECT CAST(id AS INT) FROM range(3)",
        "SELECT CAST(1.5BD + 1 AS DECIMAL(3, 1))",
        "SELECT CAST('x' AS DATE)",
        "SELECT id = '1' FROM range(3)",
        "SELECT sum(id) FROM range(3)",
        "SELECT sum(id) OVER (ORDER BY id) FROM range(3)",
        "SELECT array(1)[5], element_at(array(1), 5), size(NULL)",
        "SELECT to_date('x'), to_timestamp('x'), unix_timestamp('x'), make_date(2024, 2, 30)",
        "SELECT transform(array(1), x -> x + 1)",
        "SELECT '1' IN (1, 2), coalesce('1', 2), CASE WHEN true THEN 1 ELSE 'a' END, array(1, '2')",
        "SELECT 1 AS a UNION ALL SELECT '2'",
        "SELECT CAST(1 AS FLOAT) + 1, CAST(1 AS FLOAT) = 1, coalesce(CAST(1 AS FLOAT), 1)",
        "SELECT id FROM range(3) WHERE id IN (SELECT id + 1 FROM range(2))",
    ] {
        let plan = planned(query, false).unwrap_or_else(|found| panic!("{query}: {found}"));
        assert_ne!(planned(query, true).as_ref(), Ok(&plan), "{query}");
    }
}

#[test]
fn what_is_not_known_is_refused_with_the_way_around_it() {
    for query in [
        "SELECT '1' + 1",
        "SELECT greatest('1', 2)",
        "SELECT greatest(CAST(1 AS FLOAT), 1)",
        "SELECT array_contains(array(CAST(1 AS FLOAT)), 1)",
        "SELECT true AS a UNION ALL SELECT '2'",
        "SELECT * FROM VALUES (1), ('2') AS t(a)",
        "SELECT id FROM range(3) WHERE 'a' IN (SELECT id FROM range(3))",
        "SELECT CAST(array(CAST(0 AS DECIMAL(20, 10))) AS STRING)",
    ] {
        let refused = planned(query, false).expect_err(query);
        assert!(refused.contains("spark.sql.ansi.enabled"), "{query}: {refused}");
    }
    let literal = planned("SELECT DATE'2024-02-30'", false).expect_err("there is no such day");
    assert!(literal.contains("INVALID_TYPED_LITERAL"), "{literal}");
}

#[test]
fn casts_have_forms() {
    let text = DataType::Utf8;
    let small = DataType::Decimal128(20, 10);
    for (from, to, expected) in [
        (text.clone(), DataType::Int32, Form::Wrapping),
        (DataType::Int64, DataType::Int32, Form::Wrapping),
        (DataType::Int32, DataType::Int64, Form::Total),
        (DataType::Float64, DataType::Int8, Form::Wrapping),
        (timestamp(), DataType::Int32, Form::OrNull),
        (text.clone(), DataType::Date32, Form::OrNull),
        (DataType::Int64, DataType::Decimal128(3, 1), Form::OrNull),
        (DataType::Int64, timestamp(), Form::Strict),
        (small.clone(), text.clone(), Form::Wrapping),
        (DataType::Decimal128(20, 6), text.clone(), Form::Total),
        (list_of(small), text.clone(), Form::Unknown),
        (list_of(text.clone()), list_of(DataType::Int32), Form::Wrapping),
        (list_of(text.clone()), list_of(DataType::Float64), Form::OrNull),
    ] {
        assert_eq!(form(&from, &to), expected, "{from} to {to}");
    }
    let of = |types: [DataType; 2]| {
        let field = |(at, of): (usize, DataType)| Field::new(format!("c{at}"), of, true);
        DataType::Struct(types.into_iter().enumerate().map(field).collect())
    };
    let from = of([text.clone(), DataType::Int64]);
    assert_eq!(form(&from, &of([DataType::Date32, timestamp()])), Form::Unknown);
    assert_eq!(form(&from, &of([DataType::Date32, DataType::Int32])), Form::Wrapping);
}
