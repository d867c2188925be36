//! `millstream query`, in one process and on a cluster, beside the answers of DuckDB, beside flows
//! that write, and while parts of the cluster are killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::live::{kills, mixed, some_time};
use crate::millstream::{Finished, Pipeline, Running, table};
use crate::{cache, oracle, program, wait};

/// A query in a build that is not optimised, on a machine that does other things.
pub const QUERY_LIMIT: Duration = Duration::from_secs(120);

/// Runs a query to its end.
pub fn query(pipeline: &Pipeline, arguments: &[&str]) -> Finished {
    let mut command = pipeline.bare_command(&[&["query"], arguments].concat());
    command.env("MILLSTREAM_TOKEN", "secret");
    pipeline.spawn(command).wait(QUERY_LIMIT)
}

/// The only value of a query's answer in CSV.
fn value(finished: &Finished) -> i64 {
    let value = finished.stdout.lines().nth(1).unwrap_or_else(|| panic!("{}", finished.stdout));
    value.parse().unwrap_or_else(|error| panic!("{value}: {error}"))
}

#[test]
fn a_query_beside_a_flow_sees_each_commit() {
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT value AS id, value % 7 AS k FROM STREAM ticks;\n",
        table("ticks", "", "rate", &[("rowsPerSecond", "2000")]),
        table("target", "", "delta", &[("path", "lake"), ("commitInterval", "100ms")]),
    ));
    let mut running = pipeline.start(&[]);
    let has_table = || pipeline.path("lake/_delta_log/00000000000000000001.json").exists();
    running.wait_while_running("the table", has_table);
    let by_path = "SELECT count(*) AS n FROM delta.`lake`";
    let mut last = 0;
    for _ in 0..3 {
        running.wait_while_running("more rows", || {
            let counted = value(&query(&pipeline, &[by_path]).expect_success());
            let is_more = counted > last;
            assert!(counted >= last, "{counted} rows after {last}");
            last = counted;
            is_more
        });
    }
    running.stop().expect_success();
    let all = value(&query(&pipeline, &[by_path]).expect_success());
    assert!(all >= last);
    // The rate source counts from zero, so the largest id says how many there are.
    let largest = "SELECT max(id) + 1 AS n FROM delta.`lake`";
    assert_eq!(value(&query(&pipeline, &[largest]).expect_success()), all);
    let declared = ["--tables", "pipeline.sql", "SELECT count(DISTINCT id) AS n FROM target"];
    assert_eq!(value(&query(&pipeline, &declared).expect_success()), all);
    let first = "SELECT count(*) AS n FROM delta.`lake` VERSION AS OF 1";
    assert!(value(&query(&pipeline, &[first]).expect_success()) < all);
}

#[test]
fn partitions_with_nulls_and_odd_characters_are_read_as_duckdb_reads_them() {
    let options = [("path", "Lake"), ("partitionBy", "k,s")];
    let pipeline = Pipeline::new(&format!(
        "{}{}INSERT INTO target SELECT id, nullif(id % 3, 0) AS k, CAST(id AS STRING) AS t, \
         CASE WHEN id % 2 = 0 THEN 'a b/c:%20ä' ELSE 'x' END AS s FROM STREAM numbers;\n",
        table("numbers", "(id BIGINT)", "json", &[("path", "in")]),
        table("target", "", "delta", &options),
    ));
    std::fs::create_dir(pipeline.path("in")).expect("it is new");
    let lines: String = (0..1_000).map(|id| format!("{{\"id\": {id}}}\n")).collect();
    std::fs::write(pipeline.path("in/numbers.json"), lines).expect("written");
    pipeline.run_available().expect_success();
    let mut duckdb = oracle::light();
    let theirs_of = delta_scan(&pipeline.path("Lake"));
    for (select, rest) in [
        (
            "coalesce(k, -1) AS a, s AS b, count(*) AS c, min(id) AS d",
            "GROUP BY k, s ORDER BY c, d",
        ),
        ("s AS a, t AS b, k AS c", "WHERE id = 7"),
        ("count(*) AS a", "WHERE k IS NULL AND s LIKE 'a b%'"),
        ("count(*) AS a", "WHERE k = 1 AND id < 500"),
        ("max(k) AS a, min(s) AS b", ""),
    ] {
        let text = format!("SELECT {select} FROM delta.`Lake` {rest}");
        let mine = query(&pipeline, &[&text, "--format", "json"]).expect_success().stdout;
        let row = |line: &str| serde_json::from_str(line).expect("it is JSON");
        let mine: Vec<Value> = mine.lines().map(row).collect();
        let sql = format!("SELECT {select} FROM {theirs_of} {rest}");
        let theirs = duckdb.expect(&json!({"op": "sql", "engine": "duckdb", "sql": sql}));
        assert_eq!(json!(mine), theirs["rows"], "{text}");
    }
}

fn delta_scan(table: &Path) -> String {
    format!("delta_scan('{}')", table.display())
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_a_remedy() {
    let pipeline = Pipeline::new("");
    let refused = |text: &str, words: &[&str]| {
        query(&pipeline, &[text]).expect_exit(2).says(words);
    };
    refused("SELECT * FROM delta.`missing`", &["query:1:15", "there is no Delta table"]);
    refused("SELECT * FROM dalta.`x`", &["did you mean `delta`?"]);
    refused("SELECT 1 AS", &["query:1"]);
    refused("SELECT x FROM (SELECT 1 AS y)", &["x"]);
    refused("DELETE FROM t", &["write SELECT"]);
    refused("INSERT INTO t SELECT 1; SELECT 2", &["a query writes nothing", "millstream run"]);
    refused("SELECT * FROM STREAM delta.`x`", &["a stream is a declared table"]);
    refused("SET millstream.remote.stages = 'scna'", &["'none', 'scan', 'group by'"]);
    refused("missing.sql", &["missing.sql cannot be read"]);
    let nobody = query(&pipeline, &["--on", "127.0.0.1:1", "SELECT 1 AS a"]);
    nobody.expect_exit(1).says(&["127.0.0.1:1"]);
}

/// The parts of a cluster, each a process.
pub struct Cluster<'a> {
    pipeline: &'a Pipeline,
    /// With the address at which it listens.
    pub coordinator: (Running, String),
    runners: Vec<(Running, String)>,
    nodes: Vec<Running>,
}

/// Starts a part, and gives the address that it says it listens at.
pub fn part(pipeline: &Pipeline, arguments: &[&str]) -> (Running, String) {
    let mut command = pipeline.bare_command(arguments);
    command.env("MILLSTREAM_TOKEN", "secret");
    let running = pipeline.spawn(command);
    let address = wait::until("its address", wait::SOON, || {
        let said = running.stderr();
        let (_, rest) = said.split_once("listens at ")?;
        rest.split_once(".\n").map(|(address, _)| address.to_owned())
    });
    (running, address)
}

impl<'a> Cluster<'a> {
    /// Two nodes with two runners.
    pub fn start(pipeline: &'a Pipeline) -> Self {
        let coordinator = part(pipeline, &["coordinator", "--listen", "127.0.0.1:0"]);
        let runner = |_| part(pipeline, &["runner", "--listen", "127.0.0.1:0", "--tasks", "2"]);
        let runners: Vec<_> = (0..2).map(runner).collect();
        let mut cluster = Self { pipeline, coordinator, runners, nodes: Vec::new() };
        cluster.nodes = (0..2).map(|_| cluster.node()).collect();
        cluster
    }

    fn node(&self) -> Running {
        let mut arguments = vec!["node", "--cores", "2", "--coordinator", &self.coordinator.1];
        for (_, address) in &self.runners {
            arguments.extend(["--runner", address]);
        }
        part(self.pipeline, &arguments).0
    }

    /// Kills a runner, and starts one at the same address.
    fn replace_runner(&mut self, at: usize) {
        let (runner, address) = self.runners.swap_remove(at);
        runner.kill();
        let again = ["runner", "--listen", &address, "--tasks", "2"];
        self.runners.push(part(self.pipeline, &again));
    }

    fn replace_node(&mut self, at: usize) {
        self.nodes.swap_remove(at).kill();
        let node = self.node();
        self.nodes.push(node);
    }
}

/// A directory with TPC-H's tables at a small scale.
pub fn tpch() -> Pipeline {
    let pipeline = Pipeline::new("");
    let mut generate = Command::new(oracle::installed().join("bin/tpchgen-cli"));
    generate.args(["parquet", "-s", "0.01", "-o"]).arg(pipeline.path("tpch"));
    program::run("writing the tables of TPC-H", generate, "").unwrap();
    pipeline
}

/// A program of `tests/olap`.
pub fn python(script: &str) -> Command {
    let mut python = Command::new(oracle::installed().join("bin/python"));
    python.arg("-B").arg(cache::repository().join("tests/olap").join(script));
    python
}

/// A directory with a small table of hits.
fn hits() -> Pipeline {
    let pipeline = Pipeline::new("");
    std::fs::create_dir(pipeline.path("hits")).expect("it is new");
    let mut generate = python("hits.py");
    generate.arg(pipeline.path("hits/hits.parquet")).args(["--rows", "40000"]);
    program::run("writing the table of hits", generate, "").unwrap();
    pipeline
}

/// All queries of a suite beside DuckDB; what became of each is printed.
pub fn compare(data: &Path, flags: &[&str]) {
    let mut compare = python("compare.py");
    compare.env("MILLSTREAM_TOKEN", "secret");
    compare.arg(env!("CARGO_BIN_EXE_millstream")).arg(data).args(["--runs", "1"]).args(flags);
    println!("{}", program::printed("comparing answers with DuckDB's", compare, "").unwrap());
}

#[test]
fn tpch_has_the_answers_of_duckdb() {
    compare(&tpch().path("tpch"), &[]);
}

#[test]
fn clickbench_has_the_answers_of_duckdb() {
    compare(&hits().path("hits"), &["--suite", "hits"]);
}

#[test]
fn clickbench_has_the_answers_of_duckdb_on_a_cluster_with_runners() {
    let pipeline = hits();
    let cluster = Cluster::start(&pipeline);
    let first = "SET millstream.remote.stages = 'scan, group by';";
    let flags = ["--suite", "hits", "--on", &cluster.coordinator.1, "--first", first];
    compare(&pipeline.path("hits"), &flags);
}

#[test]
fn tpch_has_the_answers_of_duckdb_on_a_cluster_with_runners() {
    let pipeline = tpch();
    let cluster = Cluster::start(&pipeline);
    let first = "SET millstream.remote.stages = 'scan, group by';";
    compare(&pipeline.path("tpch"), &["--on", &cluster.coordinator.1, "--first", first]);
}

#[test]
fn a_killed_runner_or_node_makes_no_wrong_answer() {
    let pipeline = tpch();
    let mut cluster = Cluster::start(&pipeline);
    let text = "SELECT l_returnflag, count(*) AS n, sum(l_orderkey) AS s \
                FROM parquet.`tpch/lineitem.parquet` GROUP BY l_returnflag ORDER BY l_returnflag";
    let expected = query(&pipeline, &[text]).expect_success().stdout;
    let remote = format!("SET millstream.remote.stages = 'scan, group by'; {text}");
    let (mut right, rounds) = (0, kills(2) * 4);
    for round in 0..rounds {
        let address = cluster.coordinator.1.clone();
        let mut command = pipeline.bare_command(&["query", "--on", &address, &remote]);
        command.env("MILLSTREAM_TOKEN", "secret");
        let running = pipeline.spawn(command);
        some_time(round, 500);
        match round % 4 {
            3 => cluster.replace_node((mixed(round) % 2) as usize),
            _ => cluster.replace_runner((mixed(round) % 2) as usize),
        }
        let finished = running.wait(QUERY_LIMIT);
        if finished.status.success() {
            assert_eq!(finished.stdout, expected, "round {round}");
            right += 1;
        } else {
            // What a node has written is gone with it, and the query that reads it fails.
            assert_eq!(round % 4, 3, "round {round}: {}", finished.stderr);
            assert!(finished.stderr.contains("error: "), "{}", finished.stderr);
        }
    }
    assert!(right * 4 >= rounds * 3, "{right} answers of {rounds}");
}
