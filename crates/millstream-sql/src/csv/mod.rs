//! Separated values: the values of one line, and the line of some values.
//!
//! The [`Splitter`] is on the path of every CSV record that arrives, from a file, from a message or
//! from a column that `from_csv` reads. It looks at one record at a time and knows no types: what a
//! value means is the reader's business.

mod splitter;
mod writer;

pub use splitter::Splitter;
pub(crate) use writer::{WriteRules, Writer};

/// How values are written on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Between values.
    pub separator: u8,
    /// Around values; `None` where quotes mean nothing.
    pub quote: Option<u8>,
    /// Before a quote inside a quoted value.
    pub escape: Option<u8>,
    /// Text that stands for null, besides nothing at all.
    pub null_value: String,
}

impl Default for Dialect {
    /// Spark's: commas, double quotes and backslashes.
    fn default() -> Self {
        Self { separator: b',', quote: Some(b'"'), escape: Some(b'\\'), null_value: String::new() }
    }
}
