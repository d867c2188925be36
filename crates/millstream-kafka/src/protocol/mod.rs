//! As much of Kafka's protocol as a reader and a producer with transactions speak: requests and
//! answers as bytes, record batches, and a connection that blocks.
//!
//! librdkafka needs several hand-overs between threads and a request per partition for each
//! transaction, which is too slow for a micro-batch every few milliseconds; and it makes an object
//! of each record that is read, where a column needs its bytes alone.
//!
//! Nothing here reads a clock or decides what an error means for a query.

pub mod compression;
pub mod connection;
pub mod error_code;
pub mod fetch;
pub mod frame;
pub mod login;
pub mod partitioner;
mod read;
pub mod record_batch;
pub mod record_batches;
pub mod refusal;
pub mod requests;
pub mod responses;
pub mod scram;
pub mod security;
pub mod tls;
pub(crate) mod write;

/// Who writes: what the brokers gave a transactional id, one epoch more for each transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdentity {
    /// The producer's id.
    pub id: i64,
    /// Its epoch; the brokers refuse requests with an older one.
    pub epoch: i16,
}

#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
