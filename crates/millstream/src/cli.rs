//! The command line.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use millstream_engine::api::options::Options;
use millstream_query::cluster::lambda::function::BOOTSTRAP;
use millstream_query::cluster::transport::RunnerAddress;

use crate::key_value::key_value;
use crate::{bench, restart};

/// Runs Spark SQL over live streams, in micro-batches of milliseconds.
#[derive(Parser)]
#[command(name = "millstream", version, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// Log more on standard error: -v what happens, -vv how it happens.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Run every flow of a pipeline file.
    Run(RunArguments),
    /// Check a pipeline file and show its flows, schemas and plans; writes nothing.
    Validate(ValidateArguments),
    /// Query tables at rest: Delta tables, Parquet, JSON and CSV files; without a query, a shell.
    Query(QueryArguments),
    /// Serve queries of a cluster: take them in, and hand their tasks to nodes.
    Coordinator(CoordinatorArguments),
    /// Work for a coordinator: run tasks of queries, or hand them to runners.
    Node(NodeArguments),
    /// Lend a hand to nodes: run the tasks that they send, over HTTP.
    Runner(RunnerArguments),
    /// Feed dead letters to their flow again, each of them once.
    Replay(ReplayArguments),
    /// Run a demonstration: generated data, two alert pipelines, no set-up; ends by itself.
    Demo(DemoArguments),
    /// Check how fast it is here, alone or with your own brokers; prints a JSON object.
    Bench(bench::Arguments),
    /// Generate random messages from a template, at a steady rate.
    Generate(GenerateArguments),
    /// Inspect a checkpoint, also one of Spark's.
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// Inspect and maintain a Delta table.
    #[command(subcommand)]
    Table(TableCommand),
}

/// `millstream generate`
#[derive(Args)]
pub struct GenerateArguments {
    /// The template of the messages, in the language of json-data-generator.
    #[arg(value_name = "SCHEMA.json")]
    pub template: PathBuf,
    /// Messages per second; without it as fast as the receiver takes them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: Option<u64>,
    /// End after this many messages.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Where messages go.
    #[arg(long, value_enum, default_value_t)]
    pub to: Receiver,
    /// For files: the directory to write to; one message per line.
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
    /// For kafka: where the brokers are.
    #[arg(long, value_name = "HOST:PORT")]
    pub brokers: Option<String>,
    /// For kafka: the topic, which must exist.
    #[arg(long, value_name = "NAME")]
    pub topic: Option<String>,
    /// Make the same random choices as another run with this number.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Where generated messages go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Receiver {
    /// One line per message, on standard output.
    #[default]
    Stdout,
    /// One line per message in files; a new file every second.
    Files,
    /// One record per message in a topic.
    Kafka,
    /// Nowhere: to see how fast messages are generated.
    Null,
}

/// `millstream run`
#[derive(Args)]
pub struct RunArguments {
    /// The pipeline file; '-' reads standard input.
    #[arg(value_name = "FILE.sql")]
    pub file: PathBuf,
    /// The checkpoint: a directory, or an object store's URL. With several flows in the file each
    /// has a directory in it. Overrides 'checkpointLocation' in the file. [default:
    /// .millstream/<file>/<flow> in the directory of the file]
    // Help is plain text, in which `<file>` is no tag.
    #[allow(rustdoc::invalid_html_tags)]
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<String>,
    /// When micro-batches start: '0 seconds' (as soon as there is input), an interval such as
    /// '10 seconds', 'once', or 'availableNow' (read what is there, then end). Overrides 'trigger'
    /// in the file.
    #[arg(long, value_name = "TRIGGER")]
    pub trigger: Option<String>,
    /// Stop after this long, for example 30s or 5m.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub run_for: Option<Duration>,
    /// Run only this flow.
    #[arg(long, value_name = "NAME")]
    pub flow: Option<String>,
    /// Serve Prometheus metrics on a loopback address, for example 127.0.0.1:9100; port 0 takes
    /// any free port.
    #[arg(long, value_name = "ADDR", value_parser = loopback)]
    pub metrics: Option<SocketAddr>,
    /// Answer requests for metrics that name this host, too, not only an address or localhost; may
    /// be repeated.
    #[arg(long = "metrics-host", value_name = "NAME", requires = "metrics", value_parser = host_name)]
    pub metrics_hosts: Vec<String>,
    /// Set an option, which overrides the file: TABLE.OPTION=VALUE, or an option of the writer
    /// alone, such as trigger; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub settings: Vec<(String, String)>,
    /// Restart a flow that failed because something that it reads from or writes to was away:
    /// 'on-failure' (up to 60 times in a row, at growing intervals), 'on-failure:N', or 'never'.
    #[arg(long, value_name = "WHEN", value_parser = restart::Policy::parse, default_value = "on-failure")]
    pub restart: restart::Policy,
    /// Continue as another query, whose checkpoint is gone: the id of a query whose progress the
    /// flow's table contains. With several flows in the file FLOW=ID; may be repeated.
    #[arg(long, value_name = "ID")]
    pub adopt: Vec<String>,
    /// How to report progress; without this flag, live lines on a terminal.
    #[arg(long, value_name = "HOW")]
    pub progress: Option<ProgressStyle>,
}

/// What `--progress` may be.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressStyle {
    /// One of Spark's StreamingQueryProgress objects per micro-batch, on standard output.
    Json,
    /// Nothing.
    None,
}

/// `millstream validate`
#[derive(Args)]
pub struct ValidateArguments {
    /// The pipeline file; '-' reads standard input.
    #[arg(value_name = "FILE.sql")]
    pub file: PathBuf,
    /// Show only this flow.
    #[arg(long, value_name = "NAME")]
    pub flow: Option<String>,
    /// Set an option, which overrides the file: TABLE.OPTION=VALUE, or an option of the writer
    /// alone, such as trigger; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub settings: Vec<(String, String)>,
}

/// What queries may use in this process.
#[derive(Args)]
pub struct LimitArguments {
    /// How much memory queries may use here before they spill to disk, for example 4GB. [default:
    /// half of what the machine has]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Spill to this directory. [default: the system's directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub spill: Option<PathBuf>,
    /// How many cores a query uses here, and into how many tasks a stage of it is cut on a cluster.
    /// [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: Option<u32>,
}

/// `millstream query`
#[derive(Args)]
pub struct QueryArguments {
    /// A query, or a file of statements, or '-' for standard input; without it, a shell. Tables are
    /// named by their path, as in FROM delta.`/lake/orders`, or declared.
    #[arg(value_name = "SQL|FILE.sql")]
    pub query: Option<String>,
    /// Read the tables that this pipeline file declares.
    #[arg(long, value_name = "FILE.sql")]
    pub tables: Option<PathBuf>,
    /// Run queries on the cluster of this coordinator.
    #[arg(long, value_name = "HOST:PORT")]
    pub on: Option<String>,
    /// The file that has the cluster's token. [default: the variable MILLSTREAM_TOKEN]
    #[arg(long, value_name = "FILE", requires = "on")]
    pub token_file: Option<PathBuf>,
    /// Connect to the cluster by TLS, and trust the authorities in this file, in PEM.
    #[arg(long, value_name = "FILE", requires = "on")]
    pub tls_ca: Option<PathBuf>,
    /// How rows are printed. [default: table on a terminal, else csv]
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<Format>,
    #[command(flatten)]
    pub limits: LimitArguments,
    /// Report on standard error how long each query took.
    #[arg(long)]
    pub timing: bool,
    /// Set an option of a declared table: TABLE.OPTION=VALUE; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub settings: Vec<(String, String)>,
}

/// What a part of a cluster shows others, and asks of them.
#[derive(Args)]
pub struct SecurityArguments {
    /// The file that has the cluster's token: who connects has to know it. [default: the variable
    /// MILLSTREAM_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Serve by TLS: the file that has the certificate of this part, in PEM.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub tls_cert: Option<PathBuf>,
    /// The file that has the certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Trust the authorities in this file, in PEM, when connecting to other parts.
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
}

/// `millstream coordinator`
#[derive(Args)]
pub struct CoordinatorArguments {
    /// Listen at this address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:50050")]
    pub listen: SocketAddr,
    /// Let clients of Flight SQL query the tables that this pipeline file declares.
    #[arg(long, value_name = "FILE.sql")]
    pub tables: Option<PathBuf>,
    /// Set an option of a declared table: TABLE.OPTION=VALUE; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value, requires = "tables")]
    pub settings: Vec<(String, String)>,
    #[command(flatten)]
    pub limits: LimitArguments,
    #[command(flatten)]
    pub security: SecurityArguments,
}

/// `millstream node`
#[derive(Args)]
pub struct NodeArguments {
    /// The coordinator to work for.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    pub coordinator: String,
    /// The address under which other nodes and runners reach this one.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub host: IpAddr,
    /// Keep what tasks have written in this directory. [default: a directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How many tasks run here at one time. [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cores: Option<u32>,
    /// How much memory tasks may use before they spill to disk. [default: half of what the machine
    /// has]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Hand tasks to the runner at this address, HOST:PORT or lambda:FUNCTION, where the query
    /// wants that; may be repeated.
    #[arg(long = "runner", value_name = "ADDR", value_parser = RunnerAddress::parse)]
    pub runners: Vec<RunnerAddress>,
    /// Runners cannot reach this node: long answers of functions go to the query's object store.
    #[arg(long)]
    pub no_push: bool,
    /// How many tasks are with runners at one time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub remote_tasks: u32,
    /// Keep what is read from object stores in this directory, which no other process may use.
    /// [default: nothing is kept]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// How much is kept at most.
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "10GB")]
    pub cache_size: u64,
    #[command(flatten)]
    pub security: SecurityArguments,
}

/// `millstream runner`
#[derive(Args)]
pub struct RunnerArguments {
    /// Run as a function of AWS Lambda, which takes tasks from its runtime API and does not listen.
    /// So does a binary that is called `bootstrap`.
    #[arg(long, conflicts_with_all = ["listen", "tasks", "tls_cert", "tls_key"])]
    pub lambda: bool,
    /// Listen at this address.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:50060")]
    pub listen: SocketAddr,
    /// How many tasks run at one time; more are refused, and go elsewhere.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub tasks: u32,
    /// How much memory tasks may use before they spill to disk. [default: 1GB, or 60 % of a
    /// function's]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub memory: Option<u64>,
    /// Keep a task's files in this directory until they are sent back. [default: a directory for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub security: SecurityArguments,
}

/// The arguments of the process; those of a runner where Lambda starts it, which gives none.
pub fn arguments(given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let given: Vec<OsString> = given.collect();
    let name = given.first().and_then(|path| Path::new(path).file_name());
    if name.is_some_and(|name| name == BOOTSTRAP) {
        return ["millstream", "runner", "--lambda"].map(OsString::from).to_vec();
    }
    given
}

/// How the rows of a query are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people.
    Table,
    /// A JSON object per row.
    Json,
    /// Separated values, with a header.
    Csv,
    /// One Parquet file.
    Parquet,
    /// One stream in Arrow's IPC format.
    Arrow,
}

/// `millstream replay`
#[derive(Args)]
pub struct ReplayArguments {
    /// The pipeline file; '-' reads standard input.
    #[arg(value_name = "FILE.sql")]
    pub file: PathBuf,
    /// The table of dead letters that a source of the flow names.
    #[arg(long, value_name = "TABLE")]
    pub from: String,
    /// The flow; needed if several flows send letters to that table.
    #[arg(long, value_name = "NAME")]
    pub flow: Option<String>,
    /// Only letters for which this holds: a condition on the table's columns.
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Report what would be replayed, and write nothing to the flow's tables.
    #[arg(long)]
    pub dry_run: bool,
    /// The flow's checkpoint, if `run` has the same flag.
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<String>,
    /// Set an option, which overrides the file: TABLE.OPTION=VALUE, or an option of the writer
    /// alone; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    pub settings: Vec<(String, String)>,
}

/// `millstream demo`
#[derive(Args)]
pub struct DemoArguments {
    /// How long it runs.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "20s")]
    pub run_for: Duration,
    /// Where to write: a new directory. [default: a directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Send a request to this URL for each alert about personal data, with the service's name in
    /// the field 'text' of a JSON object.
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
}

/// `millstream checkpoint`
#[derive(Subcommand)]
pub enum CheckpointCommand {
    /// Show in words what a checkpoint contains; changes nothing.
    Show {
        /// The checkpoint: a directory, or an object store's URL.
        #[arg(value_name = "DIR")]
        directory: String,
    },
}

/// `millstream table`
#[derive(Subcommand)]
pub enum TableCommand {
    /// Show a table's columns, properties, protocol, size and last checkpoint.
    Describe {
        /// The table: a directory, or an object store's URL.
        #[arg(value_name = "TABLE")]
        location: String,
    },
    /// List the newest versions: who wrote what, when.
    History {
        /// The table: a directory, or an object store's URL.
        #[arg(value_name = "TABLE")]
        location: String,
        /// The number of versions.
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Print one JSON object per line instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Write a checkpoint of the newest version now.
    Checkpoint {
        /// The table: a directory, or an object store's URL.
        #[arg(value_name = "TABLE")]
        location: String,
        /// The number of actions in a part; a larger checkpoint has several parts.
        #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
        part_size: u64,
    },
    /// Put small data files together, and leave out rows that deletion vectors name.
    Optimize {
        /// The table: a directory, or an object store's URL.
        #[arg(value_name = "TABLE")]
        location: String,
        /// Only files of partitions for which this holds, for example "day < DATE '2026-01-01'".
        #[arg(long = "where", value_name = "CONDITION")]
        condition: Option<String>,
        /// Files below this size are put together, to this size at most. As much memory is used.
        #[arg(long, value_name = "BYTES", default_value = "128mb", value_parser = bytes)]
        target_size: u64,
        /// Only tell what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete data files that no retained version needs.
    Vacuum {
        /// The table: a directory, or an object store's URL.
        #[arg(value_name = "TABLE")]
        location: String,
        /// Keep files of versions younger than this, for example 7d. [default: the table's own
        /// retention, or 7 days]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        retain: Option<Duration>,
        /// Allow less than the table's own retention: readers of older versions may fail, and
        /// writers may lose files that they have not committed yet.
        #[arg(long)]
        force: bool,
        /// Only list what would be deleted.
        #[arg(long)]
        dry_run: bool,
    },
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = millstream_connectors::duration::parse(text);
    parsed.ok_or_else(|| "write a number with a unit, such as 10s, 500ms or 5m".into())
}

fn bytes(text: &str) -> Result<u64, String> {
    let options = Options::new([("size".to_owned(), text.to_owned())]);
    let wrong = || "write a size such as 512MB or 4GB".to_owned();
    options.parse_bytes("size").ok().flatten().ok_or_else(wrong)
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let text = text.replacen("localhost:", "127.0.0.1:", 1);
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "write an address and a port, such as 127.0.0.1:9100".to_owned())?;
    if !address.ip().is_loopback() {
        return Err("metrics have no password, so only loopback addresses are served; use \
             127.0.0.1:PORT and put a proxy in front of it"
            .into());
    }
    Ok(address)
}

fn host_name(text: &str) -> Result<String, String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if !text.is_empty() && text.bytes().all(is_part) {
        Ok(text.to_owned())
    } else {
        Err("write a host name without a port, such as metrics.example".into())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn a_bootstrap_is_a_runner() {
        let parsed = |given: &[&str]| super::arguments(given.iter().map(OsString::from));
        assert_eq!(parsed(&["/var/task/bootstrap"]), ["millstream", "runner", "--lambda"]);
        assert_eq!(parsed(&["bin/millstream", "query"]), ["bin/millstream", "query"]);
        assert_eq!(parsed(&["bootstrapped"]), ["bootstrapped"]);
    }

    fn run(arguments: &[&str]) -> Result<RunArguments, clap::Error> {
        let arguments = ["millstream", "run", "a.sql"].iter().chain(arguments);
        match Cli::try_parse_from(arguments)?.command {
            Command::Run(arguments) => Ok(arguments),
            _ => unreachable!("it says run"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_are_checked() {
        let parsed = run(&["--for", "90s", "--set", "a=b=c", "--metrics", "localhost:0"]).unwrap();
        assert_eq!(parsed.run_for, Some(Duration::from_secs(90)));
        assert_eq!(parsed.settings, [("a".to_owned(), "b=c".to_owned())]);
        assert_eq!(parsed.metrics, Some("127.0.0.1:0".parse().unwrap()));
        let host = ["--metrics", "localhost:0", "--metrics-host"];
        let named = |name| run(&[&host[..], &[name]].concat());
        assert_eq!(named("a.example").unwrap().metrics_hosts, ["a.example"]);
        assert!(named("a.example:9100").is_err() && named("").is_err());
        for wrong in [
            ["--for", "soon"],
            ["--set", "a"],
            ["--set", "=a"],
            ["--metrics", "0.0.0.0:9100"],
            ["--metrics", "9100"],
            ["--progress", "loud"],
            ["--metrics-host", "a.example"],
        ] {
            assert!(run(&wrong).is_err(), "{wrong:?}");
        }
    }
}
