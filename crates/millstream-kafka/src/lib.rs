//! Apache Kafka, as source and as sink. Option names, offsets and columns are Spark's; the protocol
//! is spoken by a client of our own, and by librdkafka where that one lacks a setting or a broker.
//!
//! ## A record's way
//!
//! 1. A thread for each broker receives it; it is copied into a chunk of columns of its partition,
//!    which waits in the [`source`]'s read-ahead buffer until the driver takes it.
//! 2. A split decodes it while the query runs.
//! 3. The [`sink`] packs what came out into record batches, one request for each broker, and the
//!    answers tell the driver when the brokers have it.
//!
//! Nothing in that way asks a broker what is new: [`client::cluster`] and the source's partition
//! watch do that aside, with a client of their own.
//!
//! ## Modules, each knowing only those before it
//!
//! - [`error`], [`offsets`]: what can go wrong, and the [`remedy`] of a refusal; offsets by
//!   partition and their JSON.
//! - [`protocol`]: as much of Kafka's protocol as reading and writing need, as bytes.
//! - [`tokens`]: who gives tokens to logins.
//! - [`client`]: librdkafka, its settings, and questions to the brokers.
//! - [`brokers`]: connections over the protocol, leaders and coordinators.
//! - [`sink`] writes exactly once, through transactions, or at least once; [`source`] reads.
//! - [`connector`]: `USING kafka`, which makes the two.
//!
//! Not here: schema registries.

mod brokers;
mod client;
mod connector;
mod error;
mod known_options;
mod offsets;
mod protocol;
mod remedy;
mod sink;
mod source;
mod tokens;

pub use connector::KafkaConnector;
pub use error::{DataLoss, MalformedValue, SinkError, SourceError};
