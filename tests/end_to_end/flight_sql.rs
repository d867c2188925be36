//! A coordinator queried by clients that others have written: ADBC's driver for Python, and the
//! driver for JDBC that DBeaver uses.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millstream_testkit::certificates::{Authority, Files};

use crate::millstream::{Pipeline, Running};
use crate::queries::{part, query};
use crate::{cache, program};

const ROWS: &str = "1000000";

/// A coordinator with two tables, of which only `numbers` is one that nodes can read.
struct Served {
    pipeline: Pipeline,
    right: Files,
    other: Files,
    address: String,
    _coordinator: Running,
}

impl Served {
    fn start() -> Self {
        let pipeline = Pipeline::new(
            "CREATE TABLE people (id BIGINT, name STRING) USING json OPTIONS (path 'people');\n\
             CREATE TABLE numbers USING parquet OPTIONS (path 'numbers');\n",
        );
        let people = "{\"id\": 1, \"name\": \"eins\"}\n{\"id\": 2, \"name\": \"zwei\"}\n";
        std::fs::create_dir(pipeline.path("people")).expect("it is new");
        std::fs::write(pipeline.path("people/people.json"), people).expect("written");
        write_numbers(&pipeline);
        let issued = |name: &str| {
            Authority::new(&pipeline.path(name)).unwrap().issue("IP:127.0.0.1").unwrap()
        };
        let (right, other) = (issued("right"), issued("other"));
        let arguments = ["coordinator", "--listen", "127.0.0.1:0", "--tables", "pipeline.sql"];
        let (coordinator, address) = part(&pipeline, &secured(&arguments, &right));
        Self { pipeline, right, other, address, _coordinator: coordinator }
    }

    fn node(&self) -> Running {
        let arguments = ["node", "--cores", "2", "--coordinator", &self.address];
        part(&self.pipeline, &secured(&arguments, &self.right)).0
    }

    /// Gives what the client prints.
    fn asked_by(&self, what: &'static str, mut client: Command, address: &str) -> String {
        client.args([address, "secret"]).args([&self.right.ca, &self.other.ca]).arg(ROWS);
        program::output(what, client, "install it").unwrap()
    }

    fn adbc(&self) {
        let requirements = include_str!("../flight_sql/requirements.txt");
        let installed = cache::python("flight-sql-adbc", requirements).unwrap();
        let mut python = Command::new(installed.join("bin/python"));
        python.arg("-B").arg(cache::repository().join("tests/flight_sql/adbc.py"));
        let address = format!("grpc+tls://{}", self.address);
        println!("ADBC: {}", self.asked_by("queries by ADBC", python, &address).trim());
    }

    fn jdbc(&self) {
        let pom = include_str!("../flight_sql/pom.xml");
        let jars = cache::jars("flight-sql-jdbc-18.3.0", pom).unwrap();
        let mut java = Command::new("java");
        java.arg("--add-opens=java.base/java.nio=ALL-UNNAMED");
        java.arg("-cp").arg(jars.join("*"));
        java.arg(cache::repository().join("tests/flight_sql/Jdbc.java"));
        println!("JDBC: {}", self.asked_by("queries by JDBC", java, &self.address).trim());
    }
}

/// Writes [`ROWS`] numbers to the directory `numbers`.
fn write_numbers(pipeline: &Pipeline) {
    std::fs::create_dir(pipeline.path("numbers")).expect("it is new");
    let generated = format!("SELECT explode(sequence(1, {ROWS})) AS id");
    let mut write = pipeline.bare_command(&["query", "--format", "parquet", &generated]);
    let file = File::create(pipeline.path("numbers/1.parquet")).expect("it is new");
    let status = write.stdout(file).status().expect("it starts");
    assert!(status.success(), "{status}");
}

/// `arguments` with the flags of a part that has TLS.
fn secured<'a>(arguments: &[&'a str], files: &'a Files) -> Vec<&'a str> {
    let path = |path: &'a Path| path.to_str().expect("it is text");
    let tls = ["--tls-cert", path(&files.cert), "--tls-key", path(&files.key)];
    [arguments, &tls, &["--tls-ca", path(&files.ca)]].concat()
}

#[test]
fn stock_clients_query_a_coordinator_by_tls() {
    let served = Served::start();
    served.adbc();
    served.jdbc();
    // The same on nodes, which have TLS and the token, too.
    let _node = served.node();
    served.adbc();
    served.jdbc();
    let ca = served.right.ca.to_str().expect("it is text");
    let text = "SELECT sum(id) AS s FROM parquet.`numbers`";
    let on = ["--on", &served.address, "--tls-ca", ca, text];
    assert_eq!(query(&served.pipeline, &on).expect_success().stdout, "s\n500000500000\n");
    query(&served.pipeline, &["--on", &served.address, text]).expect_exit(1).says(&["answer"]);
}

#[test]
fn a_cluster_has_addresses_of_ipv6() {
    let pipeline = Pipeline::new("");
    write_numbers(&pipeline);
    let authority = Authority::new(&pipeline.path("authority")).unwrap();
    let files = authority.issue("IP:0:0:0:0:0:0:0:1").unwrap();
    let start = |arguments: &[&str]| part(&pipeline, &secured(arguments, &files));
    let (_coordinator, address) = start(&["coordinator", "--listen", "[::1]:0"]);
    let (_runner, at) = start(&["runner", "--listen", "[::1]:0", "--tasks", "2"]);
    let on = ["--coordinator", &address, "--runner", &at];
    let (node, _) = start(&[&["node", "--host", "::1", "--cores", "2"], &on[..]].concat());
    let ca = files.ca.to_str().expect("it is text");
    for stages in ["none", "scan, group by"] {
        let text = format!(
            "SET millstream.remote.stages = '{stages}'; \
             SELECT id % 2 AS odd, sum(id) AS s FROM parquet.`numbers` GROUP BY 1 ORDER BY 1"
        );
        let answer = query(&pipeline, &["--on", &address, "--tls-ca", ca, &text]);
        assert_eq!(answer.expect_success().stdout, "odd,s\n0,250000500000\n1,250000000000\n");
    }
    let said = node.stderr();
    assert!(!said.contains("has failed"), "{said}");
}

#[test]
fn what_would_be_open_to_everybody_is_refused() {
    let pipeline = Pipeline::new("");
    let refused = |arguments: &[&str], words: &[&str]| {
        let running = pipeline.spawn(pipeline.bare_command(arguments));
        running.wait(Duration::from_secs(60)).expect_exit(2).says(words);
    };
    let remedy = ["--token-file", "MILLSTREAM_TOKEN"];
    refused(&["coordinator", "--listen", "0.0.0.0:0"], &remedy);
    refused(&["runner", "--listen", "0.0.0.0:0"], &remedy);
    refused(&["node", "--host", "0.0.0.0"], &remedy);
    refused(&["coordinator", "--token-file", "missing"], &["missing cannot be read"]);
    std::fs::write(pipeline.path("token"), "two words").expect("written");
    refused(&["coordinator", "--token-file", "token"], &["a token is one word"]);
    refused(&["coordinator", "--tls-cert", "token"], &["--tls-key", "--tls-ca"]);
    let authority = Authority::new(&pipeline.path("authority")).unwrap();
    let ca = authority.issue("IP:127.0.0.1").unwrap().ca;
    let ca = ca.to_str().expect("it is text");
    refused(&["coordinator", "--tls-ca", ca], &["--tls-cert", "--tls-key"]);
    let tls = ["--tls-cert", "token", "--tls-key", "token", "--tls-ca", "token"];
    refused(&[&["coordinator"], &tls[..]].concat(), &["token has no certificate"]);
}

#[test]
fn each_part_warns_once_that_nothing_is_encrypted() {
    let pipeline = Pipeline::new("");
    let (coordinator, address) = part(&pipeline, &["coordinator", "--listen", "0.0.0.0:0"]);
    let address = address.replace("0.0.0.0", "127.0.0.1");
    let (runner, at) = part(&pipeline, &["runner", "--listen", "0.0.0.0:0"]);
    let node = ["node", "--host", "0.0.0.0", "--coordinator", &address, "--runner", &at];
    let (node, _) = part(&pipeline, &node);
    let answer = query(&pipeline, &["--on", &address, "SELECT 1 AS a"]);
    assert_eq!(answer.expect_success().stdout, "a\n1\n");
    for part in [coordinator, runner, node] {
        let said = part.stderr();
        assert_eq!(said.matches("are not encrypted").count(), 1, "{said}");
    }
}
