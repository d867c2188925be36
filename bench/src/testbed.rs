//! Where benchmarks of a topic's messages run: a broker, a directory, and the engine that is
//! started on a pipeline and runs to its end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use millstream_store::env::Env;
use millstream_testkit::program::Process;

use crate::broker::Broker;
use crate::clock::Clock;
use crate::engine::{self, EngineOptions, sql_options};
use crate::error::Error;
use crate::progress::Told;
use crate::sender::Sender;
use crate::throughput::Took;
use crate::work_directory::WorkDirectory;

/// A run that takes longer than this much for each message hangs.
const PATIENCE_PER_MESSAGE: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(120);

/// Flags of benchmarks that read messages from a topic.
#[derive(Debug, clap::Args)]
pub struct TopicFlags {
    /// Partitions of the topic
    #[arg(long, default_value_t = 4)]
    pub partitions: i32,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 3)]
    pub repeat: u32,
    /// A broker that is running already, HOST:PORT; otherwise Apache Kafka is started
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
    /// Option of the engine: `source.NAME=V` stands in the pipeline's source table, anything else
    /// is handed to `run --set`
    #[arg(long, value_name = "K=V")]
    pub engine_option: Vec<String>,
}

impl TopicFlags {
    /// An error that names the flag if there can be no such topic.
    pub fn check(&self) -> Result<(), Error> {
        if self.partitions >= 1 && self.repeat >= 1 {
            return Ok(());
        }
        let problem = "--partitions and --repeat must be at least 1".to_owned();
        Err(Error::Flags { problem })
    }

    /// As [`Self::check`], for messages in memory; gives the engine's options. Errors name flags
    /// that say something about a broker.
    pub fn check_in_process(&self) -> Result<EngineOptions, Error> {
        self.check()?;
        let options = EngineOptions::parse(&self.engine_option)?;
        let problem = if self.brokers.is_some() {
            "--brokers: with --source in-process there is no broker; leave it out"
        } else if !options.source.is_empty() {
            "--engine-option source.NAME=V: with --source in-process there are no options of a \
             source; leave it out"
        } else {
            return Ok(options);
        };
        Err(Error::Flags { problem: problem.to_owned() })
    }
}

fn patience(messages: u64) -> Duration {
    PATIENCE + PATIENCE_PER_MESSAGE * u32::try_from(messages).unwrap_or(u32::MAX)
}

/// A broker and a directory, for as long as this lives.
pub struct TestBed {
    /// The one door to clocks and threads.
    pub env: Env,
    /// What the user gave for the engine.
    pub options: EngineOptions,
    /// The broker.
    pub broker: Broker,
    name: &'static str,
    // Dropped after the broker: nobody writes there any more.
    work: WorkDirectory,
}

impl TestBed {
    /// For the benchmark `name`.
    pub fn open(env: &Env, name: &'static str, flags: &TopicFlags) -> Result<Self, Error> {
        flags.check()?;
        let options = EngineOptions::parse(&flags.engine_option)?;
        let work = WorkDirectory::create()?;
        let broker = Broker::of(&work, flags.brokers.as_deref())?;
        Ok(Self { env: env.clone(), options, broker, name, work })
    }

    /// Does something with a new topic, whose name begins with the benchmark's and ends with
    /// `label`. It is deleted afterwards.
    pub fn with_topic<T>(
        &self,
        label: &str,
        partitions: i32,
        work: impl FnOnce(&str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.with_topic_of(label, partitions, &[], work)
    }

    /// As [`Self::with_topic`], for records that are read at once: of a long run, old ones go.
    pub fn with_live_topic<T>(
        &self,
        label: &str,
        partitions: i32,
        work: impl FnOnce(&str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let options = [("retention.bytes", "1073741824"), ("segment.bytes", "134217728")];
        self.with_topic_of(label, partitions, &options, work)
    }

    fn with_topic_of<T>(
        &self,
        label: &str,
        partitions: i32,
        options: &[(&str, &str)],
        work: impl FnOnce(&str) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let topic = format!("{}-{}-{label}", self.name, std::process::id());
        self.broker.create(&topic, partitions, options)?;
        let outcome = work(&topic);
        let deleted = self.broker.delete(&[&topic]);
        // What failed first is what is told.
        let outcome = outcome?;
        deleted.map(|()| outcome)
    }

    /// Does something with a new directory, which is removed afterwards: the next round needs the
    /// room.
    pub fn with_directory<T>(
        &self,
        label: &str,
        work: impl FnOnce(&Path) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let directory: PathBuf = self.work.subdirectory(label)?;
        let outcome = work(&directory)?;
        std::fs::remove_dir_all(&directory).map_err(Error::file("remove", &directory))?;
        Ok(outcome)
    }

    /// Runs the engine on a pipeline that ends by itself. Gives what it has told of its progress,
    /// too.
    pub fn run_to_end(
        &self,
        pipeline: &str,
        directory: &Path,
        messages: u64,
    ) -> Result<(Took, Vec<Told>), Error> {
        let began = self.env.monotonic();
        let clock = Clock::new(&self.env);
        let mut engine =
            engine::start_telling(&self.env, &clock, pipeline, &self.options, directory)?;
        let usage = engine.process.wait(patience(messages))?;
        let elapsed = self.env.monotonic() - began;
        Ok((Took { elapsed, usage }, engine.progress.finish()?))
    }

    /// Runs a program that ends by itself, once it has dealt with `messages`.
    pub fn run_command(
        &self,
        name: &str,
        command: Command,
        directory: &Path,
        messages: u64,
    ) -> Result<Took, Error> {
        let began = self.env.monotonic();
        let mut process = Process::start(name, command, &directory.join("program.log"))?;
        let usage = process.wait(patience(messages))?;
        Ok(Took { elapsed: self.env.monotonic() - began, usage })
    }

    /// What a source table that reads `topic` from its beginning uses, with its options.
    pub fn source(&self, topic: &str) -> String {
        let own = [
            ("kafka.bootstrap.servers", self.broker.address.as_str()),
            ("subscribe", topic),
            ("startingOffsets", "earliest"),
        ];
        format!("kafka OPTIONS ({})", sql_options(&own, &self.options.source))
    }

    /// Opens a topic for writing many messages.
    pub fn open_topic(&self, topic: &str) -> Result<Sender, Error> {
        Sender::for_filling(&self.env, &self.broker.address, topic)
    }
}
