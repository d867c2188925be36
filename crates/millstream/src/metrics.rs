//! `--metrics`: what flows do, for Prometheus.
//!
//! A recorder of the run's own instead of a global one; handles are made once per flow, so that a
//! micro-batch costs a few atomic additions.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Unit, counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use millstream_engine::api::progress::{Contact, Listener, Progress, QueryStarted, Restart};
use parking_lot::Mutex;

use crate::watch::{self, Silences};

/// A source's own counter of records that did not decode.
const MALFORMED: &str = "rowsMalformed";

/// The metrics of a run.
pub struct Metrics {
    recorder: PrometheusRecorder,
}

impl Metrics {
    /// No flows yet.
    pub fn new() -> Self {
        let builder = PrometheusBuilder::new().set_quantiles(&[0.5, 0.9, 0.99, 0.999, 1.0]);
        let recorder = builder.expect("there are quantiles").build_recorder();
        with_local_recorder(&recorder, describe);
        Self { recorder }
    }

    /// What renders the metrics as text.
    pub fn handle(&self) -> PrometheusHandle {
        self.recorder.handle()
    }

    /// What hears of one flow's micro-batches.
    pub fn listener(&self, flow: &str) -> Arc<dyn Listener> {
        with_local_recorder(&self.recorder, || Arc::new(FlowMetrics::new(flow)))
    }
}

fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_counter!("millstream_rows_in_total", "Rows read from the flow's sources");
    describe_counter!("millstream_rows_out_total", "Rows handed to the flow's sink");
    describe_counter!("millstream_micro_batches_total", "Micro-batches published");
    describe_counter!("millstream_rows_malformed_total", "Records that did not decode");
    describe_gauge!("millstream_batch_id", "The micro-batch published last");
    describe_gauge!("millstream_lag_records", "Records that wait at the flow's sources");
    describe_gauge!(
        "millstream_unanswered_since_seconds",
        "Since when brokers do not answer, seconds since the epoch; 0 while all do"
    );
    describe_counter!("millstream_restarts_total", "How often the flow failed and was restarted");
    describe_gauge!("millstream_up", "1 while the flow runs");
    describe_histogram!(
        "millstream_latency_seconds",
        Unit::Seconds,
        "From the arrival of a micro-batch's oldest row to its publication"
    );
}

struct FlowMetrics {
    rows_in: Counter,
    rows_out: Counter,
    micro_batches: Counter,
    rows_malformed: Counter,
    batch_id: Gauge,
    lag: Gauge,
    unanswered: Gauge,
    restarts: Counter,
    up: Gauge,
    latency: Histogram,
    silent: Mutex<Silent>,
}

/// What the lag depends on.
#[derive(Default)]
struct Silent {
    silences: Silences,
    /// What was behind at the last micro-batch.
    lag: Option<u64>,
}

impl FlowMetrics {
    fn new(flow: &str) -> Self {
        let flow = || ("flow", flow.to_owned());
        Self {
            rows_in: counter!("millstream_rows_in_total", &[flow()]),
            rows_out: counter!("millstream_rows_out_total", &[flow()]),
            micro_batches: counter!("millstream_micro_batches_total", &[flow()]),
            rows_malformed: counter!("millstream_rows_malformed_total", &[flow()]),
            batch_id: gauge!("millstream_batch_id", &[flow()]),
            lag: gauge!("millstream_lag_records", &[flow()]),
            unanswered: gauge!("millstream_unanswered_since_seconds", &[flow()]),
            restarts: counter!("millstream_restarts_total", &[flow()]),
            up: gauge!("millstream_up", &[flow()]),
            latency: histogram!("millstream_latency_seconds", &[flow()]),
            silent: Mutex::default(),
        }
    }

    /// The lag, not a number where it is not known. A source that never tells has none.
    fn show_lag(&self, silent: &Silent) {
        match (silent.silences.longest(), silent.lag) {
            (Some(_), _) => self.lag.set(f64::NAN),
            (None, Some(lag)) => self.lag.set(lag as f64),
            (None, None) => {}
        }
    }

    fn show_silence(&self, silent: &Silent) {
        let since = silent.silences.longest().map_or(0.0, |(_, ms)| ms as f64 / 1_000.0);
        self.unanswered.set(since);
        self.show_lag(silent);
    }
}

impl Drop for FlowMetrics {
    fn drop(&mut self) {
        self.up.set(0.0);
    }
}

impl Listener for FlowMetrics {
    fn started(&self, _: &QueryStarted) {
        self.up.set(1.0);
    }

    fn contact(&self, contact: &Contact) {
        let mut silent = self.silent.lock();
        silent.silences.change(contact);
        self.show_silence(&silent);
    }

    fn restarts(&self, _: &Restart) {
        self.restarts.increment(1);
        self.up.set(0.0);
        let mut silent = self.silent.lock();
        silent.silences = Silences::default();
        self.show_silence(&silent);
    }

    fn published(&self, progress: &Progress) {
        self.rows_in.increment(progress.rows_in);
        self.rows_out.increment(progress.rows_out);
        self.micro_batches.increment(1);
        self.batch_id.set(progress.batch_id.0 as f64);
        self.latency.record(progress.latency.as_secs_f64());
        let malformed = progress.sources.iter().filter_map(|source| source.metrics.get(MALFORMED));
        self.rows_malformed.absolute(malformed.sum());
        let mut silent = self.silent.lock();
        silent.lag = watch::lag(&progress.sources);
        self.show_lag(&silent);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::watch::tests::{contact, progress};

    fn has(metrics: &Metrics, line: &str) {
        let text = metrics.handle().render();
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }

    #[test]
    fn a_broker_that_does_not_answer_is_seen() {
        let metrics = Metrics::new();
        let listener = metrics.listener("pii");
        listener.published(&progress(0));
        listener.contact(&contact(false));
        has(&metrics, "millstream_unanswered_since_seconds{flow=\"pii\"} 1767225600");
        has(&metrics, "millstream_lag_records{flow=\"pii\"} NaN");
        listener.contact(&contact(true));
        has(&metrics, "millstream_unanswered_since_seconds{flow=\"pii\"} 0");
        has(&metrics, "millstream_lag_records{flow=\"pii\"} 6");
    }

    #[test]
    fn restarts_are_counted() {
        let metrics = Metrics::new();
        let listener = metrics.listener("pii");
        listener.started(&QueryStarted { query_id: "q".into(), run_id: "r".into() });
        let wait = Duration::from_secs(1);
        let restart = Restart { at_ms: 0, count: 1, count_max: 2, wait, reason: "gone".into() };
        listener.restarts(&restart);
        has(&metrics, "millstream_restarts_total{flow=\"pii\"} 1");
        has(&metrics, "millstream_up{flow=\"pii\"} 0");
    }

    #[test]
    fn every_metric_has_its_flow_and_value() {
        let metrics = Metrics::new();
        let listener = metrics.listener("pii");
        listener.started(&QueryStarted { query_id: "q".into(), run_id: "r".into() });
        for id in 0..2 {
            let mut progress = progress(id);
            progress.sources[0].metrics.insert(MALFORMED.into(), id + 1);
            listener.published(&progress);
        }
        let text = metrics.handle().render();
        for line in [
            "millstream_rows_in_total{flow=\"pii\"} 14",
            "millstream_rows_out_total{flow=\"pii\"} 6",
            "millstream_micro_batches_total{flow=\"pii\"} 2",
            "millstream_rows_malformed_total{flow=\"pii\"} 2",
            "millstream_batch_id{flow=\"pii\"} 1",
            "millstream_lag_records{flow=\"pii\"} 6",
            "millstream_up{flow=\"pii\"} 1",
            "millstream_latency_seconds{flow=\"pii\",quantile=\"0.5\"} 0.00399",
            "millstream_latency_seconds_count{flow=\"pii\"} 2",
        ] {
            assert!(text.lines().any(|found| found.starts_with(line)), "no {line} in\n{text}");
        }
        drop(listener);
        assert!(metrics.handle().render().contains("millstream_up{flow=\"pii\"} 0"));
    }
}
