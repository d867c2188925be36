//! Opening: who holds the lock, and for how long.

use millstream_store::checkpoint::{Checkpoint, OpenError};
use millstream_store::env::Env;
use millstream_store::error::{Classified, Kind};
use millstream_store::inspect::{InspectError, inspect};
use millstream_store::log_writer::{LogWriter, Settings};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::source_log::SourceLog;
use millstream_store::storage::Durability;
use millstream_store::{commit_log, offset_log};

#[tokio::test]
async fn the_lock_lasts_as_long_as_anything_is_written() {
    let _no_fork = crate::FORKING.read().await;
    let root = tempfile::tempdir().expect("a temporary directory");
    let location = root.path().join("not/yet/there").display().to_string();
    let env = Env::real();
    let checkpoint = Checkpoint::open(&location, &env).await.expect("opened");
    let writer = LogWriter::start(&checkpoint, &env, Settings::default());
    let query_id = checkpoint.query_id().to_owned();
    drop(checkpoint);

    let error = Checkpoint::open(&location, &env).await.err().expect("the writer holds the lock");
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert_eq!(error.kind(), Kind::Fenced);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");

    writer.close().await.expect("nothing to write");
    let checkpoint = Checkpoint::open(&location, &env).await.expect("the lock is free");
    assert_eq!(checkpoint.query_id(), query_id);
}

/// A process that is killed leaves no lock behind: the kernel lets it go.
#[tokio::test]
async fn a_killed_process_holds_nothing() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let location = root.path().display().to_string();
    let lock = root.path().join(".millstream.lock");
    std::fs::write(&lock, "process 1, started long ago\n").expect("written");
    let forking = crate::FORKING.write().await;
    let mut holder = std::process::Command::new("flock")
        .arg("--no-fork")
        .arg(&lock)
        .args(["sleep", "60"])
        .spawn()
        .expect("flock(1) of util-linux");
    drop(forking);
    let env = Env::real();
    let refused = loop {
        match Checkpoint::open(&location, &env).await {
            Ok(_) => env.sleep(std::time::Duration::from_millis(5)).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    holder.kill().expect("killed");
    holder.wait().expect("reaped");
    Checkpoint::open(&location, &env).await.expect("the lock is free");
}

#[tokio::test]
async fn dropping_the_writer_writes_what_is_queued() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let location = root.path().display().to_string();
    let env = Env::real();
    let checkpoint = Checkpoint::open(&location, &env).await.expect("opened");
    let settings = Settings { in_flight_max: 1_000, ..Settings::default() };
    let writer = LogWriter::start(&checkpoint, &env, settings);
    for id in (0..200).map(BatchId) {
        let entry = offset_log::Entry {
            batch_watermark_ms: 0,
            batch_timestamp_ms: 0,
            conf: offset_log::default_conf(),
            offsets: vec![Some(SourceOffset::new("1"))],
        };
        writer.intent(id, entry, Durability::Process).await;
        writer.commit(id, commit_log::Entry::default()).await;
    }
    drop(writer);
    let recovered = checkpoint.recover().await.expect("recovered");
    assert_eq!(recovered.last_commit.map(|(id, _)| id), Some(BatchId(199)));
    assert_eq!(recovered.last_intent.map(|(id, _)| id), Some(BatchId(199)));
}

#[tokio::test]
async fn source_logs_are_apart_and_written_once() {
    let (first, second) = (SourceLog::in_memory(), SourceLog::in_memory());
    first.put_if_absent("0", b"one".to_vec()).await.expect("written");
    assert_eq!(second.get("0").await.expect("readable"), None);
    let again = first.clone().put_if_absent("0", b"two".to_vec()).await.expect_err("taken");
    assert_eq!(again.kind(), Kind::Fenced);
    assert_eq!(first.get("0").await.expect("readable"), Some(b"one".to_vec()));
    first.put_if_absent("10", Vec::new()).await.expect("written");
    first.put_if_absent("9.compact", Vec::new()).await.expect("written");
    assert_eq!(first.list().await.expect("listed"), ["0", "10", "9.compact"]);
}

#[tokio::test]
async fn inspecting_touches_nothing() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let location = root.path().join("nothing").display().to_string();
    let env = Env::real();
    let error = inspect(&location, &env).await.expect_err("nothing there");
    assert!(matches!(error, InspectError::NoCheckpoint { .. }), "{error}");
    assert_eq!(std::fs::read_dir(root.path()).expect("listed").count(), 0);
}
