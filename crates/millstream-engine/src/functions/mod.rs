//! functions
pub(crate) mod calendar;
pub(crate) mod java_text;
pub(crate) mod types;
