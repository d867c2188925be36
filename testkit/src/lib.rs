//! What the end-to-end tests and the benchmarks run against: real brokers, programs of others, and
//! connections that can be cut.
//!
//! - [`kafka`] starts an Apache Kafka, [`admin`] makes topics on it, and [`topics`] writes and
//!   reads records; [`proxy`] stands in front of it and cuts connections;
//! - [`cluster`] is three brokers that replicate, each of which can be lost and whose leaders move;
//! - [`rights`] has a broker with access control, whose users get rights one at a time;
//! - [`http_receiver`] records the requests of webhooks; [`tokens`] is an identity provider;
//! - [`registry`] is a schema registry;
//! - [`redis`] starts Redis and Valkey, [`cassandra`] an Apache Cassandra, [`pulsar`] an Apache
//!   Pulsar and [`pulsar_pair`] two brokers of it, [`pubsub`] a Pub/Sub, [`bigquery`] an emulator
//!   of BigQuery;
//! - a [`passage`] stands in front of any server, and its connections can go silent;
//! - [`cache`] keeps what is downloaded once, [`spark_inputs`] among it; [`certificates`] are made
//!   anew;
//! - [`disk_record`] records what a process does to files, and what a power cut leaves of them;
//! - [`process`] starts children that end with this process; a [`program`] is one with a name, a
//!   log and figures of what it uses;
//! - [`wait`] waits for events, with a limit.
//!
//! What a person may have to repair (a program that is not installed, a broker that does not
//! answer) is an [`Error`](error::Error), whose text says how. What is only for tests panics: it
//! says so.
//!
//! Nothing here knows the engine.

pub mod admin;
pub mod bigquery;
pub mod cache;
pub mod cassandra;
pub mod certificates;
pub mod cluster;
pub mod disk_record;
pub mod error;
pub mod http_receiver;
pub mod kafka;
mod kafka_java;
pub mod passage;
pub mod process;
pub mod program;
pub mod proxy;
pub mod pubsub;
pub mod pulsar;
pub mod pulsar_pair;
pub mod redis;
pub mod registry;
mod requests;
pub mod rights;
pub mod spark_inputs;
pub mod tokens;
pub mod topics;
pub mod wait;
