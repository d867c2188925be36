//! Writing both logs into a local directory: one thread, entries in the order of the calls.
//!
//! A thread of our own, because handing each entry to a pool of threads costs about as much as
//! writing it. What has queued up meanwhile is one group; entries that must survive a power cut
//! are flushed one by one, and their names together at the end of the group.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{Ending, Job, Lane, Shared, WriteError};
use crate::env::{Env, Thread};
use crate::storage::{Directory, Durability};

pub(super) fn start(
    directory: &Directory,
    env: &Env,
    shared: &Arc<Shared>,
) -> (Sender<Job>, Thread) {
    let (sender, receiver) = channel();
    let (directory, ending) = (directory.clone(), Ending::new(shared));
    let thread = env.thread("checkpoint", move || {
        write_all(&directory, &receiver, &ending);
        directory.delete_spares();
    });
    (sender, thread)
}

/// As [`start`], without a thread of its own: a pool's thread writes one group at a time.
pub(super) fn start_shared(
    directory: &Directory,
    env: &Env,
    shared: &Arc<Shared>,
) -> [UnboundedSender<Job>; 2] {
    let (sender, mut receiver) = unbounded_channel();
    let (directory, ending, task_env) = (directory.clone(), Ending::new(shared), env.clone());
    let writing = async move {
        while let Some(first) = receiver.recv().await {
            let mut group = vec![first];
            while let Ok(job) = receiver.try_recv() {
                group.push(job);
            }
            let (directory, shared) = (directory.clone(), Arc::clone(&ending.shared));
            let write = move || write_group(&directory, &group, &shared);
            if let Err(error) = task_env.spawn_blocking("checkpoint", write).join().await {
                ending.shared.fail(error);
                return;
            }
        }
        directory.delete_spares();
    };
    env.spawn("checkpoint", writing);
    // One queue for both logs, so that entries are written in the order of the calls.
    [sender.clone(), sender]
}

fn write_all(directory: &Directory, receiver: &Receiver<Job>, ending: &Ending) {
    while let Ok(first) = receiver.recv() {
        let group: Vec<Job> = std::iter::once(first).chain(receiver.try_iter()).collect();
        if let Err(error) = write_group(directory, &group, &ending.shared) {
            ending.shared.fail(error);
            return;
        }
    }
}

fn write_group(directory: &Directory, group: &[Job], shared: &Shared) -> Result<(), WriteError> {
    // Tickets complete after the flush at the end of a group, because an entry whose name is not
    // flushed may be gone after a power cut. A group without such entries has nothing to wait for.
    let flushed = group.iter().any(|job| job.durability == Durability::Power);
    for job in group {
        job.before();
        directory.put(&job.name(), &job.encode(), job.durability)?;
        job.after();
        if !flushed {
            shared.written(job.lane(), job.id);
        }
    }
    if flushed {
        for lane in Lane::ALL {
            let is_flushed_in_lane =
                |job: &&Job| job.lane() == lane && job.durability == Durability::Power;
            if let Some(job) = group.iter().find(is_flushed_in_lane) {
                // One flush of a directory covers all names in it, so one entry of each log stands
                // for the rest.
                directory.flush_names(&job.name())?;
            }
        }
        for job in group {
            shared.written(job.lane(), job.id);
        }
    }
    Ok(())
}
