//! Apache Kafka, as source and as sink. Option names, offsets and columns are Spark's; the client
//! is librdkafka.
//!
//! ## A record's way
//!
//! 1. The client's own thread receives it; [`source`]'s reader copies it into a chunk of columns of
//!    its partition, which waits in the read-ahead buffer until the driver takes it.
//! 2. A split decodes it while the query runs.
//! 3. The [`sink`] hands what came out to the client, and the delivery reports tell the driver when
//!    the brokers have it.
//!
//! Nothing in that way asks a broker what is new: [`client::cluster`] and the source's partition
//! watch do that aside, with a client of their own.
//!
//! ## Modules, each knowing only those before it
//!
//! - [`error`], [`offsets`]: what can go wrong, and the [`remedy`] of a refusal; offsets by
//!   partition and their JSON.
//! - [`protocol`]: as much of Kafka's protocol as transactions need, as bytes.
//! - [`tokens`]: who gives tokens to logins.
//! - [`client`]: librdkafka, its settings, and questions to the brokers.
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
