//! What is measured: a route, a configuration and a checkpoint, and what the engine is given for
//! it.

use clap::ValueEnum;
use serde::Serialize;

use crate::broker::Replication;
use crate::engine::{Delivery, EngineOptions};
use crate::rate_to_stats::KEPT_UP;
use crate::report;

/// Where rows come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Route {
    /// Generated rows to the stats sink.
    RateToStats,
    /// Topic to topic.
    KafkaToKafka,
}

/// Who waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Configuration {
    /// Hardly any progress is written.
    None,
    /// Each micro-batch waits for both entries and for the deletion of old ones.
    Plain,
    /// As plain, old entries are deleted aside.
    AsyncPurge,
    /// An entry a second, not waited for; deletion is waited for.
    AsyncProgress,
    /// An entry a second, nothing is waited for.
    AsyncBoth,
    /// Entries for each micro-batch, written beside the work.
    Default,
    /// The default, with a Kafka transaction for each micro-batch.
    ExactlyOnce,
}

const BLOCKING_PROGRESS: (&str, &str) = ("progressLogging", "blocking");
const BLOCKING_PURGE: (&str, &str) = ("logPurge", "blocking");
const ASYNC: (&str, &str) = ("asyncProgressTrackingEnabled", "true");
const RETAIN: &str = "minBatchesToRetain";
const HARDLY_EVER: (&str, &str) = ("asyncProgressTrackingCheckpointIntervalMs", "86400000");

impl Configuration {
    /// The options of the flow.
    pub(super) fn options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::None => &[ASYNC, HARDLY_EVER],
            Self::Plain => &[BLOCKING_PROGRESS, BLOCKING_PURGE],
            Self::AsyncPurge => &[BLOCKING_PROGRESS],
            Self::AsyncProgress => &[ASYNC, BLOCKING_PURGE],
            Self::AsyncBoth => &[ASYNC],
            Self::Default | Self::ExactlyOnce => &[],
        }
    }

    /// Whether it is measured on a route.
    pub(super) fn exists_on(self, route: Route) -> bool {
        self != Self::ExactlyOnce || route == Route::KafkaToKafka
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Setup {
    pub(super) route: Route,
    pub(super) rate: u64,
    pub(super) partitions: i32,
    pub(super) put_latency_ms: u64,
    pub(super) list_latency_ms: u64,
    pub(super) delete_latency_ms: u64,
    /// `None` for the engine's default.
    pub(super) min_batches_to_retain: Option<u64>,
    pub(super) configuration: Configuration,
    pub(super) seconds: u64,
    /// How many brokers keep a record; `None` where Kafka has no part.
    #[serde(flatten)]
    pub(super) replication: Option<Replication>,
}

impl Setup {
    /// Names one of its rounds, in files and topics.
    pub(super) fn label(&self, round: u32) -> String {
        let Self { rate, partitions, put_latency_ms, configuration, .. } = self;
        format!("{rate}-{partitions}-{put_latency_ms}-{}-{round}", report::name(configuration))
    }

    /// What a micro-batch waits for the checkpoint, in milliseconds: both entries, and the deletion
    /// of old ones.
    fn waits_ms(&self) -> u64 {
        let Self { put_latency_ms, list_latency_ms, delete_latency_ms, .. } = self;
        match self.configuration {
            Configuration::Plain => 2 * put_latency_ms + list_latency_ms + delete_latency_ms,
            Configuration::AsyncPurge => 2 * put_latency_ms,
            _ => 0,
        }
    }

    /// Whether the rate was reached where `records` were received at `rows_per_s` from the first
    /// one to the last.
    ///
    /// A record waits for the micro-batch before its own, or hardly at all. Where the first one
    /// happens to wait less than the last one, all seem to have taken longer by that, however long
    /// the round is; a rate that is not reached takes a part of the round longer.
    pub(super) fn is_reached(&self, records: u64, rows_per_s: f64) -> bool {
        let records = records as f64;
        let took_s = records / rows_per_s - self.waits_ms() as f64 / 1e3;
        records >= self.rate as f64 * KEPT_UP * took_s
    }
}

/// How the engine is run.
pub(super) fn engine_options(setup: Setup) -> EngineOptions {
    let set = setup.configuration.options().iter();
    let set = set.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let retain = setup.min_batches_to_retain.map(|it| (RETAIN.to_owned(), it.to_string()));
    let set = set.chain(retain).collect();
    let delivery = match setup.configuration {
        Configuration::ExactlyOnce => Delivery::ExactlyOnce,
        _ => Delivery::AtLeastOnce,
    };
    let Setup { put_latency_ms: put, list_latency_ms: list, delete_latency_ms: delete, .. } = setup;
    let parameters =
        format!("put_latency_ms={put}&list_latency_ms={list}&delete_latency_ms={delete}");
    let checkpoint = (put > 0).then(|| format!("memory:///?{parameters}"));
    EngineOptions { set, delivery, checkpoint, ..EngineOptions::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn each_configuration_has_options_that_the_engine_knows() {
        let known: Vec<_> = millstream_engine::pipeline::WRITER_OPTIONS.to_vec();
        for configuration in Configuration::value_variants() {
            for (key, _) in configuration.options() {
                assert!(known.contains(key), "{configuration:?}: {key}");
            }
        }
        assert!(known.contains(&RETAIN));
    }

    const SETUP: Setup = Setup {
        route: Route::KafkaToKafka,
        rate: 1_000,
        partitions: 40,
        put_latency_ms: 0,
        list_latency_ms: 0,
        delete_latency_ms: 0,
        min_batches_to_retain: None,
        configuration: Configuration::AsyncPurge,
        seconds: 1,
        replication: None,
    };

    #[test]
    fn what_a_setup_asks_for_is_what_the_engine_is_given() {
        let local = engine_options(SETUP);
        assert_eq!((local.checkpoint, local.set.len()), (None, 1));
        let delayed = Setup { put_latency_ms: 30, delete_latency_ms: 40, ..SETUP };
        let delayed = engine_options(Setup { min_batches_to_retain: Some(2), ..delayed });
        let location = "memory:///?put_latency_ms=30&list_latency_ms=0&delete_latency_ms=40";
        assert_eq!(delayed.checkpoint.as_deref(), Some(location));
        assert!(delayed.set.contains(&(RETAIN.to_owned(), "2".to_owned())), "{:?}", delayed.set);
    }

    #[test]
    fn a_rate_is_reached_where_only_the_last_micro_batch_is_late() {
        let plain = Setup { configuration: Configuration::Plain, put_latency_ms: 100, ..SETUP };
        let behind = Setup { configuration: Configuration::AsyncBoth, ..plain };
        // 4,000 records in 4.2 s; without the wait that is the last micro-batch's, in 4.
        let (records, rows_per_s) = (4_000, 4_000.0 / 4.2);
        assert!(plain.is_reached(records, rows_per_s) && !behind.is_reached(records, rows_per_s));
        assert!(!plain.is_reached(records, 4_000.0 / 4.3));
        assert!(behind.is_reached(records, 985.0) && !behind.is_reached(records, 975.0));
    }

    #[test]
    fn a_line_tells_of_the_brokers_that_took_part() {
        let line = serde_json::to_value(SETUP).expect("plain values");
        assert_eq!((&line["brokers"], &line["partitions"]), (&Value::Null, &Value::from(40)));
        let three = Replication { brokers: 3, replication_factor: 3, min_insync_replicas: Some(2) };
        let line = serde_json::to_value(Setup { replication: Some(three), ..SETUP });
        assert_eq!(line.expect("plain values")["brokers"], 3);
    }
}
