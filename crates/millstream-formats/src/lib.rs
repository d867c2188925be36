//! Record formats, shared by every source and sink.
//!
//! - [`excerpt`]: the beginning of a record's value, for a message.

mod excerpt;

pub use excerpt::excerpt;
