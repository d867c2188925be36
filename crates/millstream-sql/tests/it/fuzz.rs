//! Whatever a query, a type or an expression is, it is planned and run, or refused.

use std::sync::Arc;

use datafusion::prelude::SessionConfig;
use millstream_fuzz::{Limits, Target, outcome};
use millstream_sql::functions::BatchClock;
use millstream_sql::plan::condition::condition;
use millstream_sql::session::session;
use millstream_sql::syntax::lexer::Lexed;
use millstream_sql::syntax::limits;
use millstream_sql::types::{parse_schema_ddl, parse_type_ddl, spark_type};
use millstream_sql::values::interval::parse_duration;

use crate::slt::{Engine, queries};

/// The stack that a pipeline file is planned on.
const STACK_BYTES: usize = 64 << 20;

fn deep() -> Limits {
    Limits { stack_bytes: STACK_BYTES, input_bytes: 2 << 10, ..Limits::default() }
}

const WORDS: &[&str] = &[
    "SELECT ",
    " FROM ",
    " WHERE ",
    " GROUP BY ",
    " ORDER BY ",
    " HAVING ",
    " LIMIT 1",
    "(",
    ")",
    "((",
    "(SELECT ",
    "CASE WHEN ",
    " THEN ",
    " ELSE ",
    " END",
    "CAST(",
    " AS ",
    "INT",
    "STRING",
    "DECIMAL(38,18)",
    "TIMESTAMP",
    "DATE",
    "ARRAY<",
    "STRUCT<",
    "MAP<",
    ">",
    "INTERVAL ",
    " DAY",
    " MONTH",
    " TO ",
    " UNION ALL ",
    " JOIN ",
    " ON ",
    " IN (",
    " NOT ",
    " BETWEEN ",
    " AND ",
    " OR ",
    " LIKE ",
    " RLIKE ",
    " IS NULL",
    " OVER (PARTITION BY ",
    " LATERAL VIEW ",
    " explode(",
    "window(",
    "from_json(",
    "to_json(",
    "get_json_object(",
    "date_format(",
    "regexp_replace(",
    "array(",
    "map(",
    "struct(",
    "named_struct(",
    "transform(",
    "x -> ",
    "[0]",
    ".a",
    "::",
    "'",
    "\"",
    "`",
    "--",
    "/*",
    "*/",
    "1e308",
    "1.5BD",
    "X'ff'",
    "NULL",
    "true",
    "DATE'2026-01-01'",
    "TIMESTAMP'2026-01-01'",
    "'5 minutes'",
    "current_timestamp()",
    "*",
    ",",
    "+",
    "-",
    "/",
    "%",
    "||",
    "<=>",
    "<>",
    "&",
    "|",
    "^",
    "~",
    "div ",
    "\u{0}",
    "\u{fffd}",
];

/// Queries of the files of SQL with its answers, mutated; planned and run over their tables.
#[test]
fn fuzz_queries_over_tables() {
    let target = Target::text("sql_queries").limits(deep()).seeds(queries()).words(WORDS);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut engine = Engine::new(8192);
    let tables = "CREATE TABLE t (n INT, s STRING, d DOUBLE, m DECIMAL(10,2), at TIMESTAMP, \
        l ARRAY<INT>) AS VALUES (1, 'a', 1.5e0, 2.25, '2026-03-02 01:02:03', array(1, null)), \
        (NULL, NULL, NULL, NULL, NULL, NULL), (-7, '{\"a\":[1]}', CAST('NaN' AS DOUBLE), 0, '1970-01-01', array(3))";
    runtime.block_on(engine.create(tables)).expect("a table");
    target.run(move |input| {
        let text = modest(&String::from_utf8_lossy(input));
        outcome(&runtime.block_on(engine.execute(&text)))
    });
}

/// The text, where it calls what makes texts, lists and rows of any number, with each number cut to
/// three digits: a query gets what it asks for, up to a limit of its own, and that is no defect.
fn modest(text: &str) -> String {
    const LONG: &[&str] = &["repeat", "space", "pad", "sequence", "range"];
    if !LONG.iter().any(|name| text.to_ascii_lowercase().contains(name)) {
        return text.to_owned();
    }
    let mut digits = 0;
    let keeps = |letter: &char| {
        digits = if letter.is_ascii_digit() { digits + 1 } else { 0 };
        digits <= 3
    };
    text.chars().filter(keeps).collect()
}

/// Calls of every function with arguments of every kind.
#[test]
fn fuzz_calls_of_functions() {
    let state = session(SessionConfig::new(), &BatchClock::default()).state();
    let names = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
    let mut names: Vec<&String> = names.collect();
    names.sort();
    let arguments = ["n", "n, s", "s, n", "s, s", "d", "at, s", "l, n", "s, n, s", "m, n", "l, l"];
    let call = |(at, name): (usize, &&String)| {
        format!("SELECT {name}({}) AS x FROM t", arguments[at % arguments.len()])
    };
    let seeds: Vec<String> = names.iter().enumerate().map(call).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut engine = Engine::new(8192);
    let table = "CREATE TABLE t (n INT, b BIGINT, s STRING, d DOUBLE, m DECIMAL(38,2), at TIMESTAMP, \
        l ARRAY<INT>) AS VALUES (1, 1, 'a', 1.5e0, 2.25, '2026-03-02 01:02:03', array(1, null)), \
        (-7, CAST('-9223372036854775808' AS BIGINT), 'yyyy', -0e0, 0, '0001-01-01', array(3)), (99, \
        CAST('9223372036854775807' AS BIGINT), '%s', CAST('NaN' AS DOUBLE), CAST('999999999999999999999999999999999999.99' AS DECIMAL(38,2)), '9999-12-31', \
        array(2147483647))";
    runtime.block_on(engine.create(table)).expect("a table");
    let words: &[&str] = &[
        "n",
        "b",
        "s",
        "d",
        "m",
        "at",
        "l",
        ",",
        "(",
        ")",
        "'a'",
        "''",
        "NULL",
        "CAST(n AS BIGINT)",
        "CAST(at AS DATE)",
        "array(",
        "map(s, n)",
        "struct(n, s)",
        "x -> x",
        "(a, b) -> a",
        "INTERVAL 1 DAY",
        "'UTC'",
        "'$.a'",
        "'a INT'",
        "'yyyy-MM'",
        "X'00ff'",
        "-1",
        "1.5",
        "1e308",
        "CAST(NULL AS DOUBLE)",
        "DISTINCT ",
    ];
    Target::text("sql_functions").limits(deep()).seeds(seeds).words(words).run(move |input| {
        let text = modest(&String::from_utf8_lossy(input));
        outcome(&runtime.block_on(engine.execute(&text)))
    });
}

#[test]
fn fuzz_tokens_and_limits() {
    let target = Target::text("sql_tokens").limits(deep()).seeds(queries()).words(WORDS);
    target.run(|input| {
        let text = String::from_utf8_lossy(input);
        let lexed = Lexed::new(&text);
        if let Ok(lexed) = &lexed {
            let _ = limits::check(lexed);
            lexed.lexemes.iter().for_each(|lexeme| {
                assert!(text.get(lexeme.span.range()).is_some(), "{:?}", lexeme.span);
            });
        }
        match lexed {
            Ok(_) => "ok".to_owned(),
            Err(found) => found.message,
        }
    });
}

#[test]
fn fuzz_types_and_columns() {
    let seeds = [
        "a INT, b STRUCT<c: STRING NOT NULL COMMENT 'x', `d d`: ARRAY<DECIMAL(10,2)>>",
        "MAP<STRING, ARRAY<STRUCT<a: TIMESTAMP_NTZ, b: INTERVAL DAY TO SECOND>>>",
        "ARRAY<VARCHAR(5)>",
    ];
    let words = &["ARRAY<", "STRUCT<", "MAP<", ">", ">>", "a:", "INT", "DECIMAL(", "NOT NULL", "`"];
    Target::text("sql_types").seeds(seeds).words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        let (fields, data_type) = (parse_schema_ddl(&text), parse_type_ddl(&text));
        if let Ok(data_type) = &data_type {
            let shown = spark_type(data_type);
            let again = parse_type_ddl(&shown);
            assert_eq!(again.as_ref().map(spark_type).ok(), Some(shown));
        }
        format!("{} {}", outcome(&fields), outcome(&data_type))
    });
}

#[test]
fn fuzz_intervals() {
    let seeds =
        ["10 seconds 500 milliseconds", "interval -1.5 seconds", "1 year 2 months - 1 week"];
    let words = &["interval ", "second", "days", " ", "-", "+", ".", "weeks", "month"];
    Target::text("sql_intervals")
        .seeds(seeds)
        .words(words)
        .run(|input| outcome(&parse_duration(&String::from_utf8_lossy(input))));
}

/// Conditions on a row, as constraints have them.
#[test]
fn fuzz_conditions() {
    let seeds = [
        "n > 0 AND s LIKE 'a%' ESCAPE '!'",
        "at BETWEEN TIMESTAMP'2026-01-01' AND current_timestamp() - INTERVAL 1 DAY",
        "from_json(s, 'a INT').a IN (1, 2) OR s RLIKE '^a+$' OR l[0] IS NOT DISTINCT FROM n",
        "date_format(at, 'yyyy-MM-dd') = CAST(n AS STRING)",
    ];
    let state = session(SessionConfig::new(), &BatchClock::default()).state();
    let fields = parse_schema_ddl("n INT, s STRING, at TIMESTAMP, l ARRAY<INT>").expect("columns");
    let schema = Arc::new(arrow::datatypes::Schema::new(fields));
    let schema = datafusion::common::DFSchema::try_from(schema).expect("a schema");
    let target = Target::text("sql_conditions").limits(deep()).seeds(seeds).words(WORDS);
    target.run(move |input| {
        let text = String::from_utf8_lossy(input);
        outcome(&condition(&state, &text, &schema, "the constraint c"))
    });
}
