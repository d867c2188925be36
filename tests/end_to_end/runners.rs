//! Runners where they are meant to be: as functions of AWS Lambda, on machines that give them
//! little, and beside nodes whose disks are full.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millstream_testkit::error::Error;

use crate::live::{kills, some_time};
use crate::millstream::{Finished, Pipeline, Running};
use crate::queries::{QUERY_LIMIT, compare, part, query, tpch};
use crate::{cache, process, program, wait};

/// The wheel with the official runtime emulator, which is all that is used of it.
const EMULATOR: &str = "aws-sam-cli==1.170.0";
const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const REMOTE: &str = "SET millstream.remote.stages = 'scan, group by';";

/// Some 23 MB that cannot be compressed much, in partitions that are longer than what a function
/// may give back.
const LONG: &str = "SELECT max(length(a)) AS l, count(*) AS n, max(a) AS m FROM ( \
    SELECT concat(sha2(k, 512), sha2(concat(k, 'b'), 512), sha2(concat(k, 'c'), 512)) AS a, \
    count(*) AS n FROM (SELECT concat(l_orderkey, '-', l_linenumber) AS k \
    FROM parquet.`tpch/lineitem.parquet`) GROUP BY 1)";

/// A virtual environment with the emulator, AWS's library and MiniStack.
fn installed() -> PathBuf {
    let requirements = include_str!("../lambda/requirements.txt");
    let fill = |directory: &Path| -> Result<(), Error> {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(directory);
        program::run("making a virtual environment", venv, "apt-get install python3-venv")?;
        let file = cache::repository().join("tests/lambda/requirements.txt");
        for what in [vec!["--requirement".into(), file], vec!["--no-deps".into(), EMULATOR.into()]]
        {
            let mut pip = Command::new(directory.join("bin/pip"));
            pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(what);
            program::run("installing with pip", pip, "")?;
        }
        Ok(())
    };
    cache::prepared("lambda", &format!("{requirements}{EMULATOR}"), fill).unwrap()
}

fn emulator(installed: &Path) -> PathBuf {
    let libraries = fs::read_dir(installed.join("lib")).expect("a virtual environment");
    let python = libraries.map(|entry| entry.expect("an entry").path()).next().expect("a Python");
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" };
    let path = python.join("site-packages/samcli/local/rapid");
    let path = path.join(format!("aws-lambda-rie-{machine}"));
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, executable).expect("the file is ours");
    path
}

/// The binary under the name by which it is a function.
fn bootstrap(pipeline: &Pipeline) -> PathBuf {
    let path = pipeline.path("bootstrap");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_millstream"), &path).expect("it is new");
    path
}

/// Something with Lambda's Invoke API; see `tests/lambda`.
struct Lambda {
    child: Child,
    said: PathBuf,
    log: PathBuf,
    port: String,
    /// What it has answered so far.
    answers: usize,
}

impl Drop for Lambda {
    fn drop(&mut self) {
        // It ends what it has started when this is closed.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Lambda {
    /// So many environments of the runtime emulator; every `throttled`-th request is refused.
    fn start(pipeline: &Pipeline, slots: u32, throttled: u32) -> Self {
        let installed = installed();
        let paths = [emulator(&installed), bootstrap(pipeline)];
        let numbers = [slots.to_string(), KEY.into(), SECRET.into(), throttled.to_string()];
        let arguments = paths.into_iter().chain(numbers.into_iter().map(PathBuf::from));
        Self::program(pipeline, "invoke_api.py", arguments)
    }

    /// MiniStack, with so many environments at one time.
    fn ministack(pipeline: &Pipeline, reserved: u32) -> Self {
        let numbers = [reserved.to_string(), KEY.into(), SECRET.into()].map(PathBuf::from);
        let binary = PathBuf::from(env!("CARGO_BIN_EXE_millstream"));
        Self::program(pipeline, "ministack.py", std::iter::once(binary).chain(numbers))
    }

    fn program(pipeline: &Pipeline, name: &str, arguments: impl Iterator<Item = PathBuf>) -> Self {
        let mut python = Command::new(installed().join("bin/python"));
        python.arg("-B").arg(cache::repository().join("tests/lambda").join(name));
        python.args(arguments).env("MILLSTREAM_TOKEN", "secret").current_dir(pipeline.path("."));
        let create = |path: &Path| File::create(path).expect("the directory is writable");
        let (log, said) = (pipeline.path("lambda.log"), pipeline.path("lambda.said"));
        python.stdin(Stdio::piped()).stdout(create(&said)).stderr(create(&log));
        let child = process::spawn(python).expect("python can start");
        let mut lambda = Self { child, said, log, port: String::new(), answers: 0 };
        lambda.port = lambda.line(0);
        lambda
    }

    /// A line that the program has said.
    fn line(&self, number: usize) -> String {
        wait::until("an answer of tests/lambda", wait::SOON, || {
            let said = fs::read_to_string(&self.said).ok()?;
            let line = said.split_inclusive('\n').nth(number)?.strip_suffix('\n')?;
            Some(line.to_owned())
        })
    }

    /// How many objects are in the bucket of MiniStack, unfinished ones included.
    fn objects(&mut self) -> String {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "objects").expect("it reads");
        self.answers += 1;
        self.line(self.answers)
    }

    /// The requests that were answered with `status`.
    fn requests(&self, status: u32) -> usize {
        let log = fs::read_to_string(&self.log).expect("it is written");
        log.lines().filter(|line| line.starts_with(&format!("invoke {status} "))).count()
    }

    /// Who asks for what, and where.
    fn settings(&self) -> [(&'static str, String); 6] {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        [
            ("AWS_ENDPOINT_URL_LAMBDA", endpoint.clone()),
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "eu-west-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
    }

    /// A node whose runner is a function.
    fn node(&self, pipeline: &Pipeline, coordinator: &str, flags: &[&str]) -> Running {
        let mut command = pipeline.bare_command(&["node", "--coordinator", coordinator]);
        command.args(["--cores", "2", "--runner", "lambda:runner"]).args(flags);
        command.envs(self.settings()).env("MILLSTREAM_LOG", "warn,millstream=debug");
        started(pipeline, command)
    }
}

/// Starts a part, and waits until it listens.
fn started(pipeline: &Pipeline, mut command: Command) -> Running {
    command.env("MILLSTREAM_TOKEN", "secret");
    let mut running = pipeline.spawn(command);
    wait::until_true("a part that listens", wait::SOON, || {
        let listens = running.stderr().contains("listens at ");
        assert!(listens || running.is_running(), "{}", running.stderr());
        listens
    });
    running
}

fn coordinator(pipeline: &Pipeline) -> (Running, String) {
    part(pipeline, &["coordinator", "--listen", "127.0.0.1:0"])
}

/// The answer of the cluster.
fn on(pipeline: &Pipeline, coordinator: &str, text: &str) -> Finished {
    query(pipeline, &["--on", coordinator, "--cores", "2", &format!("{REMOTE} {text}")])
}

#[test]
fn tpch_has_the_answers_of_duckdb_with_functions_of_lambda() {
    let pipeline = tpch();
    let lambda = Lambda::start(&pipeline, 2, 9);
    let (_coordinator, address) = coordinator(&pipeline);
    let node = lambda.node(&pipeline, &address, &[]);
    compare(&pipeline.path("tpch"), &["--on", &address, "--first", REMOTE]);
    let (done, throttled) = (lambda.requests(200), lambda.requests(429));
    assert!(done > 60 && throttled > 5, "{done} invocations, {throttled} of them throttled");
    assert_eq!(lambda.requests(403), 0, "a signature is wrong");
    let said = node.stderr();
    assert!(!said.contains("has failed") && !said.contains("have failed"), "{said}");
}

#[test]
fn long_answers_of_functions_are_pushed_or_spilled_or_made_by_the_node() {
    let pipeline = tpch();
    let lambda = Lambda::start(&pipeline, 2, 0);
    let expected = query(&pipeline, &[LONG]).expect_success().stdout;
    let spilled = pipeline.path("spilled");
    fs::create_dir(&spilled).expect("it is new");
    let spill = format!("SET millstream.remote.spill = 'file://{}'; {LONG}", spilled.display());
    for (flags, text, way) in [
        (&[][..], LONG, "the answer was pushed"),
        (&["--no-push"][..], &spill, "the answer was spilled"),
        (&["--no-push"][..], LONG, "which is too long for the way back"),
    ] {
        let (_coordinator, address) = coordinator(&pipeline);
        let node = lambda.node(&pipeline, &address, flags);
        let before = lambda.requests(200);
        let given = on(&pipeline, &address, text).expect_success().stdout;
        assert_eq!(given, expected, "{flags:?}");
        assert!(lambda.requests(200) > before, "{flags:?}: no function was asked");
        let said = node.stderr();
        assert!(said.contains(way), "no {way:?} in {said}");
        let by_node = said.contains("the node runs the task itself");
        assert_eq!(by_node, way.contains("too long"), "{said}");
        let left = fs::read_dir(&spilled).expect("it is there").count();
        assert_eq!(left, 0, "{flags:?}: what was spilled is left");
    }
}

#[test]
fn functions_of_ministack_answer_over_the_api_of_aws() {
    let pipeline = tpch();
    let mut lambda = Lambda::ministack(&pipeline, 2);
    let (_coordinator, address) = coordinator(&pipeline);
    // More tasks at one time than functions may run: the others are throttled.
    let node = lambda.node(&pipeline, &address, &["--no-push", "--remote-tasks", "8"]);
    let short = "SELECT l_returnflag, count(*) AS n, sum(l_orderkey) AS s \
                 FROM parquet.`tpch/lineitem.parquet` GROUP BY l_returnflag ORDER BY l_returnflag";
    let spilled = format!("SET millstream.remote.spill = 's3://spilled/some/place'; {LONG}");
    for (here, text) in [(short, short), (LONG, &*spilled)] {
        let expected = query(&pipeline, &[here]).expect_success().stdout;
        let on = ["--on", &address, "--cores", "6", &format!("{REMOTE} {text}")];
        assert_eq!(query(&pipeline, &on).expect_success().stdout, expected);
    }
    let said = node.stderr();
    assert!(!said.contains("has failed") && !said.contains("have failed"), "{said}");
    // A second function that was slower than the first may spill its answer later.
    wait::until_true("an empty bucket", wait::SOON, || lambda.objects() == "0");
    assert!(said.contains("a runner has no room"), "nothing was throttled");
    assert!(said.contains("the answer was spilled"), "nothing was spilled");
}

#[test]
fn a_killed_function_makes_no_wrong_answer() {
    let pipeline = tpch();
    let lambda = Lambda::start(&pipeline, 2, 0);
    let (_coordinator, address) = coordinator(&pipeline);
    let _node = lambda.node(&pipeline, &address, &[]);
    let expected = query(&pipeline, &[LONG]).expect_success().stdout;
    let (mut killed, rounds) = (0, kills(2) * 3);
    for round in 0..rounds {
        let text = format!("{REMOTE} {LONG}");
        let command = ["query", "--on", &address, "--cores", "2", &text];
        let mut command = pipeline.bare_command(&command);
        command.env("MILLSTREAM_TOKEN", "secret");
        let running = pipeline.spawn(command);
        some_time(round, 1_500);
        killed += kill_functions(&pipeline);
        assert_eq!(running.wait(QUERY_LIMIT).expect_success().stdout, expected, "round {round}");
    }
    assert!(killed > 0, "no function was running");
    let left = functions(&pipeline);
    assert!(left.len() <= 2, "{left:?}");
}

/// The processes that run this pipeline's bootstrap.
fn functions(pipeline: &Pipeline) -> Vec<u32> {
    let bootstrap = pipeline.path("bootstrap").into_os_string().into_encoded_bytes();
    let processes = fs::read_dir("/proc").expect("it is there").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_function = |id: &u32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() == Some(&bootstrap[..])
    };
    ids.filter(is_function).collect()
}

/// Kills them; gives how many.
fn kill_functions(pipeline: &Pipeline) -> usize {
    let ids = functions(pipeline);
    for id in &ids {
        let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
    }
    ids.len()
}

#[test]
fn a_runner_needs_few_descriptors_and_little_memory() {
    const DESCRIPTORS_MAX: usize = 64;
    const MEMORY_BYTES_MAX: u64 = 1_770 << 20;
    let pipeline = tpch();
    let (_coordinator, address) = coordinator(&pipeline);
    let mut command = pipeline.bare_command(&["runner", "--listen", "127.0.0.1:0"]);
    command.args(["--memory", "1061MB"]);
    process::limit_descriptors(&mut command, 1024, 1024);
    let runner = started(&pipeline, command);
    let said = runner.stderr();
    let (_, at) = said.split_once("listens at ").expect("it listens");
    let at = at.split_once(".\n").expect("a sentence").0;
    let nodes = ["node", "--cores", "2", "--coordinator", &address, "--runner", at];
    let nodes: Vec<_> = (0..2).map(|_| part(&pipeline, &nodes).0).collect();
    let expected = query(&pipeline, &[LONG]).expect_success().stdout;
    let mut most = 0;
    for _ in 0..2 {
        let text = format!("{REMOTE} {LONG}");
        let queries = (0..3).map(|_| {
            // A task that spills while it partitions its rows has a file open for each partition.
            let command = ["query", "--on", &address, "--cores", "16", &text];
            let mut command = pipeline.bare_command(&command);
            command.env("MILLSTREAM_TOKEN", "secret");
            pipeline.spawn(command)
        });
        let mut queries: Vec<_> = queries.collect();
        while queries.iter_mut().any(|query| query.is_running()) {
            most = most.max(runner.descriptors());
            wait::pause(Duration::from_millis(2));
        }
        for query in queries {
            assert_eq!(query.wait(QUERY_LIMIT).expect_success().stdout, expected);
        }
    }
    let memory = runner.memory_peak();
    println!("{most} descriptors, {} MiB", memory >> 20);
    assert!(most > 8, "{most} descriptors: they were not counted");
    assert!(most < DESCRIPTORS_MAX, "{most} descriptors");
    assert!(memory < MEMORY_BYTES_MAX, "{} MiB", memory >> 20);
    let said: String = nodes.iter().map(Running::stderr).collect();
    assert!(!said.contains("the node runs the task itself"), "{said}");
}

#[test]
fn a_full_disk_of_a_node_is_an_error_that_says_so() {
    let pipeline = tpch();
    let (_coordinator, address) = coordinator(&pipeline);
    let (_runner, at) = part(&pipeline, &["runner", "--listen", "127.0.0.1:0"]);
    let directory = pipeline.path("small");
    fs::create_dir(&directory).expect("it is new");
    // A file system of 2 MB that only the node sees, and that is gone with it.
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    // The change of rights takes away that it ends with this process.
    let limited =
        "mount -t tmpfs -o size=2m none \"$1\" && shift && exec setpriv --pdeathsig KILL \"$@\"";
    command.arg(limited).arg("sh");
    command.arg(&directory).arg(env!("CARGO_BIN_EXE_millstream"));
    command.args(["node", "--cores", "1", "--coordinator", &address, "--runner", &at, "--dir"]);
    command.arg(&directory).current_dir(pipeline.path("."));
    let mut node = started(&pipeline, command);
    // A quarter of its rows is more than there is room for, and is tried several times.
    let long = LONG.replace("lineitem.parquet`", "lineitem.parquet` WHERE l_linenumber = 1");
    on(&pipeline, &address, &long).expect_exit(1).says(&["No space left on device"]);
    assert!(node.is_running(), "{}", node.stderr());
    let inside = PathBuf::from(format!("/proc/{}/root{}", node.id(), directory.display()));
    assert!(inside.is_dir(), "the node's directory is seen from here");
    assert_eq!(hidden(&inside), 0, "of answers that are not whole something is left");
    let small = "SELECT count(*) AS n FROM parquet.`tpch/nation.parquet`";
    let again = on(&pipeline, &address, small);
    if again.status.success() {
        assert_eq!(again.stdout, "n\n25\n");
    }
}

/// Files below `directory` whose names begin with a dot.
fn hidden(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let count = |path: PathBuf| match path.is_dir() {
        true => hidden(&path),
        false => path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.').into(),
    };
    entries.map(|entry| count(entry.path())).sum()
}
