//! Who else appends to the same table: other engines, by a Python script. Our own engine is among
//! them; it has its own way to be started.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use millstream_testkit::program;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::step::{OpenFacts, StepOutcome};
use crate::error::Error;
use crate::system;

const SCRIPT: &str = include_str!("peers.py");
const REMEDY: &str = "--engines must name the directory that tests/lake/install prints";

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// delta-rs through its Python package
    Deltalake,
    /// delta-spark
    Spark,
    /// Millstream's own, with a micro-batch for each commit
    Millstream,
}

/// An engine in one of its ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// With the hooks that it has by default after each commit.
    Deltalake,
    /// Without them: no checkpoints, no cleanup.
    DeltalakeOff,
    /// With checkpoints of one file, its default.
    Spark,
    /// With checkpoints in parts.
    SparkParts,
    /// With its defaults.
    Millstream,
}

/// Commits of a peer, in milliseconds each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerFacts {
    /// From the call until it returns: file, entry and whatever the engine does after it.
    pub commit_ms: Vec<f64>,
    /// Which of them, counted from zero, came back with a new checkpoint in the log.
    pub commits_with_checkpoint: Vec<u64>,
    /// A checkpoint that was asked for after them; the engine writes its own.
    pub checkpoint_ms: Option<f64>,
    /// Of the engine, or of PySpark.
    pub version: String,
}

impl Peer {
    /// Its ways.
    pub fn variants(self) -> &'static [Variant] {
        match self {
            Self::Deltalake => &[Variant::DeltalakeOff, Variant::Deltalake],
            Self::Spark => &[Variant::Spark, Variant::SparkParts],
            Self::Millstream => &[Variant::Millstream],
        }
    }

    /// Whether it needs the directory of the other engines.
    pub fn is_installed(self) -> bool {
        self != Self::Millstream
    }
}

impl Variant {
    /// As in result lines and charts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deltalake => "deltalake",
            Self::DeltalakeOff => "deltalake-off",
            Self::Spark => "spark",
            Self::SparkParts => "spark-parts",
            Self::Millstream => "millstream",
        }
    }
}

/// How peers are run.
pub struct Peers<'a> {
    /// A Python environment with the engines, and jars beside it.
    pub engines: &'a Path,
    pub commits: u64,
    pub pause_ms: u64,
    pub part_size: u64,
}

impl Peers<'_> {
    /// Appends to `table` by another engine.
    pub fn commits(&self, variant: Variant, table: &Path) -> Result<StepOutcome<PeerFacts>, Error> {
        self.run(variant, "commits", table)
    }

    /// Opens `table`, to which another engine has appended, with that engine, and lists its files.
    pub fn open(&self, variant: Variant, table: &Path) -> Result<StepOutcome<OpenFacts>, Error> {
        self.run(variant, "open", table)
    }

    fn run<T: DeserializeOwned>(
        &self,
        variant: Variant,
        task: &str,
        table: &Path,
    ) -> Result<StepOutcome<T>, Error> {
        let directory = table.parent().unwrap_or(table);
        let mut python = Command::new(self.python());
        python.arg(system::write(directory, "peers.py", SCRIPT)?);
        python.args([variant.name(), task]).arg(table);
        python.args([self.commits, self.pause_ms, self.part_size].map(|number| number.to_string()));
        python.arg(self.engines.join("jars"));
        python.current_dir(directory).env("SPARK_LOCAL_IP", "127.0.0.1").env_remove("SPARK_HOME");
        let said = program::output("another engine", python, REMEDY)?;
        // Engines may have had something to say before.
        let line = said.lines().next_back().unwrap_or_default();
        serde_json::from_str(line).map_err(|error| Error::Result {
            path: table.to_owned(),
            problem: format!("{} gave no result ({error}): {said}", variant.name()),
        })
    }

    /// An error if the engines are not there.
    pub fn check(&self) -> Result<(), Error> {
        if self.python().exists() {
            return Ok(());
        }
        let python = self.python();
        Err(Error::Flags { problem: format!("there is no {}; {REMEDY}", python.display()) })
    }

    fn python(&self) -> PathBuf {
        self.engines.join("bin/python")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_knows_every_variant() {
        let peers = Peer::value_variants().iter().filter(|peer| peer.is_installed());
        for variant in peers.flat_map(|peer| peer.variants()) {
            assert!(SCRIPT.contains(variant.name()), "{variant:?}");
        }
    }

    #[test]
    fn what_the_script_prints_is_an_outcome() {
        let said = r#"{"commit_ms": [3.5], "commits_with_checkpoint": [9], "checkpoint_ms": 7.0,
            "wall_ms": 1.0, "cpu_ms": 2.0, "peak_rss_mb": 3.0, "version": "1"}"#;
        let outcome: StepOutcome<PeerFacts> = serde_json::from_str(said).expect("an outcome");
        assert_eq!((outcome.facts.commit_ms[0], outcome.facts.checkpoint_ms), (3.5, Some(7.0)));
    }
}
