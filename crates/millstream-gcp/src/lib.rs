//! Google Cloud: Pub/Sub as a source, BigQuery as a sink.
//!
//! Both are gRPC over the connections that [`service`] makes, with tokens that [`credentials`]
//! gets. Messages and clients are generated from Google's own interface definitions; what a
//! service's answers mean, when a call is repeated and how long it may take is decided here, since
//! only this code knows what is durable and what was published.
//!
//! - [`credentials`]: keys, files and the metadata server become tokens.
//! - [`service`]: where a service is, and a connection to it.
//! - [`pubsub`]: subscriptions as a source.
//! - [`bigquery`]: tables as a sink.

pub mod bigquery;
pub mod credentials;
pub mod pubsub;
pub mod service;
