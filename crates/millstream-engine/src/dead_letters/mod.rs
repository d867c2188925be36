//! Dead letters: what does not become a row, kept with the reason.
//!
//! A record that cannot be decoded becomes a [`Letter`] in the split that read it
//! ([`Split::read_apart`](crate::source::Split::read_apart)), and a row that breaks a constraint
//! does after the plan has run. The driver gathers a micro-batch's letters and publishes them,
//! under the micro-batch's number, to a sink of their own; [`Layout`] says which columns it gets.
//! Once its cause is repaired a letter is read back and fed to its flow by a [`LetterSource`].

mod again;
mod filed;
mod fit;
mod layout;
mod letter;
mod source;

pub use again::Payloads;
pub use filed::Filed;
pub use layout::{Form, Group, Layout, LayoutError, OWN_HEADER_PREFIX, Stamp};
pub use letter::{Letter, Place};
pub use source::{LetterBox, LetterSource, ReplayError, Tally};

/// The option of a source that names the table its dead letters go to.
pub const OPTION: &str = "deadLetter";
