//! The systems under test, each a process of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::process::Process;

/// What can be measured between two topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// The Kafka client alone.
    Relay,
    /// `millstream run`.
    Millstream,
}

/// Where records come from and go to.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// HOST:PORT
    pub brokers: &'a str,
    /// Topic to read, from its end at the start.
    pub from: &'a str,
    /// Topic to write.
    pub to: &'a str,
}

/// What the user gave with `--engine-option`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineOptions {
    /// For the source table's OPTIONS.
    pub source: Vec<(String, String)>,
    /// For `run --set`, which is about the sink and the query.
    pub set: Vec<(String, String)>,
    /// The sink table's option.
    pub delivery: Delivery,
    /// The checkpoint's location, if it is not to be in the run's directory.
    pub checkpoint: Option<String>,
}

/// What the engine's sink promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// What the relay does, too.
    #[default]
    AtLeastOnce,
    /// A transaction for each micro-batch.
    ExactlyOnce,
}

impl std::fmt::Display for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Delivery {
    fn name(self) -> &'static str {
        match self {
            Self::AtLeastOnce => "at-least-once",
            Self::ExactlyOnce => "exactly-once",
        }
    }
}

impl System {
    /// In the order of a round.
    pub const ALL: [Self; 2] = [Self::Relay, Self::Millstream];

    /// Starts the system; its files and its output go to `directory`.
    pub fn start(
        self,
        route: Route<'_>,
        options: &EngineOptions,
        directory: &Path,
    ) -> Result<Process, Error> {
        match self {
            Self::Relay => start_relay(route, directory),
            Self::Millstream => start_engine(&kafka_pipeline(route, options), options, directory),
        }
    }
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Relay => "relay",
            Self::Millstream => "millstream",
        })
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
pub fn start_engine(
    pipeline: &str,
    options: &EngineOptions,
    directory: &Path,
) -> Result<Process, Error> {
    let file = directory.join("pipeline.sql");
    fs::write(&file, pipeline).map_err(Error::file("write", &file))?;
    let mut command = this_program()?;
    command.arg("run").arg(&file).arg("--checkpoint");
    match &options.checkpoint {
        Some(location) => command.arg(location),
        None => command.arg(directory.join("checkpoint")),
    };
    for (key, value) in &options.set {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    Process::start("millstream run", command, &directory.join("millstream.log"))
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

fn start_relay(route: Route<'_>, directory: &Path) -> Result<Process, Error> {
    let mut command = this_program()?;
    command.args(["bench", "relay", "--brokers", route.brokers]);
    command.args(["--from", route.from, "--to", route.to]);
    Process::start("the relay", command, &directory.join("relay.log"))
}

fn kafka_pipeline(route: Route<'_>, options: &EngineOptions) -> String {
    let servers = ("kafka.bootstrap.servers", route.brokers);
    let source = [servers, ("subscribe", route.from), ("startingOffsets", "latest")];
    let sink = [servers, ("topic", route.to), ("delivery", options.delivery.name())];
    format!(
        "CREATE TABLE input USING kafka OPTIONS ({});\n\
         CREATE TABLE output USING kafka OPTIONS ({});\n\
         CREATE FLOW relay AS INSERT INTO output BY NAME\n\
         SELECT key, value FROM STREAM input WHERE value IS NOT NULL;\n",
        sql_options(&source, &options.source),
        sql_options(&sink, &[]),
    )
}

fn this_program() -> Result<Command, Error> {
    let program = std::env::current_exe().map_err(Error::file("find", "this program"))?;
    Ok(Command::new(program))
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
        assert!(EngineOptions::parse(&["acks".to_owned()]).is_err());
        assert!(EngineOptions::parse(&["=1".to_owned()]).is_err());
    }
}
