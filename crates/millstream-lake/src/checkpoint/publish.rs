//! From written files to a checkpoint that readers find.
//!
//! Parts cannot appear all at once, and some cleaners take an incomplete set for a checkpoint and
//! delete the commits below it. So parts are written under names that mean nothing, their footers
//! are read back, and only then do all names appear in one burst of copies within the store. The
//! hint comes last. A V2 checkpoint needs none of this: its sidecars mean nothing before the top
//! file names them.

use bytes::Bytes;
use millstream_store::crash_points::{self, Step};
use serde_json::{Value, json};

use super::error::{CheckpointError, store_error};
use super::facts::{CheckpointFile, read_footer};
use super::names;
use super::state::TableState;
use crate::store::TableStore;

/// Checks that what was written says what was counted: its own facts, by its footers.
pub(super) fn verify(
    store: &TableStore,
    written: &[(usize, CheckpointFile)],
) -> Result<(), CheckpointError> {
    for (_, part) in written {
        let footer = read_footer(store, &part.name, part.bytes)?;
        let read = CheckpointFile::of(&part.name, part.bytes, part.modified_ms, &footer);
        if read.row_groups != part.row_groups {
            let (kept, written) = (part.adds(), read.adds());
            return Err(CheckpointError::CountsDiffer { kept, written });
        }
    }
    Ok(())
}

/// Gives the parts their names: those that were staged, and those of the last checkpoint that stay.
pub(super) fn name_parts(
    store: &TableStore,
    version: u64,
    parts: &mut [CheckpointFile],
) -> Result<(), CheckpointError> {
    let count = u32::try_from(parts.len()).expect("parts are counted in 32 bits");
    let copies: Vec<_> = (0..count)
        .zip(parts.iter())
        .map(|(number, part)| (part.name.clone(), names::part(version, number, count)))
        .collect();
    crash_points::reached(Step::CheckpointStaged);
    let copy = |copies: &[(String, String)]| {
        store.copy_many(copies).map_err(store_error("copy to", &copies[0].1))
    };
    if crash_points::is_ordered(Step::CheckpointHalfPublished) {
        copy(&copies[..copies.len().div_ceil(2)])?;
        crash_points::reached(Step::CheckpointHalfPublished);
    }
    copy(&copies)?;
    let is_staged = |name: &&String| name.starts_with(names::STAGED);
    let staged: Vec<_> = copies.iter().map(|(from, _)| from).filter(is_staged).cloned().collect();
    for (part, (_, name)) in parts.iter_mut().zip(copies) {
        part.name = name;
    }
    store.delete_many(&staged).map_err(store_error("delete", names::STAGED))
}

/// Writes the top file of a V2 checkpoint. The result is its number of bytes and of actions.
pub(super) fn write_top(
    store: &TableStore,
    version: u64,
    state: &TableState,
    sidecars: &[CheckpointFile],
) -> Result<(u64, u64), CheckpointError> {
    let mut actions = vec![json!({"checkpointMetadata": {"version": version}})];
    actions.extend(state.actions());
    actions.extend(sidecars.iter().map(sidecar));
    let lines: String = actions.iter().map(|action| format!("{action}\n")).collect();
    let size = (lines.len() as u64, actions.len() as u64);
    let name = names::unique_json(version, store.env().random_uuid());
    store.put_new(&name, Bytes::from(lines)).map_err(store_error("write", &name))?;
    Ok(size)
}

fn sidecar(part: &CheckpointFile) -> Value {
    let path = part.name.strip_prefix(names::SIDECARS).unwrap_or(&part.name);
    json!({"sidecar": {
        "path": path,
        "sizeInBytes": part.bytes,
        "modificationTime": part.modified_ms,
    }})
}
