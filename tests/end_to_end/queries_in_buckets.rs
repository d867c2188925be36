//! Queries of tables in a bucket: in one process, on a cluster whose nodes keep what they read, and
//! at runners; and queries that their clients leave alone.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::bad_input::{SmallDisk, WITHOUT_MOUNT};
use crate::live::{kills, mixed, some_time};
use crate::millstream::{Finished, Pipeline, Running};
use crate::object_store::{Feed, Server, TABLE};
use crate::wait;

/// A query in a build that is not optimised, on a machine that does other things.
const QUERY_LIMIT: Duration = Duration::from_secs(120);

/// A cluster of two nodes with caches, and two runners, all of which read from a bucket.
struct Cluster<'a> {
    pipeline: &'a Pipeline,
    server: &'a Server,
    /// Where a full disk is, if a test has one.
    cache: String,
    coordinator: (Running, String),
    runners: Vec<(Running, String)>,
    nodes: Vec<Running>,
}

impl<'a> Cluster<'a> {
    fn start(pipeline: &'a Pipeline, server: &'a Server, cache: &str) -> Self {
        let coordinator = part(pipeline, server, &["coordinator", "--listen", "127.0.0.1:0"]);
        let runner = |_| part(pipeline, server, &RUNNER);
        let runners = (0..2).map(runner).collect();
        let (cache, nodes) = (cache.to_owned(), Vec::new());
        let mut cluster = Self { pipeline, server, cache, coordinator, runners, nodes };
        cluster.nodes = (0..2).map(|number| cluster.node(number)).collect();
        cluster
    }

    fn node(&self, number: usize) -> Running {
        let (cache, directory) = (format!("{}-{number}", self.cache), format!("node-{number}"));
        let mut arguments = vec!["node", "--cores", "4", "--coordinator", &self.coordinator.1];
        arguments.extend(["--cache", &cache, "--dir", &directory, "--cache-size", "64MB"]);
        for (_, address) in &self.runners {
            arguments.extend(["--runner", address]);
        }
        part(self.pipeline, self.server, &arguments).0
    }

    fn query(&self, text: &str) -> Running {
        let mut command = self.pipeline.bare_command(&["query", "--on", &self.coordinator.1]);
        command.args(["--cores", "4", text]);
        started(self.pipeline, self.server, command)
    }

    fn answer(&self, text: &str) -> String {
        self.query(text).wait(QUERY_LIMIT).expect_success().stdout
    }

    /// How many blocks the nodes keep. A node that has just started has no directory yet.
    fn blocks(&self) -> usize {
        let count = |number| {
            let files = std::fs::read_dir(self.pipeline.path(&format!("{}-{number}", self.cache)));
            let paths = files.into_iter().flatten().map(|file| file.expect("a file").path());
            paths.filter(|path| path.extension().is_some_and(|end| end == "block")).count()
        };
        (0..2).map(count).sum()
    }

    /// Files that queries have left on nodes.
    fn left(&self) -> usize {
        let count = |number| {
            let directory = self.pipeline.path(&format!("node-{number}"));
            std::fs::read_dir(directory).map_or(0, Iterator::count)
        };
        (0..2).map(count).sum()
    }
}

impl Cluster<'_> {
    /// How much the nodes compute within a second, in hundredths of one.
    fn work(&self) -> u64 {
        let ticks = || self.nodes.iter().map(Running::cpu_ticks).sum::<u64>();
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        ticks() - before
    }
}

fn started(pipeline: &Pipeline, server: &Server, mut command: Command) -> Running {
    command.env("MILLSTREAM_TOKEN", "secret").envs(server.settings());
    pipeline.spawn(command)
}

/// Starts a part, and gives the address that it says it listens at.
fn part(pipeline: &Pipeline, server: &Server, arguments: &[&str]) -> (Running, String) {
    let running = started(pipeline, server, pipeline.bare_command(arguments));
    let address = wait::until("its address", wait::SOON, || {
        let said = running.stderr();
        let (_, rest) = said.split_once("listens at ")?;
        rest.split_once(".\n").map(|(address, _)| address.to_owned())
    });
    (running, address)
}

fn query(pipeline: &Pipeline, server: &Server, text: &str) -> Finished {
    let command = pipeline.bare_command(&["query", text]);
    started(pipeline, server, command).wait(QUERY_LIMIT)
}

/// Some files of a table in a bucket.
fn filled(server: &Server) -> Feed {
    let mut feed = Feed::new(0);
    feed.put(12);
    feed.run(server.settings()).expect_success();
    feed
}

fn count() -> String {
    format!("SELECT count(*) AS c, sum(n) AS s, max(n) AS m FROM delta.`{TABLE}`")
}

#[test]
fn a_table_in_a_bucket_is_read_here_on_nodes_that_keep_it_and_at_runners() {
    let server = Server::open();
    let mut feed = filled(&server);
    let pipeline = Pipeline::new("");
    assert_eq!(
        query(&pipeline, &server, &count()).expect_success().stdout,
        "c,s,m\n120,7140,119\n"
    );
    let mut cluster = Cluster::start(&pipeline, &server, "cache");
    // Whatever a node reads from the store becomes a block. One that has just come may be given its
    // part too late for the first query.
    let settled = wait::until("nodes that have what they read", QUERY_LIMIT, || {
        let before = cluster.blocks();
        assert_eq!(cluster.answer(&count()), "c,s,m\n120,7140,119\n");
        (before > 0 && cluster.blocks() == before).then_some(before)
    });
    assert!((12..=24).contains(&settled), "{settled} blocks of 12 files");
    // What the nodes know of the files in memory is gone after a kill, and what is on disk is not.
    for number in 0..2 {
        cluster.nodes.remove(0).kill();
        let node = cluster.node(number);
        cluster.nodes.push(node);
    }
    assert_eq!(cluster.answer(&count()), "c,s,m\n120,7140,119\n");
    // A node that comes late leaves its own to the other. All of them would be read again if what
    // is on disk were gone.
    let again = cluster.blocks() - settled;
    assert!(again < settled, "{again} blocks more after a restart, of {settled}");
    let remote = format!("SET millstream.remote.stages = 'scan, group by'; {}", count());
    assert_eq!(cluster.answer(&remote), "c,s,m\n120,7140,119\n");
    feed.put(1);
    feed.run(server.settings()).expect_success();
    assert_eq!(cluster.answer(&count()), "c,s,m\n130,8385,129\n");
}

#[test]
fn a_node_that_is_killed_while_it_fills_its_cache_answers_right_afterwards() {
    let server = Server::open();
    let _feed = filled(&server);
    let pipeline = Pipeline::new("");
    let mut cluster = Cluster::start(&pipeline, &server, "cache");
    for round in 0..kills(2) * 2 {
        for number in 0..2 {
            for block in std::fs::read_dir(pipeline.path(&format!("cache-{number}"))).unwrap() {
                let path = block.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "block") {
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
        let running = cluster.query(&count());
        some_time(round, 400);
        let number = (mixed(round) % 2) as usize;
        cluster.nodes.remove(number).kill();
        let node = cluster.node(number);
        cluster.nodes.insert(number, node);
        // The query fails where what a node had written is gone with it.
        let finished = running.wait(QUERY_LIMIT);
        if finished.status.success() {
            assert_eq!(finished.stdout, "c,s,m\n120,7140,119\n", "round {round}");
        }
        assert_eq!(cluster.answer(&count()), "c,s,m\n120,7140,119\n", "round {round}");
    }
}

#[test]
fn a_full_disk_below_a_cache_is_a_warning_and_no_wrong_answer() {
    if std::env::var_os(WITHOUT_MOUNT).is_some() {
        return;
    }
    let server = Server::open();
    let _feed = filled(&server);
    let pipeline = Pipeline::new("");
    let disks = [0, 1].map(|number| SmallDisk::mount(pipeline.path(&format!("cache-{number}"))));
    let cluster = Cluster::start(&pipeline, &server, "cache");
    for number in 0..2 {
        let filler = pipeline.path(&format!("cache-{number}/filler"));
        assert!(std::fs::write(filler, vec![0; 1 << 20]).is_err(), "the disk is small");
    }
    for _ in 0..2 {
        assert_eq!(cluster.answer(&count()), "c,s,m\n120,7140,119\n");
    }
    let warned = |node: &Running| {
        node.stderr().contains("the cache cannot be written to")
            && node.stderr().contains("No space")
    };
    assert!(cluster.nodes.iter().any(warned), "{}", cluster.nodes[0].stderr());
    drop((cluster, disks));
}

#[test]
fn sizes_decide_where_a_query_runs_and_it_says_so() {
    let server = Server::open();
    let _feed = filled(&server);
    let pipeline = Pipeline::new("");
    let mut cluster = Cluster::start(&pipeline, &server, "cache");
    let auto = "SET millstream.remote.stages = 'auto'";
    let small = cluster.answer(&format!("{auto}; EXPLAIN {}", count()));
    assert!(small.contains("the query runs in this process"), "{small}");
    assert_eq!(cluster.answer(&format!("{auto}; {}", count())), "c,s,m\n120,7140,119\n");
    let much = format!(
        "{auto}; SET millstream.remote.here_bytes = 1; SET millstream.remote.scan_bytes = 1; \
         SET millstream.remote.group_by_bytes = 1; SET millstream.remote.max = 1"
    );
    let out = cluster.answer(&format!("{much}; EXPLAIN ANALYZE {}", count()));
    assert!(out.contains("bytes runs at runners, too"), "{out}");
    assert_eq!(cluster.answer(&format!("{much}; {}", count())), "c,s,m\n120,7140,119\n");
    // A node whose coordinator goes away says so once.
    let (coordinator, _) =
        std::mem::replace(&mut cluster.coordinator, part(&pipeline, &server, &RUNNER));
    coordinator.kill();
    let node = &cluster.nodes[0];
    let says = || node.stderr().matches("the coordinator does not answer").count();
    wait::until_true("a node's warning", wait::SOON, || says() > 0);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(says(), 1, "{}", node.stderr());
    assert_eq!(node.stderr().matches("poll work loop").count(), 0, "{}", node.stderr());
}

const RUNNER: [&str; 3] = ["runner", "--listen", "127.0.0.1:0"];

/// More than a minute's work.
const LONG: &str = "SELECT sum(a.id * b.id) AS s FROM parquet.`numbers` a \
                    JOIN parquet.`numbers` b ON a.id % 2 = b.id % 2";

/// Half of the rows of [`LONG`]'s table are one key.
fn numbers(pipeline: &Pipeline) {
    let text = "SELECT posexplode(sequence(1, 60000)) AS (p, id)";
    let arguments = ["query", "--format", "parquet", text];
    let rows = pipeline.bare_command(&arguments).output().expect("it can start");
    assert!(rows.status.success(), "{}", String::from_utf8_lossy(&rows.stderr));
    let directory: &Path = &pipeline.path("numbers");
    std::fs::create_dir(directory).expect("it is new");
    std::fs::write(directory.join("part-0.parquet"), rows.stdout).expect("written");
}

#[test]
fn parquet_files_in_a_bucket_are_a_table() {
    let server = Server::open();
    let pipeline = Pipeline::new("");
    numbers(&pipeline);
    for part in 0..3 {
        let file = pipeline.path("numbers/part-0.parquet");
        server.upload(&file, &format!("some files/part {part}.parquet"));
        server.upload(&file, &format!("ts=10%3A00/part {part}%25.parquet"));
        server.upload(&file, &format!("some files/_below/part {part}.parquet"));
    }
    let cluster = Cluster::start(&pipeline, &server, "cache");
    let select = |path: &str| {
        format!("SELECT count(*) AS c, sum(id) AS s, max(p) AS m FROM parquet.`s3://lake/{path}`")
    };
    let (all, one) = ("c,s,m\n180000,5400090000,59999\n", "c,s,m\n60000,1800030000,59999\n");
    let escaped = ("ts=10%253A00", all);
    for (path, expected) in [("some files", all), ("some files/part 1.parquet", one), escaped] {
        let text = select(path);
        assert_eq!(query(&pipeline, &server, &text).expect_success().stdout, expected);
        assert_eq!(cluster.answer(&text), expected);
        let remote = format!("SET millstream.remote.stages = 'scan, group by'; {text}");
        assert_eq!(cluster.answer(&remote), expected);
    }
    let missing = query(&pipeline, &server, &select("nothing here"));
    missing.expect_exit(2).says(&["nothing%20here", "does not exist"]);
}

#[test]
fn a_query_whose_client_is_interrupted_or_killed_ends_on_the_nodes() {
    let server = Server::open();
    let pipeline = Pipeline::new("");
    numbers(&pipeline);
    let cluster = Cluster::start(&pipeline, &server, "cache");
    // Nodes that have just started, or that share the machine with other tests, take their time.
    let limit = 2 * wait::SOON;
    wait::until_true("nodes that are ready", limit, || cluster.work() < 20);
    for is_killed in [false, true] {
        let mut running = cluster.query(LONG);
        running.wait_while_running("work on the nodes", || cluster.left() > 0);
        wait::until_true("nodes at work", limit, || cluster.work() > 30);
        assert!(running.is_running(), "the query is over too soon to show anything");
        if is_killed {
            running.kill();
        } else {
            running.stop().expect_exit(130);
        }
        wait::until_true("an end without files", wait::SOON, || cluster.left() == 0);
        wait::until_true("nodes without work", limit, || cluster.work() < 20);
    }
}
