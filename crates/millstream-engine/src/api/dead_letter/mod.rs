//! What a dead letter is, and which columns it gets in its table.
//!
//! A record that cannot be decoded becomes a [`Letter`] in the split that read it
//! ([`read_with_letters`](super::source::Split::read_with_letters)), and a row that breaks a
//! constraint does after the plan has run. [`Layout`] says which columns the letters' table gets; a
//! connector says what its rows look like ([`Form`]) and decodes payloads once more ([`Payloads`]);
//! its side of this is its `DeadLetterSupport`.

mod fit;
mod layout;
mod letter;

use arrow::array::RecordBatch;

use super::source::Failure;
pub use layout::{Form, Group, Layout, LayoutError, OWN_HEADER_PREFIX, Stamp};
pub(crate) use layout::{PAYLOAD_BYTES, spelling};
pub use letter::{Letter, Place};

/// The option of a source that names the table its dead letters go to.
pub const OPTION: &str = "deadLetter";

/// Decodes payloads of letters as a table is declared now.
pub trait Payloads: Send + Sync {
    /// The columns `projection` of the payloads that can be decoded, in order. `reject` hears which
    /// of them cannot, and why; `None` is a record that had no value.
    fn decode(
        &self,
        payloads: &[Option<&[u8]>],
        projection: &[usize],
        reject: &mut dyn FnMut(usize, String),
    ) -> Result<RecordBatch, Failure>;
}
