//! Names of the files in a checkpoint.
//!
//! ```text
//! metadata            the query's id
//! offsets/<N>         the intent of micro-batch N
//! commits/<N>         micro-batch N is published
//! sources/<id>/...    each source's own
//! sinks/<name>/<N>    what a sink remembers of its place; the highest N counts
//! state/...           stateful operators
//! dead-letters/<N>    the tables that dead letters go to
//! replay/<table>/...  a checkpoint for replays of its letters
//! ```
//!
//! Names that begin with a dot are never entries: temporary files, entries moved aside, Hadoop's
//! checksum sidecars (`.N.crc`), and the lock.

use crate::offset::BatchId;

/// The file that holds the query's id.
pub const METADATA: &str = "metadata";
/// The offset log's directory.
pub const OFFSETS: &str = "offsets";
/// The commit log's directory.
pub const COMMITS: &str = "commits";
/// The directory of all sources' private parts.
pub const SOURCES: &str = "sources";
/// The directory of all sinks' private parts.
pub const SINKS: &str = "sinks";
/// The directory of the state stores.
pub const STATE: &str = "state";
/// A file in `state/` that says the state is in Millstream's own format.
pub const STATE_MARKER: &str = "millstream-state";
/// The directory of what is known of tables of dead letters.
pub const DEAD_LETTERS: &str = "dead-letters";
/// The directory of the checkpoints of replays of dead letters, one in it for each table.
pub const REPLAYS: &str = "replay";
/// The lock of the process that runs the query; local checkpoints only.
pub const LOCK: &str = ".millstream.lock";

/// No query reaches this number: at a thousand micro-batches a second it would take a quarter of a
/// million years. A larger one was written by another program, and the number after it may not
/// exist.
pub const BATCH_ID_MAX: BatchId = BatchId(1 << 53);

/// The name of micro-batch `id`'s intent.
pub fn intent(id: BatchId) -> String {
    format!("{OFFSETS}/{id}")
}

/// The name of micro-batch `id`'s commit entry.
pub fn commit(id: BatchId) -> String {
    format!("{COMMITS}/{id}")
}

/// The micro-batch a log file is about; `None` for foreign names, which are ignored.
///
/// Only the decimal form that is written counts: no sign, no leading zero, within Spark's 64-bit
/// signed integers.
pub fn batch_id(file_name: &str) -> Option<BatchId> {
    let canonical = file_name == "0" || !file_name.starts_with('0');
    let digits = !file_name.is_empty() && file_name.bytes().all(|byte| byte.is_ascii_digit());
    let id: i64 = if canonical && digits { file_name.parse().ok()? } else { return None };
    u64::try_from(id).ok().map(BatchId)
}

/// The ids among `file_names`, ascending.
pub fn batch_ids(file_names: &[String]) -> Vec<BatchId> {
    let mut ids: Vec<BatchId> = file_names.iter().filter_map(|name| batch_id(name)).collect();
    ids.sort_unstable();
    ids
}

/// The last of `ids`, which are ascending, if it is too large for any query to have reached it.
pub fn out_of_reach(ids: &[BatchId]) -> Option<BatchId> {
    ids.last().copied().filter(|last| *last > BATCH_ID_MAX)
}

/// The checksum that Hadoop leaves beside `file_name` on a local disk.
///
/// A stale one makes Spark refuse the file, so it is deleted whenever its file is.
pub fn sidecar(file_name: &str) -> String {
    format!(".{file_name}.crc")
}

/// The name whose checksum `file_name` is, or `None` for anything else.
pub fn sidecar_of(file_name: &str) -> Option<&str> {
    file_name.strip_prefix('.')?.strip_suffix(".crc")
}

/// True for the temporary file of a write that a crash interrupted, Millstream's or Spark's.
pub fn is_temporary(file_name: &str) -> bool {
    let name = file_name.strip_suffix(".crc").unwrap_or(file_name);
    name.starts_with('.') && name.ends_with(".tmp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_decimal_names_are_entries() {
        for foreign in ["", "-1", "+1", "01", "1.compact", ".1.crc", "1 ", "9223372036854775808"] {
            assert_eq!(batch_id(foreign), None, "{foreign:?}");
        }
        assert_eq!(batch_id("0"), Some(BatchId(0)));
        assert_eq!(batch_id("9223372036854775807"), Some(BatchId(i64::MAX as u64)));
    }

    #[test]
    fn temporary_files_of_both_engines_are_known() {
        assert!(is_temporary(".7.0b9e8c1e.tmp") && is_temporary("..7.0b9e8c1e.tmp.crc"));
        assert!(!is_temporary("7") && !is_temporary(".7.crc") && !is_temporary(".7.torn-0b9e"));
    }
}
