//! One task of one stage, on its way to a runner and back.
//!
//! Both ways are a header of JSON and a body of bytes. To the runner the body is the stage's plan
//! in Ballista's own encoding; back it is the files of the task's shuffle, one after the other,
//! each with a checksum in the header. A node takes an answer only if all of it is there.
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
}

/// What a task has made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputHeader {
    /// By partition what was written of it.
    pub partitions: Vec<WrittenPartition>,
    /// The files, in the order in which their bytes follow.
    pub files: Vec<WrittenFile>,
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
const LENGTH_BYTES: usize = 4;

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
fn is_name(part: &str) -> bool {
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

/// The files of an answer, each whole.
pub fn files(header: &OutputHeader, body: &Bytes) -> Result<Vec<(String, Bytes)>, MessageError> {
    // Lengths that no message has would sum up to less than they are.
    let add = |sum: u64, file: &WrittenFile| sum.saturating_add(file.bytes);
    let expected = header.files.iter().fold(0, add);
    if body.len() as u64 != expected {
        return Err(MessageError::Truncated { found: body.len() as u64, expected });
    }
    let mut start = 0;
    let files = header.files.iter().map(|file| {
        let length = file.bytes as usize;
        let bytes = body.slice(start..start + length);
        start += length;
        if !file.path.split('/').all(is_name) {
            return Err(MessageError::Path { path: file.path.clone() });
        }
        if crc32fast::hash(&bytes) != file.checksum {
            return Err(MessageError::Checksum { path: file.path.clone() });
        }
        Ok((file.path.clone(), bytes))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use millstream_fuzz::{Target, outcome};

    use super::*;

    fn output(files: &[(&str, &[u8])]) -> Bytes {
        let written = files.iter().map(|(path, bytes)| WrittenFile {
            path: (*path).to_owned(),
            bytes: bytes.len() as u64,
            checksum: crc32fast::hash(bytes),
        });
        let header = OutputHeader { partitions: Vec::new(), files: written.collect() };
        message(&header, files.iter().map(|(_, bytes)| *bytes)).expect("it is a message")
    }

    fn read(bytes: &Bytes) -> Result<Vec<(String, Bytes)>, MessageError> {
        let (header, body) = parse::<OutputHeader>(bytes)?;
        files(&header, &body)
    }

    #[test]
    fn files_come_back_as_they_went() {
        let bytes = output(&[("0/data-3.arrow", b"one"), ("1/data-3.arrow", b"")]);
        let files = read(&bytes).expect("it is whole");
        assert_eq!(files[0], ("0/data-3.arrow".to_owned(), Bytes::from_static(b"one")));
        assert_eq!(files[1].1, Bytes::new());
    }

    #[test]
    fn nothing_but_a_whole_message_is_taken() {
        let bytes = output(&[("0/data.arrow", b"some bytes")]);
        for end in 0..bytes.len() {
            assert!(read(&bytes.slice(..end)).is_err(), "{end} bytes of {}", bytes.len());
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(matches!(read(&longer.into()), Err(MessageError::Truncated { .. })));
        let mut changed = bytes.to_vec();
        *changed.last_mut().expect("it has bytes") ^= 1;
        assert!(matches!(read(&changed.into()), Err(MessageError::Checksum { .. })));
    }

    #[test]
    fn fuzz_messages_of_tasks() {
        let header = TaskHeader {
            job: "038G9M3G3T000".to_owned(),
            stage: 1,
            task: 3,
            partitions: vec![0],
            proxy: None,
            settings: vec![("datafusion.execution.batch_size".to_owned(), "8192".to_owned())],
        };
        let asking = message(&header, [&b"a plan"[..]]).expect("it is a message");
        let seeds = [asking.to_vec(), output(&[("0/data-3.arrow", b"rows")]).to_vec()];
        let words = &[
            "\"files\":",
            "\"bytes\":18446744073709551615",
            "\"path\":\"",
            "../",
            "\"checksum\":0",
        ];
        Target::bytes("task_messages").seeds(seeds).words(words).run(|input| {
            let input = Bytes::copy_from_slice(input);
            let asked = request(&input);
            if let Ok((header, _)) = &asked {
                assert!(!header.job.contains(['/', '\\']) && !header.job.starts_with('.'));
            }
            let answered = read(&input);
            for (path, _) in answered.iter().flatten() {
                assert!(path.split('/').all(|part| part != ".." && !part.is_empty()), "{path}");
            }
            format!("{} {}", outcome(&asked), outcome(&answered))
        });
    }

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
            };
            let bytes = message(&header, []).expect("it is a message");
            assert!(matches!(request(&bytes), Err(MessageError::Path { .. })), "{job}");
        }
    }

    #[test]
    fn a_file_stays_within_its_directory() {
        for path in ["../data.arrow", "/etc/passwd", "0//x", "", "0/../../x", ".hidden"] {
            let read = read(&output(&[(path, b"x")]));
            assert!(matches!(read, Err(MessageError::Path { .. })), "{path}");
        }
    }
}
