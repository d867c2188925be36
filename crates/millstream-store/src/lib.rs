//! What survives a crash: identifiers, offsets, log codecs, the offset log and the commit log.
//!
//! Nothing here knows SQL, DataFusion or a socket, so the logs build in seconds and can be tested
//! and fuzzed alone. `env` is the project's one door to clock, randomness, tasks and threads.
//!
//! A checkpoint is a directory in the format of Spark Structured Streaming, so that a query can
//! move between Spark and Millstream. Its life, with the module that tells each part:
//!
//! 1. [`checkpoint`] opens the directory (a local one under a lock), reads or makes `metadata`
//!    ([`metadata`]), and refuses a checkpoint that it cannot continue;
//! 2. [`recovery`] finds where the query stopped, from the last entries of both logs;
//! 3. [`source_log`] gives each source its private part, `sources/<id>/`, and [`sink_log`] each
//!    sink;
//! 4. [`log_writer`] writes, in the background, one [`offset_log`] entry (the intent) and one
//!    [`commit_log`] entry per micro-batch, and deletes old ones;
//! 5. [`state_log`] writes what a micro-batch changed in the state of a query's operators;
//! 6. [`journal`] keeps the input of sources that cannot be asked for it again;
//! 7. [`storage`] is where all bytes go: a local directory or an object store;
//! 8. [`inspect`] tells a person what a checkpoint holds.
//!
//! [`directory_name`] says where a flow's checkpoint is, whatever the flow is called, and
//! [`secrets`] removes secrets from every text that people read.
//!
//! [`crash_points`] are the moments at which tests end the process to show that all of this holds.

pub mod checkpoint;
pub mod codec;
pub mod commit_log;
pub mod crash_points;
pub mod directory_name;
pub mod env;
pub mod error;
pub mod inspect;
pub mod journal;
pub mod layout;
mod lock;
pub mod log_writer;
pub mod metadata;
pub mod offset;
pub mod offset_log;
pub mod recovery;
pub mod secrets;
pub mod sink_log;
pub mod source_log;
pub mod state_log;
pub mod storage;
pub mod time_text;
pub mod timer;
