//! Values that a query cannot compute: the error says which record has them and what of the SQL,
//! and where the flow asks for it the record is put aside and the others go on.

use crate::files_and_static::{json_table, put, sorted_lines};
use crate::kafka;
use crate::live::{STATE_STEPS, crashing_at};
use crate::millstream::{Pipeline, table};
use crate::oracle;
use crate::topics::Record;
use crate::wait;

const ASIDE: [(&str, &str); 2] = [("onError", "dead letter"), ("deadLetter", "bad")];
const AVAILABLE: [&str; 2] = ["--trigger", "availableNow"];
const LETTERS: &str = "(payload STRING, error STRING, position STRING, source_table STRING)";

/// Tables `source` of JSON files with the columns `s` and `n`, `good` with these options, and
/// `bad` for letters; then `rest`.
fn files(options: &[(&str, &str)], rest: &str) -> Pipeline {
    Pipeline::new(&tables(options, rest))
}

fn tables(options: &[(&str, &str)], rest: &str) -> String {
    format!(
        "{}{}{}{rest}",
        json_table("source", "(s STRING, n BIGINT)", "input"),
        table("good", "", "json", &[&[("path", "good")][..], options].concat()),
        json_table("bad", LETTERS, "bad"),
    )
}

fn line(s: &str, n: i64) -> String {
    format!("{{\"s\":\"{s}\",\"n\":{n}}}\n")
}

const NUMBERS: &str = "CREATE FLOW numbers AS INSERT INTO good\n\
                       SELECT n, CAST(trim(s) AS INT) AS i\nFROM STREAM source;\n";

#[test]
fn a_record_that_cannot_be_computed_is_named_with_the_place_in_the_sql() {
    let (rest, at) = ("7 % (n - 5)", "element_at(split(s, ','), 3)");
    let cases = [
        ("CAST(trim(s) AS INT)", "1", line("x7", 1), "CAST(trim(s) AS INT)", "'x7'"),
        ("100 / n", "1", line("1", 0), "100 / n", "n = 0"),
        (rest, "1", line("1", 5), rest, "division by zero"),
        ("n + 9223372036854775804", "1", line("1", 5), "n + 9223372036854775804", "n = 5"),
        (at, "a,b,c", line("a,b", 1), at, "2 elements"),
        ("to_date(s, 'y-M-d')", "2026-1-2", line("1.2.26", 1), "to_date(s, 'y-M-d')", "1.2.26"),
        ("CASE WHEN n > 3 THEN s::INT ELSE 0 END", "z", line("y", 4), "s::INT", "'y'"),
        ("from_json(s, 'a INT', map('mode', 'FAILFAST'))", "{}", line("{a", 2), "from_json(", "{a"),
    ];
    for (expression, good, bad, part, says) in cases {
        let flow = format!(
            "CREATE FLOW f AS INSERT INTO good\nSELECT n,\n       {expression} AS x\n\
             FROM STREAM source;\n"
        );
        let pipeline = files(&[], &flow);
        let text = std::fs::read_to_string(pipeline.path("pipeline.sql")).unwrap();
        let at = text[..text.find(part).unwrap()].lines().collect::<Vec<_>>();
        let at = format!("{}:{}", at.len(), at.last().unwrap().chars().count() + 1);
        let input = format!("{}\n{}{bad}{}", line(good, 1), line(good, 2), line(good, 3));
        put(&pipeline, "input/rows.json", &input);
        let finished = pipeline.run(&AVAILABLE).expect_exit(1);
        finished.says(&[
            "input/rows.json:4 cannot be computed",
            &format!("in the SQL at {at}: {part}"),
            says,
            "'onError' = 'dead letter'",
        ]);
    }
}

#[test]
fn a_record_of_a_topic_and_a_row_of_the_generator_are_named() {
    let broker = kafka::shared();
    let (topics, servers) = (broker.topics(), broker.address());
    topics.create("on_error_named", 2);
    let to = |text: &str, partition| Record::of(text.to_owned()).to(partition);
    topics.produce("on_error_named", [to("1", 0), to("2", 1), to("3", 1), to("no", 1), to("4", 0)]);
    let source = [
        ("kafka.bootstrap.servers", servers.as_str()),
        ("subscribe", "on_error_named"),
        ("startingOffsets", "earliest"),
    ];
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO good SELECT CAST(CAST(value AS STRING) AS INT) AS n FROM STREAM source;\n",
        table("source", "", "kafka", &source),
        json_table("good", "", "good"),
    ));
    let finished = pipeline.run(&AVAILABLE).expect_exit(1);
    finished
        .says(&["on_error_named[1]@2 cannot be computed", "CAST(CAST(value AS STRING) AS INT)"]);

    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO good SELECT 1 / (value - 17) AS x FROM STREAM source;\n",
        table("source", "", "rate", &[("rowsPerSecond", "1000")]),
        json_table("good", "", "good"),
    ));
    let finished = pipeline.run(&["--trigger", "10 milliseconds"]).expect_exit(1);
    finished.says(&["rate#17 cannot be computed", "1 / (value - 17)", "value = 17"]);
}

#[test]
fn a_record_is_put_aside_and_the_others_go_on() {
    let pipeline = files(&ASIDE, NUMBERS);
    let rows = (0..3_000_i64).map(|n| match n % 100 {
        37 => line(&format!("x{n}"), n),
        _ => line(&n.to_string(), n),
    });
    put(&pipeline, "input/first.json", &rows.collect::<String>());
    put(&pipeline, "input/second.json", &(line("5", 5) + &line("", 6) + &line("7", 7)));
    let finished = pipeline.run(&["--trigger", "availableNow", "--progress", "json"]);
    let progress = finished.expect_success().progress();
    let sinks = |sink: usize| -> u64 {
        let rows = progress.iter().map(|line| line["sinks"][sink]["numOutputRows"].as_u64());
        rows.map(Option::unwrap_or_default).sum()
    };
    assert_eq!((sinks(0), sinks(1)), (2_972, 31));
    let good = sorted_lines(&pipeline.path("good"));
    assert_eq!(good.len(), 2_972);
    assert!(good.contains(&r#"{"n":2999,"i":2999}"#.to_owned()), "{:?}", good.last());
    let bad = sorted_lines(&pipeline.path("bad"));
    assert_eq!(bad.len(), 31);
    let letter = bad.iter().find(|line| line.contains("first.json:138\"")).expect("row 137");
    for said in [
        r#""payload":"{\"s\":\"x137\",\"n\":137}""#,
        "the value 'x137' of type STRING cannot be cast to INT",
        "in the SQL at 11:11: CAST(trim(s) AS INT), where s = 'x137'",
        r#""source_table":"source""#,
    ] {
        assert!(letter.contains(said), "{said}: {letter}");
    }
    pipeline.run_available().expect_success();
    assert_eq!(sorted_lines(&pipeline.path("bad")), bad, "and once only");
}

#[test]
fn all_records_may_be_put_aside() {
    let pipeline = files(&ASIDE, NUMBERS);
    let rows: String = (0..2_000).map(|n| line("no", n)).collect();
    put(&pipeline, "input/rows.json", &rows);
    pipeline.run_available().expect_success();
    assert_eq!(sorted_lines(&pipeline.path("good")).len(), 0);
    assert_eq!(sorted_lines(&pipeline.path("bad")).len(), 2_000);
}

#[test]
fn a_record_that_one_of_several_sinks_cannot_get_is_put_aside_for_all() {
    let pipeline = files(
        &ASIDE,
        &format!(
            "{}{}FROM STREAM source\nINSERT INTO good SELECT s, n\n\
             INSERT INTO halves SELECT n, 10 / n AS x WHERE n < 5\n\
             INSERT INTO numbers SELECT CAST(s AS INT) AS i;\n",
            json_table("halves", "", "halves"),
            json_table("numbers", "", "numbers"),
        ),
    );
    let input = [line("1", 1), line("x", 2), line("3", 0), line("4", 4), line("y", 0)].concat();
    put(&pipeline, "input/rows.json", &input);
    pipeline.run_available().expect_success();
    let lines = |table: &str| sorted_lines(&pipeline.path(table));
    assert_eq!(lines("good"), [r#"{"s":"1","n":1}"#, r#"{"s":"4","n":4}"#]);
    assert_eq!(lines("halves"), [r#"{"n":1,"x":10.0}"#, r#"{"n":4,"x":2.5}"#]);
    assert_eq!(lines("numbers"), [r#"{"i":1}"#, r#"{"i":4}"#]);
    assert_eq!(lines("bad").len(), 3, "{:?}", lines("bad"));
}

#[test]
fn records_are_put_aside_before_they_reach_the_state() {
    let flow = "CREATE FLOW counted AS INSERT INTO good\n\
                SELECT window.start AS begin, count(*) AS n, sum(CAST(s AS INT)) AS total\n\
                FROM (SELECT timestamp_millis(n) AS ts, s FROM STREAM source)\n\
                WATERMARK ts DELAY OF INTERVAL 1 SECOND\n\
                GROUP BY window(ts, '10 seconds');\n";
    let pipeline = files(&ASIDE, flow);
    put(&pipeline, "input/1.json", &(line("1", 1_000) + &line("x", 90_000) + &line("2", 2_000)));
    pipeline.run_available().expect_success();
    put(&pipeline, "input/2.json", &(line("3", 3_000) + &line("y", 4_000) + &line("4", 25_000)));
    put(&pipeline, "input/3.json", &line("5", 45_000));
    pipeline.run_available().expect_success();
    // The row of 90 s has not moved the watermark: the ones after it are not late.
    assert_eq!(
        sorted_lines(&pipeline.path("good")),
        [
            r#"{"begin":"1970-01-01T00:00:00.000Z","n":3,"total":6}"#,
            r#"{"begin":"1970-01-01T00:00:20.000Z","n":1,"total":4}"#
        ]
    );
    let bad = sorted_lines(&pipeline.path("bad"));
    assert!(bad.len() == 2 && bad.iter().all(|line| line.contains("CAST(s AS INT)")), "{bad:?}");
}

#[test]
fn a_crash_at_any_step_puts_each_record_aside_once_where_there_is_state() {
    let flow = "CREATE FLOW counted AS INSERT INTO good\n\
                SELECT window.start AS begin, sum(CAST(s AS INT)) AS total\n\
                FROM (SELECT timestamp_millis(n) AS ts, s FROM STREAM source)\n\
                WATERMARK ts DELAY OF INTERVAL 1 SECOND\n\
                GROUP BY window(ts, '10 seconds');\n";
    let pipeline = files(&ASIDE, flow);
    let mut expected = Vec::new();
    let of_logs = ["after-take", "after-run", "before-commit-entry", "after-commit-entry"];
    for (number, step) in (0..).zip(of_logs.into_iter().chain(STATE_STEPS)) {
        let at = number * 10_000;
        let rows = line("1", at) + &line(&format!("x{number}"), at) + &line("2", at + 1_000);
        put(&pipeline, &format!("input/{number:03}.json"), &rows);
        crashing_at(&pipeline, step, 1).wait(wait::SOON).expect_crash(step);
        expected.push(format!("x{number}"));
    }
    pipeline.run_available().expect_success();
    let bad = sorted_lines(&pipeline.path("bad"));
    assert_eq!(bad.len(), expected.len(), "{bad:?}");
    let is_told = |text: &String| bad.iter().any(|line| line.contains(&format!("\\\"{text}\\\"")));
    assert!(expected.iter().all(is_told), "{bad:?}");
    let good = sorted_lines(&pipeline.path("good"));
    assert_eq!(good.len(), expected.len() - 1, "the last window is open: {good:?}");
    assert!(good.iter().all(|line| line.ends_with("\"total\":3}")), "{good:?}");
}

#[test]
fn what_follows_from_several_records_is_shown_and_put_nowhere() {
    let flow = "CREATE FLOW halves AS INSERT INTO good\n\
                SELECT window.start AS begin, 12 / (count(*) - 2) AS x\n\
                FROM (SELECT timestamp_millis(n) AS ts, s FROM STREAM source)\n\
                WATERMARK ts DELAY OF INTERVAL 1 SECOND\n\
                GROUP BY window(ts, '10 seconds');\n";
    let pipeline = files(&ASIDE, flow);
    put(&pipeline, "input/1.json", &(line("a", 1_000) + &line("b", 2_000) + &line("c", 90_000)));
    let finished = pipeline.run(&AVAILABLE).expect_exit(1);
    finished.says(&[
        "the row {",
        "1970-01-01T00:00:00.000Z",
        "12 / (count(*) - 2)",
        "count(*) = 2",
        "No one record is the cause",
    ]);
}

#[test]
fn a_table_at_rest_is_joined_while_records_are_put_aside() {
    let flow = format!(
        "{}CREATE FLOW joined AS INSERT INTO good SELECT o.name AS name, 6 / o.k AS x\n\
         FROM STREAM source JOIN others o ON o.k = CAST(s AS INT);\n",
        json_table("others", "(k INT, name STRING)", "others"),
    );
    let pipeline = files(&ASIDE, &flow);
    put(&pipeline, "others/rows.json", "{\"k\":0,\"name\":\"a\"}\n{\"k\":2,\"name\":\"b\"}\n");
    let rows = [line("2", 1), line("0", 2), line("9", 3), line("x", 4), line("2", 5)].concat();
    put(&pipeline, "input/rows.json", &rows);
    pipeline.run_available().expect_success();
    let good = sorted_lines(&pipeline.path("good"));
    assert_eq!(good, [r#"{"name":"b","x":3.0}"#, r#"{"name":"b","x":3.0}"#]);
    let bad = sorted_lines(&pipeline.path("bad"));
    let at = |line: &str| bad.iter().filter(|letter| letter.contains(line)).count();
    assert_eq!((bad.len(), at("rows.json:2\""), at("rows.json:4\"")), (2, 1, 1), "{bad:?}");
}

#[test]
fn what_fails_only_in_company_is_computed() {
    let flow = "INSERT INTO good SELECT n FROM STREAM source WHERE n <> 0 AND 8 / n > 1;\n";
    let pipeline = files(&[], flow);
    let rows: String = (0..64).map(|n| line("", n % 16)).collect();
    put(&pipeline, "input/rows.json", &rows);
    pipeline.run_available().expect_success();
    assert_eq!(sorted_lines(&pipeline.path("good")).len(), 4 * 7);
}

#[test]
fn letters_are_replayed_once_the_sql_takes_them() {
    let written = |flow: &str| {
        let good = [&[("path", "good"), ("commitInterval", "100ms")][..], &ASIDE].concat();
        format!(
            "{}{}{}{flow}",
            json_table("source", "(s STRING, n BIGINT)", "input"),
            table("good", "", "delta", &good),
            json_table("bad", "(payload STRING, position STRING, flow_name STRING)", "bad"),
        )
    };
    let pipeline = Pipeline::new(&written(NUMBERS));
    put(&pipeline, "input/rows.json", &(line("1", 1) + &line("two", 2) + &line("3", 3)));
    pipeline.run_available().expect_success();
    pipeline.rewrite(&written(&NUMBERS.replace("trim(s)", "if(s = 'two', '2', s)")));
    for _ in 0..2 {
        let mut command = pipeline.bare_command(&[
            "replay",
            "pipeline.sql",
            "--from",
            "bad",
            "--flow",
            "numbers",
        ]);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let sql = "SELECT count(*) AS rows, CAST(sum(i) AS BIGINT) AS sum FROM TABLE";
    let found = oracle::light().query(&pipeline.path("good"), sql);
    assert_eq!((&found["rows"], &found["sum"]), (&3.into(), &6.into()), "{found}");
}

#[test]
fn what_cannot_be_put_aside_is_refused_with_a_remedy() {
    let validate = |options: &[(&str, &str)], flow: &str, says: &[&str]| {
        let pipeline = files(options, flow);
        let mut command = pipeline.bare_command(&["validate", "pipeline.sql"]);
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = text + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success(), "{flow}");
        assert!(says.iter().all(|words| text.contains(words)), "{says:?} in {text}");
    };
    let alone = [("onError", "dead letter")];
    validate(&alone, NUMBERS, &["names no table", "'deadLetter' = 'bad'"]);
    validate(&[("onError", "ignore")], NUMBERS, &["'fail' or 'dead letter'"]);
    validate(
        &[("deadLetter", "bad")],
        NUMBERS,
        &["but `good` is only written", "'onError' = 'dead letter'"],
    );
    let at_rest = NUMBERS.replace("STREAM ", "");
    validate(&ASIDE, &at_rest, &["for a flow that reads a stream", "availableNow"]);
    let nowhere = [("onError", "dead letter"), ("deadLetter", "bda")];
    validate(&nowhere, NUMBERS, &["there is no table `bda`", "bad"]);
}
