//! Writing both logs into an object store: a task per log, each with one put at a time.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::progress::Progress;
use super::{Ending, Job, Lane, Shared};
use crate::env::Env;
use crate::storage::Prefix;

pub(super) fn start(prefix: &Prefix, env: &Env, shared: &Arc<Shared>) -> [UnboundedSender<Job>; 2] {
    Lane::ALL.map(|lane| {
        let (sender, receiver) = unbounded_channel();
        let name = match lane {
            Lane::Intents => "offset log",
            Lane::Commits => "commit log",
        };
        env.spawn(name, write_all(prefix.clone(), receiver, shared.clone()));
        sender
    })
}

async fn write_all(prefix: Prefix, mut receiver: UnboundedReceiver<Job>, shared: Arc<Shared>) {
    let mut ending = Ending::new(&shared);
    while let Some(job) = receiver.recv().await {
        if job.lane() == Lane::Commits {
            // The invariant of the module: `commits/N` only after `offsets/N`. The logs have a task
            // each, so the order between them is not given and has to be waited for.
            let may_follow =
                |now: &Progress| now.failure.is_some() || now.intent >= job.after_intent;
            shared.progress.wait_for(may_follow).await;
        }
        if shared.has_failed() {
            break;
        }
        job.before();
        match prefix.put(&job.name(), job.encode()).await {
            Ok(()) => {
                job.after();
                shared.written(job.lane(), job.id);
            }
            Err(error) => {
                shared.fail(error.into());
                break;
            }
        }
    }
    // The other log may still have entries to write, so the end of this one is no failure.
    ending.disarm();
}
