//! What outlives a token or a message: random numbers, the time, counters and stored values.

use std::collections::HashMap;

use crate::random::Random;

/// The state of one generator. Nothing here is shared with another.
pub(crate) struct State {
    pub(crate) random: Random,
    /// Milliseconds since 1970, of the message being written.
    pub(crate) now_ms: i64,
    /// `index`: by name, where it started and what comes next.
    pub(crate) counters: HashMap<String, Counter>,
    /// `put` and `get`.
    pub(crate) values: HashMap<String, String>,
    /// `systemProperty`.
    pub(crate) properties: HashMap<String, String>,
    /// Tokens that a message contains as they stand since their call gave no value.
    pub(crate) left_literal: u64,
    buffers: Vec<Vec<u8>>,
}

/// A counter that can go back to where it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    pub(crate) start: i32,
    pub(crate) next: i32,
}

impl State {
    pub(crate) fn new(seed: u64, now_ms: i64) -> Self {
        Self {
            random: Random::new(seed),
            now_ms,
            counters: HashMap::new(),
            values: HashMap::new(),
            properties: HashMap::new(),
            left_literal: 0,
            buffers: Vec::new(),
        }
    }

    /// An empty buffer for arguments; give it back with [`Self::give_buffer`], so that messages
    /// allocate nothing once buffers have grown.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    pub(crate) fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.buffers.push(buffer);
    }
}
