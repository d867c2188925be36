//! Makes a young checkpoint look as after many micro-batches.
//!
//! Its last two entries of each log get the last numbers, since a restart reads two. Those below
//! are never read, only listed and deleted; each is a copy of an old one, or a link to one.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use millstream_store::env::Env;
use millstream_store::layout::{self, COMMITS, OFFSETS};
use millstream_store::offset::BatchId;
use millstream_store::offset_log;
use serde::Deserialize;

use crate::error::Error;

/// Names of one file, at most; ext4 allows 65,000.
const LINKS_MAX: u64 = 60_000;

/// How the entries that nobody reads are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// Files of their own: the purge writes new entries into old files.
    Copies,
    /// Many names of one file, which is quick; only where nothing is purged.
    Links,
}

/// What stands in both logs of a young checkpoint.
struct Log {
    directory: PathBuf,
    last: Vec<u8>,
    before_last: Vec<u8>,
}

/// Gives both logs of `checkpoint` an entry for each of the micro-batches `ids`, and no others.
///
/// `ids` must have two at least. The newest one ends where the checkpoint ended before.
pub fn lengthen(checkpoint: &Path, ids: Range<u64>, older: Older) -> Result<(), Error> {
    let logs = [read(checkpoint, OFFSETS)?, read(checkpoint, COMMITS)?];
    for log in logs {
        fs::remove_dir_all(&log.directory).map_err(Error::file("remove", &log.directory))?;
        fs::create_dir(&log.directory).map_err(Error::file("create", &log.directory))?;
        let names_max = if older == Older::Copies { 1 } else { LINKS_MAX };
        fill(&log.directory, ids.start..ids.end - 2, &log.before_last, names_max)?;
        write(&log.directory.join((ids.end - 2).to_string()), &log.before_last)?;
        write(&log.directory.join((ids.end - 1).to_string()), &log.last)?;
    }
    Ok(())
}

/// Lets the `rate` source of `checkpoint` go on as if it had not stood still: its next row is due
/// now. Otherwise the rows that came due meanwhile would come first.
pub fn forget_pause(checkpoint: &Path, rate: u64, env: &Env) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Offset {
        rows: u64,
    }
    let directory = checkpoint.join(OFFSETS);
    let last = ids(&directory)?.pop().ok_or_else(|| unexpected(&directory, "no entry"))?;
    let path = checkpoint.join(layout::intent(last));
    let not_of_rate = || unexpected(&path, "it has no offset of the rate source");
    let entry = offset_log::Entry::decode(&contents(&path)?).map_err(|_| not_of_rate())?;
    let offset = entry.offsets.first().and_then(Option::as_ref).ok_or_else(not_of_rate)?;
    let offset: Offset = serde_json::from_str(offset.as_str()).map_err(|_| not_of_rate())?;
    let elapsed_ms = u128::from(offset.rows) * 1_000 / u128::from(rate);
    let elapsed_ms = i64::try_from(elapsed_ms).expect("the query ran for some seconds");
    let created_ms = env.now_ms() - elapsed_ms;
    let created = checkpoint.join(layout::SOURCES).join("0/0");
    write(&created, format!("v1\n{created_ms}").as_bytes())
}

fn read(checkpoint: &Path, log: &str) -> Result<Log, Error> {
    let directory = checkpoint.join(log);
    let ids = ids(&directory)?;
    let [.., before_last, last] = ids[..] else {
        return Err(unexpected(&directory, "fewer than two entries"));
    };
    let entry = |id: BatchId| contents(&directory.join(id.to_string()));
    Ok(Log { last: entry(last)?, before_last: entry(before_last)?, directory })
}

fn ids(directory: &Path) -> Result<Vec<BatchId>, Error> {
    let entries = fs::read_dir(directory).map_err(Error::file("list", directory))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(layout::batch_ids(&names.collect::<Vec<_>>()))
}

/// Makes entries of one content, up to `names_max` of them the same file.
fn fill(directory: &Path, ids: Range<u64>, content: &[u8], names_max: u64) -> Result<(), Error> {
    let mut original = PathBuf::new();
    for (made, id) in (0..).zip(ids) {
        let path = directory.join(id.to_string());
        if made % names_max == 0 {
            write(&path, content)?;
            original = path;
        } else {
            fs::hard_link(&original, &path).map_err(Error::file("link", &path))?;
        }
    }
    Ok(())
}

fn contents(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(Error::file("read", path))
}

fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    fs::write(path, content).map_err(Error::file("write", path))
}

fn unexpected(path: &Path, problem: &str) -> Error {
    Error::Result { path: path.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use millstream_store::checkpoint::Checkpoint;
    use millstream_store::offset::SourceOffset;
    use millstream_store::{commit_log, inspect};
    use tempfile::TempDir;

    use super::*;

    /// A checkpoint as the engine leaves it after micro-batch 4, of 1,000 rows each.
    async fn young() -> TempDir {
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        let root = directory.path();
        drop(Checkpoint::open(&location(root), &Env::real()).await.expect("it is new"));
        for log in [OFFSETS, COMMITS, "sources/0"] {
            fs::create_dir_all(root.join(log)).expect("it is writable");
        }
        for id in [2, 3, 4].map(BatchId) {
            let commit = commit_log::Entry::default().encode();
            fs::write(root.join(layout::intent(id)), intent(id).encode()).expect("it is writable");
            fs::write(root.join(layout::commit(id)), commit).expect("it is writable");
        }
        fs::write(root.join("sources/0/0"), "v1\n7").expect("it is writable");
        directory
    }

    fn intent(id: BatchId) -> offset_log::Entry {
        let offset = SourceOffset::new(format!("{{\"rows\":{}}}", (id.0 + 1) * 1_000));
        offset_log::Entry {
            batch_watermark_ms: 0,
            batch_timestamp_ms: 1_767_225_600_123,
            conf: offset_log::default_conf(),
            offsets: vec![Some(offset)],
        }
    }

    fn location(directory: &Path) -> String {
        directory.to_str().expect("temporary paths are text").to_owned()
    }

    /// Both logs have `range` and no other entry, all readable, and a restart goes on behind it.
    async fn assert_goes_on_behind(directory: &Path, range: Range<u64>) {
        let env = Env::real();
        let inspection = inspect::inspect(&location(directory), &env).await.expect("readable");
        let expected: Vec<BatchId> = range.clone().map(BatchId).collect();
        assert_eq!(inspection.intents.ids, expected);
        assert_eq!(inspection.commits.ids, expected);
        assert!(inspection.intents.unreadable.is_empty());
        assert!(inspection.commits.unreadable.is_empty());
        let checkpoint = Checkpoint::open(&location(directory), &env).await.expect("it opens");
        let recovered = checkpoint.recover().await.expect("nothing is damaged");
        let last = BatchId(range.end - 1);
        assert_eq!(recovered.last_intent, Some((last, intent(BatchId(4)))));
        assert_eq!(recovered.last_commit.map(|(id, _)| id), Some(last));
        let before_last = BatchId(range.end - 2);
        assert_eq!(recovered.previous_intent, Some((before_last, intent(BatchId(3)))));
        assert!(recovered.unfinished.is_empty());
    }

    #[tokio::test]
    async fn a_restart_goes_on_behind_the_last_of_many() {
        for (ids, older) in [
            (901..1_001, Older::Copies),
            (0..1_001, Older::Links),
            (0..4, Older::Copies),
            (0..2, Older::Links),
        ] {
            let checkpoint = young().await;
            lengthen(checkpoint.path(), ids.clone(), older).expect("it can be done");
            assert_goes_on_behind(checkpoint.path(), ids).await;
        }
    }

    #[tokio::test]
    async fn only_entries_that_are_never_written_again_share_a_file() {
        for (older, names_of_first) in [(Older::Copies, 1), (Older::Links, 9)] {
            let checkpoint = young().await;
            lengthen(checkpoint.path(), 0..11, older).expect("it can be done");
            for log in [OFFSETS, COMMITS] {
                let names = |id: u64| {
                    let path = checkpoint.path().join(log).join(id.to_string());
                    fs::metadata(path).expect("it was made").nlink()
                };
                assert_eq!([0, 9, 10].map(names), [names_of_first, 1, 1], "{log}");
            }
        }
    }

    #[test]
    fn a_file_gets_no_more_names_than_it_may_have() {
        let directory = tempfile::tempdir().expect("the temporary directory is writable");
        fill(directory.path(), 10..18, b"entry", 3).expect("it is writable");
        let names = |id: u64| {
            let path = directory.path().join(id.to_string());
            assert_eq!(contents(&path).expect("it was made"), b"entry");
            fs::metadata(path).expect("it was made").nlink()
        };
        assert_eq!((10..18).map(names).collect::<Vec<_>>(), [3, 3, 3, 3, 3, 3, 2, 2]);
    }

    #[tokio::test]
    async fn the_next_row_is_due_now() {
        let (checkpoint, env) = (young().await, Env::real());
        let before_ms = env.now_ms();
        // 5,000 rows, at 2,500 a second.
        forget_pause(checkpoint.path(), 2_500, &env).expect("it is writable");
        let text = fs::read_to_string(checkpoint.path().join("sources/0/0")).expect("it is there");
        let created_ms = text.strip_prefix("v1\n").and_then(|ms| ms.parse::<i64>().ok());
        let due_ms = created_ms.expect("it is as the source writes it") + 2_000;
        assert!((before_ms..=env.now_ms()).contains(&due_ms), "{due_ms} is not {before_ms}");
    }

    #[tokio::test]
    async fn a_checkpoint_of_something_else_is_refused() {
        let checkpoint = young().await;
        let path = checkpoint.path().join(layout::intent(BatchId(4)));
        let kafka = SourceOffset::new(r#"{"in":{"0":10}}"#);
        let entry = offset_log::Entry { offsets: vec![Some(kafka)], ..intent(BatchId(4)) };
        fs::write(path, entry.encode()).expect("it is writable");
        assert!(forget_pause(checkpoint.path(), 1, &Env::real()).is_err());
        fs::remove_file(checkpoint.path().join("commits/2")).expect("it is there");
        fs::remove_file(checkpoint.path().join("commits/3")).expect("it is there");
        assert!(lengthen(checkpoint.path(), 0..4, Older::Links).is_err());
    }
}
