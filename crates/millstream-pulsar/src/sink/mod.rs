//! Rows into topics.
//!
//! ```text
//! publish ──▶ writer (a task): encode ──▶ begin ──▶ rows ──▶ progress ──▶ commit ──▶ acknowledged
//!                                        └──────── one transaction ────────┘
//! ```
//!
//! The query's progress is a message in a topic of the query's own and part of the same
//! transaction, so both are visible or neither is, and a start reads there what was published.
//!
//! - [`options`]: what a table's options say. [`columns`]: rows as messages.
//! - [`encode`]: messages in batches, by partition.
//! - [`progress`]: the query's own topic. [`session`]: one transaction after the other.
//! - [`writer`]: micro-batches, and what is tried again. [`sink`]: what the driver sees.

mod columns;
mod encode;
mod options;
mod progress;
mod session;
#[allow(clippy::module_inception)]
mod sink;
mod writer;

pub(crate) use options::SinkOptions;
pub(crate) use sink::PulsarSink;
