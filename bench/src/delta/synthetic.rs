//! Tables that consist of their log: many files are added in it, and none of them exists. Writing
//! checkpoints, opening and appending look no further than the log.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::Schema;
use millstream_lake::checkpoint::PartFileNames;
use millstream_lake::store::TableStore;
use serde_json::{Value, json};

use crate::error::Error;

/// Adds of a commit of the table's past. Few large commits are quicker to make than many small ones
/// and come to the same once they are in a checkpoint.
const FILES_PER_COMMIT: u64 = 10_000;
/// Rows of a measured commit.
pub const ROWS_PER_COMMIT: i64 = 10;
/// Who publishes the commits that are measured.
pub const APPLICATION: &str = "bench";
/// Who published those before.
const PAST_APPLICATION: &str = "past";
/// Commits between checkpoints.
pub const CHECKPOINT_INTERVAL: u64 = 10;
pub const LOG: &str = "_delta_log";
/// Overwritten in place by some writers, so a copy must not share it.
const HINT: &str = "_last_checkpoint";

/// Writes a log of `actions` live files.
pub fn create(store: &TableStore, actions: u64) -> Result<(), Error> {
    put(store, 0, head(false))?;
    let commits = sizes(actions);
    for (version, files) in (1..).zip(commits) {
        append(store, version, files, &PartFileNames::default())?;
    }
    Ok(())
}

/// How many files each commit adds.
fn sizes(actions: u64) -> impl Iterator<Item = u64> {
    let rest = actions % FILES_PER_COMMIT;
    let full = usize::try_from(actions / FILES_PER_COMMIT).expect("a log fits into memory");
    std::iter::repeat_n(FILES_PER_COMMIT, full).chain((rest > 0).then_some(rest))
}

/// Adds `files` files that do not exist, as version `version`.
pub fn append(
    store: &TableStore,
    version: u64,
    files: u64,
    part_file_names: &PartFileNames,
) -> Result<(), Error> {
    let env = store.env();
    let mut lines = String::new();
    for file in 0..files {
        let name = || format!("part-00000-{}-c000.snappy.parquet", env.random_uuid());
        let add = json!({"add": {"path": part_file_names.draw("", name), "partitionValues": {},
            "size": env.random_u64() % 100_000_000, "modificationTime": env.now_ms(),
            "dataChange": true, "stats": statistics(store, file)}});
        lines.push_str(&format!("{add}\n"));
    }
    let txn = json!({"txn": {"appId": PAST_APPLICATION, "version": version}});
    lines.push_str(&format!("{txn}\n"));
    put(store, version, lines)
}

fn put(store: &TableStore, version: u64, lines: String) -> Result<(), Error> {
    let written = store.put_new(&format!("{LOG}/{version:020}.json"), lines.into());
    written.map_err(Error::table("writing a table's log"))
}

/// The newest version in a log. Only names are looked at, so that nothing else is in memory.
pub fn newest_version(store: &TableStore) -> Result<u64, Error> {
    let listed = store.list(LOG, None).map_err(Error::table("listing a table's log"))?;
    let versions = listed.iter().filter_map(|file| {
        let name = file.name.strip_prefix(LOG)?.strip_prefix('/')?;
        name.strip_suffix(".json")?.parse::<u64>().ok()
    });
    Ok(versions.max().unwrap_or(0))
}

/// The first entry: protocol and metadata.
fn head(has_v2: bool) -> String {
    let features: &[&str] = if has_v2 { &["v2Checkpoint"] } else { &[] };
    let policy = if has_v2 { "v2" } else { "classic" };
    let protocol = json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": features, "writerFeatures": features}});
    let metadata = json!({"metaData": {"id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}}, "schemaString": schema_string(),
        "partitionColumns": [], "createdTime": 1, "configuration": {
            "delta.checkpointInterval": CHECKPOINT_INTERVAL.to_string(),
            "delta.checkpointPolicy": policy}}});
    format!("{protocol}\n{metadata}\n")
}

fn schema_string() -> String {
    let columns = [
        ("id", "long"),
        ("price", "double"),
        ("user", "string"),
        ("at", "timestamp"),
        ("note", "string"),
    ];
    let field =
        |(name, kind)| json!({"name": name, "type": kind, "nullable": true, "metadata": {}});
    let fields: Vec<Value> = columns.map(field).into();
    json!({"type": "struct", "fields": fields}).to_string()
}

/// About 300 bytes, different for each file.
fn statistics(store: &TableStore, file: u64) -> String {
    let env = store.env();
    let (low, high) = (env.random_u64() % 1_000_000, env.random_u64() % 1_000_000);
    let times = ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:01.000Z");
    let user = format!("user-{:016x}", env.random_u64());
    json!({"numRecords": 1_000 + file,
        "minValues": {"id": low, "price": low as f64 / 7.0, "user": user, "at": times.0},
        "maxValues": {"id": high, "price": high as f64 / 7.0, "user": user, "at": times.1},
        "nullCount": {"id": 0, "price": file % 5, "user": 0, "at": 0, "note": 1_000}})
    .to_string()
}

/// The rows of the commit `number`, in the table's columns.
pub fn rows(number: u64) -> RecordBatch {
    let first = i64::try_from(number).unwrap_or(0) * ROWS_PER_COMMIT;
    let ids = first..first + ROWS_PER_COMMIT;
    let ids = || ids.clone();
    let at = TimestampMicrosecondArray::from_iter_values(ids().map(|id| id * 1_000));
    let users = StringArray::from_iter_values(ids().map(|id| format!("user-{id:016x}")));
    let columns: [(&str, ArrayRef); 5] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids()))),
        ("price", Arc::new(Float64Array::from_iter_values(ids().map(|id| id as f64 / 7.0)))),
        ("user", Arc::new(users)),
        ("at", Arc::new(at.with_timezone("UTC"))),
        ("note", Arc::new(StringArray::from(vec![None::<&str>; ROWS_PER_COMMIT as usize]))),
    ];
    let rows = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    );
    rows.expect("columns of one length")
}

/// The columns of [`rows`].
pub fn schema() -> Arc<Schema> {
    rows(0).schema()
}

/// What a copy of a table is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// As the one it is copied from.
    Same,
    /// With the feature `v2Checkpoint`.
    V2,
}

/// Copies a table's log by hard links: its files are never changed in place.
pub fn copy(from: &Path, to: &Path, head_of_copy: Head) -> Result<(), Error> {
    link_all(&from.join(LOG), &to.join(LOG))?;
    if head_of_copy == Head::V2 {
        let path = to.join(LOG).join(format!("{:020}.json", 0));
        // The other copies must keep theirs, so it is not written over.
        fs::remove_file(&path).map_err(Error::file("remove", &path))?;
        fs::write(&path, head(true)).map_err(Error::file("write", &path))?;
    }
    Ok(())
}

fn link_all(from: &Path, to: &Path) -> Result<(), Error> {
    fs::create_dir_all(to).map_err(Error::file("create", to))?;
    for entry in fs::read_dir(from).map_err(Error::file("list", from))? {
        let entry = entry.map_err(Error::file("list", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            link_all(&source, &target)?;
        } else if entry.file_name() == HINT {
            fs::copy(&source, &target).map(drop).map_err(Error::file("copy to", &target))?;
        } else {
            fs::hard_link(&source, &target).map_err(Error::file("link to", &target))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_add_up_to_the_actions_asked_for() {
        assert_eq!(sizes(25_000).collect::<Vec<_>>(), [10_000, 10_000, 5_000]);
        assert_eq!(sizes(20_000).sum::<u64>(), 20_000);
        assert_eq!(sizes(7).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn a_copy_shares_files_but_the_hint_and_its_own_head() {
        let directory = tempfile::tempdir().expect("a directory");
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let zero = format!("{LOG}/{:020}.json", 0);
        fs::create_dir_all(from.join("_delta_log/_sidecars")).expect("made");
        for name in ["_delta_log/_sidecars/x", "_delta_log/_last_checkpoint", &zero] {
            fs::write(from.join(name), "old").expect("written");
        }
        copy(&from, &to, Head::V2).expect("copied");
        fs::write(to.join("_delta_log/_last_checkpoint"), "new").expect("written");
        let read = |path: &Path, name: &str| fs::read_to_string(path.join(name)).expect("there");
        assert_eq!(read(&from, "_delta_log/_last_checkpoint"), "old");
        assert_eq!(read(&to, "_delta_log/_sidecars/x"), "old");
        assert_eq!(read(&from, &zero), "old");
        assert!(read(&to, &zero).contains("v2Checkpoint"));
    }

    #[test]
    fn rows_have_the_columns_of_the_table() {
        let rows = rows(3);
        assert_eq!((rows.num_rows(), rows.num_columns()), (10, 5));
        for field in schema().fields() {
            assert!(schema_string().contains(&format!("\"{}\"", field.name())));
        }
    }
}
