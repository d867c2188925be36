//! Dead letters as input: read back from their table, and fed to their flow once more.
//!
//! A letter whose cause is repaired is one of a [`LetterSource`], which decodes its payload as the
//! record's table is declared now. What a letter is stands in [`crate::api::dead_letter`].

mod again;
mod error;
mod filed;
mod source;

pub use error::ReplayError;
pub use filed::Filed;
pub use source::{LetterBox, LetterSource, Tally};
