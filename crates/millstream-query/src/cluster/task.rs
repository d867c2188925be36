//! One task of one stage, on its way to a runner and back.
//!
//! Both ways are a header of JSON and a body of bytes. To the runner the body is the stage's plan
//! in Ballista's own encoding; back it is the files of the task's shuffle, one after the other,
//! each with a checksum in the header. A node takes an answer only if all of it is there. One that
//! is too long for the way back is pushed to the node or spilled to the object store
//! ([`ResultPaths`]), and the message that comes back says so.
//!
//! ```text
//! length of the header (4 bytes, big endian) | header | body
//! ```

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Which task it is, and under which settings it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskHeader {
    /// The query, as the scheduler names it.
    pub job: String,
    /// Its stage.
    pub stage: usize,
    /// The task, unique in its stage.
    pub task: usize,
    /// Which partitions of the stage's output it makes.
    pub partitions: Vec<usize>,
    /// Where files that other stages have written are read from: the owning node's proxy.
    pub proxy: Option<String>,
    /// Settings of the session, by their keys.
    pub settings: Vec<(String, String)>,
    /// The ways that the answer may take.
    pub paths: ResultPaths,
}

/// The ways that a task's answer may take, each tried if those before it are closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultPaths {
    /// The longest answer that may come back where the task came from, in bytes; `None` for any.
    pub inline_bytes_max: Option<u64>,
    /// Where the node takes the answer in.
    pub push: Option<PushTarget>,
    /// Where in an object store the node looks for it.
    pub spill: Option<SpillTarget>,
    /// How long the node waits for the answer, in milliseconds. Nothing is spilled later.
    pub patience_ms: u64,
}

/// Where a node takes an answer in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushTarget {
    /// `HOST:PORT`.
    pub address: String,
    /// The word that opens it, once.
    pub key: String,
}

/// Where in an object store a node looks for an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpillTarget {
    /// The URL of a directory.
    pub url: String,
    /// What the names of the answer's objects begin with.
    pub name: String,
}

/// Where an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// In the body of this message.
    #[default]
    Inline,
    /// At the node, which has taken in a message with the whole answer.
    Pushed,
    /// In the object store, as a message that is cut into so many objects.
    Spilled(u32),
}

/// What a task has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputHeader {
    /// By partition what was written of it.
    pub partitions: Vec<WrittenPartition>,
    /// The files, in the order in which their bytes follow.
    pub files: Vec<WrittenFile>,
    /// Where all of this is, if not here.
    pub delivery: Delivery,
    /// By operator of the plan what it has done, in Ballista's own encoding and base64.
    pub metrics: Vec<String>,
}

/// What was written of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenPartition {
    /// The partition of the stage's output.
    pub partition: u64,
    /// Record batches in it.
    pub record_batches: u64,
    /// Rows in it.
    pub rows: u64,
    /// Bytes of it.
    pub bytes: u64,
    /// The number in its file's name.
    pub file: Option<u64>,
    /// Whether all partitions share a file that is sorted by partition.
    pub is_sorted: bool,
}

/// A file of a task's shuffle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Its path within the stage's directory, with `/` between parts.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// CRC-32 of its bytes.
    pub checksum: u32,
}

/// Bytes that are not a whole message.
#[derive(Debug, Error)]
pub enum MessageError {
    /// It ends before its end.
    #[error("the message has {found} bytes of {expected}")]
    Truncated {
        /// Bytes that are there.
        found: u64,
        /// Bytes that the message says it has.
        expected: u64,
    },
    /// Its header is longer than any.
    #[error("the message's header would have {bytes} bytes")]
    LongHeader {
        /// Its length.
        bytes: u64,
    },
    /// Its header is none.
    #[error("the message's header cannot be read: {0}")]
    Header(#[from] serde_json::Error),
    /// A file is not what it was.
    #[error("the file {path} has another checksum than its header says")]
    Checksum {
        /// The file.
        path: String,
    },
    /// A file would be written outside of the stage's directory.
    #[error("{path:?} is no name of a shuffle's file or of a query")]
    Path {
        /// The path.
        path: String,
    },
}

impl From<MessageError> for io::Error {
    fn from(error: MessageError) -> Self {
        // What is truncated may be whole the next time: the scheduler repeats tasks that fail so.
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

/// The header's length in bytes.
pub(super) const LENGTH_BYTES: usize = 4;

/// A message of a header and bodies.
pub fn message<'a>(
    header: &impl Serialize,
    bodies: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Bytes, MessageError> {
    let header = serde_json::to_vec(header)?;
    let mut bytes = BytesMut::with_capacity(LENGTH_BYTES + header.len());
    let length = u32::try_from(header.len()).map_err(|_| MessageError::Truncated {
        found: u64::from(u32::MAX),
        expected: header.len() as u64,
    })?;
    bytes.put_u32(length);
    bytes.put_slice(&header);
    bodies.into_iter().for_each(|body| bytes.put_slice(body));
    Ok(bytes.freeze())
}

/// The task of a request, and its plan.
///
/// # Errors
/// A message that is not whole, and a query whose name is no name of a directory.
pub fn request(message: &Bytes) -> Result<(TaskHeader, Bytes), MessageError> {
    let (header, plan) = parse::<TaskHeader>(message)?;
    if !is_name(&header.job) || header.job.contains('/') {
        return Err(MessageError::Path { path: header.job });
    }
    Ok((header, plan))
}

/// Whether a part of a path names something in the directory that it is in.
pub(super) fn is_name(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0'])
}

/// The header of a message, and its body.
pub fn parse<H: DeserializeOwned>(message: &Bytes) -> Result<(H, Bytes), MessageError> {
    let truncated = |expected: usize| MessageError::Truncated {
        found: message.len() as u64,
        expected: expected as u64,
    };
    let length = message.first_chunk::<LENGTH_BYTES>().ok_or_else(|| truncated(LENGTH_BYTES))?;
    let end = LENGTH_BYTES + u32::from_be_bytes(*length) as usize;
    let header = message.get(LENGTH_BYTES..end).ok_or_else(|| truncated(end))?;
    Ok((serde_json::from_slice(header)?, message.slice(end..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_s_name_is_no_path() {
        for job in ["..", "a/b", "", "/etc", ".x"] {
            let header = TaskHeader {
                job: job.to_owned(),
                stage: 0,
                task: 0,
                partitions: Vec::new(),
                proxy: None,
                settings: Vec::new(),
                paths: ResultPaths::default(),
            };
            let bytes = message(&header, []).expect("it is a message");
            assert!(matches!(request(&bytes), Err(MessageError::Path { .. })), "{job}");
        }
    }
}
