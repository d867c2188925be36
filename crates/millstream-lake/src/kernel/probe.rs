//! A table as the protocol library sees it: what tests compare checkpoints by, and benchmarks read.

use std::collections::BTreeMap;

use delta_kernel::checkpoint::{CheckpointSpec, V2CheckpointConfig};
use delta_kernel::scan::state::ScanFile;
use delta_kernel::{KernelResult, Snapshot};

use super::KernelEngine;
use crate::store::TableStore;

/// What a reader finds at the newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The version.
    pub version: u64,
    /// Bytes by path, and the number of rows that its deletion vector takes away.
    pub files: BTreeMap<String, i64>,
    /// Versions by application.
    pub transactions: BTreeMap<String, i64>,
}

/// Reads the log of `store` from nothing; `apps` are the applications to ask for.
pub fn look(store: &TableStore, apps: &[&str]) -> KernelResult<Seen> {
    let engine = KernelEngine::new(store);
    let snapshot = Snapshot::builder_for(store.url().as_str()).build(&engine)?;
    let scan = snapshot.clone().scan_builder().build()?;
    let mut files = BTreeMap::new();
    for metadata in scan.scan_metadata(&engine)? {
        files = metadata?.visit_scan_files(files, add_file)?;
    }
    let mut transactions = BTreeMap::new();
    for app in apps {
        if let Some(version) = snapshot.get_app_id_version(app, &engine)? {
            transactions.insert((*app).to_owned(), version);
        }
    }
    Ok(Seen { version: snapshot.version(), files, transactions })
}

fn add_file(files: &mut BTreeMap<String, i64>, file: ScanFile) {
    let mut name = file.path;
    if let Ok(Some(rows)) = file.dv_info.cardinality() {
        name = format!("{name} without {rows}");
    }
    files.insert(name, file.size);
}

/// Writes a checkpoint of the newest version with the protocol library itself: with sidecars of
/// `sidecar_actions` actions each, or a classic one for `None`.
pub fn write_checkpoint(store: &TableStore, sidecar_actions: Option<usize>) -> KernelResult<()> {
    let engine = KernelEngine::new(store);
    let snapshot = Snapshot::builder_for(store.url().as_str()).build(&engine)?;
    let with_sidecars = sidecar_actions.map(|actions| {
        CheckpointSpec::V2(V2CheckpointConfig::WithSidecar {
            file_actions_per_sidecar_hint: Some(actions),
        })
    });
    snapshot.checkpoint(&engine, with_sidecars.as_ref()).map(drop)
}
