//! placeholder

/// placeholder
#[derive(Debug)]
pub struct Cleaned;
/// placeholder
pub fn cleanup() {}
