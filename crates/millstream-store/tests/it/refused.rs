//! Logs that recovery refuses, and files that it leaves or deletes; written here by hand.

use std::path::PathBuf;

use millstream_store::checkpoint::{Checkpoint, OpenError};
use millstream_store::env::Env;
use millstream_store::error::{Classified, Kind};
use millstream_store::layout;
use millstream_store::offset::{BatchId, SourceOffset};
use millstream_store::offset_log::Entry;
use millstream_store::recovery::{RecoverError, Recovered};

/// A checkpoint whose logs are written by hand.
struct Logs {
    root: tempfile::TempDir,
    checkpoint: Checkpoint,
}

impl Logs {
    async fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary directory");
        let location = root.path().display().to_string();
        let checkpoint = Checkpoint::open(&location, &Env::real()).await.expect("opened");
        Self { root, checkpoint }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it is in a log")).expect("made");
        std::fs::write(path, content).expect("written");
    }

    fn commit(&self, id: u64) {
        self.write(&layout::commit(BatchId(id)), b"v1\n{}");
    }

    /// Intents 0, 1, ... and the commit entries up to `committed`.
    async fn with(intents: &[Entry], committed: u64) -> Self {
        let logs = Self::new().await;
        for (id, entry) in (0..).zip(intents) {
            logs.write(&layout::intent(BatchId(id)), &entry.encode());
        }
        (0..=committed).for_each(|id| logs.commit(id));
        logs
    }

    async fn recover(&self) -> Result<Recovered, RecoverError> {
        self.checkpoint.recover().await
    }
}

/// An intent that takes the only source to `end`, with a watermark.
fn entry(end: Option<u64>, batch_watermark_ms: i64) -> Entry {
    let offset = |end| SourceOffset::new(format!("{{\"in\":{{\"0\":{end}}}}}"));
    let (conf, offsets) = (Vec::new(), vec![end.map(offset)]);
    Entry { batch_watermark_ms, batch_timestamp_ms: 0, conf, offsets }
}

/// Intents that take the only source to `ends`.
fn entries(ends: &[u64]) -> Vec<Entry> {
    ends.iter().map(|end| entry(Some(*end), 0)).collect()
}

/// The file of the entry that runs backwards.
async fn backwards(intents: &[Entry], committed: u64) -> Option<String> {
    match Logs::with(intents, committed).await.recover().await {
        Ok(_) => None,
        Err(RecoverError::Backwards { file, before, .. }) => {
            let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
            Some(format!("{} after {}", name(&file), name(&before)))
        }
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn entries_that_run_backwards_are_refused() {
    assert_eq!(backwards(&entries(&[10, 20, 20]), 2).await, None, "no rows are no step back");
    let last_two = backwards(&entries(&[10, 20, 15]), 2).await;
    assert_eq!(last_two.as_deref(), Some("2 after 1"), "all are committed");
    let unfinished = backwards(&entries(&[10, 30, 20, 40]), 0).await;
    assert_eq!(unfinished.as_deref(), Some("2 after 1"), "the last two are in order");
    let first = backwards(&entries(&[10, 5, 20]), 0).await;
    assert_eq!(first.as_deref(), Some("1 after 0"), "what is committed counts");
}

#[tokio::test]
async fn neither_watermark_nor_known_offset_goes_back() {
    let watermark = [entry(Some(10), 500), entry(Some(20), 400)];
    assert_eq!(backwards(&watermark, 1).await.as_deref(), Some("1 after 0"));
    let lost = [entry(Some(10), 0), entry(None, 0)];
    assert_eq!(backwards(&lost, 1).await.as_deref(), Some("1 after 0"));
    let found = [entry(None, 0), entry(Some(10), 0)];
    assert_eq!(backwards(&found, 1).await, None);
}

#[tokio::test]
async fn a_number_that_no_query_reaches_is_refused() {
    for name in [layout::intent, layout::commit] {
        let logs = Logs::with(&entries(&[10]), 0).await;
        let name = name(BatchId(layout::BATCH_ID_MAX.0 + 1));
        logs.write(&name, &entries(&[20])[0].encode());
        let error = logs.recover().await.expect_err("refused");
        assert!(matches!(&error, RecoverError::OutOfReach { file } if file.ends_with(&name)));
        assert_eq!(error.kind(), Kind::Data);
        assert!(logs.path(&name).exists(), "a person moves it");
    }
}

/// The intents that are to be run again after two power cuts: the first has lost micro-batch 0,
/// and the second has torn both entries of micro-batch 1, or the intent alone.
async fn after_two_power_cuts(
    has_state: bool,
    torn_commit: &[u8],
) -> Result<Vec<u64>, RecoverError> {
    let _no_fork = crate::FORKING.read().await;
    let Logs { root, checkpoint } = Logs::new().await;
    drop(checkpoint);
    let state = root.path().join(layout::STATE);
    if has_state {
        std::fs::create_dir(&state).expect("made");
        std::fs::write(state.join(layout::STATE_MARKER), "").expect("written");
    }
    let location = root.path().display().to_string();
    let checkpoint = Checkpoint::open(&location, &Env::real()).await.expect("opened");
    let logs = Logs { root, checkpoint };
    logs.write(&layout::intent(BatchId(1)), b"");
    logs.write(&layout::commit(BatchId(1)), torn_commit);
    logs.write(&layout::intent(BatchId(2)), &entry(Some(30), 0).encode());
    let recovered = logs.recover().await?;
    assert_eq!(recovered.last_commit, None);
    Ok(recovered.unfinished.iter().map(|(id, _)| id.0).collect())
}

#[tokio::test]
async fn the_logs_of_a_query_with_state_may_begin_anywhere() {
    for torn_commit in [&b""[..], b"v1\n{}"] {
        let again = after_two_power_cuts(true, torn_commit).await;
        assert_eq!(again.expect("the state log says where it stands"), [2]);
        assert!(after_two_power_cuts(false, torn_commit).await.is_err(), "nothing says where");
    }
}

#[tokio::test]
async fn a_query_that_has_run_is_not_given_up_for_another() {
    let _no_fork = crate::FORKING.read().await;
    let (env, other) = (Env::real(), "0b9e8c1e-6a43-4d6f-9d3c-2f9f0f6b7a11");
    let Logs { root, checkpoint } = Logs::with(&entries(&[10]), 0).await;
    let (location, own) = (root.path().display().to_string(), checkpoint.query_id().to_owned());
    drop(checkpoint);
    let error = Checkpoint::open_as(&location, other, &env).await.err().expect("refused");
    assert!(matches!(error, OpenError::OtherQuery { .. }), "{error}");
    let again = Checkpoint::open_as(&location, &own, &env).await.expect("it is that query");
    assert_eq!(again.query_id(), own);

    let Logs { root, checkpoint } = Logs::new().await;
    drop(checkpoint);
    let location = root.path().display().to_string();
    let adopted = Checkpoint::open_as(&location, other, &env).await.expect("nothing has run");
    assert_eq!(adopted.query_id(), other);
}
