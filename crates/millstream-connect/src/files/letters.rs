//! Letters that are read as lines of files once more.

use std::path::Path;

use arrow::array::RecordBatch;
use millstream_engine::source::{Failure, Letter, Place, RecordBatches, Split};

use super::csv::CsvDecoder;
use super::lines::Block;
use super::options::Format;
use super::read::Reader;

/// Payloads of letters, decoded as a table says now.
pub(super) struct LetterSplit {
    pub(super) letters: Vec<Letter>,
    pub(super) reader: Reader,
}

/// The payloads as lines, each with its place among the letters as its number.
fn block(letters: &[Letter]) -> Block {
    let mut block = Block { bytes: Vec::new(), offsets: vec![0], numbers: Vec::new() };
    for (number, letter) in (0..).zip(letters) {
        block.bytes.extend_from_slice(letter.payload.as_deref().unwrap_or_default());
        block.offsets.push(i32::try_from(block.bytes.len()).expect("letters come in small groups"));
        block.numbers.push(number);
    }
    block
}

fn decode(
    reader: &Reader,
    letters: &[Letter],
    projection: &[usize],
) -> Result<RecordBatch, Failure> {
    let (block, nowhere) = (block(letters), Path::new("letters"));
    let rows = match reader.options.format {
        Format::Csv => CsvDecoder::new(reader, projection).decode(&block, nowhere),
        _ => reader.json(projection).decode(&block, nowhere),
    };
    Ok(rows?)
}

impl Split for LetterSplit {
    fn rows(&self) -> u64 {
        self.letters.len() as u64
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        Box::new(std::iter::once(decode(&self.reader, &self.letters, projection)))
    }

    fn read_apart(
        self: Box<Self>,
        projection: &[usize],
        letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let (reader, rejected) = self.reader.apart();
        let mut own = self.letters;
        let rows = decode(&reader, &own, projection)?;
        for again in rejected.lock().drain(..) {
            let Some(Place::Line { line, .. }) = again.place else { continue };
            let index = usize::try_from(line).expect("it was counted from zero");
            letters.push(Letter { error: again.error, ..std::mem::take(&mut own[index]) });
        }
        Ok(vec![rows])
    }
}
