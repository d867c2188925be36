//! Files that were written and are in no version, because the process ended before its commit.
//!
//! Before a compaction writes the first file it puts their names into a record, which goes when
//! they are in the table, or are deleted. A record that stays tells what a crash left behind. Its
//! files are deleted if no entry of the log has its mark, and none ever will:
//! - a record of this query's: once this process has published an append, as the former one gives
//!   up when it meets that ([`Table::replace`]);
//! - anybody else's: when it is a day old, as half a day after it was made nothing is published by
//!   it any more.
//!
//! Records are in `_millstream/rewrites`. Names that begin with `_` are hidden: no reader and no
//! `VACUUM` looks there.

use object_store::Error;
use serde::{Deserialize, Serialize};

use crate::error::TableError;
use crate::store::TableStore;
use crate::table::Table;

const DIRECTORY: &str = "_millstream/rewrites";
/// After so long a compaction does not publish any more.
pub(super) const PUBLISHED_WITHIN_MS: i64 = 12 * 3_600_000;
/// After so long a record is anybody's.
const OTHERS_AFTER_MS: i64 = 24 * 3_600_000;
/// Entries that are looked through for a mark; where it would be more, `vacuum` has the files.
const ENTRIES_SEARCHED_MAX: u64 = 10_000;

/// Files that are about to be written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// Whose they are: the beginning of a query's id, or a word of its own.
    pub(super) owner: String,
    /// The mark of the commit that is to have them.
    pub(super) mark: String,
    /// The version from which they are made.
    pub(super) read_version: u64,
    /// Milliseconds since the epoch.
    pub(super) began_ms: i64,
    /// Names, relative to the table's directory.
    pub(super) files: Vec<String>,
}

impl Record {
    fn name(&self) -> String {
        format!("{DIRECTORY}/{}-{}.json", self.owner, self.mark)
    }

    /// Writes it down. Nothing in it may be written before.
    pub(super) fn put(&self, store: &TableStore) -> Result<(), TableError> {
        let text = serde_json::to_vec(self).expect("numbers and text");
        let put = store.put(&self.name(), text.into());
        put.map_err(|error| TableError::store("cannot write to", &store.shown(), &error))
    }

    /// Its files are in the table, or are gone.
    pub(super) fn forget(&self, store: &TableStore) {
        // One that stays costs a look at the log at the next start.
        let _ = store.delete_many(&[self.name()]);
    }

    /// Deletes its files, which are in no version and never will be, and then the record.
    pub(super) fn undo(&self, store: &TableStore) {
        let is_data = |name: &&String| name.ends_with(".parquet") && !name.starts_with('_');
        let files: Vec<String> = self.files.iter().filter(is_data).cloned().collect();
        // Files that stay are no part of the table; the record tells of them the next time.
        if store.delete_many(&files).is_ok() {
            self.forget(store);
        }
    }
}

/// Deletes what crashes have left behind: of `owner`, and of anybody if it is old. Gives the number
/// of files.
pub(super) fn clear(
    table: &Table,
    store: &TableStore,
    owner: Option<&str>,
) -> Result<usize, TableError> {
    let failed = |error: Error| TableError::store("cannot list", &store.shown(), &error);
    let mut cleared = 0;
    for listed in store.list(DIRECTORY, None).map_err(failed)? {
        let Ok(bytes) = store.get(&listed.name) else { continue };
        // Who wrote something else there knows what it is.
        let Ok(record) = serde_json::from_slice::<Record>(&bytes) else { continue };
        let now_ms = store.env().now_ms();
        let is_old = now_ms.saturating_sub(record.began_ms) > OTHERS_AFTER_MS
            && now_ms.saturating_sub(listed.modified_ms) > OTHERS_AFTER_MS;
        if record.name() != listed.name || !(is_old || owner == Some(&record.owner)) {
            continue;
        }
        match is_published(table, &record)? {
            Some(false) => {
                cleared += record.files.len();
                record.undo(store);
            }
            Some(true) | None => record.forget(store),
        }
    }
    Ok(cleared)
}

/// Whether an entry has the record's mark; `None` if that is not known any more.
fn is_published(table: &Table, record: &Record) -> Result<Option<bool>, TableError> {
    let newest = table.version();
    if newest.saturating_sub(record.read_version) > ENTRIES_SEARCHED_MAX {
        return Ok(None);
    }
    for version in record.read_version + 1..=newest {
        match table.entry(version)? {
            Some(entry) if entry.mark.as_deref() == Some(&record.mark) => return Ok(Some(true)),
            Some(_) => {}
            None => return Ok(None),
        }
    }
    Ok(Some(false))
}
