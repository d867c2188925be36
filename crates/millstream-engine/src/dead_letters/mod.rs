//! Dead letters as input: read back from their table, and fed to their flow once more.
//!
//! A letter whose cause is repaired is one of a [`LetterSource`], which decodes its payload as the
//! record's table is declared now. What a letter is stands in [`crate::api::dead_letter`].

mod error;
mod replay_input;
mod source;
mod table_reader;

pub use error::ReplayError;
pub use source::{LetterBox, LetterSource, Tally};
pub use table_reader::StoredLetter;
