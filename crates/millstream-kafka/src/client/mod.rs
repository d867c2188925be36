//! The client of the brokers, librdkafka, and what reading and writing share about it.
//!
//! [`settings`] are a table's `kafka.*` options as librdkafka names them; [`context`] and
//! [`delivery_reports`] receive what a client reports; [`cluster`] asks the brokers which
//! partitions a [`subscription`] means and where they begin and end; [`native`] calls librdkafka
//! where its Rust binding allocates for each record, or lacks a function; [`create`] makes clients,
//! with a token where one is needed; [`poller`] is the thread that serves a producer's events.

pub mod cluster;
pub mod context;
pub mod create;
pub mod delivery_reports;
pub mod native;
mod native_token;
pub mod needs;
pub mod poller;
mod probe;
pub mod settings;
pub mod subscription;
