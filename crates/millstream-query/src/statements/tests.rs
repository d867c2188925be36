//! Which statements a text has, and what each of them sees.

use super::*;

fn steps(text: &str) -> Vec<String> {
    let statements = Statements::parse(text).expect("the text is right");
    let lexed = &statements.lexed;
    let shown = statements.steps.iter().map(|step| match step {
        Step::Query(query) => lexed.text[span_of(lexed, query).range()].to_owned(),
        Step::Explain { analyze, query } => {
            format!("{analyze}: {}", &lexed.text[span_of(lexed, query).range()])
        }
        Step::Setting(Change::Set(key, value)) => format!("{key} -> {value}"),
        Step::Setting(_) => "setting".to_owned(),
        Step::Variable(_) => "variable".to_owned(),
        Step::Immediate(_) => "immediate".to_owned(),
        Step::ShowTables => "tables".to_owned(),
        Step::Describe { query, .. } => format!("columns of {query}"),
    });
    shown.collect()
}

#[test]
fn each_statement_is_one_step_and_flows_are_kept_apart() {
    let text = "CREATE TABLE t USING delta LOCATION 'x;y';\nINSERT INTO t SELECT 1;\n\
                SELECT ';' FROM t; EXPLAIN ANALYZE SELECT 1;\n\
                SET millstream.remote.stages = 'scan, group by';\n\
                SHOW TABLES; DESCRIBE t; (SELECT 2);\
                CREATE FLOW f AS INSERT INTO t SELECT 3;\n\
                FROM STREAM s INSERT INTO t SELECT 4";
    let expected = [
        "SELECT ';' FROM t",
        "true: SELECT 1",
        "millstream.remote.stages -> scan, group by",
        "tables",
        "columns of SELECT * FROM t",
        "(SELECT 2)",
    ];
    assert_eq!(steps(text), expected);
    let statements = Statements::parse(text).expect("the text is right");
    assert_eq!(statements.flows.len(), 3);
    let refused = statements.check_writes_nothing().expect_err("flows are refused in queries");
    assert_eq!(refused.0.len(), 3);
    assert_eq!(steps("FROM t SELECT x AS insert"), ["FROM t SELECT x AS insert"]);
}

#[test]
fn statements_about_variables_are_no_settings() {
    let text = "DECLARE a = ';'; SET VAR a = 'b'; SET var.key = 1; DROP TEMPORARY VARIABLE a;\n\
                EXECUTE IMMEDIATE 'SELECT 1'";
    let expected = ["variable", "variable", "var.key -> 1", "variable", "immediate"];
    assert_eq!(steps(text), expected);
}

#[test]
fn a_query_sees_the_functions_before_it() {
    let text = "SELECT 0; CREATE FUNCTION f() RETURNS INT RETURN 1; SELECT 1;\n\
                CREATE OR REPLACE TEMPORARY FUNCTION F(x INT DEFAULT 2) RETURN x; SELECT 2;\n\
                DROP FUNCTION f; SELECT 3";
    let statements = Statements::parse(text).expect("the text is right");
    let seen = statements.steps.iter().map(|step| match step {
        Step::Query(query) => {
            let functions = statements.functions_at(query.start);
            functions.iter().map(|known| known.parameters.len()).collect::<Vec<_>>()
        }
        other => panic!("{other:?} is no query"),
    });
    assert_eq!(seen.collect::<Vec<_>>(), [vec![], vec![0], vec![1], vec![]]);
    let refused = |text: &str| match Statements::parse(text) {
        Ok(_) => panic!("{text} was accepted"),
        Err(found) => found.0[0].message.clone(),
    };
    let twice = "CREATE FUNCTION f() RETURN 1; CREATE FUNCTION f() RETURN 2";
    assert_eq!(refused(twice), "function `f` is declared twice");
    assert_eq!(refused("DROP FUNCTION f"), "there is no function `f`");
    let varchar = "CREATE FUNCTION f(a VARCHAR(3)) RETURN a";
    assert_eq!(refused(varchar), "CHAR and VARCHAR are for columns of tables");
    let gap = "CREATE FUNCTION f(a INT DEFAULT 1, b INT) RETURN a";
    assert_eq!(refused(gap), "`b` has no DEFAULT, but the one before it has");
    for known in ["abs", "sum", "zeroifnull", "transform", "range", "timestampadd"] {
        let declaration = format!("CREATE FUNCTION {known}(a INT) RETURN a");
        assert_eq!(refused(&declaration), format!("`{known}` is a function of Spark's"));
    }
}

#[test]
fn a_text_sees_the_functions_that_were_there_before() {
    let known = |text: &str| Statements::parse(text).expect("it is right").functions_after();
    let first = known("CREATE FUNCTION f() RETURNS INT RETURN 1; CREATE FUNCTION g() RETURN ';'");
    assert_eq!(
        first,
        ["CREATE FUNCTION f() RETURNS INT RETURN 1", "CREATE FUNCTION g() RETURN ';'",]
    );
    let text = "SELECT f() -- a comment\n; DROP FUNCTION f; SELECT g(); \
                CREATE OR REPLACE FUNCTION g() RETURN 3";
    let next = Statements::parse_after(text, &first).expect("it is right");
    let seen = |step: &Step| match step {
        Step::Query(query) => next.functions_at(query.start).len(),
        other => panic!("{other:?} is no query"),
    };
    assert_eq!(next.steps.iter().map(seen).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(next.functions_after(), ["CREATE OR REPLACE FUNCTION g() RETURN 3"]);
    let declared = next.declared_before(text.len());
    assert_eq!(Statements::parse(&declared).expect("it is right").functions.len(), 4);
    let twice = Statements::parse_after("CREATE FUNCTION f() RETURN 2", &first);
    let found = twice.err().expect("there is such a function");
    assert_eq!(found.0[0].message, "function `f` is declared twice");
    assert_eq!(found.0[0].notes[0].span, None, "it stands in another text");
}

#[test]
fn it_is_known_in_which_zone_a_statement_was_made() {
    let text = "CREATE TEMPORARY VIEW a AS SELECT 1; SET TIME ZONE 'Asia/Tokyo';\n\
                CREATE TEMPORARY VIEW b AS SELECT 2; SELECT 3; RESET; SELECT 4";
    let read = Statements::parse(text).expect("the text is right");
    let queries = read.steps.iter().filter_map(|step| match step {
        Step::Query(query) => Some(query.start),
        _ => None,
    });
    let queries: Vec<usize> = queries.collect();
    let [third, fourth] = queries[..] else { panic!("there are two") };
    let [first, second] = [0, 1].map(|at| read.views[at].query.end);
    assert_eq!(read.zone_between(first, third), Some(None));
    assert_eq!(read.zone_between(second, third), None);
    assert_eq!(read.zone_between(second, fourth), Some(Some("Asia/Tokyo")));
    assert_eq!(read.zone_between(second, read.end()), Some(Some("Asia/Tokyo")));
}

#[test]
fn a_query_sees_the_views_before_it() {
    let text = "SELECT 0; CREATE TEMPORARY VIEW v AS SELECT 1; SELECT 1;\n\
                CREATE OR REPLACE TEMPORARY VIEW V AS SELECT 2; SELECT 2";
    let statements = Statements::parse(text).expect("the text is right");
    let seen = statements.steps.iter().map(|step| match step {
        Step::Query(query) => {
            let last = statements.views_at(query.start).last();
            last.map(|view| view.name.text.clone())
        }
        other => panic!("{other:?} is no query"),
    });
    let expected = [None, Some("v".to_owned()), Some("V".to_owned())];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    let twice = "CREATE TEMPORARY VIEW v AS SELECT 1; CREATE TEMPORARY VIEW V AS SELECT 2";
    let found = Statements::parse(twice).err().expect("it is there already");
    assert!(found.0[0].message.contains("ALREADY_EXISTS"), "{found}");
}

#[test]
fn declarations_stay_at_their_places() {
    let text = "SELECT 'ä';\nCREATE TABLE t USING delta; SELECT 2;\nCREATE TABLE u USING rate";
    let kept = Statements::parse(text).expect("the text is right").declarations();
    assert_eq!(kept.len(), text.len());
    assert_eq!(kept.find("CREATE TABLE t"), text.find("CREATE TABLE t"));
    assert_eq!(kept.find("CREATE TABLE u"), text.find("CREATE TABLE u"));
    assert!(!kept.contains("SELECT"), "{kept}");
}

#[test]
fn what_is_no_query_is_refused_with_what_to_write() {
    let refused = |text| match Statements::parse(text) {
        Ok(_) => panic!("{text} was accepted"),
        Err(found) => found.0[0].help.clone().unwrap_or_default(),
    };
    assert!(refused("DELETE FROM t").contains("SELECT"));
    assert!(refused("SET x").contains("SET key = value"));
    assert!(refused("SELECT 1 -- a\\\n+ 1").contains("backslash"));
    let harmless = "SELECT 1 -- a\\\n\n-- b\\\n-- c\\";
    assert_eq!(steps(harmless), ["SELECT 1"]);
    let known = ["CREATE FUNCTION f() RETURN 1".to_owned()];
    assert!(Statements::parse_after(harmless, &known).is_ok());
}
