//! The bytes of a file of the state log.
//!
//! ```text
//! MLSTATE1                       8 bytes
//! per entry:
//!   length of all that follows   u64, little endian, as all numbers
//!   length of the facts          u32
//!   the facts                    JSON
//!   number of sections           u32
//!   per section: length          u64
//!                bytes
//!   CRC-32 (IEEE) of all since the length of the facts   u32
//! end of the file: 8 bytes of 0xFF, then how many entries there are, u64
//! ```
//!
//! Every entry is checked when it is read; the end tells a whole file from a torn one.

use std::io::Write;

use thiserror::Error;

use super::{Entry, Facts};
use crate::storage::{Storage, StorageError};

const MAGIC: &[u8; 8] = b"MLSTATE1";
const END: u64 = u64::MAX;

/// Why the bytes of a file are not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// It ends before its end: a power cut, or a copy that was not finished.
    #[error("it is cut off")]
    CutOff,
    /// It is not such a file, or a later form of it.
    #[error("it does not begin like a state file of this release")]
    NotOurs,
    /// It is whole, but its content belongs to a file of another name.
    #[error("it is a copy of another such file")]
    OfAnother,
    /// The checksum of an entry does not match its bytes.
    #[error("the checksum of entry {index} is wrong")]
    Checksum {
        /// Which one in the file, from 0.
        index: usize,
    },
    /// The checksum holds but the content makes no sense.
    #[error("entry {index} cannot be read: {problem}")]
    Malformed {
        /// Which one in the file, from 0.
        index: usize,
        /// What is wrong.
        problem: String,
    },
}

/// Encodes entries, one after another, into the bytes of a file.
///
/// Sections are made where they stay: an entry may be of a micro-batch of a hundred megabytes, and
/// each copy of its sections would be as large.
pub struct Encoder {
    bytes: Vec<u8>,
    entries: u64,
}

/// Writes the bytes of a section of an entry, or says why there are none.
pub type Section<'a> = Box<dyn FnOnce(&mut dyn Write) -> Result<(), String> + Send + 'a>;

impl Default for Encoder {
    fn default() -> Self {
        Self { bytes: MAGIC.to_vec(), entries: 0 }
    }
}

impl Encoder {
    /// Adds an entry.
    pub fn add(&mut self, entry: &Entry) {
        let copied = |section| -> Section<'_> {
            Box::new(move |to| to.write_all(section).map_err(|error| error.to_string()))
        };
        self.reserve(entry.sections.iter().map(Vec::len).sum());
        let sections = entry.sections.iter().map(Vec::as_slice).map(copied).collect();
        self.add_sections(&entry.facts, sections).expect("a vector takes all bytes");
    }

    /// Adds an entry, whose sections are made here, one after the other.
    ///
    /// # Errors
    ///
    /// What a section says. The entry is not in the file then.
    pub fn add_sections(
        &mut self,
        facts: &Facts,
        sections: Vec<Section<'_>>,
    ) -> Result<(), String> {
        let start = self.bytes.len();
        let added = self.try_add(start, facts, sections);
        if added.is_err() {
            self.bytes.truncate(start);
        }
        added
    }

    fn try_add(
        &mut self,
        start: usize,
        facts: &Facts,
        sections: Vec<Section<'_>>,
    ) -> Result<(), String> {
        // The length is known only after the content, so its place is kept free and filled in
        // below.
        self.bytes.extend_from_slice(&[0; 8]);
        let facts = serde_json::to_vec(facts).expect("strings and integers are JSON");
        self.length_u32(facts.len());
        self.bytes.extend_from_slice(&facts);
        self.length_u32(sections.len());
        for section in sections {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&[0; 8]);
            section(&mut self.bytes)?;
            self.length_since(start);
        }
        let checksum = crc32fast::hash(&self.bytes[start + 8..]);
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        self.length_since(start);
        self.entries += 1;
        Ok(())
    }

    /// Has room for so many bytes more, so that what there is need not move.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Fills in the length of what is behind the place for it at `start`.
    fn length_since(&mut self, start: usize) {
        let length = (self.bytes.len() - start - 8) as u64;
        self.bytes[start..start + 8].copy_from_slice(&length.to_le_bytes());
    }

    fn length_u32(&mut self, length: usize) {
        let length = u32::try_from(length).expect("facts and operators are few");
        self.bytes.extend_from_slice(&length.to_le_bytes());
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Adds the end mark and gives the whole file's bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&END.to_le_bytes());
        self.bytes.extend_from_slice(&self.entries.to_le_bytes());
        self.bytes
    }
}

/// Reads a whole file.
pub fn decode(bytes: &[u8]) -> Result<Vec<Entry>, DecodeError> {
    let mut rest = Rest { bytes };
    match rest.take(MAGIC.len()) {
        Ok(magic) if magic == MAGIC => {}
        Ok(_) => return Err(DecodeError::NotOurs),
        // A power cut can leave any beginning of the file, even less than the magic number.
        Err(_) if MAGIC.starts_with(bytes) => return Err(DecodeError::CutOff),
        Err(_) => return Err(DecodeError::NotOurs),
    }
    let mut entries = Vec::new();
    loop {
        let length = rest.u64()?;
        if length == END {
            let count = rest.u64()?;
            return if count == entries.len() as u64 && rest.bytes.is_empty() {
                Ok(entries)
            } else {
                Err(DecodeError::CutOff)
            };
        }
        let length = usize::try_from(length).map_err(|_| DecodeError::CutOff)?;
        entries.push(entry(rest.take(length)?, entries.len())?);
    }
}

/// The entries of the file `name`, or what is wrong with its bytes.
pub(super) async fn read(
    storage: &Storage,
    name: &str,
) -> Result<Result<Vec<Entry>, DecodeError>, StorageError> {
    // A file that was deleted since it was listed reads like one that was cut off.
    let bytes = storage.get(name).await?.unwrap_or_default();
    Ok(decode(&bytes))
}

fn entry(bytes: &[u8], index: usize) -> Result<Entry, DecodeError> {
    let malformed = |problem: &str| DecodeError::Malformed { index, problem: problem.to_owned() };
    let Some((content, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(malformed("it is too short"));
    };
    if crc32fast::hash(content) != u32::from_le_bytes(*checksum) {
        return Err(DecodeError::Checksum { index });
    }
    let mut rest = Rest { bytes: content };
    let mut read = || {
        let facts = rest.u32()? as usize;
        let facts = rest.take(facts)?;
        let mut sections = Vec::new();
        for _ in 0..rest.u32()? {
            let length = usize::try_from(rest.u64()?).map_err(|_| DecodeError::CutOff)?;
            sections.push(rest.take(length)?.to_vec());
        }
        Ok((facts, sections))
    };
    // The checksum held, so lengths that do not fit were written so: the file is malformed, not cut
    // off.
    let (facts, sections) = read().map_err(|_: DecodeError| malformed("its lengths are wrong"))?;
    let facts: Facts =
        serde_json::from_slice(facts).map_err(|error| malformed(&error.to_string()))?;
    Ok(Entry { facts, sections })
}

/// What is still to be read.
struct Rest<'a> {
    bytes: &'a [u8],
}

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(DecodeError::CutOff)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        let bytes = self.take(4)?.try_into().expect("four were taken");
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        let bytes = self.take(8)?.try_into().expect("eight were taken");
        Ok(u64::from_le_bytes(bytes))
    }
}
