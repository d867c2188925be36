//! End-to-end tests: the `millstream` binary against real parts.
//!
//! Nothing here looks inside the engine. A test writes a pipeline file, starts the binary as a
//! user would ([`millstream`]), feeds it through a real Apache Kafka ([`kafka`]), whose
//! connections can be cut ([`proxy`]), through three of them ([`cluster`]), or through files,
//! and looks at what came out: records, files, the checkpoint's bytes ([`checkpoint`]), exit
//! status and messages. Where Spark compatibility is promised, a real Spark takes part
//! ([`spark`]); of Delta tables, the engines that users have ([`oracle`]), and an S3 server
//! ([`object_store`]).
//!
//! Java, Maven and Python must be installed; Kafka's and Spark's own files are downloaded once
//! into a cache directory ([`cache`]). A missing tool fails the test and says what to install.
//! No process outlives the test process ([`process`]), and nothing waits for a fixed time where
//! it can wait for an event ([`wait`]).

use millstream_testkit::{
    cache, certificates, cluster, http_receiver, kafka, process, program, proxy, spark_inputs,
    topics, wait,
};

mod checkpoint;
mod live;
mod millstream;
mod oracle;
mod spark;

mod agreement;
mod bad_input;
mod batch_memory;
mod bench;
#[cfg(feature = "gcp")]
mod bigquery;
#[cfg(feature = "gcp")]
mod bigquery_letters;
#[cfg(feature = "cassandra")]
mod cassandra;
mod cassandra_lookup;
mod chaos;
mod checkpoint_damage;
mod dead_letters;
mod delivery;
mod delta;
mod delta_compaction;
mod delta_merge;
mod delta_source;
mod demo;
mod email;
mod errors_at_rest;
mod exactly_once;
mod examples;
mod files_and_static;
mod files_exactly_once;
mod flight_sql;
mod flow_names;
mod foreign_hands;
mod generate;
mod harness_itself;
mod kafka_failures;
mod kafka_million;
mod kafka_operations;
mod kafka_quotas;
mod kafka_rights;
mod kafka_schemas;
mod kafka_security;
mod kafka_starts;
mod kafka_tokens;
mod kinds_of_state;
mod lake;
mod lake_bad_input;
mod many_flows;
mod nexmark;
mod object_store;
mod old_checkpoints;
mod old_kafka_checkpoints;
mod on_error;
mod power_cuts;
#[cfg(feature = "gcp")]
mod pubsub;
#[cfg(feature = "pulsar")]
mod pulsar;
mod queries;
mod queries_in_buckets;
mod redis_lookup;
mod redis_sink;
mod redis_source;
mod refused_messages;
mod refused_rows;
mod renamed;
mod runners;
mod secrets;
mod several_sinks;
mod spark_answers;
mod spark_handover;
mod stateful_flows;
mod three_brokers;
mod tpcds;
mod triggers;
mod user_analytics;
mod webhook;
mod windows;
