//! Snapshots, read past checkpoints that are damaged.

use std::sync::Arc;
use std::time::Duration;

use delta_kernel::snapshot::IncrementalReplay;
use delta_kernel::{KernelError, Snapshot, SnapshotRef};

use super::KernelEngine;
use crate::checkpoint::fallback::{self, NoDetour};
use crate::error::TableError;

/// How many commits back a checksum file is brought up to date from. With one, those of later
/// versions follow from each commit without reading.
const CHECKSUM_REPLAY: IncrementalReplay = IncrementalReplay::UpToCommits(20);

/// How often a log is listed in which a version is missing, and the time between two listings.
const LISTINGS_MAX: u32 = 10;
const BETWEEN_LISTINGS: Duration = Duration::from_millis(20);

impl KernelEngine {
    /// The snapshot of `version`, or the newest one.
    pub(crate) fn snapshot(&self, version: Option<u64>) -> Result<SnapshotRef, TableError> {
        let mut listings = 1;
        loop {
            let mut builder = Snapshot::builder_for(self.store.url().as_str())
                .with_incremental_crc_replay(CHECKSUM_REPLAY);
            if let Some(version) = version {
                builder = builder.at_version(version);
            }
            match builder.build(self).and_then(complete) {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) if lacks_a_version(&error) && listings < LISTINGS_MAX => {
                    listings += 1;
                    std::thread::sleep(BETWEEN_LISTINGS);
                }
                Err(error) => self.pass_over(version, error)?,
            }
        }
    }

    /// The newest snapshot, from an earlier one and what came since.
    pub(crate) fn newer(&self, snapshot: &SnapshotRef) -> Result<SnapshotRef, TableError> {
        match Snapshot::builder_from(Arc::clone(snapshot)).build(self) {
            Ok(snapshot) => Ok(snapshot),
            Err(error) if lacks_a_version(&error) => self.snapshot(None),
            Err(error) => {
                self.pass_over(None, error)?;
                self.snapshot(None)
            }
        }
    }

    /// Takes `error`, met while something was read of the log up to `version` (`None`: its end). If
    /// a checkpoint is at fault that can be done without, it is hidden from now on, and the
    /// snapshot is to be made again; else this gives the error.
    pub(crate) fn pass_over(
        &self,
        version: Option<u64>,
        error: KernelError,
    ) -> Result<(), TableError> {
        let (table, fault) = (self.store.shown(), self.faults.take());
        if fault.is_none() && !is_about_checkpoints(&error) {
            return Err(TableError::kernel("read", &table, error));
        }
        match fallback::find(&self.store, &self.faults.hidden(), fault, version) {
            Ok(fallback) => {
                tracing::warn!(
                    table,
                    file = fallback.fault.file,
                    problem = fallback.fault.problem,
                    base = fallback.base,
                    "a checkpoint is damaged; the table is read without it"
                );
                self.faults.hide(fallback.hide);
                Ok(())
            }
            Err(NoDetour::NotAtFault) => Err(TableError::kernel("read", &table, error)),
            Err(NoDetour::Store(error)) => Err(TableError::store("cannot list", &table, &error)),
            Err(NoDetour::Stuck { fault, missing }) => Err(TableError::Irreplaceable {
                table,
                file: fault.file,
                problem: fault.problem,
                missing,
            }),
        }
    }
}

/// A log that lost its beginning and has no checkpoint looks like a short log to the library.
fn complete(snapshot: SnapshotRef) -> Result<SnapshotRef, KernelError> {
    let log = snapshot.log_segment();
    let first = log.listed.ascending_commit_files.first().map(|commit| commit.version);
    match first {
        Some(first) if log.checkpoint_version.is_none() && first != 0 => {
            let problem = format!("the log begins at version {first} and has no checkpoint there");
            Err(KernelError::InvalidCheckpoint(problem))
        }
        _ => Ok(snapshot),
    }
}

/// A directory that is listed while others write may show a file and not one that was made before
/// it, if both were made meanwhile (readdir(3)). So a version that is missing may be there.
fn lacks_a_version(error: &KernelError) -> bool {
    match error {
        KernelError::Backtraced { source, .. } => lacks_a_version(source),
        KernelError::MissingVersion(_) => true,
        _ => false,
    }
}

fn is_about_checkpoints(error: &KernelError) -> bool {
    match error {
        KernelError::Backtraced { source, .. } => is_about_checkpoints(source),
        KernelError::InvalidCheckpoint(_) => true,
        _ => false,
    }
}
