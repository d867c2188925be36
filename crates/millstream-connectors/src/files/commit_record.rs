//! What a commit is: the file `_millstream/commits/N`, N being the manifest's entry it becomes.
//!
//! ```text
//! {"entry":12,"isCompact":false,"batchId":700,"batchTimestampMs":1767225600000,
//!  "offsets":["{\"logOffset\":3}"],
//!  "files":[{"written":".millstream-...","name":"part-...","size":9,"modifiedMs":1767225600000}]}
//! ```
//!
//! `batchId` is the last micro-batch in it, `offsets` where each source stood then. The files are
//! there already, under the hidden names `written`, and get their names `name` afterwards. Only the
//! last record is kept, for the next start to ask.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use millstream_engine::api::sink::{BatchId, EndOffsets, Published, SourceOffset};
use millstream_store::storage::make_directories;
use serde::{Deserialize, Serialize};

use super::durable;
use super::error::FileError;
use super::metadata_log::Entry;

/// A commit.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    entry: u64,
    is_compact: bool,
    batch_id: u64,
    batch_timestamp_ms: i64,
    /// Where each source stood after it, exclusive.
    offsets: Vec<Option<SourceOffset>>,
    /// What it adds.
    pub(super) files: Vec<CommittedFile>,
}

/// A file of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommittedFile {
    /// The hidden name that it is written under.
    pub(super) written: String,
    /// The name that it gets.
    pub(super) name: String,
    /// Bytes.
    pub(super) size: u64,
    /// When it was finished, milliseconds since the epoch.
    pub(super) modified_ms: i64,
}

impl Record {
    pub(super) fn new(
        entry: Entry,
        batch_id: BatchId,
        end_offsets: &EndOffsets,
        files: Vec<CommittedFile>,
    ) -> Self {
        Self {
            entry: entry.number,
            is_compact: entry.is_compact,
            batch_id: batch_id.0,
            batch_timestamp_ms: end_offsets.batch_time_ms,
            offsets: end_offsets.ends.clone(),
            files,
        }
    }

    /// The entry of the manifest that it becomes.
    pub(super) fn entry(&self) -> Entry {
        Entry { number: self.entry, is_compact: self.is_compact }
    }

    /// What it says of the query.
    pub(super) fn published(self) -> Published {
        let end_offsets = EndOffsets { ends: self.offsets, batch_time_ms: self.batch_timestamp_ms };
        Published { batch_id: BatchId(self.batch_id), end_offsets: Some(end_offsets) }
    }

    fn is_sound(&self, number: u64) -> bool {
        let is_name = |name: &String| !name.is_empty() && !name.contains(['/', '\0']);
        let mut names = self.files.iter().flat_map(|part| [&part.written, &part.name]);
        self.entry == number && names.all(is_name)
    }
}

/// The records of a directory's commits.
pub(super) struct Records {
    path: PathBuf,
}

impl Records {
    /// Those in the directory `path`, which is made.
    pub(super) fn open(path: PathBuf) -> Result<Self, FileError> {
        make_directories(&path).map_err(|error| FileError::writing(&path, error))?;
        Ok(Self { path })
    }

    /// Where they are.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn numbers(&self) -> Result<Vec<u64>, FileError> {
        let names = durable::names(&self.path)?;
        let entries = names.iter().filter_map(|name| Entry::parse(name));
        Ok(entries.filter(|entry| !entry.is_compact).map(|entry| entry.number).collect())
    }

    /// The last one.
    pub(super) fn last(&self) -> Result<Option<Record>, FileError> {
        let Some(number) = self.numbers()?.into_iter().max() else { return Ok(None) };
        let path = self.path.join(number.to_string());
        let text = fs::read(&path);
        let text = text.map_err(|error| FileError::Unreadable { path: path.clone(), error })?;
        let damaged = |problem| FileError::Record { path: path.clone(), problem };
        let record: Record =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if record.is_sound(number) {
            Ok(Some(record))
        } else {
            Err(damaged("it names another entry, or no files".to_owned()))
        }
    }

    /// Makes `record` the last one; from now on its commit is made.
    ///
    /// Errors: `Occupied` if another process has made a commit under its number.
    pub(super) fn put(&self, record: &Record, instance: &str) -> Result<(), FileError> {
        let text = serde_json::to_vec(record).expect("text and numbers");
        let write = |file: &mut fs::File| file.write_all(&text);
        durable::put_if_absent(&self.path, &record.entry.to_string(), instance, write)
    }

    /// Deletes those before `entry`.
    pub(super) fn forget_before(&self, entry: u64) -> Result<(), FileError> {
        let mut earlier = self.numbers()?.into_iter().filter(|number| *number < entry);
        earlier.try_for_each(|number| durable::remove(&self.path.join(number.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_names_files_elsewhere_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::open(directory.path().join("commits")).unwrap();
        let entry = Entry { number: 7, is_compact: false };
        for (name, is_sound) in
            [("part-1.json", true), ("", false), ("../part-1.json", false), ("part\0", false)]
        {
            for is_written in [false, true] {
                let [written, named] = if is_written { [name, "sound"] } else { ["sound", name] };
                let (written, name) = (written.to_owned(), named.to_owned());
                let file = CommittedFile { written, name, size: 9, modified_ms: 1 };
                let record = Record::new(entry, BatchId(3), &EndOffsets::default(), vec![file]);
                let text = serde_json::to_vec(&record).unwrap();
                fs::write(records.path().join("7"), text).unwrap();
                assert_eq!(records.last().is_ok(), is_sound, "{record:?}");
            }
        }
    }

    #[test]
    fn a_record_under_the_number_of_another_entry_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::open(directory.path().join("commits")).unwrap();
        let entry = Entry { number: 7, is_compact: false };
        let record = Record::new(entry, BatchId(3), &EndOffsets::default(), Vec::new());
        records.put(&record, "0badcafe").unwrap();
        assert!(records.last().is_ok());
        fs::rename(records.path().join("7"), records.path().join("8")).unwrap();
        assert!(records.last().is_err());
    }
}
