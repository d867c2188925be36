//! Pulsar's binary protocol: bytes and what they mean. Nothing here touches the network.
//!
//! ```text
//! size | command size | command                                            a plain command
//! size | command size | command | 0x0e01 | CRC | metadata size | metadata | payload
//! ```
//!
//! - [`frame`]: commands, and the entries that some carry.
//! - [`messages`], [`numbers`]: what commands and metadata are made of. [`answers`]:
//!   which request is answered, and how.
//! - [`payload`]: the messages of an entry, packed and unpacked. [`compression`] makes it smaller.
//!
//! Origin: the protocol's specification and `PulsarApi.proto` of Apache Pulsar 4.2.

pub(crate) mod answers;
pub(crate) mod compression;
pub(crate) mod frame;
pub(crate) mod messages;
mod numbers;
pub(crate) mod payload;
#[cfg(test)]
mod tests;
