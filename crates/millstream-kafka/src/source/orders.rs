//! Orders of other threads to the reader: which partitions to read, and from where.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::offsets::PartitionId;

/// How long the reader waits for orders before it looks at other things.
const PATIENCE: Duration = Duration::from_millis(100);

/// Orders that are not followed yet.
#[derive(Default)]
pub struct Orders {
    wanted: Mutex<Wanted>,
    given: Condvar,
}

/// All orders since the last time.
#[derive(Default)]
pub struct Wanted {
    /// The reader is to end.
    pub stop: bool,
    /// It is to look at what there is.
    pub help: bool,
    /// Partitions to begin and to end with, in order.
    pub list: Vec<Order>,
}

/// An order about one partition.
pub enum Order {
    /// Read it from this offset on.
    Start(PartitionId, i64),
    /// Read it no more.
    Stop(PartitionId),
}

impl Orders {
    /// Begins to read a partition at an offset.
    pub fn start(&self, id: PartitionId, offset: i64) {
        self.give(|wanted| wanted.list.push(Order::Start(id, offset)));
    }

    /// Reads a partition no more.
    pub fn stop(&self, id: PartitionId) {
        self.give(|wanted| wanted.list.push(Order::Stop(id)));
    }

    /// Ends the reader.
    pub fn stop_all(&self) {
        self.give(|wanted| wanted.stop = true);
    }

    /// Has the reader look at once at what there is.
    pub fn wake(&self) {
        self.give(|wanted| wanted.help = true);
    }

    fn give(&self, order: impl FnOnce(&mut Wanted)) {
        order(&mut self.wanted.lock());
        self.given.notify_one();
    }

    /// Waits for orders, but not for long.
    pub fn take(&self) -> Wanted {
        let mut wanted = self.wanted.lock();
        if !wanted.stop && !wanted.help && wanted.list.is_empty() {
            self.given.wait_for(&mut wanted, PATIENCE);
        }
        std::mem::take(&mut *wanted)
    }
}
