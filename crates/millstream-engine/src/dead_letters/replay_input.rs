//! Payloads of letters as input of a source once more.

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::error::ReplayError;
use super::table_reader::StoredLetter;
use crate::api::dead_letter::{Letter, Payloads};
use crate::api::source::{Failure, RecordBatches, Split};

/// Letters that are decoded together.
const LETTERS_IN_A_SPLIT: usize = 1_024;
/// And the bytes of their payloads, but for one that has more by itself.
const BYTES_IN_A_SPLIT: usize = 16 << 20;

/// Some letters of one source.
pub(super) struct LetterSplit {
    pub(super) letters: Vec<StoredLetter>,
    pub(super) payloads: Arc<dyn Payloads>,
}

/// `letters` in pieces that can be decoded together, in order.
pub(super) fn cut(letters: &[StoredLetter]) -> impl Iterator<Item = &[StoredLetter]> {
    let mut rest = letters;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |filed: &&StoredLetter| {
            bytes += filed.letter.payload.as_ref().map_or(0, Vec::len);
            bytes <= BYTES_IN_A_SPLIT
        };
        let count = rest.iter().take(LETTERS_IN_A_SPLIT).take_while(fits).count();
        let (piece, others) = rest.split_at(count.max(1).min(rest.len()));
        rest = others;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The columns `projection` of `letters`; `reject` hears which cannot be decoded, and why.
pub(super) fn decode(
    payloads: &dyn Payloads,
    letters: &[StoredLetter],
    projection: &[usize],
    reject: &mut dyn FnMut(usize, String),
) -> Result<RecordBatch, Failure> {
    let bytes: Vec<_> = letters.iter().map(|filed| filed.letter.payload.as_deref()).collect();
    payloads.decode(&bytes, projection, reject)
}

impl Split for LetterSplit {
    fn rows(&self) -> u64 {
        self.letters.len() as u64
    }

    /// Errors: a letter that could be decoded when it was chosen, and cannot any more.
    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let mut unfit = None;
        let mut reject = |index: usize, problem| {
            let position = self.letters[index].position.clone();
            unfit.get_or_insert(ReplayError::Unfit { position, problem });
        };
        let rows = decode(&*self.payloads, &self.letters, projection, &mut reject);
        Box::new(std::iter::once(match unfit {
            Some(unfit) => Err(unfit.into()),
            None => rows,
        }))
    }

    fn read_with_letters(
        self: Box<Self>,
        projection: &[usize],
        letters: &mut Vec<Letter>,
    ) -> Result<Vec<RecordBatch>, Failure> {
        let mut reject = |index: usize, error| {
            letters.push(Letter { error, ..self.letters[index].letter.clone() });
        };
        Ok(vec![decode(&*self.payloads, &self.letters, projection, &mut reject)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(bytes: &[usize]) -> Vec<StoredLetter> {
        let filed = |bytes: &usize| {
            let letter = Letter { payload: Some(vec![b'x'; *bytes]), ..Letter::default() };
            StoredLetter { source_table: None, position: String::new(), is_whole: true, letter }
        };
        bytes.iter().map(filed).collect()
    }

    #[test]
    fn pieces_are_bounded_by_number_and_by_bytes() {
        let lengths =
            |letters: &[StoredLetter]| cut(letters).map(<[StoredLetter]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&letters(&[1; 2_500])), [1_024, 1_024, 452]);
        let third = BYTES_IN_A_SPLIT / 3;
        assert_eq!(lengths(&letters(&[third; 7])), [3, 3, 1]);
        let over = BYTES_IN_A_SPLIT + 1;
        assert_eq!(lengths(&letters(&[1, over, over, 1])), [1, 1, 1, 1], "one of them may be over");
    }
}
