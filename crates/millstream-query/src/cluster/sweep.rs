//! Files of queries that nobody else removes.
//!
//! The coordinator has what a query has written removed when the query has ended, or hours later.
//! One that was started again knows nothing of the queries before, and one that has given a node
//! up does not ask it. So a node looks through its directory itself, when it starts and then every
//! hour, and removes what was written hours ago, unless it belongs to a query of which the node has
//! [seen](super::seen) a task since: a stage that has written its rows may wait for the others of
//! its query.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millstream_store::env::{Env, Task};

use super::leases::FILES_KEPT_S;
use super::seen::Seen;

/// How often a node looks.
const SWEPT: Duration = Duration::from_secs(3_600);
/// Files stay for so long after the last was written.
const LEFT_AFTER_MS: u64 = FILES_KEPT_S * 1_000;
/// The digits of a job's name: a number of 64 bits in Crockford's base 32.
const JOB_DIGITS: usize = 13;

/// Removes what is left in `directory`, now and every hour.
pub(super) fn start(env: &Env, directory: PathBuf, seen: Seen) -> Task<()> {
    let clock = env.clone();
    env.spawn("node-sweep", async move {
        loop {
            let now_ms = u64::try_from(clock.now_ms()).unwrap_or_default();
            let oldest = UNIX_EPOCH + Duration::from_millis(now_ms.saturating_sub(LEFT_AFTER_MS));
            let (place, seen) = (directory.clone(), seen.clone());
            let sweeping = move || sweep(&place, oldest, |job| seen.keeps(job));
            match clock.spawn_blocking("node-sweep", sweeping).join().await {
                Ok(0) => {}
                Ok(queries) => tracing::info!(queries, "files that queries had left are removed"),
                Err(error) => tracing::warn!(%error, "files that queries have left may stay"),
            }
            clock.sleep(SWEPT).await;
        }
    })
}

/// Removes the directories of queries in which nothing was written since `oldest`, and which are
/// not `kept`, and says how many there were.
fn sweep(directory: &Path, oldest: SystemTime, kept: impl Fn(&str) -> bool) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !is_job(&name) || !entry.file_type()?.is_dir() || kept(&name.to_string_lossy()) {
            continue;
        }
        let path = entry.path();
        match is_older(&path, oldest).and_then(|is_older| match is_older {
            true => fs::remove_dir_all(&path).map(|()| true),
            false => Ok(false),
        }) {
            Ok(is_removed) => removed += usize::from(is_removed),
            // The query has ended meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

fn is_job(name: &OsStr) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    name.len() == JOB_DIGITS && name.as_encoded_bytes().iter().all(is_digit)
}

/// Whether nothing in `directory` was written since `oldest`.
fn is_older(directory: &Path, oldest: SystemTime) -> io::Result<bool> {
    if fs::metadata(directory)?.modified()? >= oldest {
        return Ok(false);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_older = match entry.file_type()?.is_dir() {
            true => is_older(&entry.path(), oldest)?,
            false => entry.metadata()?.modified()? < oldest,
        };
        if !is_older {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "01J9ZK3T8VQ4H";

    #[test]
    fn only_old_directories_of_queries_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let foreign = directory.path().join("Photos");
        let job = directory.path().join(JOB);
        for place in [&foreign, &job] {
            fs::create_dir_all(place.join("1/0")).expect("it is new");
            fs::write(place.join("1/0/data.arrow"), b"rows").expect("written");
        }
        fs::write(directory.path().join("01J9ZK3T8VQ4J"), b"no directory").expect("written");
        let written = fs::metadata(job.join("1/0/data.arrow")).expect("it is there");
        let at = written.modified().expect("a time");
        let hour = Duration::from_secs(3_600);
        let sweep = |oldest, is_kept| {
            sweep(directory.path(), oldest, |job| {
                assert_eq!(job, JOB);
                is_kept
            })
        };
        assert_eq!(sweep(at - hour, false).expect("swept"), 0);
        // One file that is younger keeps all.
        let file = fs::File::options().write(true).open(job.join("1/0/data.arrow"));
        file.expect("it is there").set_modified(at + 2 * hour).expect("a time");
        assert_eq!(sweep(at + hour, false).expect("swept"), 0);
        assert_eq!(sweep(at + 3 * hour, true).expect("swept"), 0, "it is in use");
        assert_eq!(sweep(at + 3 * hour, false).expect("swept"), 1);
        assert!(!job.exists() && foreign.join("1/0/data.arrow").exists());
        assert!(directory.path().join("01J9ZK3T8VQ4J").exists());
    }
}
