//! Who goes first at a local disk: a commit, then everything else.
//!
//! A disk flushes one request after the other. A checkpoint flushes several files, and a commit
//! that comes in the middle would wait for all that is queued before it. So what is written in the
//! background starts no request while something in the foreground is under way; a commit then waits
//! for one request at most.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// A table to which commits follow each other without a pause gets its checkpoint all the same:
/// so long a request of the background waits at most.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is under way in the foreground.
#[derive(Default)]
pub(super) struct DiskPriority {
    under_way: Mutex<u32>,
    over: Condvar,
}

/// Something in the foreground, until it is dropped.
pub(crate) struct Turn<'a>(&'a DiskPriority);

impl DiskPriority {
    pub(super) fn begin(&self) -> Turn<'_> {
        *self.under_way.lock() += 1;
        Turn(self)
    }

    /// Waits until nothing is under way in the foreground, but not for long.
    pub(super) fn give_way(&self) {
        let mut under_way = self.under_way.lock();
        self.over.wait_while_for(&mut under_way, |under_way| *under_way > 0, PATIENCE);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.under_way.lock() -= 1;
        self.0.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn the_background_waits_for_the_last_in_the_foreground() {
        let disk_priority = Arc::new(DiskPriority::default());
        disk_priority.give_way();
        let (first, second) = (disk_priority.begin(), disk_priority.begin());
        let (waiting, is_through) = (Arc::clone(&disk_priority), Arc::new(AtomicBool::new(false)));
        std::thread::scope(|scope| {
            let through = Arc::clone(&is_through);
            scope.spawn(move || {
                waiting.give_way();
                through.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(PATIENCE / 10);
            drop(first);
            std::thread::sleep(PATIENCE / 10);
            assert!(!is_through.load(Ordering::SeqCst), "one is still under way");
            drop(second);
        });
        assert!(is_through.load(Ordering::SeqCst));
    }

    #[test]
    fn the_background_does_not_wait_for_ever() {
        let disk_priority = DiskPriority::default();
        let _turn = disk_priority.begin();
        disk_priority.give_way();
    }
}
