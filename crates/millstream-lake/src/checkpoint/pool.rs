//! A few threads that share a list of work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millstream_store::env::Env;
use parking_lot::Mutex;

use super::error::CheckpointError;

/// Does `work` for each number below `count`, in their order, on `workers` threads. After an error
/// no more is begun, and the first one is returned.
///
/// # Panics
/// When `work` panicked.
pub(super) fn run(
    env: &Env,
    workers: usize,
    count: usize,
    work: impl Fn(usize) -> Result<(), CheckpointError> + Send + Sync + 'static,
) -> Result<(), CheckpointError> {
    let workers = workers.min(count);
    if workers <= 1 {
        return (0..count).try_for_each(work);
    }
    let shared = Arc::new(Shared {
        work,
        count,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        error: Mutex::default(),
    });
    let threads: Vec<_> = (0..workers)
        .map(|_| {
            let shared = Arc::clone(&shared);
            env.thread("lake-checkpoint", move || shared.run())
        })
        .collect();
    // Dropping a thread waits for it.
    drop(threads);
    let error = shared.error.lock().take();
    error.map_or(Ok(()), Err)?;
    assert_eq!(shared.done.load(Ordering::Acquire), count, "a thread of a checkpoint panicked");
    Ok(())
}

struct Shared<W> {
    work: W,
    count: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    error: Mutex<Option<CheckpointError>>,
}

impl<W: Fn(usize) -> Result<(), CheckpointError>> Shared<W> {
    fn run(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count || self.error.lock().is_some() {
                return;
            }
            match (self.work)(number) {
                Ok(()) => drop(self.done.fetch_add(1, Ordering::AcqRel)),
                Err(error) => {
                    self.error.lock().get_or_insert(error);
                }
            }
        }
    }
}
