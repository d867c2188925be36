//! Queries whose stages run at runners, and what goes wrong there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::TryStreamExt as _;
use millstream_query::cluster::coordinator;
use millstream_query::cluster::node::{self, Listeners, Node, NodeSettings};
use millstream_query::cluster::remote::{Counts, Reached, Runners};
use millstream_query::cluster::runner::{self, Runner, RunnerSettings};
use millstream_query::cluster::security::{Security, Token};
use millstream_query::cluster::transport::RunnerAddress;
use millstream_query::session::QuerySession;
use millstream_query::state::Limits;
use millstream_query::statements::{Statements, Step};
use millstream_store::env::{Env, Task};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::faulty::{Fault, Front, Line};
use crate::lake::{FILES, ROWS, answer, events, session};

/// Queries with one stage that scans, and one or two that group.
pub const QUERIES: &[&str] = &[
    "SELECT country, count(*) AS n, sum(amount) AS total FROM parquet.`events` \
     GROUP BY country ORDER BY country",
    "SELECT user_id, count(*) AS n, max(id) AS last FROM parquet.`events` \
     GROUP BY user_id ORDER BY n DESC, user_id LIMIT 20",
    "SELECT a.country, count(*) AS n FROM parquet.`events` a JOIN parquet.`events` b \
     ON a.id = b.id + 1 WHERE b.amount < 50 GROUP BY a.country ORDER BY a.country",
];

/// A cluster in this process.
struct Cluster {
    coordinator: String,
    /// Between the node and the coordinator.
    line: Line,
    node: Node,
    directory: TempDir,
    fronts: Vec<Front>,
    tasks: Vec<Task<()>>,
    spill: String,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.tasks.iter().for_each(Task::abort);
    }
}

/// How answers get to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// All the way of the task.
    Inline,
    /// Those of some bytes are pushed, and spilled if that fails.
    Push,
    /// Those of some bytes are spilled.
    Spill,
    /// Those of some bytes have no way.
    None,
}

/// Answers that are longer take another way.
const INLINE_BYTES_MAX: u64 = 600;

impl Cluster {
    /// One node with two runners, to whose requests `choose` does harm.
    async fn start(
        way: Way,
        choose: impl Fn(u64) -> Fault + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::with_runners(2, way, choose).await
    }

    async fn with_runners(
        count: usize,
        way: Way,
        choose: impl Fn(u64) -> Fault + Clone + Send + Sync + 'static,
    ) -> Self {
        let env = Env::real();
        let directory = tempfile::tempdir().expect("a directory");
        let spilled = directory.path().join("spilled");
        std::fs::create_dir(&spilled).expect("it is new");
        let (coordinator, serving) = start_coordinator(&env, &security()).await;
        let (mut tasks, mut fronts) = (vec![serving], Vec::new());
        let mut addresses = Vec::new();
        for number in 0..count {
            let (runner, serving) = start_runner(&env, &directory, number, &security()).await;
            tasks.push(serving);
            let front = Front::start(&env, runner, spilled.clone(), choose.clone()).await;
            addresses.push(RunnerAddress::Http(front.address.clone()));
            fronts.push(front);
        }
        let mut reached = Reached::default();
        let mut inbox = None;
        if way == Way::Push {
            let listener = listener().await;
            let address = listener.local_addr().expect("an address").to_string();
            // The same harm to what is pushed, but not to the same requests; and what is flipped is
            // the answer that is pushed, not that of the node.
            let choose = move |request| match choose(request + 5) {
                Fault::Flipped => Fault::FlippedRequest,
                other => other,
            };
            let front = Front::start(&env, address, spilled.clone(), choose).await;
            reached.inbox = Some(front.address.clone());
            fronts.push(front);
            inbox = Some(listener);
        }
        let inline_bytes_max = (way != Way::Inline).then_some(INLINE_BYTES_MAX);
        let runners = Runners { addresses, security: security(), inline_bytes_max, reached };
        let line = Line::start(&env, coordinator.clone()).await;
        let settings = NodeSettings {
            coordinator: line.address.clone(),
            limits: Limits { partitions: 2, memory_bytes: None, spill_directory: None },
            directory: directory.path().join("node"),
            host: "127.0.0.1".to_owned(),
            security: security(),
            runners: (count > 0).then_some((runners, 4)),
            cache: None,
        };
        let listeners = Listeners { files: listener().await, proxy: listener().await, inbox };
        let node = node::start(&env, settings, listeners).await.expect("a node");
        let spill = match way {
            Way::Push | Way::Spill => format!("file://{}", spilled.display()),
            Way::Inline | Way::None => String::new(),
        };
        Self { coordinator, line, node, directory, fronts, tasks, spill }
    }

    /// Files that are left: of tasks at runners, of answers that are not whole, and spilled ones.
    fn left(&self) -> Vec<PathBuf> {
        let mut left = Vec::new();
        for number in 0..2 {
            files(&self.directory.path().join(format!("runner-{number}")), &mut left);
        }
        files(&self.directory.path().join("spilled"), &mut left);
        let mut of_node = Vec::new();
        files(&self.directory.path().join("node"), &mut of_node);
        let is_hidden = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
        };
        left.extend(of_node.into_iter().filter(is_hidden));
        left
    }

    /// Waits until nothing is left: tasks that nobody waits for any more come to their end.
    async fn expect_nothing_left(&self) {
        for _ in 0..300 {
            if self.left().is_empty() {
                return;
            }
            Env::real().sleep(Duration::from_millis(100)).await;
        }
        panic!("these files are left: {:?}", self.left());
    }

    fn counts(&self) -> &Counts {
        self.node.counts.as_ref().expect("it has runners")
    }

    /// The answer of the cluster, whose stages `stages` are at runners.
    async fn answer(&self, lake: &Path, stages: &str, timeout: u32, text: &str) -> String {
        let mut session = session(lake);
        session.run_on(&self.coordinator, &security());
        session.set("millstream.remote.stages", stages).expect("a setting");
        session.set("millstream.remote.spill", &self.spill).expect("a setting");
        session.set("millstream.remote.timeout", &timeout.to_string()).expect("a setting");
        match answer(&session, text).await {
            Ok(answer) => answer,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn faults(&self) -> u64 {
        self.fronts.iter().map(|front| front.faults.load(Ordering::Relaxed)).sum()
    }
}

fn security() -> Security {
    Security::token(Some(Token::new("secret").expect("it is a token")))
}

pub async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.expect("a port")
}

pub async fn start_coordinator(env: &Env, security: &Security) -> (String, Task<()>) {
    let listener = listener().await;
    let address = listener.local_addr().expect("an address").to_string();
    let (clock, security) = (env.clone(), security.clone());
    let serving =
        async move { coordinator::serve(&clock, listener, &security).await.expect("it serves") };
    (address, env.spawn("coordinator", serving))
}

pub async fn start_runner(
    env: &Env,
    directory: &TempDir,
    number: usize,
    security: &Security,
) -> (String, Task<()>) {
    let directory = directory.path().join(format!("runner-{number}"));
    std::fs::create_dir(&directory).expect("it is new");
    let settings = RunnerSettings {
        limits: Limits { partitions: 1, memory_bytes: Some(64 << 20), spill_directory: None },
        tasks: 2,
        directory,
        security: security.clone(),
    };
    let runner = Arc::new(Runner::new(env.clone(), settings).expect("a runner"));
    let listener = listener().await;
    let address = listener.local_addr().expect("an address").to_string();
    let serving = async move { runner::serve(listener, runner).await.expect("it serves") };
    (address, env.spawn("runner", serving))
}

/// Adds the files below `directory` to `found`.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, found),
            path => found.push(path),
        }
    }
}

/// Spreads numbers.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    number ^ (number >> 29)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_stage_runs_where_the_query_says() {
    let lake = events();
    let here = session(lake.path());
    let cluster = Cluster::start(Way::Inline, |_| Fault::None).await;
    let done = || cluster.counts().done.load(Ordering::Relaxed);
    for text in QUERIES {
        let expected = answer(&here, text).await.expect("it runs here");
        let mut before = done();
        assert_eq!(cluster.answer(lake.path(), "none", 60, text).await, expected);
        assert_eq!(done(), before, "nothing was to be at runners");
        let mut least = 0;
        for stages in ["scan", "scan, group by"] {
            assert_eq!(cluster.answer(lake.path(), stages, 60, text).await, expected, "{stages}");
            assert!(done() - before > least, "{stages}: {} tasks at runners", done() - before);
            (least, before) = (done() - before, done());
        }
    }
    let text = "SELECT 1 AS a UNION ALL SELECT 2 AS a ORDER BY a";
    let expected = answer(&here, text).await.expect("it runs here");
    assert_eq!(cluster.answer(lake.path(), "scan, group by", 60, text).await, expected);
    assert_eq!(cluster.counts().here.load(Ordering::Relaxed), 0, "no runner has failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_are_exact_whatever_becomes_of_runners() {
    harmed(Way::Inline, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pushed_answers_are_exact_whatever_becomes_of_them() {
    let cluster = harmed(Way::Push, 120).await;
    for (what, count) in
        [("pushed", &cluster.counts().pushed), ("spilled", &cluster.counts().spilled)]
    {
        assert!(count.load(Ordering::Relaxed) > 0, "no answer was {what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn spilled_answers_are_exact_whatever_becomes_of_them() {
    let cluster = harmed(Way::Spill, 120).await;
    assert!(cluster.counts().spilled.load(Ordering::Relaxed) > 0, "no answer was spilled");
}

/// Runs queries until so many requests have met faults.
async fn harmed(way: Way, faults: u64) -> Cluster {
    let lake = events();
    let here = session(lake.path());
    let choose = move |request| match mixed(request) % 32 {
        0 | 12 => Fault::Refused,
        1 | 7 | 8 => Fault::Cut((mixed(request + 1) % 3_000) as usize),
        2 | 9 => Fault::Flipped,
        13 => Fault::CutRequest((mixed(request + 1) % 3_000) as usize),
        14 | 15 if way == Way::Spill => Fault::Lost,
        3 | 4 | 10 => Fault::Throttled,
        5 | 11 => Fault::Failed,
        6 => Fault::Stalled(Duration::from_millis(1_200)),
        _ => Fault::None,
    };
    let cluster = Cluster::start(way, choose).await;
    let mut expected = Vec::new();
    for text in QUERIES {
        expected.push(answer(&here, text).await.expect("it runs here"));
    }
    let mut queries = 0;
    while cluster.faults() < faults {
        let (text, expected) = (QUERIES[queries % 3], &expected[queries % 3]);
        let given = cluster.answer(lake.path(), "scan, group by", 1, text).await;
        assert_eq!(given, *expected, "query {queries}: {text}");
        queries += 1;
        assert!(queries < 500, "{} faults in {queries} queries", cluster.faults());
    }
    let counts = cluster.counts();
    for (what, count) in [
        ("done by runners", &counts.done),
        ("failed", &counts.failed),
        ("throttled", &counts.throttled),
    ] {
        assert!(count.load(Ordering::Relaxed) > 0, "no task was {what}");
    }
    cluster.expect_nothing_left().await;
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_that_no_way_is_left_for_is_made_by_the_node() {
    let lake = events();
    let expected = answer(&session(lake.path()), QUERIES[1]).await.expect("it runs here");
    let cluster = Cluster::start(Way::None, |_| Fault::None).await;
    let given = cluster.answer(lake.path(), "scan, group by", 60, QUERIES[1]).await;
    assert_eq!(given, expected);
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let (here, failed) = (count(&cluster.counts().here), count(&cluster.counts().failed));
    assert!(here > 0 && here == failed, "{here} tasks at the node after {failed} attempts");
    cluster.expect_nothing_left().await;
}

/// The rows of a query on a cluster, and its plan with figures.
async fn profiled(session: &QuerySession, text: &str) -> (usize, String) {
    let statements = Statements::parse(text).expect("it is right");
    let [Step::Query(query)] = statements.steps.as_slice() else { panic!("{text} is no query") };
    let planned = session.plan(&statements, query).await.expect("it is planned");
    let rows: Vec<_> = planned.run().await.expect("it runs").try_collect().await.expect("it runs");
    let rows = rows.iter().map(|rows: &RecordBatch| rows.num_rows()).sum();
    (rows, planned.profile().await.expect("the coordinator knows it"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_profile_has_the_figures_of_operators_on_nodes_and_at_runners() {
    let lake = events();
    let cluster = Cluster::start(Way::Push, |_| Fault::None).await;
    let mut session = session(lake.path());
    session.run_on(&cluster.coordinator, &security());
    let scanned = "output_rows=40.00 K";
    assert_eq!(FILES * ROWS, 40_000);
    for (stages, at_runners) in [("none", false), ("scan", true), ("scan, group by", true)] {
        session.set("millstream.remote.stages", stages).expect("a setting");
        let (rows, profile) = profiled(&session, QUERIES[0]).await;
        assert_eq!(rows, 4);
        let scan = profile.lines().find(|line| line.trim_start().starts_with("DataSourceExec"));
        assert!(scan.expect("it scans").contains(scanned), "{stages}: {scanned}\n{profile}");
        assert_eq!(profile.contains("tasks_at_runners=4"), at_runners, "{stages}\n{profile}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_reads_much_goes_to_runners_by_itself_and_what_reads_little_stays() {
    let lake = events();
    let cluster = Cluster::start(Way::Push, |_| Fault::None).await;
    let done = || cluster.counts().done.load(Ordering::Relaxed);
    let expected =
        answer(&crate::lake::session(lake.path()), QUERIES[0]).await.expect("it runs here");
    let mut session = crate::lake::session(lake.path());
    session.run_on(&cluster.coordinator, &security());
    session.set("millstream.remote.stages", "auto").expect("a setting");
    let (_, here) = profiled(&session, QUERIES[0]).await;
    assert!(here.contains("the query runs in this process"), "{here}");
    session.set("millstream.remote.here_bytes", "1").expect("a setting");
    assert_eq!(answer(&session, QUERIES[0]).await.expect("it runs"), expected);
    let (_, nodes) = profiled(&session, QUERIES[0]).await;
    assert!(nodes.contains("bytes runs on nodes") && done() == 0, "{nodes}");
    session.set("millstream.remote.group_by_bytes", "1").expect("a setting");
    assert_eq!(answer(&session, QUERIES[0]).await.expect("it runs"), expected);
    let of_groups = done();
    assert!(of_groups > 0, "no task that groups was at a runner");
    session.set("millstream.remote.group_by_bytes", "1000000000").expect("a setting");
    session.set("millstream.remote.scan_bytes", "1").expect("a setting");
    let (_, out) = profiled(&session, QUERIES[0]).await;
    assert!(out.contains("bytes runs at runners, too"), "{out}");
    assert_eq!(answer(&session, QUERIES[0]).await.expect("it runs"), expected);
}

/// More than a minute's work.
const LONG: &str = "SELECT sum(a.amount * b.amount) AS n FROM parquet.`events` a \
                    JOIN parquet.`events` b ON a.id % 2 = b.id % 2";

/// Waits until something is so, for as long as a cancelled query may take to be ended.
async fn soon(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..400 {
        if is_so() {
            return;
        }
        Env::real().sleep(Duration::from_millis(100)).await;
    }
    panic!("not so after 40 s: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_query_ends_on_nodes_and_leaves_nothing_when_its_client_stops_waiting() {
    let lake = events();
    let cluster = Cluster::with_runners(0, Way::Inline, |_| Fault::None).await;
    let files =
        || std::fs::read_dir(cluster.directory.path().join("node")).map_or(0, Iterator::count);
    let mut session = session(lake.path());
    session.run_on(&cluster.coordinator, &security());
    let session = Arc::new(session);
    let asking = {
        let session = Arc::clone(&session);
        Env::real().spawn("client", async move { answer(&session, LONG).await })
    };
    // The join's tasks are at work when what it reads has been written.
    // Between two stages there may be none for a moment.
    let seen = std::sync::atomic::AtomicU32::new(0);
    let runs_for_a_second = || {
        let is_at_work = cluster.node.running() > 0 && files() > 0;
        let before = seen.load(Ordering::Relaxed);
        seen.store(if is_at_work { before + 1 } else { 0 }, Ordering::Relaxed);
        before >= 10
    };
    soon("the join runs", runs_for_a_second).await;
    asking.abort();
    soon("no task runs", || cluster.node.running() == 0).await;
    soon("no files are left", || files() == 0).await;
    // The next one is answered, and leaves nothing either, though nobody cancelled it.
    let expected = answer(&crate::lake::session(lake.path()), QUERIES[0]).await.expect("it runs");
    assert_eq!(answer(&session, QUERIES[0]).await.expect("it runs"), expected);
    soon("no files are left", || files() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_end_at_their_runners_when_their_query_is_cancelled() {
    let lake = events();
    let cluster = Cluster::start(Way::Inline, |_| Fault::None).await;
    // Each task has a directory of its own while it runs.
    let tasks = || -> usize {
        let runners =
            (0..2).map(|number| cluster.directory.path().join(format!("runner-{number}")));
        runners.map(|runner| std::fs::read_dir(runner).map_or(0, Iterator::count)).sum()
    };
    let mut session = session(lake.path());
    session.run_on(&cluster.coordinator, &security());
    session.set("millstream.remote.stages", "scan, group by").expect("a setting");
    let asking = Env::real().spawn("client", async move { answer(&session, LONG).await });
    soon("a task is at a runner", || tasks() > 0).await;
    Env::real().sleep(Duration::from_secs(2)).await;
    soon("a task that joins is at a runner", || tasks() > 0).await;
    asking.abort();
    soon("no task is at a runner", || tasks() == 0).await;
    cluster.expect_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_runners_the_nodes_do_what_was_meant_for_them() {
    let lake = events();
    let expected = answer(&session(lake.path()), QUERIES[0]).await.expect("it runs here");
    let cluster = Cluster::with_runners(0, Way::Inline, |_| Fault::None).await;
    let given = cluster.answer(lake.path(), "scan, group by", 60, QUERIES[0]).await;
    assert_eq!(given, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_that_are_lost_on_their_way_to_a_node_are_given_out_again() {
    let lake = events();
    let expected = answer(&session(lake.path()), QUERIES[1]).await.expect("it runs here");
    for runners in [0, 2] {
        let cluster = Cluster::with_runners(runners, Way::Inline, |_| Fault::None).await;
        for _ in 0..2 {
            cluster.line.lose_tasks();
            let given = cluster.answer(lake.path(), "scan, group by", 60, QUERIES[1]);
            let given = tokio::time::timeout(Duration::from_secs(60), given).await;
            assert_eq!(given.expect("the query does not wait for ever"), expected);
            assert!(cluster.line.has_lost(), "nothing was lost");
        }
    }
}

/// Functions whose names DataFusion has too, as names or as further names of others: a session that
/// is made from another may have either.
const FUNCTIONS: &str = "SELECT user_id, \
     window_funnel(5000, id, amount < 30, amount < 60, amount < 90) AS reached, \
     aggregate(filter(array_sort(collect_list(id)), (x, i) -> i % 2 = 0), 0L, (sum, x) -> sum + x) \
     AS every_second, array_contains(collect_set(country), 'de') AS has_been_there, \
     instr(max(country), 'r') AS place FROM parquet.`events` GROUP BY user_id ORDER BY user_id";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn functions_are_those_of_this_project_on_all_parts() {
    let lake = events();
    let expected = answer(&session(lake.path()), FUNCTIONS).await.expect("it runs here");
    let cluster = Cluster::start(Way::Inline, |_| Fault::None).await;
    for stages in ["none", "scan", "scan, group by"] {
        // Each query has another session at the coordinator.
        for _ in 0..3 {
            assert_eq!(cluster.answer(lake.path(), stages, 60, FUNCTIONS).await, expected);
        }
    }
}
