//! `millstream-bench sinks`: a small stream into each sink, side by side, and what of it grows.
//!
//! Each sink has a process of its own that writes rows of the `rate` source, a number each, for as
//! long as one likes. Every minute it is looked at: files and bytes of data, of what the sink keeps
//! about them, and of the checkpoint; open descriptors, threads and memory. Data grows, and the
//! rest should not, or in proportion.

mod kinds;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use millstream_store::env::Env;
use millstream_testkit::program::Process;
use serde::Serialize;

use crate::broker::Broker;
use crate::engine::{self, EngineOptions};
use crate::error::Error;
use crate::report::{self, Report};
use crate::system;
use crate::work_directory::WorkDirectory;
use kinds::Kind;

/// How often it is looked whether all of them still run.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Directories of what a sink keeps about its data.
const METADATA: [&str; 3] = ["_spark_metadata", "_millstream", "_delta_log"];

/// Flags of `millstream-bench sinks`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Rows a second into each sink
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// How long
    #[arg(long, default_value_t = 3_600)]
    seconds: u64,
    /// Seconds from one look to the next
    #[arg(long, default_value_t = 60)]
    interval: u64,
    /// The sinks [default: all]
    #[arg(long, value_delimiter = ',')]
    sink: Vec<Kind>,
    /// Broker to use instead of one of its own, HOST:PORT
    #[arg(long)]
    brokers: Option<String>,
    /// Option of each sink's table, NAME=VALUE; may be repeated
    #[arg(long, value_name = "K=V")]
    sink_option: Vec<String>,
}

/// Files of one kind, and their bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Size {
    files: u64,
    bytes: u64,
}

/// One look at one sink.
#[derive(Clone, Debug, Serialize)]
struct Look {
    configuration: String,
    /// Since the start.
    seconds: u64,
    data: Size,
    metadata: Size,
    checkpoint: Size,
    descriptors: usize,
    threads: usize,
    resident_mb: f64,
    cpu_seconds: f64,
}

/// The last look, beside the one after the first third: by then what is used for the first time is.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    #[serde(flatten)]
    last: Look,
    rate: u64,
    sink_options: Vec<String>,
    /// Bytes of metadata over bytes of data; `None` without data in files.
    metadata_share: Option<f64>,
    /// What there was after the first third.
    descriptors_before: usize,
    threads_before: usize,
    resident_mb_before: f64,
    checkpoint_bytes_before: u64,
}

struct Running {
    kind: Kind,
    process: Process,
    /// What the sink writes.
    output: PathBuf,
    checkpoint: PathBuf,
    looks: Vec<Look>,
}

/// Runs it. Always true: nothing is counted as lost here.
pub fn run(env: &Env, flags: &Flags) -> Result<bool, Error> {
    if flags.rate == 0 || flags.interval == 0 || flags.seconds < flags.interval * 3 {
        let problem = "--rate and --interval must be at least 1, --seconds three intervals".into();
        return Err(Error::Flags { problem });
    }
    let kinds =
        if flags.sink.is_empty() { Kind::value_variants().to_vec() } else { flags.sink.clone() };
    let work = WorkDirectory::create()?;
    let broker = if kinds.iter().any(|kind| kind.is_kafka()) {
        Some(Broker::of(&work, flags.brokers.as_deref())?)
    } else {
        None
    };
    let report = Report::new("sinks", broker.as_ref());
    let options = EngineOptions::parse(&flags.sink_option)?.set;
    let start = |kind| Running::start(kind, flags.rate, &work, broker.as_ref(), &options);
    let mut sinks = kinds.into_iter().map(start).collect::<Result<Vec<Running>, Error>>()?;
    let began = env.monotonic();
    eprintln!("{}", table_head());
    for look in 1..=flags.seconds / flags.interval {
        let due = began + Duration::from_secs(look * flags.interval);
        while env.monotonic() < due {
            std::thread::sleep(LOOK_AGAIN.min(due.saturating_sub(env.monotonic())));
            sinks.iter_mut().try_for_each(|sink| sink.process.check())?;
        }
        for sink in &mut sinks {
            let look = sink.look(look * flags.interval);
            report.line("minute", &look)?;
            eprintln!("{}", table_row(&look));
            sink.looks.push(look);
        }
    }
    for sink in &mut sinks {
        system::stop(&mut sink.process)?;
        report.line("summary", &sink.summary(flags))?;
    }
    Ok(true)
}

impl Running {
    fn start(
        kind: Kind,
        rate: u64,
        work: &WorkDirectory,
        broker: Option<&Broker>,
        options: &[(String, String)],
    ) -> Result<Self, Error> {
        let name = report::name(&kind);
        let directory = work.subdirectory(&name)?;
        let output = work.subdirectory(&format!("{name}/output"))?;
        let (brokers, topic) =
            (broker.map_or("", |broker| &broker.address), format!("sinks-{name}"));
        if let Some(broker) = broker.filter(|_| kind.is_kafka()) {
            broker.create(&topic, 1, &[])?;
        }
        let pipeline = kind.pipeline(rate, &output, (brokers, &topic), options);
        let process = engine::start(&pipeline, &EngineOptions::default(), &directory)?;
        let checkpoint = directory.join("checkpoint");
        Ok(Self { kind, process, output, checkpoint, looks: Vec::new() })
    }

    fn look(&self, seconds: u64) -> Look {
        let (mut data, mut metadata, mut checkpoint) = Default::default();
        measure(&self.output, &mut data, &mut metadata);
        measure(&self.checkpoint, &mut checkpoint, &mut Size::default());
        Look {
            configuration: report::name(&self.kind),
            seconds,
            data,
            metadata,
            checkpoint,
            descriptors: self.process.descriptors(),
            threads: self.process.threads(),
            resident_mb: report::rounded(self.process.resident_mb(), 1),
            cpu_seconds: report::rounded(self.process.usage().cpu_seconds, 1),
        }
    }

    fn summary(&self, flags: &Flags) -> Summary {
        let last = self.looks.last().expect("there are three looks at least").clone();
        let before = &self.looks[self.looks.len() / 3];
        let share = last.metadata.bytes as f64 / last.data.bytes as f64;
        Summary {
            rate: flags.rate,
            sink_options: flags.sink_option.clone(),
            metadata_share: (last.data.bytes > 0).then(|| report::rounded(share, 4)),
            descriptors_before: before.descriptors,
            threads_before: before.threads,
            resident_mb_before: before.resident_mb,
            checkpoint_bytes_before: before.checkpoint.bytes,
            last,
        }
    }
}

/// Adds up the files below `directory`, those about data apart. What goes meanwhile is left out.
fn measure(directory: &Path, data: &mut Size, metadata: &mut Size) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        if found.is_file() {
            data.files += 1;
            data.bytes += found.len();
        } else if METADATA.iter().any(|name| entry.file_name() == *name) {
            measure(&entry.path(), metadata, &mut Size::default());
        } else {
            measure(&entry.path(), data, metadata);
        }
    }
}

fn table_head() -> String {
    format!(
        "{:<20} {:>6} {:>7} {:>10} {:>8} {:>10} {:>10} {:>10} {:>6} {:>8} {:>7} {:>7}",
        "sink",
        "s",
        "files",
        "data KB",
        "meta",
        "KB",
        "checkpoint",
        "KB",
        "fds",
        "threads",
        "RSS MB",
        "CPU s"
    )
}

fn table_row(look: &Look) -> String {
    let kb = |size: &Size| size.bytes / 1_000;
    format!(
        "{:<20} {:>6} {:>7} {:>10} {:>8} {:>10} {:>10} {:>10} {:>6} {:>8} {:>7.1} {:>7.1}",
        look.configuration,
        look.seconds,
        look.data.files,
        kb(&look.data),
        look.metadata.files,
        kb(&look.metadata),
        look.checkpoint.files,
        kb(&look.checkpoint),
        look.descriptors,
        look.threads,
        look.resident_mb,
        look.cpu_seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sink_keeps_about_its_data_is_counted_apart() {
        let directory = tempfile::tempdir().expect("it can be made");
        let put = |name: &str, bytes: usize| {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it can be made");
            fs::write(path, vec![b'x'; bytes]).expect("it can be written");
        };
        put("part-0.json", 100);
        put("day=1/part-1.json", 10);
        put("_spark_metadata/0", 7);
        put("_millstream/commits/0", 5);
        put("_delta_log/_sidecars/a", 3);
        let (mut data, mut metadata) = (Size::default(), Size::default());
        measure(directory.path(), &mut data, &mut metadata);
        assert_eq!((data.files, data.bytes), (2, 110));
        assert_eq!((metadata.files, metadata.bytes), (3, 15));
    }
}
