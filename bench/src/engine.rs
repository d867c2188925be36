//! The engine, started as a user would: `millstream run` on a pipeline file.

use std::path::Path;
use std::process::Command;

use millstream_store::env::Env;
use millstream_testkit::program::Process;
use serde::Serialize;

use crate::clock::Clock;
use crate::error::Error;
use crate::progress::ProgressReader;
use crate::report;
use crate::system::{self, Route, SystemUnderTest};

const NAME: &str = "millstream run";
const LOG: &str = "millstream.log";
/// How records are compressed where the brokers are reached by TLS.
const COMPRESSION: &str = "zstd";
/// Whose client reads and writes at least once, and whose writes transactions: options of tables of
/// Kafka.
pub const BY_LIBRDKAFKA: [(&str, &str); 2] =
    [("kafka.millstream.client", "librdkafka"), ("kafka.millstream.transactions", "librdkafka")];

/// What the user gave with `--engine-option`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineOptions {
    /// For the source table's OPTIONS.
    pub source: Vec<(String, String)>,
    /// For `run --set`, which is about the sink and the query.
    pub set: Vec<(String, String)>,
    /// The sink table's option.
    pub delivery: Delivery,
    /// Options of both tables that say how to reach the brokers, in place of their address; written
    /// records are compressed as well.
    pub client: Vec<(String, String)>,
    /// Whether librdkafka reads and writes, in place of the engine's own client.
    pub librdkafka: bool,
    /// The checkpoint's location, if it is not to be in the run's directory.
    pub checkpoint: Option<String>,
}

/// What the engine's sink promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// What the relay does, too.
    #[default]
    AtLeastOnce,
    /// A transaction for each micro-batch.
    ExactlyOnce,
}

/// `millstream run`.
pub struct Millstream {
    /// How it is run.
    pub options: EngineOptions,
}

impl SystemUnderTest for Millstream {
    fn start(&self, route: Route<'_>, directory: &Path) -> Result<Process, Error> {
        start(&kafka_pipeline(route, &self.options), &self.options, directory)
    }

    fn ends_well(&self) -> bool {
        true
    }
}

impl EngineOptions {
    /// Reads `K=V` texts.
    pub fn parse(texts: &[String]) -> Result<Self, Error> {
        let mut options = Self::default();
        for text in texts {
            let Some((key, value)) = text.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                let problem = format!("--engine-option {text}: write it as NAME=VALUE");
                return Err(Error::Flags { problem });
            };
            let (list, key) = if let Some(key) = key.strip_prefix("source.") {
                (&mut options.source, key)
            } else {
                (&mut options.set, key)
            };
            list.push((key.to_owned(), value.to_owned()));
        }
        Ok(options)
    }
}

/// Starts `millstream run` on a pipeline; its files go to `directory`.
pub fn start(pipeline: &str, options: &EngineOptions, directory: &Path) -> Result<Process, Error> {
    let command = command(pipeline, options, directory)?;
    Ok(Process::start(NAME, command, &directory.join(LOG))?)
}

/// As [`start`], with what it tells of its progress.
pub fn start_telling(
    env: &Env,
    clock: &Clock,
    pipeline: &str,
    options: &EngineOptions,
    directory: &Path,
) -> Result<Telling, Error> {
    let mut command = command(pipeline, options, directory)?;
    command.args(["--progress", "json"]);
    let (process, output) = Process::start_piped(NAME, command, &directory.join(LOG))?;
    Ok(Telling { process, progress: ProgressReader::start(env, clock, output) })
}

/// An engine that tells of its progress.
pub struct Telling {
    // Dropped before the reader, whose thread ends when nobody writes any more.
    pub process: Process,
    /// What it has told.
    pub progress: ProgressReader,
}

fn command(pipeline: &str, options: &EngineOptions, directory: &Path) -> Result<Command, Error> {
    let file = system::write(directory, "pipeline.sql", pipeline)?;
    let mut command = system::millstream()?;
    command.arg("run").arg(&file).arg("--checkpoint");
    match &options.checkpoint {
        Some(location) => command.arg(location),
        None => command.arg(directory.join("checkpoint")),
    };
    for (key, value) in &options.set {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    Ok(command)
}

/// An SQL list of options: `own`, then what the user gave.
pub fn sql_options(own: &[(&str, &str)], given: &[(String, String)]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let given = given.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let pairs = own.iter().copied().chain(given);
    let texts: Vec<_> =
        pairs.map(|(key, value)| format!("{} = {}", quoted(key), quoted(value))).collect();
    texts.join(", ")
}

/// From one topic to the other, value and key as they are.
pub fn kafka_pipeline(route: Route<'_>, options: &EngineOptions) -> String {
    let client = options.client.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut client: Vec<_> = client.collect();
    let mut compression = vec![("kafka.compression.type", COMPRESSION)];
    if client.is_empty() {
        client.push(("kafka.bootstrap.servers", route.brokers));
        compression.clear();
    }
    if options.librdkafka {
        client.extend(BY_LIBRDKAFKA);
    }
    let source = [("subscribe", route.from), ("startingOffsets", "latest")];
    let source = [&client[..], &source].concat();
    let delivery = report::name(&options.delivery);
    let sink = [("topic", route.to), ("delivery", delivery.as_str())];
    let sink = [&client[..], &sink, &compression].concat();
    format!(
        "CREATE TABLE input USING kafka OPTIONS ({});\n\
         CREATE TABLE output USING kafka OPTIONS ({});\n\
         CREATE FLOW relay AS INSERT INTO output BY NAME\n\
         SELECT key, value FROM STREAM input WHERE value IS NOT NULL;\n",
        sql_options(&source, &options.source),
        sql_options(&sink, &[]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_where_their_names_say() {
        let texts = ["source.maxOffsetsPerTrigger=10", "kafka.acks=1", "a.b=c=d"];
        let options = EngineOptions::parse(&texts.map(str::to_owned)).expect("they are right");
        let pipeline =
            kafka_pipeline(Route { brokers: "127.0.0.1:1", from: "in", to: "it's" }, &options);
        assert_eq!(
            pipeline,
            "CREATE TABLE input USING kafka OPTIONS ('kafka.bootstrap.servers' = '127.0.0.1:1', \
             'subscribe' = 'in', 'startingOffsets' = 'latest', 'maxOffsetsPerTrigger' = '10');\n\
             CREATE TABLE output USING kafka OPTIONS ('kafka.bootstrap.servers' = '127.0.0.1:1', \
             'topic' = 'it''s', 'delivery' = 'at-least-once');\n\
             CREATE FLOW relay AS INSERT INTO output BY NAME\n\
             SELECT key, value FROM STREAM input WHERE value IS NOT NULL;\n"
        );
        let set = [("kafka.acks", "1"), ("a.b", "c=d")];
        assert_eq!(options.set, set.map(|(key, value)| (key.to_owned(), value.to_owned())));
        let by_librdkafka = EngineOptions { librdkafka: true, ..options };
        let pipeline =
            kafka_pipeline(Route { brokers: "127.0.0.1:1", from: "in", to: "out" }, &by_librdkafka);
        let both = "'kafka.millstream.client' = 'librdkafka', \
                    'kafka.millstream.transactions' = 'librdkafka'";
        assert_eq!(pipeline.matches(both).count(), 2, "{pipeline}");
        assert!(EngineOptions::parse(&["acks".to_owned()]).is_err());
        assert!(EngineOptions::parse(&["=1".to_owned()]).is_err());
    }
}
