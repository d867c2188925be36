//! The live files of a table, and which of their rows are deleted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use delta_kernel::actions::deletion_vector::DeletionVectorDescriptor;
use roaring::RoaringTreemap;
use serde_json::{Value, json};

use super::vectors;

/// A file of the table.
#[derive(Clone, Debug)]
pub(super) struct LiveFile {
    /// As a scan of the log gives it.
    pub(super) row: Arc<Value>,
    /// Rows in it, deleted ones among them, where that is known.
    pub(super) rows: Option<u64>,
    /// Rows that are deleted; `None` as long as its deletion vector is not read.
    pub(super) deleted: Option<RoaringTreemap>,
    /// Rows that were deleted before others changed that. The index does not have their keys.
    pub(super) former: Option<RoaringTreemap>,
    /// Whether the index has its keys.
    pub(super) is_indexed: bool,
}

impl LiveFile {
    pub(super) fn new(row: Value) -> Self {
        let rows = records(&row);
        let deleted = row["deletionVector"].is_null().then(RoaringTreemap::new);
        Self { row: Arc::new(row), rows, deleted, former: None, is_indexed: false }
    }

    /// As the log has it.
    pub(super) fn path(&self) -> &str {
        self.row["path"].as_str().unwrap_or_default()
    }

    /// Whether its row `row` is deleted, as far as that is known.
    pub(super) fn has_deleted(&self, row: u32) -> bool {
        self.deleted.as_ref().is_some_and(|deleted| deleted.contains(u64::from(row)))
    }

    /// Whether rows that were deleted are rows of the table again, as after a `RESTORE`.
    pub(super) fn has_undeleted(&self) -> bool {
        let (former, deleted) = (self.former.as_ref(), self.deleted.as_ref());
        former.zip(deleted).is_some_and(|(former, deleted)| !former.is_subset(deleted))
    }

    /// Gives it a deletion vector that names `deleted`. The least and greatest values in its
    /// statistics are then bounds, since the rows that had them may be deleted.
    pub(super) fn set_vector(
        &mut self,
        vector: &DeletionVectorDescriptor,
        deleted: RoaringTreemap,
    ) {
        let mut row = self.described();
        row["deletionVector"] = vectors::to_json(vector);
        let mut statistics = statistics(&row);
        statistics["tightBounds"] = json!(false);
        row["stats"] = Value::from(statistics.to_string());
        (self.row, self.deleted) = (Arc::new(row), Some(deleted));
    }

    /// As the log is to have it when its deletion vector is changed: with the number of its rows.
    pub(super) fn described(&self) -> Value {
        let mut row = self.row.as_ref().clone();
        if records(&row).is_none()
            && let Some(rows) = self.rows
        {
            let mut statistics = statistics(&row);
            statistics["numRecords"] = json!(rows);
            row["stats"] = Value::from(statistics.to_string());
        }
        row
    }

    /// Memory that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let text = |name: &str| self.row[name].as_str().map_or(0, str::len);
        let deleted = self.deleted.as_ref().map_or(0, RoaringTreemap::serialized_size);
        // Maps and names beside the texts.
        2_000 + text("stats") + 2 * text("path") + deleted
    }
}

fn statistics(row: &Value) -> Value {
    let text = row["stats"].as_str().and_then(|text| serde_json::from_str(text).ok());
    text.filter(Value::is_object).unwrap_or_else(|| json!({}))
}

fn records(row: &Value) -> Option<u64> {
    statistics(row)["numRecords"].as_u64()
}

/// The live files, each with a number of its own.
#[derive(Debug, Default)]
pub(super) struct LiveFiles {
    files: BTreeMap<u32, LiveFile>,
    /// By the name of a file: writers encode one path in different ways.
    numbers: HashMap<String, u32>,
    next: u32,
}

impl LiveFiles {
    pub(super) fn get(&self, number: u32) -> Option<&LiveFile> {
        self.files.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut LiveFile> {
        self.files.get_mut(&number)
    }

    /// In the order in which they came to be known.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &LiveFile)> {
        self.files.iter().map(|(number, file)| (*number, file))
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        self.files.keys().copied().collect()
    }

    pub(super) fn number_of(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Adds a file that was not there; gives its number.
    pub(super) fn insert(&mut self, name: String, file: LiveFile) -> u32 {
        let number = self.next;
        self.next = number.checked_add(1).expect("fewer files than that in the life of a process");
        self.numbers.insert(name, number);
        self.files.insert(number, file);
        number
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(number) = self.numbers.remove(name) {
            self.files.remove(&number);
        }
    }

    /// The names of all files.
    pub(super) fn names(&self) -> Vec<String> {
        self.numbers.keys().cloned().collect()
    }

    /// Whether the row at that place is one of the table.
    pub(super) fn has(&self, place: super::index::Place) -> bool {
        self.files.get(&place.file).is_some_and(|file| !file.has_deleted(place.row))
    }

    /// Memory that they take, about.
    pub(super) fn bytes(&self) -> usize {
        self.files.values().map(LiveFile::bytes).sum()
    }
}
