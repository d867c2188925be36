//! Which rows of a table a commit replaces, and what becomes of their files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use delta_kernel::SnapshotRef;
use millstream_store::crash_points::{self, Step};
use roaring::RoaringTreemap;
use serde_json::Value;

use super::Merger;
use super::files::LiveFile;
use super::index::Place;
use super::keys::{Key, KeyHasher};
use super::rewrite::Rewriter;
use super::scan::KeyScan;
use super::vectors::VectorFile;
use super::writer::MergeRows;
use crate::data_file::DataFile;
use crate::error::TableError;
use crate::table::merge::{ChangedFile, FileChanges, MergedFiles};
use crate::table::replace::scan_row;

/// What a commit does to files that are there.
#[derive(Default)]
pub(super) struct Resolved {
    /// Files that get another deletion vector, with all rows that it names.
    vectors: Vec<(u32, RoaringTreemap)>,
    /// The file that has these vectors.
    vector_file: Option<VectorFile>,
    /// Files that go: no row is left in them, or others have those.
    removed: Vec<u32>,
    /// Files with the rows that are left of some of those.
    rewritten: Vec<DataFile>,
    metrics: Vec<(&'static str, u64)>,
}

/// Rows that are found, by file.
#[derive(Default)]
struct Found {
    rows: BTreeMap<u32, Vec<u32>>,
    /// Keys of the commit that the table has.
    keys: HashSet<Key, KeyHasher>,
}

impl Merger {
    /// What `rows` change in the table as it is at `snapshot`. Asked again at the same version, it
    /// is the same: a request that was given up may still be carried out.
    pub(super) fn changes(
        &mut self,
        snapshot: &SnapshotRef,
        rows: &MergeRows,
    ) -> Result<FileChanges, TableError> {
        let version = snapshot.version();
        match self.pending.take() {
            Some((before, resolved)) if before == version => {
                self.pending = Some((version, resolved));
            }
            other => {
                if let Some((_, given_up)) = other {
                    given_up.delete_files(self);
                }
                self.sync(snapshot)?;
                let resolved = self.resolve(snapshot, rows)?;
                self.pending = Some((version, resolved));
            }
        }
        Ok(self.file_changes(rows))
    }

    fn resolve(
        &mut self,
        snapshot: &SnapshotRef,
        rows: &MergeRows,
    ) -> Result<Resolved, TableError> {
        let mut found = self.find_indexed(rows);
        self.find_others(snapshot, rows, &mut found)?;
        let mut resolved = Resolved { metrics: metrics(rows, &found.keys), ..Resolved::default() };
        let mut rewritten = Vec::new();
        for (number, rows) in found.rows {
            let file = self.files.get(number).expect("rows were found in it");
            let mut deleted = file.deleted.clone().expect("it was read");
            deleted.extend(rows.into_iter().map(u64::from));
            if file.rows.is_some_and(|rows| deleted.len() >= rows) {
                resolved.removed.push(number);
            } else if self.has_vectors {
                resolved.vectors.push((number, deleted));
            } else {
                rewritten.push((number, deleted));
            }
        }
        self.put_vectors(&mut resolved)?;
        self.rewrite(snapshot, rewritten, &mut resolved)?;
        Ok(resolved)
    }

    fn find_indexed(&self, rows: &MergeRows) -> Found {
        let mut found = Found::default();
        for key in rows.kept().chain(rows.gone.iter().copied()) {
            for place in self.index.places(key).filter(|place| self.files.has(*place)) {
                found.add(key, place);
            }
        }
        found
    }

    /// Looks for keys in files that the index does not have.
    fn find_others(
        &mut self,
        snapshot: &SnapshotRef,
        rows: &MergeRows,
        found: &mut Found,
    ) -> Result<(), TableError> {
        let others: HashMap<String, u32> = self
            .files
            .iter()
            .filter(|(_, file)| !file.is_indexed)
            .map(|(number, file)| (file.path().to_owned(), number))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let keys: HashSet<Key, KeyHasher> = rows.kept().chain(rows.gone.iter().copied()).collect();
        let facts: Vec<Value> = others
            .values()
            .map(|number| self.files.get(*number).expect("it is there"))
            .map(|file| file.row.as_ref().clone())
            .collect();
        let table = Arc::clone(self.live.table());
        let failed = |error| table.kernel_error("read", error);
        let predicate = rows.bounds.predicate();
        let predicate = predicate.and_then(|predicate| predicate.to_kernel(&snapshot.schema()));
        let (plan, store) = (self.plan.clone(), self.store.clone());
        let engine = crate::kernel::KernelEngine::new(&store);
        let scan = KeyScan::new(&store, &engine, &plan.keys, (snapshot, predicate));
        let scan = scan.map_err(failed)?;
        for file in scan.files(&facts).map_err(failed)? {
            let number = others[&file.path];
            self.read_vector(snapshot, number)?;
            let files = &self.files;
            let rows = scan.read(&file, |row, key| {
                let place = Place { file: number, row };
                if keys.contains(&key) && files.has(place) {
                    found.add(key, place);
                }
            })?;
            self.files.get_mut(number).expect("it is there").rows = Some(rows);
        }
        Ok(())
    }

    fn put_vectors(&self, resolved: &mut Resolved) -> Result<(), TableError> {
        if resolved.vectors.is_empty() {
            return Ok(());
        }
        let vectors: Vec<_> = resolved.vectors.iter().map(|(_, vector)| vector.clone()).collect();
        resolved.vector_file = Some(VectorFile::put(&self.store, &vectors)?);
        crash_points::reached(Step::VectorsWritten);
        Ok(())
    }

    fn rewrite(
        &self,
        snapshot: &SnapshotRef,
        files: Vec<(u32, RoaringTreemap)>,
        resolved: &mut Resolved,
    ) -> Result<(), TableError> {
        if files.is_empty() {
            return Ok(());
        }
        let (table, names) = (self.live.table(), self.live.part_file_names());
        let rewriter = Rewriter::new(table, &self.engine, snapshot, names)?;
        for (number, deleted) in files {
            let file = self.files.get(number).expect("rows were found in it");
            resolved.rewritten.extend(rewriter.without(&file.row, &deleted)?);
            resolved.removed.push(number);
        }
        crash_points::reached(Step::FilesRewritten);
        Ok(())
    }

    fn file_changes(&self, rows: &MergeRows) -> FileChanges {
        let (_, resolved) = self.pending.as_ref().expect("it was just found out");
        let described = |number: u32| self.files.get(number).expect("it is there").described();
        let descriptors = resolved.vector_file.iter().flat_map(|file| &file.vectors).cloned();
        let vectors = resolved.vectors.iter().map(|(number, _)| described(*number));
        let added = rows.files.iter().map(|file| file.file.clone());
        FileChanges {
            added: added.chain(resolved.rewritten.iter().cloned()).collect(),
            vectors: vectors.zip(descriptors).collect(),
            removed: resolved.removed.iter().map(|number| described(*number)).collect(),
            metrics: resolved.metrics.clone(),
        }
    }

    /// The commit under way is published as `version`: files and index are what it has made of
    /// them. Gives its files.
    pub(super) fn applied(&mut self, version: u64, rows: &MergeRows) -> MergedFiles {
        let (before, resolved) = self.pending.take().expect("a commit was under way");
        debug_assert_eq!(before + 1, version, "it was resolved at the version before");
        let table = Arc::clone(self.live.table());
        let mut merged = MergedFiles::default();
        for number in resolved.removed {
            let name = self.files.get(number).map(|file| table.file_name(file.path()));
            name.into_iter().for_each(|name| self.files.remove(&name));
            self.has_gone = true;
        }
        let descriptors = resolved.vector_file.into_iter().flat_map(|file| file.vectors);
        for ((number, deleted), vector) in resolved.vectors.into_iter().zip(descriptors) {
            let file = self.files.get_mut(number).expect("it is there");
            file.set_vector(&vector, deleted);
            merged.changed.push(ChangedFile { row: Arc::clone(&file.row), vector });
        }
        for file in resolved.rewritten {
            let name = table.file_name(&file.path);
            let number = self.files.insert(name, LiveFile::new(scan_row(&file)));
            self.fresh.push(number);
            merged.added.push(file);
        }
        rows.gone.iter().for_each(|key| self.index.remove(*key));
        for keyed in &rows.files {
            let mut file = LiveFile::new(scan_row(&keyed.file));
            file.is_indexed = true;
            let number = self.files.insert(table.file_name(&keyed.file.path), file);
            for (row, key) in keyed.keys.iter().enumerate() {
                let row = u32::try_from(row).expect("fewer rows than that are in a commit");
                self.index.insert(*key, Place { file: number, row }, |_| false);
            }
            merged.added.push(keyed.file.clone());
        }
        self.synced = Some(version);
        merged
    }
}

impl Found {
    fn add(&mut self, key: Key, place: Place) {
        self.rows.entry(place.file).or_default().push(place.row);
        self.keys.insert(key);
    }
}

impl Resolved {
    /// Deletes files of an attempt that another commit came before.
    fn delete_files(self, merger: &Merger) {
        let vectors = self.vector_file.into_iter().map(|file| file.name);
        let names: Vec<String> =
            vectors.chain(self.rewritten.into_iter().map(|file| file.name)).collect();
        // One that stays is no part of the table; vacuum finds it.
        let _ = merger.store.delete_many(&names);
    }
}

/// What Spark's `MERGE` says of itself.
fn metrics(rows: &MergeRows, found: &HashSet<Key, KeyHasher>) -> Vec<(&'static str, u64)> {
    let (mut updated, mut inserted) = (0, 0);
    for key in rows.kept() {
        *(if found.contains(&key) { &mut updated } else { &mut inserted }) += 1;
    }
    let deleted = rows.gone.iter().filter(|key| found.contains(*key)).count() as u64;
    vec![
        ("numSourceRows", updated + inserted + rows.gone.len() as u64),
        ("numTargetRowsInserted", inserted),
        ("numTargetRowsUpdated", updated),
        ("numTargetRowsDeleted", deleted),
        ("numOutputRows", updated + inserted),
        ("numTargetFilesAdded", rows.files.len() as u64),
    ]
}
