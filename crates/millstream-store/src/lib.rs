//! What survives a crash: identifiers, offsets, log codecs, the offset log and the commit log.
//!
//! Nothing here knows SQL, DataFusion or a socket, so the logs build in seconds and can be tested
//! and fuzzed alone. `env` is the project's one door to clock, randomness, tasks and threads.

pub mod env;
pub mod error;
pub mod offset;
pub mod source_log;
