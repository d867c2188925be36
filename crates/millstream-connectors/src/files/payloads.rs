//! Payloads of letters that are read as lines of files once more.

use std::path::Path;

use arrow::array::RecordBatch;
use millstream_engine::api::dead_letter::Payloads;
use millstream_engine::api::dead_letter::Place;
use millstream_engine::api::source::Failure;

use super::lines::Block;
use super::read::FileReader;

impl Payloads for FileReader {
    fn decode(
        &self,
        payloads: &[Option<&[u8]>],
        projection: &[usize],
        reject: &mut dyn FnMut(usize, String),
    ) -> Result<RecordBatch, Failure> {
        let (block, nowhere) = (block(payloads), Path::new("letters"));
        let (reader, rejected) = self.apart();
        let rows = reader.decoder(projection).decode(block, nowhere)?;
        for letter in rejected.lock().drain(..) {
            let Some(Place::Line { line, .. }) = letter.place else { continue };
            let index = usize::try_from(line).expect("it was counted from zero");
            reject(index, letter.error);
        }
        Ok(rows)
    }
}

/// The payloads as lines, each with its place among them as its number.
fn block(payloads: &[Option<&[u8]>]) -> Block {
    let mut block = Block { bytes: Vec::new(), offsets: vec![0], numbers: Vec::new() };
    for (number, payload) in (0..).zip(payloads) {
        block.bytes.extend_from_slice(payload.unwrap_or_default());
        block.offsets.push(i32::try_from(block.bytes.len()).expect("a line is short enough"));
        block.numbers.push(number);
    }
    block
}
