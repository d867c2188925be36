//! What touches the world: one module per connector.
//!
//! A connector is a name that stands after `USING` in a pipeline file. It checks its options
//! without touching anything but a table whose columns are not declared, and then makes sources and
//! sinks against the traits of `millstream-engine`; nothing here knows SQL or the micro-batch
//! driver. [`registry`] lists what this crate has, and what are crates of their own:
//! [`millstream_kafka`], and with the features of their names `millstream_gcp`,
//! `millstream_cassandra` and `millstream_pulsar`.
//!
//! - [`rate`]: rows on a clock, for tries, demonstrations and benchmarks.
//! - [`files`]: directories of JSON, CSV, Parquet and text, read and written.
//! - [`delta`]: tables of Delta Lake.
//! - [`webhook`], [`email`]: rows as HTTP requests and as mails, to notify services and people.
//! - [`redis`]: keys of Redis and Valkey.
//! - [`console`], [`noop`], [`memory`], [`stats`]: sinks that print, drop, keep and measure.

pub mod console;
pub mod delta;
pub mod email;
pub mod files;
mod gather;
pub mod memory;
pub mod noop;
mod notify;
mod paths;
mod places;
pub mod rate;
pub mod redis;
pub mod stats;
#[cfg(test)]
mod testing;
pub mod webhook;

pub use millstream_engine::api::duration;

use std::path::Path;
use std::sync::Arc;

use millstream_engine::api::connector::{Connector, Registry};

/// All connectors, for pipelines whose paths are relative to `base_dir`; to be the
/// same as `FlowContext::base_dir`.
pub fn registry(base_dir: &Path) -> Registry {
    let mut connectors: Vec<Arc<dyn Connector>> = vec![
        Arc::new(millstream_kafka::KafkaConnector::new(base_dir)),
        Arc::new(delta::Delta::new(base_dir)),
        Arc::new(rate::Rate),
        Arc::new(redis::Redis::new(base_dir)),
        Arc::new(console::Console),
        Arc::new(noop::Noop),
        Arc::new(memory::Memory),
        Arc::new(stats::Stats),
        Arc::new(webhook::Webhook),
        Arc::new(email::Email),
        Arc::new(files::Files::any(base_dir)),
    ];
    #[cfg(feature = "gcp")]
    connectors.push(Arc::new(millstream_gcp::bigquery::BigQuery::new(base_dir)));
    #[cfg(feature = "gcp")]
    connectors.push(Arc::new(millstream_gcp::pubsub::Pubsub::new(base_dir)));
    #[cfg(feature = "cassandra")]
    connectors.push(Arc::new(millstream_cassandra::Cassandra::new(base_dir)));
    #[cfg(feature = "pulsar")]
    connectors.push(Arc::new(millstream_pulsar::Pulsar::new(base_dir)));
    for format in files::Format::ALL {
        connectors.push(Arc::new(files::Files::of(format, base_dir)));
    }
    Registry::new(connectors)
}
