//! An answer's bytes, taken apart as they arrive: its header, and then file after file.

use std::mem;

use bytes::{Bytes, BytesMut};

use super::task::{
    Delivery, LENGTH_BYTES, MessageError, OutputHeader, WrittenFile, is_name, parse,
};

/// The longest header that is taken, in bytes: that of some hundred thousand files.
const HEADER_BYTES_MAX: usize = 16 << 20;

/// The next thing that an answer says.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// A file begins that has this path.
    Begin(String),
    /// The file goes on.
    Bytes(Bytes),
    /// The file is whole, and its checksum right.
    End,
}

/// Takes an answer apart.
#[derive(Debug, Default)]
pub struct OutputReader {
    /// What is not yet given: before the header is there all that has arrived, and then one part.
    rest: BytesMut,
    part: Bytes,
    header: Option<OutputHeader>,
    /// Files that are whole.
    files: usize,
    /// The file that has begun.
    open: Option<Open>,
    /// Bytes that have arrived.
    taken: u64,
    /// Bytes that the message has, as far as that is known.
    expected: u64,
}

#[derive(Debug)]
struct Open {
    missing: u64,
    checksum: crc32fast::Hasher,
}

impl OutputReader {
    /// Takes the next bytes. What they say has to be asked for with [`Self::piece`] before more
    /// bytes come.
    pub fn take(&mut self, bytes: Bytes) {
        self.taken += bytes.len() as u64;
        if self.header.is_none() {
            self.rest.extend_from_slice(&bytes);
        } else {
            debug_assert!(self.part.is_empty(), "all pieces have been asked for");
            self.part = bytes;
        }
    }

    /// The next piece; `None` if that takes more bytes.
    ///
    /// # Errors
    /// What cannot be an answer.
    pub fn piece(&mut self) -> Result<Option<Piece>, MessageError> {
        if self.header.is_none() && !self.read_header()? {
            return Ok(None);
        }
        let Some(header) = &self.header else { return Ok(None) };
        let Some(file) = header.files.get(self.files) else {
            return if self.part.is_empty() { Ok(None) } else { Err(self.wrong_length()) };
        };
        let Some(open) = &mut self.open else {
            let checksum = crc32fast::Hasher::new();
            self.open = Some(Open { missing: file.bytes, checksum });
            return Ok(Some(Piece::Begin(file.path.clone())));
        };
        if open.missing == 0 {
            if open.checksum.clone().finalize() != file.checksum {
                return Err(MessageError::Checksum { path: file.path.clone() });
            }
            (self.open, self.files) = (None, self.files + 1);
            return Ok(Some(Piece::End));
        }
        if self.part.is_empty() {
            return Ok(None);
        }
        let length = self.part.len().min(usize::try_from(open.missing).unwrap_or(usize::MAX));
        let bytes = self.part.split_to(length);
        open.missing -= length as u64;
        open.checksum.update(&bytes);
        Ok(Some(Piece::Bytes(bytes)))
    }

    /// Whether the header is there.
    fn read_header(&mut self) -> Result<bool, MessageError> {
        let Some(length) = self.rest.first_chunk::<LENGTH_BYTES>() else { return Ok(false) };
        let end = LENGTH_BYTES + u32::from_be_bytes(*length) as usize;
        self.expected = end as u64;
        if end > HEADER_BYTES_MAX {
            return Err(MessageError::LongHeader { bytes: end as u64 });
        }
        if self.rest.len() < end {
            return Ok(false);
        }
        let message = mem::take(&mut self.rest).freeze();
        let (header, part) = parse::<OutputHeader>(&message)?;
        if let Some(file) = header.files.iter().find(|file| !file.path.split('/').all(is_name)) {
            return Err(MessageError::Path { path: file.path.clone() });
        }
        if header.delivery != Delivery::Inline && !header.files.is_empty() {
            return Err(MessageError::Path { path: header.files[0].path.clone() });
        }
        // Lengths that no message has would sum up to less than they are.
        let add = |sum: u64, file: &WrittenFile| sum.saturating_add(file.bytes);
        self.expected = header.files.iter().fold(end as u64, add);
        (self.header, self.part) = (Some(header), part);
        Ok(true)
    }

    fn wrong_length(&self) -> MessageError {
        MessageError::Truncated {
            found: self.taken,
            expected: self.expected.max(LENGTH_BYTES as u64),
        }
    }

    /// The header of a message that is whole.
    ///
    /// # Errors
    /// A message that is not.
    pub fn finish(self) -> Result<OutputHeader, MessageError> {
        let wrong_length = self.wrong_length();
        let is_whole = self.header.as_ref().is_some_and(|header| self.files == header.files.len());
        match self.header {
            Some(header) if is_whole && self.part.is_empty() => Ok(header),
            _ => Err(wrong_length),
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_fuzz::{Target, outcome};

    use super::*;
    use crate::cluster::task::{TaskHeader, message, request};

    fn output(files: &[(&str, &[u8])]) -> Bytes {
        let written = files.iter().map(|(path, bytes)| WrittenFile {
            path: (*path).to_owned(),
            bytes: bytes.len() as u64,
            checksum: crc32fast::hash(bytes),
        });
        let header = OutputHeader { files: written.collect(), ..OutputHeader::default() };
        message(&header, files.iter().map(|(_, bytes)| *bytes)).expect("it is a message")
    }

    /// The files of a message that arrives in pieces of `length`.
    fn read_in(bytes: &[u8], length: usize) -> Result<Vec<(String, Vec<u8>)>, MessageError> {
        let (mut reader, mut files) = (OutputReader::default(), Vec::new());
        for part in bytes.chunks(length) {
            reader.take(Bytes::copy_from_slice(part));
            while let Some(piece) = reader.piece()? {
                match piece {
                    Piece::Begin(path) => files.push((path, Vec::new())),
                    Piece::Bytes(bytes) => {
                        files.last_mut().expect("it has begun").1.extend_from_slice(&bytes);
                    }
                    Piece::End => {}
                }
            }
        }
        reader.finish().map(|_| files)
    }

    fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, MessageError> {
        read_in(bytes, usize::MAX)
    }

    #[test]
    fn files_come_back_as_they_went_however_the_bytes_arrive() {
        let sent = [("0/data-3.arrow", &b"one"[..]), ("1/data-3.arrow", b""), ("2/x", b"four")];
        let bytes = output(&sent);
        for length in [1, 2, 3, 7, bytes.len() - 1, bytes.len()] {
            let files = read_in(&bytes, length).expect("it is whole");
            let expected = sent.map(|(path, bytes)| (path.to_owned(), bytes.to_vec()));
            assert_eq!(files, expected, "in pieces of {length}");
        }
    }

    #[test]
    fn nothing_but_a_whole_message_is_taken() {
        let bytes = output(&[("0/data.arrow", b"some bytes")]);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "{end} bytes of {}", bytes.len());
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        for length in [1, longer.len()] {
            let read = read_in(&longer, length);
            assert!(matches!(read, Err(MessageError::Truncated { .. })), "{read:?}");
        }
        let mut changed = bytes.to_vec();
        *changed.last_mut().expect("it has bytes") ^= 1;
        assert!(matches!(read(&changed), Err(MessageError::Checksum { .. })));
        let endless = read(&[0xff; 64]);
        assert!(matches!(endless, Err(MessageError::LongHeader { .. })), "{endless:?}");
    }

    #[test]
    fn a_file_stays_within_its_directory() {
        for path in ["../data.arrow", "/etc/passwd", "0//x", "", "0/../../x", ".hidden"] {
            let read = read(&output(&[(path, b"x")]));
            assert!(matches!(read, Err(MessageError::Path { .. })), "{path}");
        }
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
            paths: Default::default(),
        };
        let asking = message(&header, [&b"a plan"[..]]).expect("it is a message");
        let seeds = [asking.to_vec(), output(&[("0/data-3.arrow", b"rows")]).to_vec()];
        let words = &[
            "\"files\":",
            "\"bytes\":18446744073709551615",
            "\"path\":\"",
            "../",
            "\"checksum\":0",
            "\"delivery\":\"pushed\"",
        ];
        Target::bytes("task_messages").seeds(seeds).words(words).run(|input| {
            let asked = request(&Bytes::copy_from_slice(input));
            if let Ok((header, _)) = &asked {
                assert!(!header.job.contains(['/', '\\']) && !header.job.starts_with('.'));
            }
            let answered = read(input);
            for (path, _) in answered.iter().flatten() {
                assert!(path.split('/').all(|part| part != ".." && !part.is_empty()), "{path}");
            }
            // However the bytes arrive, they are the same answer.
            let in_pieces = read_in(input, 5);
            assert_eq!(answered.is_ok(), in_pieces.is_ok(), "{answered:?} {in_pieces:?}");
            format!("{} {}", outcome(&asked), outcome(&answered))
        });
    }
}
