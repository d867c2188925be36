//! What waits of one partition: chunks in order, and where the partition goes back in between.
//!
//! A partition goes back where its topic was made anew, or its log was cut back: what comes then
//! has offsets that were there before. The log of the query has ends alone, each of which is where
//! the next micro-batch begins. So a micro-batch without rows of the partition stands in between,
//! which ends where the partition goes back to; the one after it begins there, and is the same when
//! it is repeated.

use std::collections::VecDeque;

use super::{CHUNK_BYTES, cost, cut};
use crate::source::chunk::Chunk;

// Nearly all are rows: a box would cost an allocation and save nothing.
#[allow(clippy::large_enum_variant)]
enum Waiting {
    Rows(Chunk),
    /// The partition goes back to this offset.
    Back(i64),
}

/// What waits of one partition.
#[derive(Default)]
pub struct Queue {
    waiting: VecDeque<Waiting>,
}

/// How much waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// In rows.
    pub rows: u64,
    /// In bytes.
    pub bytes: usize,
}

impl Queue {
    /// Adds rows.
    pub fn push(&mut self, chunk: Chunk) {
        self.waiting.push_back(Waiting::Rows(chunk));
    }

    /// True if there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All that waits.
    pub fn held(&self) -> Held {
        self.chunks(usize::MAX).fold(Held::default(), |held, chunk| Held {
            rows: held.rows + chunk.rows() as u64,
            bytes: held.bytes + cost(chunk),
        })
    }

    /// The rows that the next micro-batch may have: none where the partition goes back first.
    pub fn rows(&self) -> u64 {
        let is_rows = |waiting: &&Waiting| matches!(waiting, Waiting::Rows(_));
        let until = self.waiting.iter().take_while(is_rows).count();
        self.chunks(until).map(|chunk| chunk.rows() as u64).sum()
    }

    fn chunks(&self, count: usize) -> impl Iterator<Item = &Chunk> {
        self.waiting.iter().take(count).filter_map(|waiting| match waiting {
            Waiting::Rows(chunk) => Some(chunk),
            Waiting::Back(_) => None,
        })
    }

    /// Where the newest rows begin, with `taken` where the oldest do.
    pub fn start(&self, taken: i64) -> i64 {
        let newest = self.waiting.iter().rev().find_map(|waiting| match waiting {
            Waiting::Rows(_) => None,
            Waiting::Back(to) => Some(*to),
        });
        newest.unwrap_or(taken)
    }

    /// Where the newest rows end, with `taken` where the oldest begin.
    pub fn end(&self, taken: i64) -> i64 {
        match self.waiting.back() {
            Some(Waiting::Rows(chunk)) => chunk.end_offset(),
            Some(Waiting::Back(to)) => *to,
            None => taken,
        }
    }

    /// What comes from now on begins at `to`.
    pub fn go_back(&mut self, to: i64) {
        match self.waiting.back_mut() {
            Some(Waiting::Back(before)) => *before = to,
            _ => self.waiting.push_back(Waiting::Back(to)),
        }
    }

    /// Drops the newest rows, as far as they are at `end` or behind it.
    pub fn cut(&mut self, end: i64) {
        let mut kept = Vec::new();
        while let Some(Waiting::Rows(_)) = self.waiting.back() {
            let Some(Waiting::Rows(chunk)) = self.waiting.pop_back() else { break };
            kept.extend(cut(chunk, end).map(Waiting::Rows));
        }
        self.waiting.extend(kept.into_iter().rev());
    }

    /// Where the partition goes back to before anything else, if it does.
    pub fn take_back(&mut self) -> Option<i64> {
        match self.waiting.front() {
            Some(Waiting::Back(to)) => {
                let to = *to;
                self.waiting.pop_front();
                Some(to)
            }
            _ => None,
        }
    }

    /// Takes so many of the next [`rows`](Self::rows), and gives the bytes that are counted besides
    /// from now on: of a chunk that is cut in two both parts count as chunks.
    pub fn take(&mut self, rows: u64) -> (Vec<Chunk>, usize) {
        let mut wanted = usize::try_from(rows).unwrap_or(usize::MAX);
        let mut taken = Vec::new();
        while wanted > 0 {
            let Some(Waiting::Rows(chunk)) = self.waiting.pop_front() else {
                unreachable!("a share is of rows that are there")
            };
            if chunk.rows() > wanted {
                let rest = chunk.slice(wanted, chunk.rows() - wanted);
                self.waiting.push_front(Waiting::Rows(rest));
                taken.push(chunk.slice(0, wanted));
                return (taken, CHUNK_BYTES);
            }
            wanted -= chunk.rows();
            taken.push(chunk);
        }
        (taken, 0)
    }
}
