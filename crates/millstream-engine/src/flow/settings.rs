//! What one run of a flow is given.

use std::sync::Arc;

use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;

use crate::api::progress::Listener;
use crate::api::settings::Logging;
use crate::api::source::Failure;
use crate::api::trigger::Trigger;
use crate::driver::start::Siblings;
use crate::driver::stop::Stop;

/// What one run of a flow is given.
#[derive(Clone)]
pub struct RunSettings {
    /// The checkpoint's location. A batch query has none and does not look at it.
    pub checkpoint: String,
    /// When micro-batches start.
    pub trigger: Trigger,
    /// Which micro-batches get entries in the logs, and for how long.
    pub logging: Logging,
    /// Hears of every micro-batch.
    pub listener: Arc<dyn Listener>,
    /// Ends the query when asked.
    pub stop: Stop,
    /// The queries of the same pipeline file.
    pub siblings: Siblings,
    /// The query to go on as, where its own checkpoint is gone or elsewhere.
    pub adopt: Option<String>,
}

impl RunSettings {
    /// Opens the checkpoint at `location`, and tells the other queries of the file of this one.
    pub(super) async fn open_checkpoint(
        &self,
        location: &str,
        env: &Env,
    ) -> Result<Checkpoint, Failure> {
        let checkpoint = match &self.adopt {
            Some(adopted) => Checkpoint::open_as(location, adopted, env).await?,
            None => Checkpoint::open(location, env).await?,
        };
        self.siblings.add(checkpoint.query_id());
        Ok(checkpoint)
    }
}
