//! How checkpoints are written in a measurement.

use clap::ValueEnum;
use millstream_lake::checkpoint::{LayoutChoice, Settings};
use millstream_lake::maintenance::Care;
use serde::{Deserialize, Serialize};

use super::synthetic::Head;

/// Threads that write a checkpoint: the default.
const WORKERS: usize = 2;

/// How checkpoints are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Configuration {
    /// None at all.
    Off,
    /// One file, written anew each time.
    Classic,
    /// Parts; files have any names, so those of ten commits fall into up to ten parts.
    MultiPart,
    /// The default: parts, and names of files that all fall into one of them.
    Steered,
    /// Sidecars, and a new one for what is new; the table has the feature `v2Checkpoint`.
    V2,
}

impl Configuration {
    /// For a table that writes to it: `part_rows` is the number of rows of a part.
    pub fn care(self, part_rows: u64) -> Care {
        let (checkpoints, is_off) = (self.settings(part_rows), self == Self::Off);
        Care { checkpoints, is_off, compaction: None }
    }

    /// For one who writes checkpoints only.
    pub fn settings(self, part_rows: u64) -> Settings {
        let layout = match self {
            Self::Classic => LayoutChoice::Classic,
            Self::MultiPart => LayoutChoice::MultiPart,
            Self::V2 => LayoutChoice::V2,
            Self::Off | Self::Steered => LayoutChoice::Auto,
        };
        Settings { part_rows, layout, workers: WORKERS, ..Settings::default() }
    }

    /// The table that it is measured on.
    pub fn head(self) -> Head {
        if self == Self::V2 { Head::V2 } else { Head::Same }
    }

    /// Whether names of files are chosen as the checkpoint would like them.
    pub fn is_steered(self) -> bool {
        self == Self::Steered
    }

    /// Whether there are checkpoints.
    pub fn has_checkpoints(self) -> bool {
        self != Self::Off
    }

    /// Whether the number of parts follows from the number of rows.
    pub fn has_parts(self) -> bool {
        matches!(self, Self::MultiPart | Self::Steered)
    }
}
