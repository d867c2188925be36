//! A coordinator, a node and runners, each a process with a network card of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use millstream_store::env::Env;
use millstream_testkit::program::Process;

use super::store::{BUCKET, Card};
use crate::error::Error;
use crate::system;

/// How long a part may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(30);
const QUERY_LIMIT: Duration = Duration::from_secs(600);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The cluster, for as long as this lives.
pub struct Cluster {
    coordinator: String,
    pub node: Process,
    _others: Vec<Process>,
    client: Arc<Card>,
    directory: PathBuf,
}

/// What a query gave, and what it took.
#[derive(Clone, Debug)]
pub struct Asked {
    pub rows: String,
    pub milliseconds: f64,
}

impl Cluster {
    /// A node of two cores and so many runners of one task each. The first card is the client's,
    /// the second the node's, and the others are the runners'.
    pub fn start(
        env: &Env,
        directory: &Path,
        cards: &[Arc<Card>],
        runners: usize,
    ) -> Result<Self, Error> {
        let part = |name: &str, card: &Card, arguments: &[&str]| {
            start(env, name, directory, card, arguments)
        };
        let mut others = Vec::new();
        let (process, coordinator) =
            part("coordinator", &cards[0], &["coordinator", "--listen", "127.0.0.1:0"])?;
        others.push(process);
        let mut arguments = vec![
            "node".to_owned(),
            "--cores".to_owned(),
            "2".to_owned(),
            "--coordinator".to_owned(),
        ];
        arguments.push(coordinator.clone());
        for number in 0..runners {
            let flags = ["runner", "--listen", "127.0.0.1:0", "--tasks", "1"];
            let (process, address) = part(&format!("runner-{number}"), &cards[2 + number], &flags)?;
            others.push(process);
            arguments.extend(["--runner".to_owned(), address]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (node, _) = part("node", &cards[1], &arguments)?;
        let (client, directory) = (Arc::clone(&cards[0]), directory.to_owned());
        Ok(Self { coordinator, node, _others: others, client, directory })
    }

    /// Asks the cluster: a process from its start to its end, as for a user.
    pub fn ask(&self, env: &Env, partitions: usize, text: &str) -> Result<Asked, Error> {
        let mut command = system::millstream()?;
        command.args(["query", "--on", &self.coordinator, "--format", "csv"]);
        command.args(["--cores", &partitions.to_string(), text]);
        in_the_cloud(&mut command, &self.client);
        let log = self.directory.join("query.log");
        let began = env.monotonic();
        let (mut process, output) = Process::start_piped("query", command, &log)?;
        let rows = std::io::read_to_string(output).map_err(Error::file("read", &log))?;
        process.wait(QUERY_LIMIT)?;
        let milliseconds = (env.monotonic() - began).as_secs_f64() * 1e3;
        Ok(Asked { rows, milliseconds })
    }
}

/// Starts a part and waits until it says where it listens.
fn start(
    env: &Env,
    name: &str,
    directory: &Path,
    card: &Card,
    arguments: &[&str],
) -> Result<(Process, String), Error> {
    let mut command = system::millstream()?;
    command.args(arguments).current_dir(directory);
    in_the_cloud(&mut command, card);
    let log = directory.join(format!("{name}.log"));
    let mut process = Process::start(name, command, &log)?;
    let end = env.monotonic() + START_LIMIT;
    loop {
        process.check()?;
        if let Some(address) = listens_at(&log) {
            return Ok((process, address));
        }
        if env.monotonic() > end {
            let problem = format!("{name} does not listen; its log is {}", log.display());
            return Err(Error::Table { what: "the cluster", problem });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The address that a part has printed.
fn listens_at(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let (_, rest) = text.split_once("listens at ")?;
    rest.split_once(".\n").map(|(address, _)| address.to_owned())
}

/// The variables by which a process finds the store, over its card.
fn in_the_cloud(command: &mut Command, card: &Card) {
    command
        .env("AWS_ENDPOINT_URL", &card.endpoint)
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "none")
        .env("AWS_SECRET_ACCESS_KEY", "none");
}

/// Where a table of the store is.
pub fn url(table: &str) -> String {
    format!("s3://{BUCKET}/{table}")
}
