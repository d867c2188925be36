//! `millstream-bench delta`: commit time of a stream into a table of many files, with checkpoints
//! and without.
//!
//! For each number of actions a log of so many live files is made. Each configuration then gets a
//! copy of it, made of hard links, and on that:
//! 1. `first`: the first checkpoint is written, from commits alone;
//! 2. `full`: one of all rows in twice as many parts, where there are parts;
//! 3. `stream`: the commits are measured, a small data file each, and checkpoints come due;
//! 4. `steady`: checkpoints are written with nothing beside them;
//! 5. `open`: the table is opened, and its files are listed.
//!
//! Each of these is a process of its own ([`step`]). Configurations take turns within a round, and
//! other engines ([`peers`]) and the engine itself ([`through_engine`]) have theirs in it, on
//! copies with a checkpoint of ours.

mod chart;
mod configuration;
mod delay;
mod line;
mod peers;
mod step;
mod synthetic;
mod through_engine;

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use millstream_lake::store::TableStore;
use millstream_store::env::Env;

use self::configuration::Configuration;
use self::line::{DeltaLine, Run};
use self::peers::{Peer, Peers, Variant};
use self::step::{CheckpointFacts, Kind, Request, StepOutcome};
use self::synthetic::Head;
use crate::error::Error;
use crate::report::{self, Report};
use crate::work_directory::WorkDirectory;

/// Flags of `millstream-bench delta`.
#[derive(Clone, Debug, clap::Args)]
pub struct Flags {
    /// Live files of the table, an action each; several are measured one after the other
    #[arg(long, value_delimiter = ',', default_value = "700000")]
    actions: Vec<u64>,
    /// Commits that are measured
    #[arg(long, default_value_t = 200)]
    commits: u64,
    /// Milliseconds from one commit to the next; 0: back to back
    #[arg(long, value_name = "MS", default_value_t = 50)]
    pause: u64,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 1)]
    repeat: u32,
    /// Which configurations; all of them if not given
    #[arg(long, value_enum, value_delimiter = ',')]
    configuration: Vec<Configuration>,
    /// Actions in a part of a checkpoint
    #[arg(long, default_value_t = 50_000)]
    part_size: u64,
    /// Milliseconds that each request to the store takes longer; several are measured in turns
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "0")]
    put_latency: Vec<u64>,
    /// Engines that append to the same table: others, and Millstream itself
    #[arg(long, value_enum, value_delimiter = ',')]
    peers: Vec<Peer>,
    /// Where the other engines are: the directory that tests/lake/install prints
    #[arg(long, value_name = "DIRECTORY")]
    engines: Option<PathBuf>,
    /// Commits that are measured of each of them
    #[arg(long, default_value_t = 60)]
    peer_commits: u64,
    /// A chart to write: commit time over commit number, of the first round
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
    /// Where tables are made while it runs; the system's place for temporary files if not given
    #[arg(long)]
    directory: Option<PathBuf>,
    /// One step, in a process of its own
    #[arg(long, hide = true)]
    step: Option<String>,
}

/// Runs the whole benchmark, or a step of it. Always true: nothing is counted as lost here.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if let Some(request) = &flags.step {
        step::execute(env, request)?;
        return Ok(true);
    }
    let flags = &with_whole_paths(flags)?;
    check(flags)?;
    let work = match &flags.directory {
        Some(directory) => WorkDirectory::create_in(directory)?,
        None => WorkDirectory::create()?,
    };
    let report = Report::new("delta", None);
    let mut bench = Bench { env, flags, work, report, lines: Vec::new() };
    eprintln!("{}", line::table_head());
    for &actions in &flags.actions {
        bench.measure(actions)?;
    }
    for summary in line::summaries(&bench.lines) {
        eprintln!("{}", line::in_words(&summary));
        bench.report.line("summary", &summary)?;
    }
    if let Some(path) = &flags.chart {
        let chart = chart::svg(&bench.lines);
        fs::write(path, chart).map_err(Error::file("write", path))?;
    }
    Ok(true)
}

/// Other engines are started in a directory of their own.
fn with_whole_paths(flags: &Flags) -> Result<Flags, Error> {
    let whole = |path: &Option<PathBuf>| {
        let path = path
            .as_deref()
            .map(|path| std::path::absolute(path).map_err(Error::file("find", path)));
        path.transpose()
    };
    let (directory, engines) = (whole(&flags.directory)?, whole(&flags.engines)?);
    Ok(Flags { directory, engines, ..flags.clone() })
}

fn check(flags: &Flags) -> Result<(), Error> {
    let refused = |problem: &str| Err(Error::Flags { problem: problem.to_owned() });
    let Flags { commits, repeat, part_size, peer_commits, .. } = *flags;
    if flags.actions.is_empty() || flags.actions.contains(&0) {
        return refused("--actions must be at least 1: a table without files has no checkpoint");
    }
    if commits == 0 || repeat == 0 || part_size == 0 || peer_commits == 0 {
        return refused("--commits, --repeat, --part-size and --peer-commits must be at least 1");
    }
    if flags.put_latency.is_empty() {
        return refused("--put-latency must name a number of milliseconds, 0 for none");
    }
    if flags.peers.is_empty() {
        return Ok(());
    }
    if !flags.put_latency.contains(&0) {
        return refused("--peers are measured without --put-latency: add 0 to it");
    }
    if !flags.peers.iter().any(|peer| peer.is_installed()) {
        return Ok(());
    }
    match peers_of(flags) {
        Some(peers) => peers.check(),
        None => refused("--peers needs --engines, the directory that tests/lake/install prints"),
    }
}

fn peers_of(flags: &Flags) -> Option<Peers<'_>> {
    let engines = flags.engines.as_deref()?;
    let Flags { peer_commits: commits, pause: pause_ms, part_size, .. } = *flags;
    Some(Peers { engines, commits, pause_ms, part_size })
}

struct Bench<'a> {
    env: &'a Env,
    flags: &'a Flags,
    work: WorkDirectory,
    report: Report,
    lines: Vec<DeltaLine>,
}

/// A table with its first checkpoints, to be copied, and what they took.
struct Prepared {
    table: PathBuf,
    first: Option<StepOutcome<CheckpointFacts>>,
    full: Option<StepOutcome<CheckpointFacts>>,
}

impl Bench<'_> {
    fn configurations(&self) -> impl Iterator<Item = Configuration> + use<> {
        let wanted = self.flags.configuration.clone();
        let is_wanted = move |one: &Configuration| wanted.is_empty() || wanted.contains(one);
        Configuration::value_variants().iter().copied().filter(is_wanted)
    }

    fn variants(&self) -> impl Iterator<Item = Variant> + use<> {
        let wanted = self.flags.peers.clone();
        let is_wanted = move |one: &&Peer| wanted.contains(one);
        let peers = Peer::value_variants().iter().filter(is_wanted);
        peers.flat_map(|peer| peer.variants()).copied()
    }

    /// Everything on a table of so many actions.
    fn measure(&mut self, actions: u64) -> Result<(), Error> {
        let log = self.table(&format!("{actions}"))?;
        eprintln!("making a log of {actions} files");
        let store = TableStore::parse(&log.display().to_string(), self.env);
        synthetic::create(&store.map_err(Error::table("making the table"))?, actions)?;
        for round in 1..=self.flags.repeat {
            for configuration in self.configurations() {
                let prepared = self.prepare(configuration, &log)?;
                for &latency_ms in &self.flags.put_latency {
                    let line = self.stream(configuration, &prepared, latency_ms)?;
                    self.tell(DeltaLine { actions, round, ..line })?;
                }
                remove(&prepared.table)?;
            }
            self.measure_peers(actions, round, &log)?;
        }
        remove(&log)
    }

    fn tell(&mut self, line: DeltaLine) -> Result<(), Error> {
        eprintln!("{}", line::table_row(&line));
        self.report.line("round", &line)?;
        self.lines.push(line);
        Ok(())
    }

    /// A directory for a table.
    fn table(&self, name: &str) -> Result<PathBuf, Error> {
        self.work.subdirectory(&format!("{name}/table"))
    }

    fn request(&self, kind: Kind, configuration: Configuration, table: &Path) -> Request {
        Request {
            kind,
            table: table.to_owned(),
            configuration,
            part_rows: self.flags.part_size,
            latency_ms: 0,
            commits: self.flags.commits,
            pause_ms: self.flags.pause,
        }
    }

    fn prepare(&self, configuration: Configuration, log: &Path) -> Result<Prepared, Error> {
        let name = report::name(&configuration);
        let table = self.table(&format!("{name}-prepared"))?;
        synthetic::copy(log, &table, configuration.head())?;
        let mut prepared = Prepared { table, first: None, full: None };
        if !configuration.has_checkpoints() {
            return Ok(prepared);
        }
        let mut first = self.request(Kind::Checkpoint, configuration, &prepared.table);
        if configuration.has_parts() {
            // Half as many parts as there are to be, so that the next one has to move every row.
            first.part_rows *= 2;
        }
        prepared.first = Some(first.run()?);
        if configuration.has_parts() {
            let full = self.request(Kind::Full, configuration, &prepared.table);
            prepared.full = Some(full.run()?);
        }
        Ok(prepared)
    }

    fn stream(
        &self,
        configuration: Configuration,
        prepared: &Prepared,
        latency_ms: u64,
    ) -> Result<DeltaLine, Error> {
        let name = report::name(&configuration);
        let table = self.table(&name)?;
        synthetic::copy(&prepared.table, &table, Head::Same)?;
        let request = |kind| Request { latency_ms, ..self.request(kind, configuration, &table) };
        let run = Run::Stream(request(Kind::Commits).run()?);
        let has_checkpoints = configuration.has_checkpoints();
        let steady = has_checkpoints.then(|| request(Kind::Steady).run()).transpose()?;
        let open = request(Kind::Open).run()?;
        remove(&table)?;
        let Prepared { first, full, .. } = prepared;
        Ok(DeltaLine {
            put_latency_ms: latency_ms,
            pause_ms: self.flags.pause,
            part_size: self.flags.part_size,
            first: first.clone(),
            full: full.clone(),
            steady,
            ..DeltaLine::new(name, run, open)
        })
    }

    fn measure_peers(&mut self, actions: u64, round: u32, log: &Path) -> Result<(), Error> {
        if self.flags.peers.is_empty() {
            return Ok(());
        }
        let Flags { peer_commits: commits, pause: pause_ms, part_size, .. } = *self.flags;
        let peers = peers_of(self.flags);
        let start = self.table("peers-prepared")?;
        synthetic::copy(log, &start, Head::Same)?;
        let first = self.request(Kind::Checkpoint, Configuration::Steered, &start);
        first.run::<CheckpointFacts>()?;
        for variant in self.variants() {
            let table = self.table(variant.name())?;
            synthetic::copy(&start, &table, Head::Same)?;
            let (run, open) = match variant {
                Variant::Millstream => {
                    let how_many = (commits, pause_ms, part_size);
                    let run = through_engine::commits(self.env, how_many, &table)?;
                    (run, self.request(Kind::Open, Configuration::Steered, &table).run()?)
                }
                _ => {
                    let peers = peers.as_ref().expect("flags without them are refused");
                    (peers.commits(variant, &table)?, peers.open(variant, &table)?)
                }
            };
            remove(&table)?;
            let line = DeltaLine::new(variant.name().to_owned(), Run::Peer(run), open);
            self.tell(DeltaLine { actions, round, pause_ms, part_size, ..line })?;
        }
        remove(&start)
    }
}

/// Removes a table and what is beside it.
fn remove(table: &Path) -> Result<(), Error> {
    let directory = table.parent().unwrap_or(table);
    fs::remove_dir_all(directory).map_err(Error::file("remove", directory))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: Flags,
    }

    fn problem(arguments: &[&str]) -> Option<String> {
        let arguments = ["delta"].iter().chain(arguments);
        let program = Program::try_parse_from(arguments).expect("they can be read");
        check(&program.flags).err().map(|error| error.to_string())
    }

    #[test]
    fn flags_that_measure_nothing_are_refused() {
        assert_eq!(problem(&[]), None);
        assert_eq!(problem(&["--pause", "0", "--put-latency", "0,30"]), None);
        for (arguments, named) in [
            (&["--commits", "0"][..], "--commits"),
            (&["--repeat", "0"], "--repeat"),
            (&["--part-size", "0"], "--part-size"),
            (&["--actions", "5,0"], "--actions"),
            (&["--peers", "spark"], "--engines"),
            (&["--peers", "spark", "--put-latency", "30"], "--put-latency"),
            (&["--peers", "spark", "--engines", "/nowhere"], "tests/lake/install"),
        ] {
            let problem = problem(arguments).expect("it is refused");
            assert!(problem.contains(named), "{arguments:?}: {problem}");
        }
    }
}
