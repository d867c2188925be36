//! `millstream-bench olap`: what runners are good for, and what they cost.
//!
//! Events lie in an object store; a coordinator, a node and runners are processes of this machine,
//! each with a network card of its own ([`store`]). Three experiments, after those published of
//! Luft, whose executors are functions:
//!
//! - `scan`: a heavy scan that the node's card is too slow for. Runners read with their own cards.
//! - `group-by`: a grouping by user that needs much memory. Runners need it in the node's place.
//! - `small`: a query that is too small for runners, under `auto`.
//!
//! Processors are shared by all processes of the machine and do not grow with the runners, as they
//! would in a cloud: what is gained here is gained from cards and memory alone.

mod cluster;
mod store;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use millstream_store::env::Env;
use serde::Serialize;

use self::cluster::{Asked, Cluster, url};
use self::store::{Card, CardSpeed};
use crate::error::Error;
use crate::report::{self, Report, median, rounded};
use crate::work_directory::WorkDirectory;

/// What AWS Lambda asks for a second of a gibibyte, in US dollars (us-east-1, arm64, 2026).
const USD_PER_GIB_SECOND: f64 = 0.000_013_333_4;
/// And for a request.
const USD_PER_REQUEST: f64 = 0.000_000_2;
/// What S3 asks for a request that reads.
const USD_PER_READ: f64 = 0.000_000_4;
/// The memory of a function like a runner.
const RUNNER_GIB: f64 = 1.769 / 1.024;

/// Flags of `millstream-bench olap`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Which experiments; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    experiment: Vec<Experiment>,
    /// Events in the table
    #[arg(long, default_value_t = 2_000_000)]
    rows: u64,
    /// Numbers of runners
    #[arg(long, value_delimiter = ',', default_value = "8,16")]
    runners: Vec<usize>,
    /// Bytes a second that each process's network card carries, in units of 1,000,000
    #[arg(long, default_value_t = 4.0)]
    bandwidth_mb: f64,
    /// Milliseconds from a request to the first byte of its answer
    #[arg(long, default_value_t = 20)]
    latency_ms: u64,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 5)]
    repeat: u32,
    /// Where to keep the table for the next run; otherwise it is removed
    #[arg(long, value_name = "DIRECTORY")]
    table: Option<PathBuf>,
}

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// A scan that the node's network card is too slow for
    Scan,
    /// A grouping that needs much memory
    GroupBy,
    /// A query that is too small for runners
    Small,
}

impl Experiment {
    /// The query, over `table`.
    fn query(self, table: &str) -> String {
        match self {
            Self::Scan => format!(
                "SELECT kind, country, count(*) AS events, sum(amount) AS amount, \
                 max(user_id) AS last_user FROM delta.`{table}` WHERE platform < 6 \
                 GROUP BY kind, country ORDER BY kind, country"
            ),
            Self::GroupBy => format!(
                "SELECT count(*) AS users, sum(steps) AS steps, max(last) AS last FROM (\
                 SELECT user_id, size(collect_list(number)) AS steps, \
                 max_by(kind, number) AS last FROM delta.`{table}` GROUP BY user_id)"
            ),
            Self::Small => format!(
                "SELECT count(*) AS events, min(user_id) AS first FROM delta.`{table}` \
                 WHERE number < 1000"
            ),
        }
    }

    /// The columns that it cannot do without, in all row groups; `None` if it needs few of those.
    fn columns(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Scan => Some(&["kind", "country", "amount", "user_id", "platform"]),
            Self::GroupBy => Some(&["user_id", "number", "kind"]),
            Self::Small => None,
        }
    }

    /// What goes to runners.
    fn stages(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::GroupBy => "scan, group by",
            Self::Small => "auto",
        }
    }
}

/// One query.
#[derive(Clone, Debug, Serialize)]
struct RoundLine {
    experiment: Experiment,
    stages: String,
    runners: usize,
    round: u32,
    /// From the client's start to its end.
    wall_ms: f64,
    /// Of the node, for this query.
    node_cpu_seconds: f64,
    /// The most that the node ever had in RAM, up to now.
    node_peak_rss_mb: f64,
    /// Bytes that went over the node's card.
    node_bytes: u64,
    /// Bytes that went over all cards.
    bytes: u64,
    requests: u64,
}

/// Rounds of one configuration.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    experiment: Experiment,
    stages: String,
    runners: usize,
    rounds: u32,
    rows: u64,
    bandwidth_mb: f64,
    latency_ms: u64,
    table_bytes: u64,
    wall_ms_p50: f64,
    wall_ms_p95: f64,
    /// How evenly it answers: p95 over p50.
    p95_to_p50: f64,
    node_cpu_seconds: f64,
    node_peak_rss_mb: f64,
    node_bytes: u64,
    bytes: u64,
    /// Bytes read over the bytes that the query reads on the node alone.
    bytes_to_local: f64,
    /// Bytes read over those of the columns that the query names, as the files' footers have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_to_needed: Option<f64>,
    /// Wall time on the node alone over this.
    speedup: f64,
    node_cpu_to_local: f64,
    node_rss_to_local: f64,
    /// If the runners were functions of 1,769 MB that run for the whole query, and the store S3.
    cost_usd: f64,
}

/// Runs the experiments. True if all answers of a query are the same.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.runners.is_empty() || flags.repeat == 0 || flags.bandwidth_mb <= 0.0 {
        let problem = "--runners, --repeat and --bandwidth-mb must be above zero".to_owned();
        return Err(Error::Flags { problem });
    }
    let work = WorkDirectory::create()?;
    let root = match &flags.table {
        Some(directory) => directory.join(format!("{}-rows", flags.rows)),
        None => work.subdirectory("store")?,
    };
    if !root.join(table::NAME).join("_delta_log").is_dir() {
        table::write(&root, &work.subdirectory("write")?, flags.rows)?;
    }
    let (table_bytes, report) = (size(&root), Report::new("olap", None));
    let bench = Bench { env, flags, work, root: root.clone(), table_bytes, report };
    let speed = CardSpeed {
        bytes_per_second: (flags.bandwidth_mb * 1e6) as u64,
        latency: Duration::from_millis(flags.latency_ms),
    };
    let most = flags.runners.iter().copied().max().unwrap_or(0);
    let cards = env.block_on_cores(store::serve(env, &root, speed, 2 + most))?;
    eprintln!("{}", table_head());
    let mut is_right = true;
    for experiment in bench.experiments() {
        is_right &= bench.measure(experiment, &cards)?;
    }
    Ok(is_right)
}

struct Bench<'a> {
    env: &'a Env,
    flags: &'a Flags,
    work: WorkDirectory,
    root: PathBuf,
    table_bytes: u64,
    report: Report,
}

impl Bench<'_> {
    fn experiments(&self) -> Vec<Experiment> {
        match self.flags.experiment.as_slice() {
            [] => Experiment::value_variants().to_vec(),
            chosen => chosen.to_vec(),
        }
    }

    /// One experiment with the node alone, and with each number of runners. True if the answers
    /// are the same.
    fn measure(&self, experiment: Experiment, cards: &[Arc<Card>]) -> Result<bool, Error> {
        let (local, expected) = self.configuration(experiment, "none", 0, cards, None)?;
        let mut is_right = true;
        for &runners in &self.flags.runners {
            let stages = experiment.stages();
            let local = Some(&local);
            let (_, rows) = self.configuration(experiment, stages, runners, cards, local)?;
            if rows != expected {
                is_right = false;
                eprintln!("WRONG: {expected}\nand with {runners} runners\n{rows}");
            }
        }
        Ok(is_right)
    }

    fn configuration(
        &self,
        experiment: Experiment,
        stages: &str,
        runners: usize,
        cards: &[Arc<Card>],
        local: Option<&Summary>,
    ) -> Result<(Summary, String), Error> {
        let label = format!("{}-{runners}", report::name(&experiment));
        let directory = self.work.subdirectory(&label)?;
        let cluster = Cluster::start(self.env, &directory, cards, runners)?;
        let partitions = runners.max(2);
        let query = experiment.query(&url(table::NAME));
        let text = format!("SET millstream.remote.stages = '{stages}'; {query}");
        let mut rounds = Vec::new();
        let mut answer = None;
        // The first one is not counted: connections are made, and logs are read.
        for round in 0..=self.flags.repeat {
            let (cpu, before) = (cluster.node.usage().cpu_seconds, traffic(cards));
            let Asked { rows, milliseconds } = cluster.ask(self.env, partitions, &text)?;
            let (usage, after) = (cluster.node.usage(), traffic(cards));
            let line = RoundLine {
                experiment,
                stages: stages.to_owned(),
                runners,
                round,
                wall_ms: rounded(milliseconds, 1),
                node_cpu_seconds: rounded(usage.cpu_seconds - cpu, 2),
                node_peak_rss_mb: rounded(usage.peak_rss_mb, 1),
                node_bytes: after.0 - before.0,
                bytes: after.1 - before.1,
                requests: after.2 - before.2,
            };
            self.report.line("round", &line)?;
            if round > 0 {
                rounds.push(line);
            }
            if let Some(answer) = answer.replace(rows.clone()).filter(|answer| *answer != rows) {
                let problem = format!("one query, two answers:\n{answer}\n{rows}");
                return Err(Error::Table { what: "the cluster", problem });
            }
        }
        let needed = experiment.columns().map(|columns| table::bytes_of(&self.root, columns));
        let summary = self.summary(&rounds, local, needed.transpose()?);
        self.report.line("summary", &summary)?;
        eprintln!("{}", table_row(&summary));
        Ok((summary, answer.unwrap_or_default()))
    }

    fn summary(
        &self,
        rounds: &[RoundLine],
        local: Option<&Summary>,
        needed: Option<u64>,
    ) -> Summary {
        let last = rounds.last().expect("there is a round");
        let of = |value: fn(&RoundLine) -> f64| median(rounds.iter().map(value));
        let mut walls: Vec<f64> = rounds.iter().map(|round| round.wall_ms).collect();
        walls.sort_by(f64::total_cmp);
        let p95 = walls[(walls.len() * 95).div_ceil(100) - 1];
        let (p50, cpu) = (of(|round| round.wall_ms), of(|round| round.node_cpu_seconds));
        let bytes = of(|round| round.bytes as f64);
        let to = |own: f64, local: Option<f64>| local.map_or(1.0, |local| rounded(own / local, 3));
        let gib_seconds = last.runners as f64 * RUNNER_GIB * p50 / 1e3;
        let requests = 2.0 * last.runners as f64;
        let reads = of(|round| round.requests as f64);
        let cost = match last.runners {
            0 => 0.0,
            _ => {
                gib_seconds * USD_PER_GIB_SECOND + requests * USD_PER_REQUEST + reads * USD_PER_READ
            }
        };
        Summary {
            experiment: last.experiment,
            stages: last.stages.clone(),
            runners: last.runners,
            rounds: self.flags.repeat,
            rows: self.flags.rows,
            bandwidth_mb: self.flags.bandwidth_mb,
            latency_ms: self.flags.latency_ms,
            table_bytes: self.table_bytes,
            wall_ms_p50: rounded(p50, 1),
            wall_ms_p95: p95,
            p95_to_p50: rounded(p95 / p50, 2),
            node_cpu_seconds: rounded(cpu, 2),
            node_peak_rss_mb: last.node_peak_rss_mb,
            node_bytes: of(|round| round.node_bytes as f64) as u64,
            bytes: bytes as u64,
            bytes_to_local: to(bytes, local.map(|local| local.bytes as f64)),
            bytes_to_needed: needed.map(|needed| rounded(bytes / needed as f64, 3)),
            speedup: local.map_or(1.0, |local| rounded(local.wall_ms_p50 / p50, 2)),
            node_cpu_to_local: to(cpu, local.map(|local| local.node_cpu_seconds)),
            node_rss_to_local: to(last.node_peak_rss_mb, local.map(|it| it.node_peak_rss_mb)),
            cost_usd: rounded(cost, 6),
        }
    }
}

/// Bytes over the node's card, bytes over all cards, and requests.
fn traffic(cards: &[Arc<Card>]) -> (u64, u64, u64) {
    let bytes = cards.iter().map(|card| card.bytes()).sum();
    (cards[1].bytes(), bytes, cards.iter().map(|card| card.requests()).sum())
}

/// Bytes of all files below a directory.
fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_file() => found.len(),
        _ => size(&entry.path()),
    });
    bytes.sum()
}

fn table_head() -> String {
    format!(
        "{:<10} {:<15} {:>7} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "experiment",
        "stages",
        "runners",
        "p50 ms",
        "p95 ms",
        "speedup",
        "node cpu",
        "node MB",
        "read MB",
        "of local",
        "usd",
    )
}

fn table_row(line: &Summary) -> String {
    format!(
        "{:<10} {:<15} {:>7} {:>9.0} {:>9.0} {:>8.2} {:>8.2} {:>8.0} {:>8.1} {:>8.2} {:>8.5}",
        report::name(&line.experiment),
        line.stages,
        line.runners,
        line.wall_ms_p50,
        line.wall_ms_p95,
        line.speedup,
        line.node_cpu_seconds,
        line.node_peak_rss_mb,
        line.bytes as f64 / 1e6,
        line.bytes_to_local,
        line.cost_usd,
    )
}
