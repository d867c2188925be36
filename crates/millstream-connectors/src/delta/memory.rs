//! What a query remembers of its table: which one it is, and up to where it has seen it.
//!
//! The table says what the query has published, but a table that was deleted, or put back from an
//! older copy, says so no more, and the rows that were in it are read from no source again. So the
//! checkpoint keeps a record of its own, a second behind:
//!
//! ```text
//! sinks/<name>/<N>    {"table":"<the table's own id>","version":12}
//! ```

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::sink::Failure;
use millstream_lake::error::TableError;
use millstream_lake::maintenance::LiveTable;
use millstream_lake::store::TableStore;
use millstream_lake::table::{Table, found_instead};
use millstream_store::env::{Env, Task};
use millstream_store::sink_log::SinkLog;
use serde::{Deserialize, Serialize};

use super::error::DeltaError;

/// How far the record may be behind.
const EVERY: Duration = Duration::from_secs(1);

/// A table, and a version that it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    table: String,
    version: u64,
}

impl Known {
    pub(super) fn of(table: &Table) -> Self {
        Self { table: table.id(), version: table.version() }
    }

    /// Refuses a table that is not there any more, or not as far as it was. `table` is what is
    /// there now.
    pub(super) fn check(
        &self,
        store: &TableStore,
        table: Option<&Table>,
        log: &SinkLog,
    ) -> Result<(), Failure> {
        let found = match table {
            Some(table) if table.id() != self.table => "another table is there now".to_owned(),
            Some(table) if table.version() >= self.version => return Ok(()),
            table => found_instead(table.map(Table::version)),
        };
        let gone = TableError::Gone { table: store.shown(), version: self.version, found };
        Err(DeltaError::Gone { gone, record: log.location() }.into())
    }
}

/// Reads the record of the run before.
pub(super) async fn recall(log: &SinkLog) -> Result<Option<Known>, Failure> {
    let Some((id, bytes)) = log.last().await? else { return Ok(None) };
    let known = serde_json::from_slice(&bytes);
    known.map(Some).map_err(|error| DeltaError::Record { record: log.location(), id, error }.into())
}

/// Keeps the record, until it is dropped.
pub(super) struct Recorder {
    log: SinkLog,
    live: Arc<LiveTable>,
    env: Env,
    task: Option<Task<()>>,
}

impl Recorder {
    /// Begins with what is known at the start.
    pub(super) async fn start(
        log: SinkLog,
        live: Arc<LiveTable>,
        recalled: Option<Known>,
        env: &Env,
    ) -> Result<Self, Failure> {
        let known = now(&live, env).await;
        if recalled.as_ref() != Some(&known) {
            log.replace(encode(&known)).await?;
        }
        let task = keep(log.clone(), Arc::clone(&live), known, env.clone());
        let task = Some(env.spawn("delta-record", task));
        Ok(Self { log, live, env: env.clone(), task })
    }

    /// Writes down where the table is at the end.
    pub(super) async fn end(mut self) {
        if let Some(task) = self.task.take() {
            task.stop().await;
        }
        write(&self.log, &now(&self.live, &self.env).await).await;
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn keep(log: SinkLog, live: Arc<LiveTable>, mut known: Known, env: Env) {
    loop {
        env.sleep(EVERY).await;
        let newer = now(&live, &env).await;
        if newer != known {
            write(&log, &newer).await;
            known = newer;
        }
    }
}

/// On a thread that may block: a table answers only between two commits.
async fn now(live: &Arc<LiveTable>, env: &Env) -> Known {
    let live = Arc::clone(live);
    let look = move || {
        live.table().look_again();
        Known::of(live.table())
    };
    env.spawn_blocking("delta-record", look).join().await
}

async fn write(log: &SinkLog, known: &Known) {
    if let Err(error) = log.replace(encode(known)).await {
        let place = log.location();
        tracing::warn!(place, %error, "the version of the table was not recorded; if the table is deleted, a restart may not notice");
    }
}

fn encode(known: &Known) -> Vec<u8> {
    serde_json::to_vec(known).expect("text and a number")
}
