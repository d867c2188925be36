//! The files of a table, from its log: all of one version, or what one commit adds and removes.
//!
//! A file is a row of a scan of the log, in JSON: what the protocol library takes again when the
//! file is changed.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow_json::LineDelimitedWriter;
use delta_kernel::scan::ScanMetadata;
use delta_kernel::{KernelError, KernelResult, SnapshotRef};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::entry;
use crate::error::TableError;
use crate::kernel::KernelEngine;
use crate::kernel::scanned::{is_file, scanned_rows};
use crate::store::TableStore;

/// What a commit does to files.
#[derive(Debug, Default)]
pub(super) struct FileActions {
    /// Paths and deletion vectors of files that are removed.
    pub(super) removed: Vec<(String, Value)>,
    /// Files that are added.
    pub(super) added: Vec<Value>,
}

#[derive(Deserialize)]
struct Line {
    add: Option<Value>,
    remove: Option<Value>,
}

impl FileActions {
    /// Those of commit `version`; `None` where the log does not have it any more.
    pub(super) fn read(store: &TableStore, version: u64) -> Result<Option<Self>, TableError> {
        let name = entry::name(version);
        let bytes = match store.get(&name) {
            Ok(bytes) => bytes,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => {
                return Err(TableError::store("cannot read", &store.shown_file(&name), &error));
            }
        };
        let parsed = Self::parse(&bytes);
        let table = store.shown_file(&name);
        parsed.map(Some).map_err(|problem| TableError::Damaged { table, problem })
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut actions = Self::default();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line: Line = serde_json::from_slice(line)
                .map_err(|error| format!("line {} is no action: {error}", number + 1))?;
            if let Some(remove) = line.remove {
                let path = remove["path"].as_str().unwrap_or_default().to_owned();
                actions.removed.push((path, remove["deletionVector"].clone()));
            }
            actions.added.extend(line.add.as_ref().map(scan_row));
        }
        Ok(actions)
    }
}

/// An `add` as a scan of the log gives it.
fn scan_row(add: &Value) -> Value {
    json!({
        "path": add["path"],
        "size": add["size"],
        "modificationTime": add["modificationTime"],
        "stats": add["stats"],
        "deletionVector": add["deletionVector"],
        "fileConstantValues": {
            "partitionValues": add["partitionValues"],
            "baseRowId": add["baseRowId"],
            "defaultRowCommitVersion": add["defaultRowCommitVersion"],
            "tags": add["tags"],
            "clusteringProvider": add["clusteringProvider"],
        },
    })
}

/// All live files of `snapshot`.
pub(super) fn all(engine: &KernelEngine, snapshot: &SnapshotRef) -> Result<Vec<Value>, TableError> {
    let mut snapshot = Arc::clone(snapshot);
    loop {
        match scan(engine, &snapshot) {
            Ok(found) => return Ok(found),
            Err(error) => {
                let version = Some(snapshot.version());
                engine.pass_over(version, error)?;
                snapshot = engine.snapshot(version)?;
            }
        }
    }
}

fn scan(engine: &KernelEngine, snapshot: &SnapshotRef) -> KernelResult<Vec<Value>> {
    let scan = Arc::clone(snapshot).scan_builder().build()?;
    let mut found = Vec::new();
    for metadata in scan.scan_metadata(engine)? {
        let mut lines = LineDelimitedWriter::new(Vec::new());
        lines.write(&live_rows(&metadata?)?)?;
        lines.finish()?;
        for line in lines.into_inner().split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
        {
            found.push(serde_json::from_slice(line).map_err(|error| {
                KernelError::generic(format!("a file's facts are no JSON: {error}"))
            })?);
        }
    }
    Ok(found)
}

/// The rows of live files among those of a scan.
fn live_rows(metadata: &ScanMetadata) -> KernelResult<RecordBatch> {
    let (rows, paths) = scanned_rows(metadata)?;
    let flags: BooleanArray =
        (0..rows.num_rows()).map(|row| Some(is_file(metadata, paths, row))).collect();
    Ok(filter_record_batch(rows, &flags)?)
}
