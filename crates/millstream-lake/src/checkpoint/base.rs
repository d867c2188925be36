//! The checkpoint that a new one starts from.
//!
//! What the log has is listed once, when a table is opened; from then on the checkpointer remembers
//! its own last checkpoint. A set with parts missing is no checkpoint. Of several at one version
//! the one that readers prefer is taken: V2 by unique name, then more parts, then the classic one.
//! If what was found turns out to be damaged, the next older one is tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use object_store::Error;
use parking_lot::Mutex;
use serde_json::Value;

use super::Layout;
use super::actions::OTHERS_V2;
use super::commits::{decode, split_lines};
use super::error::{CheckpointError, damaged, store_error};
use super::facts::{CheckpointFile, Columns, read_footer};
use super::names::{LogName, SIDECARS};
use super::pool;
use super::source::SourceFile;
use super::state::{TableState, actions_of};
use crate::store::{Listed, REQUESTS_IN_FLIGHT_MAX, TableStore};

/// A complete checkpoint as it was listed.
#[derive(Clone, Debug)]
pub(super) struct FoundCheckpoint {
    pub(super) version: u64,
    pub(super) kind: FoundKind,
    /// By part.
    pub(super) files: Vec<Listed>,
}

/// In the order in which readers prefer them, the best last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FoundKind {
    Classic,
    MultiPart(u32),
    UniqueParquet,
    UniqueJson,
}

/// A set of parts that is not complete.
#[derive(Clone, Debug)]
pub(super) struct IncompleteSet {
    pub(super) version: u64,
    pub(super) parts: u32,
    pub(super) files: Vec<Listed>,
}

/// The checkpoints of a listing, newest first, and the sets that are none.
pub(super) fn checkpoints_of(files: &[Listed]) -> (Vec<FoundCheckpoint>, Vec<IncompleteSet>) {
    let (mut found, mut incomplete) = (Vec::new(), Vec::new());
    let mut sets: BTreeMap<(u64, u32), Vec<Listed>> = BTreeMap::new();
    for file in files {
        let (version, kind) = match LogName::parse(&file.name) {
            Some(LogName::Part { version, parts, .. }) => {
                sets.entry((version, parts)).or_default().push(file.clone());
                continue;
            }
            Some(LogName::Classic(version)) => (version, FoundKind::Classic),
            Some(LogName::Unique { version, is_json: true }) => (version, FoundKind::UniqueJson),
            Some(LogName::Unique { version, .. }) => (version, FoundKind::UniqueParquet),
            _ => continue,
        };
        found.push(FoundCheckpoint { version, kind, files: vec![file.clone()] });
    }
    for ((version, parts), files) in sets {
        // Readers take a single part for no checkpoint, so there is nothing to complete.
        if files.len() == parts as usize && parts > 1 {
            found.push(FoundCheckpoint { version, kind: FoundKind::MultiPart(parts), files });
        } else {
            incomplete.push(IncompleteSet { version, parts, files });
        }
    }
    found.sort_by_key(|found| std::cmp::Reverse((found.version, found.kind)));
    (found, incomplete)
}

/// What a checkpoint holds: the small part in memory, the files by what their footers say.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) version: u64,
    pub(super) layout: Layout,
    pub(super) state: TableState,
    /// Parts in their order, or sidecars.
    pub(super) parts: Vec<CheckpointFile>,
    /// File actions that a V2 checkpoint holds itself.
    pub(super) inline: Vec<RecordBatch>,
}

impl Base {
    /// True if each row is in the part that its hash says, in our columns.
    pub(super) fn is_placed(&self) -> bool {
        !matches!(self.layout, Layout::V2 { .. })
            && self.parts.iter().all(|part| part.columns == Columns::Rows)
    }

    /// Loads a checkpoint. Errors: `Damaged`, or `Store` with `NotFound`, if it cannot be used.
    pub(super) fn load(
        store: &TableStore,
        found: &FoundCheckpoint,
    ) -> Result<Self, CheckpointError> {
        let mut base = Self {
            version: found.version,
            layout: Layout::Classic,
            state: TableState::default(),
            parts: Vec::new(),
            inline: Vec::new(),
        };
        let mut others = Vec::new();
        if found.kind == FoundKind::UniqueJson {
            base.load_json(store, &found.files[0], &mut others)?;
        } else {
            for part in parts_of(store, &found.files)? {
                base.load_parquet(store, part, &mut others)?;
            }
        }
        let mut sidecars = Vec::new();
        for (name, action) in others {
            match name.as_str() {
                "sidecar" => sidecars.push(sidecar_file(store, &action, &found.files[0].name)?),
                name => base.state.apply(name, action),
            }
        }
        base.layout = layout_of(found, sidecars.len(), &base.state);
        if !sidecars.is_empty() {
            // What the top file holds besides is not about files.
            base.parts.clear();
        }
        base.parts.extend(parts_of(store, &sidecars)?);
        base.state.check(found.version).map_err(damaged(&found.files[0].name))?;
        Ok(base)
    }

    fn load_json(
        &mut self,
        store: &TableStore,
        file: &Listed,
        others: &mut Vec<(String, Value)>,
    ) -> Result<(), CheckpointError> {
        let content = store.get(&file.name).map_err(store_error("read", &file.name))?;
        let mut files = Vec::new();
        split_lines(&content, &mut files, |name, action| others.push((name.to_owned(), action)))
            .and_then(|()| decode(&files, &mut self.inline))
            .map_err(damaged(&file.name))
    }

    fn load_parquet(
        &mut self,
        store: &TableStore,
        part: CheckpointFile,
        others: &mut Vec<(String, Value)>,
    ) -> Result<(), CheckpointError> {
        let source = SourceFile::new(store, &part);
        for (number, facts) in part.row_groups.iter().enumerate() {
            if facts.adds + facts.removes == facts.rows {
                continue;
            }
            for rows in source.rows(number, &OTHERS_V2)? {
                others.extend(actions_of(&rows?)?);
            }
        }
        self.parts.push(part);
        Ok(())
    }
}

fn layout_of(found: &FoundCheckpoint, sidecars: usize, state: &TableState) -> Layout {
    let is_unique = matches!(found.kind, FoundKind::UniqueJson | FoundKind::UniqueParquet);
    match found.kind {
        FoundKind::MultiPart(parts) => Layout::MultiPart { parts },
        _ if is_unique || (sidecars > 0 && state.has_feature("v2Checkpoint")) => {
            Layout::V2 { sidecars: u32::try_from(sidecars).unwrap_or(u32::MAX) }
        }
        _ => Layout::Classic,
    }
}

/// What the footers of `files` say, in their order. They are read side by side: over a network it
/// is the round trips that take long.
fn parts_of(store: &TableStore, files: &[Listed]) -> Result<Vec<CheckpointFile>, CheckpointError> {
    let (shared, parts) = ((store.clone(), files.to_vec()), Arc::new(Mutex::new(Vec::new())));
    let found = Arc::clone(&parts);
    pool::run(store.env(), REQUESTS_IN_FLIGHT_MAX, files.len(), move |number| {
        let (store, files) = &shared;
        let file = &files[number];
        let footer = read_footer(store, &file.name, file.size)?;
        let part = CheckpointFile::of(&file.name, file.size, file.modified_ms, &footer);
        found.lock().push((number, part));
        Ok(())
    })?;
    let mut parts = std::mem::take(&mut *parts.lock());
    parts.sort_unstable_by_key(|(number, _)| *number);
    Ok(parts.into_iter().map(|(_, part)| part).collect())
}

/// The file that a `sidecar` action names: by its name, or by a URL.
pub(super) fn sidecar_file(
    store: &TableStore,
    action: &Value,
    top: &str,
) -> Result<Listed, CheckpointError> {
    let named = action["path"].as_str().and_then(|path| match url::Url::parse(path) {
        Ok(url) => store.name_of(&url),
        Err(_) => Some(format!("{SIDECARS}{path}")),
    });
    let (Some(name), Some(size)) = (named, action["sizeInBytes"].as_u64()) else {
        return Err(damaged(top)("it names a sidecar without its path and size"));
    };
    let modified_ms = action["modificationTime"].as_i64().unwrap_or(0);
    Ok(Listed { name, size, modified_ms })
}

/// True if the error is one of the checkpoint that was read, so that another may serve.
pub(super) fn is_fault_of_base(error: &CheckpointError) -> bool {
    match error {
        CheckpointError::Damaged { .. } => true,
        CheckpointError::Store { source, .. } => matches!(source, Error::NotFound { .. }),
        _ => false,
    }
}
