//! `kill -9` in the middle of writing, and what is there afterwards.

use std::process::{Command, Stdio};
use std::time::Duration;

use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::log_writer::{LogWriter, Settings};
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::storage::Durability;
use millstream_store::{commit_log, layout, offset_log};

/// Tells this program, started again by a test, to be the one that is killed.
const LOCATION: &str = "MILLSTREAM_TEST_KILLED_CHECKPOINT";

fn entry(id: u64) -> offset_log::Entry {
    offset_log::Entry {
        batch_watermark_ms: 0,
        batch_timestamp_ms: i64::try_from(id).expect("a small id"),
        conf: offset_log::default_conf(),
        offsets: vec![Some(SourceOffset::new(id.to_string()))],
    }
}

/// Does nothing, unless it is in the process to be killed.
#[tokio::test]
async fn writes_until_killed() {
    let Ok(location) = std::env::var(LOCATION) else { return };
    let env = Env::real();
    let checkpoint = Checkpoint::open(&location, &env).await.expect("opened");
    let recovered = checkpoint.recover().await.expect("recovered");
    let writer = LogWriter::start(&checkpoint, &env, Settings::default());
    for (id, _) in recovered.unfinished {
        writer.commit(id, commit_log::Entry::default()).await;
    }
    let first = recovered.last_intent.map_or(0, |(id, _)| id.next().0);
    // Commit entries follow two intents behind, as in the pipeline of a running query.
    for id in first.. {
        writer.intent(BatchId(id), entry(id), Durability::Process).await;
        if id >= first + 2 {
            writer.commit(BatchId(id - 2), commit_log::Entry::default()).await;
        }
    }
}

#[tokio::test]
async fn every_kill_leaves_whole_entries_in_order() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let location = root.path().display().to_string();
    let env = Env::real();
    let mut last_before = None;
    for round in 0..8_u64 {
        let forking = crate::FORKING.write().await;
        let mut writer = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "killed::writes_until_killed"])
            .env(LOCATION, &location)
            .stdout(Stdio::null())
            .spawn()
            .expect("started");
        drop(forking);
        while last_id(&location) <= last_before {
            env.sleep(Duration::from_millis(1)).await;
        }
        // At another moment each time.
        env.sleep(Duration::from_millis(20) + Duration::from_micros(round * 1_357)).await;
        writer.kill().expect("killed");
        writer.wait().expect("reaped");

        let checkpoint = Checkpoint::open(&location, &env).await.expect("nobody holds the lock");
        let recovered = checkpoint.recover().await.expect("recovered");
        let (last, intent) = recovered.last_intent.expect("some were written");
        assert_eq!(intent, entry(last.0), "the last entry is whole");
        assert!(Some(last.0) > last_before, "it went on");
        last_before = Some(last.0);
        let storage = checkpoint.storage();
        for log in [layout::OFFSETS, layout::COMMITS] {
            let names = storage.list(log).await.expect("listed");
            assert!(names.iter().all(|name| layout::batch_id(name).is_some()), "{log}: {names:?}");
            let ids = layout::batch_ids(&names);
            // The first may be one that a purge has left because it is surely on the disk.
            let mut pairs = ids.windows(2).skip(1);
            assert!(pairs.all(|pair| pair[0].next() == pair[1]), "{log}: gaps in {ids:?}");
        }
        for id in layout::batch_ids(&storage.list(layout::OFFSETS).await.expect("listed")) {
            let bytes = storage.get(&layout::intent(id)).await.expect("readable").expect("there");
            assert_eq!(offset_log::Entry::decode(&bytes), Ok(entry(id.0)), "{id}");
        }
    }
}

fn last_id(location: &str) -> Option<u64> {
    let entries = std::fs::read_dir(format!("{location}/{}", layout::OFFSETS)).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| layout::batch_id(&name)).map(|id| id.0).max()
}
