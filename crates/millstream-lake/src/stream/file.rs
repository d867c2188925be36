//! A file of a stream, and its place among the others.

use delta_kernel::scan::state::DvInfo;

/// A place between two files of a table's history. Origin: `DeltaSourceOffset` of Delta Lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The version that is read.
    pub version: u64,
    /// The last file of the version that was read, counted from 0; `None` before the first one.
    pub index: Option<u64>,
    /// Whether all files of the version are read, in place of those that it has added.
    pub is_in_snapshot: bool,
}

impl Position {
    /// Before what `version` has changed.
    pub fn before(version: u64) -> Self {
        Self { version, index: None, is_in_snapshot: false }
    }

    /// Before the first of all files of `version`.
    pub fn snapshot(version: u64) -> Self {
        Self { version, index: None, is_in_snapshot: true }
    }

    /// The next file that is to be read has this number.
    pub(super) fn next_index(self) -> u64 {
        self.index.map_or(0, |index| index + 1)
    }

    /// The order of reading.
    pub fn order(self) -> (u64, Option<u64>) {
        (self.version, self.index)
    }
}

/// What became of the rows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They are in the table since.
    Insert,
    /// They were in the table.
    Delete,
    /// Each row says it: a file that was written to hold changes.
    Stated,
}

/// Which rows of a file are given.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// Those that the deletion vector, if there is one, does not name.
    Without(DvInfo),
    /// Those that the first deletion vector names, and the second does not.
    Only(DvInfo, DvInfo),
}

/// A file whose rows are part of a stream.
#[derive(Clone, Debug)]
pub struct StreamFile {
    /// The version that it came with.
    pub version: u64,
    /// As the log has it: encoded as in a URL.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Rows that are given, where the log tells.
    pub rows: Option<u64>,
    /// What became of its rows.
    pub change: Change,
    /// The time of its version, milliseconds since the epoch; `None` if only a checkpoint is left.
    pub commit_ms: Option<i64>,
    pub(crate) modified_ms: i64,
    /// By physical column name, `None` for null.
    pub(crate) partition_values: Vec<(String, Option<String>)>,
    pub(crate) kept: Kept,
}

impl StreamFile {
    /// A file that is not there, of so many bytes.
    #[doc(hidden)]
    pub fn for_tests(version: u64, bytes: u64) -> Self {
        Self {
            version,
            path: String::new(),
            bytes,
            rows: Some(1),
            change: Change::Insert,
            commit_ms: None,
            modified_ms: 0,
            partition_values: Vec::new(),
            kept: Kept::Without(DvInfo::default()),
        }
    }
}

/// What a stream has gone past.
#[derive(Clone, Debug)]
pub struct Step {
    /// The position behind it.
    pub after: Position,
    /// The file; `None` for the end of a version.
    pub file: Option<StreamFile>,
    /// Whether a micro-batch may end behind it. Some files belong together.
    pub may_end: bool,
}
