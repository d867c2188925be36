//! Apache Pulsar: topics as sources, and as sinks exactly once.
//!
//! The client is our own, over the binary protocol: exactly-once delivery needs transactions, and
//! needs to decide itself what is repeated after which failure.
//!
//! - [`error`]: what goes wrong. [`topic`], [`columns`]: names.
//! - [`protocol`]: bytes and what they mean. [`client`]: connections, and what is done over them.
//! - [`source`]: topics that are read. [`sink`]: topics that are written.
//! - [`options`], [`connector`]: what a table may say, and what it becomes.

mod client;
mod columns;
mod connector;
mod error;
mod options;
mod protocol;
mod sink;
mod source;
mod topic;

pub use connector::Pulsar;
