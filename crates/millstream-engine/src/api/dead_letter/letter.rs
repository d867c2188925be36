//! One dead letter, as it is found.

use std::fmt;
use std::sync::Arc;

/// A record that could not become a row.
///
/// It owns what it needs: letters are few, and the buffers they come from are let go of while a
/// letter may wait for its table's next commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letter {
    /// The record as it came; `None` where it had no value.
    pub payload: Option<Vec<u8>>,
    /// How many bytes the record had, where the payload is only their beginning.
    pub payload_bytes: Option<usize>,
    /// The record's key, if it has one.
    pub key: Option<Vec<u8>>,
    /// The record's headers, in order.
    pub attributes: Vec<(String, Option<Vec<u8>>)>,
    /// What is wrong, and where in the payload.
    pub error: String,
    /// Where the record was read, if that is known.
    pub place: Option<Place>,
    /// The record's own time, microseconds since the epoch.
    pub record_time_us: Option<i64>,
}

impl Letter {
    /// About how many bytes it has.
    pub fn bytes(&self) -> usize {
        let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let attributes = self.attributes.iter().map(|(name, value)| name.len() + bytes(value));
        bytes(&self.payload) + bytes(&self.key) + self.error.len() + attributes.sum::<usize>()
    }
}

/// Where a record was read. Displayed as `topic[partition]@offset`, `file:line`,
/// `stream#id` or `file#row`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A record of a topic.
    Record {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
    /// A line of a file.
    Line {
        /// The file's path.
        file: Arc<str>,
        /// The line, from 1.
        line: u64,
    },
    /// An entry of something whose entries have ids of their own.
    Entry {
        /// What: a stream, say.
        of: Arc<str>,
        /// The entry's id.
        id: Arc<str>,
    },
    /// A row of something that has neither offsets nor lines.
    Row {
        /// What: a file's path, or a table's name.
        of: Arc<str>,
        /// The row, from 0.
        row: u64,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record { topic, partition, offset } => {
                write!(f, "{topic}[{partition}]@{offset}")
            }
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Entry { of, id } => write!(f, "{of}#{id}"),
            Self::Row { of, row } => write!(f, "{of}#{row}"),
        }
    }
}
