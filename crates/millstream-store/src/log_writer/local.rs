//! Writing both logs into a local directory: one thread, entries in the order of the calls.
//!
//! A thread of our own, because handing each entry to a pool of threads costs about as much as
//! writing it. What has queued up meanwhile is one group; entries that must survive a power cut
//! are flushed one by one, and their names together at the end of the group.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

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
            let of_lane = |job: &&Job| job.lane() == lane && job.durability == Durability::Power;
            if let Some(job) = group.iter().find(of_lane) {
                directory.flush_names(&job.name())?;
            }
        }
        for job in group {
            shared.written(job.lane(), job.id);
        }
    }
    Ok(())
}
