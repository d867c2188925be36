//! Files and index follow the log.

use std::collections::{HashMap, HashSet};

use delta_kernel::SnapshotRef;
use serde_json::Value;

use super::files::LiveFile;
use super::index::{KeyIndex, Place};
use super::log::{self, FileActions};
use super::scan::KeyScan;
use super::{Merger, vectors};
use crate::error::TableError;

/// So many commits of others are read one by one; where there are more, all files are listed.
const COMMITS_MAX: u64 = 1_000;
/// Of the memory that is full, the share that is made free at once: each time costs a look at all
/// of the index.
const FREED: usize = 4;

impl Merger {
    /// Brings files and index to the version of `snapshot`.
    pub(super) fn sync(&mut self, snapshot: &SnapshotRef) -> Result<(), TableError> {
        let target = snapshot.version();
        match self.synced {
            Some(at) if at <= target && target - at <= COMMITS_MAX => {
                for version in at + 1..=target {
                    let Some(actions) = FileActions::read(&self.store, version)? else {
                        self.reload(snapshot)?;
                        break;
                    };
                    self.apply(actions);
                    self.synced = Some(version);
                }
            }
            _ => self.reload(snapshot)?,
        }
        self.synced = Some(target);
        self.read_vectors(snapshot)?;
        self.index_fresh(snapshot)?;
        self.make_room()
    }

    /// What all commits since the last known version come to, where they are not to be had.
    fn reload(&mut self, snapshot: &SnapshotRef) -> Result<(), TableError> {
        // A scan gives the newest files first, and files are numbered by age.
        let mut added = log::all(&self.engine, snapshot)?;
        added.reverse();
        let name = |row: &Value| self.live.table().file_name(row["path"].as_str().unwrap_or(""));
        let there: HashSet<String> = added.iter().map(name).collect();
        for gone in self.files.names().into_iter().filter(|name| !there.contains(name)) {
            self.files.remove(&gone);
            self.has_gone = true;
        }
        self.apply(FileActions { removed: Vec::new(), added });
        Ok(())
    }

    /// Does to the files what a commit does.
    fn apply(&mut self, actions: FileActions) {
        let table = std::sync::Arc::clone(self.live.table());
        let removed = actions.removed.into_iter();
        let mut removed: HashMap<String, Value> =
            removed.map(|(path, vector)| (table.file_name(&path), vector)).collect();
        for row in actions.added {
            let name = table.file_name(row["path"].as_str().unwrap_or_default());
            removed.remove(&name);
            let mut file = LiveFile::new(row);
            let Some(number) = self.files.number_of(&name) else {
                let number = self.files.insert(name, file);
                self.fresh.push(number);
                continue;
            };
            // The same rows in the same places; others may be deleted.
            let before = self.files.get_mut(number).expect("it has a number");
            let of = |file: &LiveFile| vectors::identity(&file.row["deletionVector"]);
            if of(&file) == of(before) {
                (file.deleted, file.former) = (before.deleted.take(), before.former.take());
            } else {
                file.former = before.former.take().or(before.deleted.take());
            }
            file.rows = file.rows.or(before.rows);
            file.is_indexed = before.is_indexed;
            *before = file;
        }
        for (name, vector) in removed {
            let live = self.files.number_of(&name).and_then(|number| self.files.get(number));
            let is_it = |file: &LiveFile| {
                vectors::identity(&file.row["deletionVector"]) == vectors::identity(&vector)
            };
            if live.is_some_and(is_it) {
                self.files.remove(&name);
                self.has_gone = true;
            }
        }
    }

    /// Reads the deletion vectors of files in the index that others have changed.
    fn read_vectors(&mut self, snapshot: &SnapshotRef) -> Result<(), TableError> {
        let is_changed =
            |file: &LiveFile| file.is_indexed && (file.deleted.is_none() || file.former.is_some());
        let changed = self.files.iter().filter(|(_, file)| is_changed(file));
        let changed: Vec<u32> = changed.map(|(number, _)| number).collect();
        for number in changed {
            self.read_vector(snapshot, number)?;
            let file = self.files.get_mut(number).expect("it is there");
            if file.has_undeleted() {
                file.is_indexed = false;
                self.fresh.push(number);
            }
            file.former = None;
        }
        Ok(())
    }

    pub(super) fn read_vector(
        &mut self,
        snapshot: &SnapshotRef,
        number: u32,
    ) -> Result<(), TableError> {
        let Some(file) = self.files.get_mut(number).filter(|file| file.deleted.is_none()) else {
            return Ok(());
        };
        let vector = vectors::of_json(&file.row["deletionVector"]);
        let vector = vector.map_err(|error| self.live.table().kernel_error("read", error))?;
        let deleted = match vector {
            None => Ok(roaring::RoaringTreemap::new()),
            Some(vector) => vectors::read(vector, &self.engine, snapshot.table_root()),
        };
        let version = snapshot.version();
        file.deleted = Some(
            deleted
                .map_err(|error| vectors::explained(&self.store, (file.path(), version), error))?,
        );
        Ok(())
    }

    /// Reads the keys of new files into the index, the newest first, as long as there is room. What
    /// does not fit comes again with the next commit: entries of rows that are gone, as those of
    /// files that were just compacted, make room once they are let go.
    fn index_fresh(&mut self, snapshot: &SnapshotRef) -> Result<(), TableError> {
        let mut too_large = Vec::new();
        while let Some(number) = self.fresh.pop() {
            let Some(file) = self.files.get(number).filter(|file| !file.is_indexed) else {
                continue;
            };
            let rows = usize::try_from(file.rows.unwrap_or(0)).unwrap_or(usize::MAX);
            if !self.has_room_for(rows) {
                self.let_go_of_gone();
            }
            if self.has_room_for(rows) {
                self.read_vector(snapshot, number)?;
                self.index_file(snapshot, number)?;
            } else {
                too_large.push(number);
            }
        }
        too_large.reverse();
        self.fresh = too_large;
        Ok(())
    }

    fn has_room_for(&self, rows: usize) -> bool {
        let wanted = KeyIndex::bytes_of(rows).saturating_add(self.index.bytes());
        wanted <= self.index_bytes - self.index_bytes / FREED
    }

    /// Lets go of entries of rows that are gone, if files were removed since that was done last:
    /// it costs a look at all of the index.
    fn let_go_of_gone(&mut self) {
        if std::mem::take(&mut self.has_gone) {
            let files = &self.files;
            self.index.retain(|place| files.has(place));
        }
    }

    fn index_file(&mut self, snapshot: &SnapshotRef, number: u32) -> Result<(), TableError> {
        let Self { files, index, store, engine, plan, live, .. } = self;
        let failed = |error| live.table().kernel_error("read", error);
        let scan = KeyScan::new(store, engine, &plan.keys, (snapshot, None)).map_err(failed)?;
        let row = files.get(number).expect("it is there").row.as_ref().clone();
        let mut rows = 0;
        for file in scan.files(&[row]).map_err(failed)? {
            rows = scan.read(&file, |row, key| {
                let place = Place { file: number, row };
                if files.has(place) {
                    index.insert(key, place, |other| files.has(other));
                }
            })?;
        }
        let file = files.get_mut(number).expect("it is there");
        (file.is_indexed, file.rows) = (true, Some(rows));
        Ok(())
    }

    /// Lets go of entries of rows that are gone, and then of the oldest files, when memory is full.
    pub(super) fn make_room(&mut self) -> Result<(), TableError> {
        let facts = self.files.bytes();
        if facts + self.index.bytes() <= self.index_bytes {
            return Ok(());
        }
        if facts > self.index_bytes / 2 {
            return Err(TableError::Unsupported {
                table: self.store.shown(),
                action: "merged into",
                problem: format!(
                    "what is known of its files takes {facts} bytes, more than half of what \
                     'merge.indexMemory' allows; put small files together (millstream table \
                     optimize, or 'autoCompact' = 'true'), or raise it"
                ),
            });
        }
        // Rows that were deleted are gone, too, whether files were removed or not.
        self.has_gone = true;
        self.let_go_of_gone();
        let wanted = self.index_bytes - self.index_bytes / FREED;
        if facts + self.index.bytes() <= wanted {
            return Ok(());
        }
        let mut surplus = facts + self.index.bytes() - wanted;
        for number in self.files.numbers() {
            let Some(file) = self.files.get_mut(number).filter(|file| file.is_indexed) else {
                continue;
            };
            file.is_indexed = false;
            let rows = usize::try_from(file.rows.unwrap_or(0)).unwrap_or(usize::MAX);
            surplus = surplus.saturating_sub(KeyIndex::bytes_of(rows));
            if surplus == 0 {
                break;
            }
        }
        let files = &self.files;
        let is_kept = |file: u32| files.get(file).is_some_and(|file| file.is_indexed);
        self.index.retain(|place| is_kept(place.file));
        Ok(())
    }
}
