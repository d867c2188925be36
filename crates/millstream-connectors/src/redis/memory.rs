//! What a query remembers of Redis: the last micro-batch that it had acknowledged.
//!
//! Redis says what the query has published, but one that was flushed, or restarted without its
//! data, says so no more, and the rows that were in it are read from no source again. So the
//! checkpoint keeps a record of its own, a second behind:
//!
//! ```text
//! sinks/<name>/<N>    {"place":"millstream:progress:alerts","batchId":12}
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_engine::api::sink::{BatchId, Failure};
use millstream_store::env::{Env, Task};
use millstream_store::sink_log::SinkLog;
use serde::{Deserialize, Serialize};

/// How far the record may be behind.
const EVERY: Duration = Duration::from_secs(1);
/// No micro-batch yet.
const NONE: u64 = u64::MAX;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    place: String,
    batch_id: u64,
}

/// The micro-batch that `place` had acknowledged in the run before.
pub(super) async fn recall(log: &SinkLog, place: &str) -> Result<Option<BatchId>, Failure> {
    let Some((_, bytes)) = log.last().await? else { return Ok(None) };
    // A record that cannot be read says nothing; the next one replaces it.
    let known = serde_json::from_slice(&bytes).ok();
    let known = known.filter(|known: &Known| known.place == place);
    Ok(known.map(|known| BatchId(known.batch_id)))
}

/// The last micro-batch that was acknowledged, as the writer says it.
#[derive(Clone)]
pub(super) struct Acknowledged(Arc<AtomicU64>);

impl Acknowledged {
    pub(super) fn none() -> Self {
        Self(Arc::new(AtomicU64::new(NONE)))
    }

    pub(super) fn set(&self, batch_id: BatchId) {
        self.0.store(batch_id.0, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|batch_id| *batch_id != NONE)
    }
}

/// Keeps the record, until it is dropped.
pub(super) struct Recorder {
    log: SinkLog,
    place: String,
    acknowledged: Acknowledged,
    task: Task<()>,
}

impl Recorder {
    pub(super) fn start(
        log: SinkLog,
        place: String,
        acknowledged: Acknowledged,
        env: &Env,
    ) -> Self {
        let task = keep(log.clone(), place.clone(), acknowledged.clone(), env.clone());
        Self { log, place, acknowledged, task: env.spawn("redis-record", task) }
    }

    /// Writes down what was acknowledged last.
    pub(super) async fn end(self) {
        self.task.stop().await;
        if let Some(batch_id) = self.acknowledged.get() {
            write(&self.log, &self.place, batch_id).await;
        }
    }
}

async fn keep(log: SinkLog, place: String, acknowledged: Acknowledged, env: Env) {
    let mut written = None;
    loop {
        env.sleep(EVERY).await;
        let newest = acknowledged.get();
        if let Some(batch_id) = newest.filter(|_| newest != written) {
            write(&log, &place, batch_id).await;
            written = newest;
        }
    }
}

async fn write(log: &SinkLog, place: &str, batch_id: u64) {
    let known = Known { place: place.to_owned(), batch_id };
    let bytes = serde_json::to_vec(&known).expect("a text and a number");
    if let Err(error) = log.replace(bytes).await {
        let place = log.location();
        tracing::warn!(place, %error, "what Redis has acknowledged was not recorded; if Redis \
                                       loses its data, a restart may not notice");
    }
}
