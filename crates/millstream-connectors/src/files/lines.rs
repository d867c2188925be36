//! A file as blocks of lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use millstream_engine::api::dead_letter::{Letter, Place};

/// Lines in a block: as many as rows in a record batch.
const BLOCK_LINES: usize = 8_192;
/// A block ends early when it holds this much text.
const BLOCK_BYTES: usize = 8 << 20;
/// A line that is longer than this is taken for a file in another format.
pub(super) const LINE_BYTES_MAX: u64 = 256 << 20;
const BUFFER_BYTES: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Some lines, one after the other in one buffer, without their line breaks.
#[derive(Clone)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    /// Line `i` is `bytes[offsets[i]..offsets[i + 1]]`.
    pub(super) offsets: Vec<i32>,
    /// Where each line stands in the file, from 1.
    pub(super) numbers: Vec<u64>,
}

impl Block {
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn line(&self, index: usize) -> &[u8] {
        &self.bytes[self.offsets[index] as usize..self.offsets[index + 1] as usize]
    }

    /// The line at `index` as a block.
    pub(super) fn only(&self, index: usize) -> Self {
        let bytes = self.line(index).to_vec();
        let end = i32::try_from(bytes.len()).expect("a block is small");
        Self { bytes, offsets: vec![0, end], numbers: vec![self.numbers[index]] }
    }

    /// The line at `index` of the file `file` as a dead letter.
    pub(super) fn letter(&self, file: &Arc<str>, index: usize, error: String) -> Letter {
        let place = Place::Line { file: Arc::clone(file), line: self.numbers[index] };
        let payload = Some(self.line(index).to_vec());
        Letter { payload, error, place: Some(place), ..Letter::default() }
    }
}

/// What is left out of the lines of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Skip {
    /// Lines of nothing but white space.
    pub(super) blank: bool,
    /// The first line that is left.
    pub(super) header: bool,
}

/// Reads the lines of a file. Lines end in `\n` or `\r\n`; a byte order mark is left out.
pub(super) struct Lines {
    reader: BufReader<File>,
    skip: Skip,
    number: u64,
    header_left: bool,
}

impl Lines {
    pub(super) fn new(file: File, skip: Skip) -> Self {
        let reader = BufReader::with_capacity(BUFFER_BYTES, file);
        Self { reader, skip, number: 0, header_left: skip.header }
    }

    /// The file, to ask for its state.
    pub(super) fn file(&self) -> &File {
        self.reader.get_ref()
    }

    /// The next lines, or `None` at the end. A line over [`LINE_BYTES_MAX`] is `InvalidData`.
    pub(super) fn next_block(&mut self) -> io::Result<Option<Block>> {
        let mut block = Block { bytes: Vec::new(), offsets: vec![0], numbers: Vec::new() };
        while block.len() < BLOCK_LINES && block.bytes.len() < BLOCK_BYTES {
            let start = block.bytes.len();
            let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
            let read = limited.read_until(b'\n', &mut block.bytes)?;
            if read == 0 {
                break;
            }
            self.number += 1;
            if read as u64 == LINE_BYTES_MAX {
                let message = format!("line {} is longer than 256 MiB", self.number);
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            trim_end(&mut block.bytes, start);
            if self.number == 1 && block.bytes.starts_with(BYTE_ORDER_MARK) {
                block.bytes.drain(..BYTE_ORDER_MARK.len());
            }
            let is_blank = self.skip.blank && block.bytes[start..].trim_ascii().is_empty();
            let is_header = !is_blank && std::mem::take(&mut self.header_left);
            if is_blank || is_header {
                block.bytes.truncate(start);
                continue;
            }
            block.offsets.push(i32::try_from(block.bytes.len()).expect("a block is small"));
            block.numbers.push(self.number);
        }
        Ok((block.len() > 0).then_some(block))
    }
}

fn trim_end(bytes: &mut Vec<u8>, start: usize) {
    if bytes.len() > start && bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.len() > start && bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines(text: &[u8], skip: Skip) -> Vec<(u64, String)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let mut lines = Lines::new(file, skip);
        let mut found = Vec::new();
        while let Some(block) = lines.next_block().unwrap() {
            found.extend((0..block.len()).map(|row| {
                (block.numbers[row], String::from_utf8(block.line(row).to_vec()).unwrap())
            }));
        }
        found
    }

    fn line(number: u64, text: &str) -> (u64, String) {
        (number, text.to_owned())
    }

    #[test]
    fn lines_end_in_either_way_or_with_the_file() {
        let all = Skip { blank: false, header: false };
        assert_eq!(lines(b"", all), []);
        assert_eq!(lines(b"a\r\n\nb\n", all), [line(1, "a"), line(2, ""), line(3, "b")]);
        assert_eq!(lines(b"\xef\xbb\xbfa\rb\nc", all), [line(1, "a\rb"), line(2, "c")]);
    }

    #[test]
    fn blank_lines_and_the_header_are_left_out() {
        let records = Skip { blank: true, header: true };
        assert_eq!(lines(b" \nid\n\t\r\n1\n\n2", records), [line(4, "1"), line(6, "2")]);
        assert_eq!(lines(b"id", records), []);
    }

    #[test]
    fn blocks_are_bounded() {
        let text = "x\n".repeat(BLOCK_LINES + 1);
        let all = Skip { blank: false, header: false };
        assert_eq!(lines(text.as_bytes(), all).last(), Some(&line(BLOCK_LINES as u64 + 1, "x")));
    }
}
