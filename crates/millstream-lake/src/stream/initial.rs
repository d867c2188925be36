//! All files of one version, in the order in which Spark's source gives them: by the time of the
//! file, then by path.
//!
//! A table may have millions of files, so they are not held together: the log is replayed for each
//! page, and the next few thousand files in order are kept.

use std::collections::BinaryHeap;

use delta_kernel::scan::state::ScanFile;

use super::file::{Change, Kept, StreamFile};
use crate::error::TableError;
use crate::read::TableReader;

/// Files of a page: some 20 MB.
const PAGE_FILES: usize = 50_000;

/// The files of a version from some number on.
pub(super) struct Pages {
    reader: TableReader,
    commit_ms: Option<i64>,
    page_files: usize,
    /// The last one that was taken.
    after: Option<Key>,
    /// Files to be passed over before the first one is given.
    skip: u64,
    page: std::vec::IntoIter<Ranked>,
    is_last_page: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    modified_ms: i64,
    path: String,
}

struct Ranked {
    key: Key,
    file: StreamFile,
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Pages {
    /// The files of the version that `reader` stands at, without the first `skip`.
    pub(super) fn new(reader: TableReader, commit_ms: Option<i64>, skip: u64) -> Self {
        Self {
            reader,
            commit_ms,
            page_files: PAGE_FILES,
            after: None,
            skip,
            page: Vec::new().into_iter(),
            is_last_page: false,
        }
    }

    /// Whether the log is replayed for the next file, and not for the first time.
    pub(super) fn is_at_end_of_page(&self) -> bool {
        self.after.is_some() && !self.is_last_page && self.page.len() == 0
    }

    /// The next file.
    pub(super) fn next(&mut self) -> Result<Option<StreamFile>, TableError> {
        loop {
            for ranked in self.page.by_ref() {
                if self.skip == 0 {
                    return Ok(Some(ranked.file));
                }
                self.skip -= 1;
            }
            if self.is_last_page {
                return Ok(None);
            }
            self.turn()?;
        }
    }

    /// Finds the next page.
    fn turn(&mut self) -> Result<(), TableError> {
        let (version, commit_ms) = (self.reader.version(), self.commit_ms);
        let page = self.reader.replay(|snapshot| {
            let scan = std::sync::Arc::clone(snapshot).scan_builder().build()?;
            let page_files = self.page_files;
            let mut kept = Page { files: BinaryHeap::new(), after: &self.after, page_files };
            for some in scan.scan_metadata(self.reader.engine().as_ref())? {
                let files = some?.visit_scan_files(Vec::new(), |files, file| files.push(file))?;
                files.into_iter().for_each(|file| kept.offer(file, version, commit_ms));
            }
            Ok(kept.files)
        })?;
        let page = page.into_sorted_vec();
        self.is_last_page = page.len() < self.page_files;
        if let Some(last) = page.last() {
            self.after = Some(last.key.clone());
        }
        self.page = page.into_iter();
        Ok(())
    }
}

/// The first files behind some key, of those offered so far.
struct Page<'a> {
    files: BinaryHeap<Ranked>,
    after: &'a Option<Key>,
    page_files: usize,
}

impl Page<'_> {
    fn offer(&mut self, file: ScanFile, version: u64, commit_ms: Option<i64>) {
        let key = Key { modified_ms: file.modification_time, path: file.path.clone() };
        if self.after.as_ref().is_some_and(|after| key <= *after) {
            return;
        }
        let is_full = self.files.len() == self.page_files;
        if is_full && self.files.peek().is_some_and(|last| key > last.key) {
            return;
        }
        if is_full {
            self.files.pop();
        }
        self.files.push(Ranked { key, file: of_snapshot(file, version, commit_ms) });
    }
}

fn of_snapshot(file: ScanFile, version: u64, commit_ms: Option<i64>) -> StreamFile {
    let in_file = file.stats.as_ref().map(|stats| stats.num_records);
    let deleted = file.dv_info.cardinality().ok().flatten().unwrap_or(0);
    let values = file.partition_values.into_iter();
    StreamFile {
        version,
        path: file.path,
        bytes: u64::try_from(file.size).unwrap_or(0),
        rows: in_file.map(|rows| rows.saturating_sub(deleted)),
        change: Change::Insert,
        commit_ms,
        modified_ms: file.modification_time,
        partition_values: values.map(|(column, value)| (column, Some(value))).collect(),
        kept: Kept::Without(file.dv_info),
    }
}
