//! What decoding keeps in mind in the middle of a record: the bytes that columns have taken, and
//! the nested messages that were noted but not appended yet.

use super::fault::{Error, Fault};

/// What is known in the middle of a record.
pub(super) struct State {
    /// Bytes in the columns, by what is at most needed for them.
    pub(super) bytes: usize,
    /// How many there may be.
    pub(super) limit: usize,
    /// Where nested messages and entries of maps are, for all messages around the current one.
    pub(super) parts: Vec<Part>,
    /// The member that each oneof has, likewise.
    pub(super) members: Vec<usize>,
}

/// An occurrence of a nested message or of a map's entry.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The index of the field.
    pub(super) field: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    /// True if occurrences before this one do not count.
    pub(super) is_fresh: bool,
}

impl Part {
    /// Its bytes in those of the message around it.
    pub(super) fn of<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        &message[self.start..self.end]
    }
}

impl State {
    /// For columns that may have as many bytes as `limit`.
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: 0, limit, parts: Vec::new(), members: Vec::new() }
    }

    /// Forgets a record that is cut off.
    pub(super) fn reset(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.parts.clear();
        self.members.clear();
    }

    /// Counts bytes that columns take.
    #[inline]
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit { Err(Fault::TooLarge.into()) } else { Ok(()) }
    }
}
