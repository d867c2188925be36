//! Which part of a partition is of which leader's epoch, as far as it was read here.
//!
//! A record batch has the epoch of the leader that took it, and two logs that have the same epoch
//! have the same records in it, as far as both go. So where the log of a broker diverges from the
//! one that was read, the two are the same up to the end of the last epoch that both have (KIP-101,
//! KIP-320): the broker says how far it has that epoch, and what is kept here how far it was read.

use crate::protocol::fetch::Diverging;

/// So many epochs are remembered. One begins with each new leader, so that is hours or months.
const KEPT: usize = 32;

/// Where an epoch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The epoch.
    pub epoch: i32,
    /// The first offset that was read of it.
    pub offset: i64,
}

/// The epochs of a partition that were read, in order. They end with the run: the checkpoint has
/// Spark's format, which has offsets alone.
#[derive(Debug, Default)]
pub struct Epochs {
    beginnings: Vec<Beginning>,
}

impl Epochs {
    /// From here on batches are of another epoch. One below 0 says nothing.
    pub fn note(&mut self, beginning: Beginning) {
        let last = self.beginnings.last().map_or(-1, |last| last.epoch);
        if beginning.epoch <= last {
            return;
        }
        if self.beginnings.len() == KEPT {
            self.beginnings.remove(0);
        }
        self.beginnings.push(beginning);
    }

    /// Up to which offset the log is the one that was read, up to `position`. What a former run has
    /// read is not compared: the broker's own end counts there.
    pub fn common(&self, diverging: Diverging, position: i64) -> i64 {
        let later = self.beginnings.iter().find(|it| it.epoch > diverging.epoch);
        let read = later.map_or(position, |it| it.offset);
        read.min(diverging.end_offset).max(0)
    }

    /// Forgets what is at `end` and behind it.
    pub fn cut(&mut self, end: i64) {
        self.beginnings.retain(|it| it.offset < end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read from 10 on: epoch 3 up to 50, 5 up to 55, then 6.
    fn epochs() -> Epochs {
        let mut epochs = Epochs::default();
        for (epoch, offset) in [(3, 10), (5, 50), (6, 55)] {
            epochs.note(Beginning { epoch, offset });
        }
        epochs
    }

    fn common(epoch: i32, end_offset: i64) -> i64 {
        epochs().common(Diverging { epoch, end_offset }, 60)
    }

    #[test]
    fn logs_are_the_same_up_to_the_end_of_the_last_epoch_of_both() {
        // The broker has less of an epoch.
        assert_eq!((common(6, 57), common(5, 52), common(3, 40)), (57, 52, 40));
        // The broker has more of an epoch than was read of it: others came after it here.
        assert_eq!((common(5, 80), common(3, 80), common(4, 58)), (55, 50, 50));
        // The broker has nothing of what was read, and perhaps not what a former run has read.
        assert_eq!((common(2, 80), common(2, 7), common(0, -1)), (10, 7, 0));
    }

    #[test]
    fn what_was_cut_off_is_forgotten() {
        let mut epochs = epochs();
        epochs.cut(50);
        epochs.note(Beginning { epoch: 7, offset: 50 });
        assert_eq!(epochs.common(Diverging { epoch: 3, end_offset: 80 }, 90), 50);
        assert_eq!(epochs.common(Diverging { epoch: 7, end_offset: 80 }, 90), 80);
    }

    #[test]
    fn few_are_remembered_and_what_says_nothing_is_not() {
        let mut epochs = Epochs::default();
        for epoch in 0..1_000 {
            epochs.note(Beginning { epoch, offset: i64::from(epoch) * 10 });
            epochs.note(Beginning { epoch: -1, offset: i64::from(epoch) * 10 + 5 });
        }
        assert_eq!(epochs.beginnings.len(), KEPT);
        assert_eq!(epochs.common(Diverging { epoch: 998, end_offset: 99_999 }, 20_000), 9_990);
    }
}
