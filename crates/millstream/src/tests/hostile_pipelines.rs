//! Pipeline files that were made to break what reads them: each is accepted or refused at a place,
//! in little time and without going deeper than the stack.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_store::env::{Env, STACK_BYTES, on_deep_stack};

use crate::load::{Changes, LoadError, PipelineFile};

/// A release takes a tenth of what a debug build does on a machine that does other things as well.
const TIME_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 2 });

pub(super) const TABLES: &str = "CREATE TABLE s (n INT, t STRING) USING json OPTIONS ('path' = 'in');\n\
                      CREATE TABLE k USING noop;\n";

/// Loads a file on a stack as the command has; what is wrong with it, as text.
fn load(name: &str, text: &str, base_dir: &Path) -> Result<(), String> {
    let clock = Env::real();
    let start = clock.monotonic();
    let loaded = on_deep_stack(|| load_here(name, text, base_dir));
    let took = clock.monotonic().saturating_sub(start);
    assert!(took < TIME_MAX, "{name} took {took:?}:\n{}", head(text));
    loaded
}

/// Loads a file on the stack of the calling thread.
pub(super) fn load_here(name: &str, text: &str, base_dir: &Path) -> Result<(), String> {
    let file =
        PipelineFile { name: name.into(), text: text.to_owned(), base_dir: base_dir.to_owned() };
    // Flows are planned on the runtime's threads for work that blocks: as deep as the command's.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().thread_stack_size(STACK_BYTES).build();
    let registry = millstream_connectors::registry(file.base_dir());
    let env = Env::real();
    let changes = Changes::default();
    let loaded = runtime.expect("a runtime starts").block_on(file.load(registry, &env, &changes));
    loaded.map(|_| ()).map_err(|error| match error {
        LoadError::Diagnosed(text) | LoadError::Wrong(text) | LoadError::Failed(text) => text,
    })
}

fn head(text: &str) -> String {
    text.chars().take(3_000).collect()
}

fn select(query: &str) -> Result<(), String> {
    load("p.sql", &format!("{TABLES}INSERT INTO k {query};\n"), Path::new("/"))
}

fn refused(query: &str, wanted: &str) {
    let found = select(query).expect_err(&head(query));
    assert!(found.contains(wanted), "wanted {wanted}, got {}", head(&found));
    assert!(found.contains("p.sql:"), "no place: {}", head(&found));
}

fn accepted(query: &str) {
    if let Err(found) = select(query) {
        panic!("{}\n{}", head(query), head(&found));
    }
}

#[test]
fn what_is_not_closed_is_refused_at_once() {
    let flow = "CREATE FLOW f (CONSTRAINT c EXPECT (";
    let found = load("p.sql", &format!("{TABLES}{flow}"), Path::new("/"));
    let found = found.expect_err("a parenthesis is open");
    assert!(found.contains("this `(` is not closed"), "{found}");
    refused(&format!("SELECT {}n FROM STREAM s", "CAST(".repeat(24)), "expected AS");
    let cases = "CASE WHEN n > 1 THEN ".repeat(22);
    refused(&format!("SELECT {cases}() FROM STREAM s"), "expected an expression");
    refused(&format!("SELECT {}n FROM STREAM s", "trim(".repeat(30)), "expected");
}

/// sqlparser takes a bracket in FROM for that of a subquery and then for that of a join, and reads
/// what is in it twice.
#[test]
fn brackets_before_queries_do_not_double_the_time() {
    let nested = |run: &str, count: usize, end: &str| {
        let open = format!("{run}SELECT * FROM ").repeat(count);
        format!("SELECT * FROM {open}{end}")
    };
    for (run, count) in [("((", 12), ("((", 20), ("((", 31), ("(((", 20), ("((((((((", 7)] {
        for end in ["", "s", "s WHERE )", &format!("s{}", ") AS a".repeat(count))] {
            refused(&nested(run, count, end), "expected");
        }
    }
    refused(&format!("SELECT * FROM {}", "((VALUES (1), (".repeat(20)), "expected");
    accepted(&format!("SELECT n FROM {}SELECT n FROM s{}", "(".repeat(40), ")".repeat(40)));
    let both = "((SELECT n FROM s) UNION ALL (SELECT n FROM s))";
    let all = vec![both; 100].join(" UNION ALL ");
    accepted(&format!("SELECT n FROM ({all})"));
}

#[test]
fn nested_queries_are_planned_in_little_time() {
    let nested = |before: &str, inner: &str| before.repeat(22) + inner + &")".repeat(22);
    accepted(&format!("SELECT {} AS x FROM STREAM s", nested("(SELECT ", "1")));
    accepted(&format!("SELECT n FROM {}", nested("(SELECT n FROM ", "STREAM s")));
    let within = nested("n IN (SELECT n FROM s WHERE ", "n = 1");
    accepted(&format!("SELECT n FROM STREAM s WHERE {within}"));
    // A value that is used twice is computed once.
    let doubled = nested("(SELECT x + x AS x FROM ", "(SELECT o.n AS x)");
    accepted(&format!("SELECT l.x FROM s AS o LEFT JOIN LATERAL {doubled} AS l"));
    let joined = "((SELECT * FROM ".repeat(12) + "s" + &") AS a)".repeat(12);
    let _ = select(&format!("SELECT * FROM {joined}"));
}

/// Each of these reads what is below it twice or three times.
#[test]
fn subqueries_that_read_rows_twice_are_planned_or_refused() {
    let too_many = "too many within or after each other";
    let is_in = |negated: &str, count: usize| {
        let open = format!("true {negated}IN (SELECT ").repeat(count);
        format!("SELECT {open}true{} AS x FROM s", ")".repeat(count))
    };
    accepted(&is_in("", 30));
    // Whether a value is NULL takes another look at the rows.
    accepted(&is_in("NOT ", 4));
    refused(&is_in("NOT ", 30), too_many);
    let lateral = |count: usize| {
        let one = |n: usize| {
            format!(", LATERAL (SELECT count(*) AS c FROM s AS u WHERE u.n > o.n) AS l{n}")
        };
        format!("SELECT o.n FROM s AS o{}", (0..count).map(one).collect::<String>())
    };
    accepted(&lateral(3));
    refused(&lateral(30), too_many);
    let outer = |count: usize| {
        let one = |n: usize| format!(" LEFT JOIN LATERAL (SELECT o.n + {n} AS c) AS l{n}");
        format!("SELECT o.n FROM s AS o{}", (0..count).map(one).collect::<String>())
    };
    accepted(&outer(3));
    refused(&outer(30), too_many);
    let derived = |count: usize| {
        (0..count).fold("SELECT n FROM s".to_owned(), |from, level| {
            let value = format!("(SELECT count(*) FROM s AS u WHERE u.n > d{level}.n)");
            format!("SELECT n + {value} AS n FROM ({from}) AS d{level}")
        })
    };
    accepted(&derived(3));
    refused(&derived(20), too_many);
    let step = "SELECT l.m FROM r LEFT JOIN LATERAL (SELECT r.n + 1 AS m) AS l WHERE r.n < 3";
    let recursive = format!("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL {step}) SELECT n FROM r");
    refused(&recursive, "read once only");
}

#[test]
fn long_chains_are_planned_or_refused() {
    let equal: Vec<String> = (0..2_000).map(|n| format!("n = {n}")).collect();
    accepted(&format!("SELECT n FROM STREAM s WHERE {}", equal.join(" OR ")));
    accepted(&format!("SELECT n{} AS x FROM STREAM s", "+1".repeat(100)));
    let chain =
        |count: usize, link: &str| format!("SELECT n{} AS x FROM STREAM s", link.repeat(count));
    refused(&chain(300, "+1"), "operators in a row");
    refused(&chain(100_000, "+1"), "operators in a row");
    refused(&chain(5_000, "::INT"), "operators in a row");
    refused(&chain(5_000, "[0]"), "operators in a row");
    refused(&chain(20_000, " OR true"), "ANDs and ORs in a row");
    refused(&chain(5_000, " + by"), "operators in a row");
    let unions = " UNION ALL SELECT n FROM STREAM s".repeat(5_000);
    refused(&format!("SELECT n FROM STREAM s{unions}"), "set operators in a row");
    refused(&format!("SELECT {} FROM STREAM s", "n".repeat(70_000)), "70000 characters");
    refused(&format!("SELECT {}", "(".repeat(900_000)), "nested too deeply");
    let types = "ARRAY<".repeat(5_000);
    refused(&format!("SELECT CAST(t AS {types}INT) FROM STREAM s"), "nested too deeply");
}

/// Whether VALUES is a relation depends on what stands before it.
#[test]
fn many_inline_tables_are_refused_at_once() {
    refused(&format!("SELECT n FROM s{}", ", VALUES 1".repeat(60_000)), "expected");
    refused(&format!("SELECT n{} FROM s", ", values 1".repeat(60_000)), "expected");
    refused(&format!("SELECT n FROM s{}", ", VALUES f(1)".repeat(60_000)), "expected");
    let few: Vec<String> = (0..90).map(|n| format!("VALUES 1 AS v{n}(a)")).collect();
    accepted(&format!("SELECT n FROM s, {}", few.join(", ")));
}

#[test]
fn what_views_stand_for_is_bounded() {
    let views = |of: &str| -> String {
        let view = |n: usize| {
            let of = of.replace('?', &(n - 1).to_string());
            format!("CREATE TEMPORARY VIEW v{n} AS {of};\n")
        };
        let first = "CREATE TEMPORARY VIEW v0 AS SELECT n FROM s;\n";
        let all: String = (1..=22).map(view).collect();
        format!("{TABLES}{first}{all}INSERT INTO k SELECT n FROM v22;\n")
    };
    let twice = views("SELECT n FROM v? UNION ALL SELECT n FROM v?");
    let found = load("p.sql", &twice, Path::new("/")).expect_err("it is too large");
    assert!(found.contains("too large to be planned") && found.contains("p.sql:"), "{found}");
    load("p.sql", &views("SELECT n FROM v?"), Path::new("/")).expect("each is read once");
    let ctes: Vec<String> = (1..22)
        .map(|n| format!("c{n} AS (SELECT * FROM c{0} UNION ALL SELECT * FROM c{0})", n - 1))
        .collect();
    let with = format!("WITH c0 AS (SELECT n FROM s), {} SELECT * FROM c21", ctes.join(", "));
    refused(&with, "too large to be planned");
    let chained: Vec<String> =
        (1..100).map(|n| format!("c{n} AS (SELECT * FROM c{})", n - 1)).collect();
    accepted(&format!("WITH c0 AS (SELECT n FROM s), {} SELECT * FROM c99", chained.join(", ")));
    // The types of each are found once.
    let typed: Vec<String> = (1..100)
        .map(|n| {
            format!("c{n} AS (SELECT CASE WHEN n > 1 THEN 1 ELSE n + 0.5 END AS n FROM c{})", n - 1)
        })
        .collect();
    accepted(&format!("WITH c0 AS (SELECT n FROM s), {} SELECT * FROM c99", typed.join(", ")));
    let tables: Vec<String> = (0..300).map(|n| format!("s AS s{n}")).collect();
    refused(&format!("SELECT s0.n FROM {}", tables.join(", ")), "joins and lateral views");
    let columns: Vec<String> = (0..20_000).map(|n| format!("c{n} INT")).collect();
    let table = format!("CREATE TABLE w ({}) USING noop;", columns.join(", "));
    let found = load("p.sql", &table, Path::new("/")).expect_err("it is too wide");
    assert!(found.contains("more than 2000 columns"), "{}", head(&found));
}

#[test]
fn what_functions_stand_for_is_bounded() {
    let functions = |of: &str| -> String {
        let function = |n: usize| {
            let of = of.replace('?', &format!("f{}", n - 1));
            format!("CREATE FUNCTION f{n}(x INT) RETURNS INT RETURN {of};\n")
        };
        let first = "CREATE FUNCTION f0(x INT) RETURNS INT RETURN x + 1;\n";
        let all: String = (1..18).map(function).collect();
        format!("{TABLES}{first}{all}INSERT INTO k SELECT f17(n) AS n FROM STREAM s;\n")
    };
    load("p.sql", &functions("?(x)"), Path::new("/")).expect("each is called once");
    for doubled in ["?(x) + ?(x)", "?(?(x))", "?(x + x)"] {
        let found = load("p.sql", &functions(doubled), Path::new("/")).expect_err(doubled);
        assert!(found.contains("too large to be planned") && found.contains("p.sql:"), "{found}");
    }
    let mutual = "CREATE FUNCTION f(x INT) RETURN g(x); CREATE FUNCTION g(x INT) RETURN f(x);\n\
                  CREATE TEMPORARY VIEW v AS SELECT h(n) AS n FROM s;\n\
                  CREATE FUNCTION h(x INT) RETURN (SELECT max(n) FROM v WHERE n = x);\n";
    for call in ["f(n)", "h(n)"] {
        let text = format!("{TABLES}{mutual}INSERT INTO k SELECT {call} AS n FROM s AS o;\n");
        let found = load("p.sql", &text, Path::new("/")).expect_err(call);
        assert!(found.contains("itself"), "{found}");
    }
}

#[test]
fn what_nothing_plans_is_refused_in_a_few_words() {
    let pivot = "SELECT * FROM s PIVOT (collect_list(n) FOR t IN ('a', 'b'))";
    refused(pivot, "in PIVOT is not supported yet");
    let found = select(pivot).expect_err("it is refused");
    assert!(found.len() < 600, "{found}");
}

#[test]
fn what_can_be_told_from_the_text_is_told_at_its_place() {
    refused("SELECT date_format(current_timestamp(), 'bbb') AS x FROM STREAM s", "p.sql:3:");
    refused("SELECT n FROM STREAM s WHERE t RLIKE '(?=a)b'", "cannot be used");
    refused("SELECT n FROM s WHERE regexp_replace(t, '(?<!a)b', '') = 'x'", "cannot be used");
    refused("SELECT count((SELECT 1)) AS c FROM STREAM s", "p.sql:3:");
    refused("SELECT t:order.id AS x FROM STREAM s", "p.sql:3:");
    refused("SELECT t:order.id AS x FROM s", "get_json_object");
    let zone = "to_utc_timestamp(current_timestamp(), 'Mars/X')";
    refused(&format!("SELECT {zone} AS x FROM STREAM s"), "no time zone");
    refused("SELECT from_json(t, 'a INTT') AS x FROM STREAM s", "there is no type `INTT`");
}

/// What is tried in two ways at each of many levels doubles the time with each: forms of queries
/// and expressions that nest, each alone and within each other.
#[test]
fn what_nests_in_what_else_is_read_in_little_time() {
    for outer in NESTING {
        for inner in NESTING {
            let (open, close) = (format!("{}{}", outer.0, inner.0), [inner.1, outer.1].concat());
            for start in ["", " * FROM "] {
                let opened = format!("SELECT {start}{}", open.repeat(16));
                let _ = select(&opened);
                let _ = select(&format!("{opened} n {} FROM s", close.repeat(16)));
            }
        }
    }
}

#[test]
fn a_case_in_calls_in_cases_is_planned_or_refused() {
    let nested = |count: usize| {
        let (open, close) = ("CASE WHEN n = 1 THEN abs(".repeat(count), ") END".repeat(count));
        format!("SELECT {open} n {close} AS x FROM STREAM s")
    };
    accepted(&nested(8));
    refused(&nested(20), "name the inner CASE in a subquery");
    for operator in ["- ", "1 + ", "n * ", "2 / ", "n div ", "2.5D % ", "'a' || "] {
        let nested = |count: usize| {
            let open = format!("CASE WHEN n = 1 THEN {operator}").repeat(count);
            format!("SELECT {open} n {} AS x FROM STREAM s", " END".repeat(count))
        };
        accepted(&nested(8));
        refused(&nested(20), "name the inner CASE in a subquery");
    }
    let chosen = |from: &str| format!("CASE WHEN n > 1 THEN abs(n) ELSE {from} END");
    let chain = (0..30).fold("n".to_owned(), |from, _| chosen(&from));
    accepted(&format!("SELECT {chain} AS x FROM STREAM s"));
    let named = (0..20).fold("STREAM s".to_owned(), |from, level| {
        format!("(SELECT t, abs(CASE WHEN t > 'a' THEN n END) AS n FROM {from}) AS s{level}")
    });
    accepted(&format!("SELECT n FROM {named}"));
}

#[test]
fn functions_in_functions_are_planned_or_refused() {
    let nested = |count: usize| {
        let (open, close) = ("transform(array(n), x -> ".repeat(count), ")".repeat(count));
        format!("SELECT size({open} x + n {close}) AS k FROM STREAM s")
    };
    accepted(&nested(4));
    refused(&nested(5), "compute the inner one in a subquery");
}

/// Forms that others stand in: what begins and what ends them.
pub(super) const NESTING: &[(&str, &str)] = &[
    ("(", ")"),
    ("(SELECT * FROM ", ") AS a"),
    ("(SELECT ", ")"),
    ("(VALUES (", ")) AS v"),
    ("(WITH c AS (SELECT * FROM s) SELECT * FROM ", ") AS c"),
    ("(s JOIN ", " ON true)"),
    ("s JOIN LATERAL (SELECT ", ") AS l"),
    ("s LEFT JOIN LATERAL (SELECT ", ") AS l"),
    ("s, ", " "),
    ("SELECT * FROM s UNION ALL (", ")"),
    ("n IN (", ")"),
    ("n IN (SELECT n FROM s WHERE ", ")"),
    ("EXISTS (SELECT * FROM s WHERE ", ")"),
    ("n BETWEEN 1 AND ", " "),
    ("NOT ", " "),
    ("- ", " "),
    ("CASE n WHEN ", " THEN 1 END"),
    ("CASE WHEN n = 1 THEN ", " END"),
    ("CAST(", " AS INT)"),
    ("extract(YEAR FROM ", ")"),
    ("trim(BOTH FROM ", ")"),
    ("substring(", " FROM 1)"),
    ("position(", " IN t)"),
    ("struct(", " AS x)"),
    ("named_struct('a', ", ")"),
    ("array(", ")"),
    ("sum(", ") FILTER (WHERE true)"),
    ("sum(n) FILTER (WHERE ", ")"),
    ("sum(n) OVER (PARTITION BY ", ")"),
    ("transform(n, x -> ", ")"),
    ("transform(array(n), x -> ", ")"),
    ("aggregate(array(n), n, (a, x) -> ", ")"),
    ("(x, y) -> ", " "),
    ("t[", "]"),
    ("INTERVAL ", " DAY"),
    ("n LIKE ", " ESCAPE 'x'"),
    ("(1, ", ")"),
];

/// The pipeline files of the examples.
pub(super) fn examples() -> Vec<(PathBuf, String)> {
    let here =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let root = Path::new(&here).ancestors().nth(2).expect("crates/<crate> is two levels down");
    let entries = fs::read_dir(root.join("examples")).expect("the examples are there");
    let files = entries.map(|entry| entry.expect("it can be listed").path().join("pipeline.sql"));
    let mut files: Vec<_> = files.filter(|path| path.exists()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("an example can be read");
        (path, text)
    };
    files.into_iter().map(read).collect()
}
