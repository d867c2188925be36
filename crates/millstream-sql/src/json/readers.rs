//! How dates and times are read where the user says their form. Which forms there are is the
//! business of the functions, which come after JSON.

use std::fmt;
use std::sync::Arc;

use super::lenient::Leniency;

/// Reads a text as microseconds, since the epoch or since midnight; `None` if it has another form.
#[derive(Clone)]
pub(crate) struct Reader(Arc<Read>);

/// Gives what a text means, if anything.
type Read = dyn Fn(&str) -> Option<i64> + Send + Sync;

impl Reader {
    /// A reader that does what `read` does.
    pub fn new(read: impl Fn(&str) -> Option<i64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The microseconds.
    pub fn read(&self, text: &str) -> Option<i64> {
        (self.0)(text)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

/// The readers by type; where there is none, texts have the usual form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    pub date: Option<Reader>,
    pub time: Option<Reader>,
    pub timestamp: Option<Reader>,
    pub timestamp_ntz: Option<Reader>,
    /// What is taken beyond RFC 8259, for functions. What is no string then becomes a STRING as
    /// Spark's parser writes it.
    pub lenient: Option<Leniency>,
}

/// How a column is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Whether a key may differ from its field's name in case.
    pub ignore_case: bool,
    pub readers: Readers,
}
