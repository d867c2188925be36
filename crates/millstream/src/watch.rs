//! What a flow has done so far, for whoever wants to show it.
//!
//! The driver tells a [`FlowWatch`] of every micro-batch, which only adds to counters; those who
//! show something ask for a [`Snapshot`] when they need one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::progress::{
    ConstraintProgress, Contact, Listener, Progress, QueryStarted, Restart, SourceBeginning,
    SourceProgress,
};
use millstream_store::env::Env;
use millstream_store::offset::BatchId;
use parking_lot::Mutex;
use serde_json::Value;

use crate::histogram::Histogram;

/// How many seconds "recent" latencies reach back.
const RECENT_SECONDS: usize = 5;

/// Tells several listeners.
pub struct Listeners(pub Vec<Arc<dyn Listener>>);

impl Listener for Listeners {
    fn started(&self, query: &QueryStarted) {
        for listener in &self.0 {
            listener.started(query);
        }
    }

    fn begins(&self, sources: &[SourceBeginning]) {
        for listener in &self.0 {
            listener.begins(sources);
        }
    }

    fn runs(&self) {
        for listener in &self.0 {
            listener.runs();
        }
    }

    fn contact(&self, contact: &Contact) {
        for listener in &self.0 {
            listener.contact(contact);
        }
    }

    fn restarts(&self, restart: &Restart) {
        for listener in &self.0 {
            listener.restarts(restart);
        }
    }

    fn published(&self, progress: &Progress) {
        for listener in &self.0 {
            listener.published(progress);
        }
    }
}

/// What does not answer, by its description, and since when: milliseconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silences(BTreeMap<String, i64>);

impl Silences {
    /// Takes a change in.
    pub fn change(&mut self, contact: &Contact) {
        if contact.is_back {
            _ = self.0.remove(&contact.with)
        } else {
            _ = self.0.insert(contact.with.clone(), contact.since_ms)
        }
    }

    /// Whose answer is missing for the longest time, and since when.
    pub fn longest(&self) -> Option<(&str, i64)> {
        let longest = self.0.iter().min_by_key(|(_, since_ms)| **since_ms);
        longest.map(|(with, since_ms)| (with.as_str(), *since_ms))
    }
}

/// Counts what one flow does.
pub struct FlowWatch {
    env: Env,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    last: Option<BatchId>,
    rows_in: u64,
    rows_out: u64,
    all: Histogram,
    recent: Recent,
    sources: Vec<SourceProgress>,
    constraints: Vec<ConstraintProgress>,
    silences: Silences,
    /// Until it runs again: how often in a row it was started again.
    restart: Option<u32>,
}

/// What a flow has done up to some moment.
#[derive(Clone)]
pub struct Snapshot {
    /// The micro-batch published last.
    pub last: Option<BatchId>,
    /// Rows read.
    pub rows_in: u64,
    /// Rows handed to the sink.
    pub rows_out: u64,
    /// Latencies of the last seconds, a value per micro-batch.
    pub recent: Histogram,
    /// How far the sources are behind, if they know.
    pub lag: Option<u64>,
    /// What does not answer.
    pub silences: Silences,
    /// Now, milliseconds since the epoch.
    pub now_ms: i64,
    /// How often in a row it was started again, while it does not run yet.
    pub restart: Option<u32>,
}

impl FlowWatch {
    /// A watch that has seen nothing.
    pub fn new(env: Env) -> Arc<Self> {
        Arc::new(Self { env, counts: Mutex::default() })
    }

    /// What has happened so far.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.env.monotonic();
        let counts = self.counts.lock();
        Snapshot {
            last: counts.last,
            rows_in: counts.rows_in,
            rows_out: counts.rows_out,
            recent: counts.recent.sum(now),
            // What was behind when somebody last answered says nothing of now.
            lag: lag(&counts.sources).filter(|_| counts.silences.longest().is_none()),
            silences: counts.silences.clone(),
            now_ms: self.env.now_ms(),
            restart: counts.restart,
        }
    }

    /// How many rows have met each constraint, in the whole run.
    pub fn constraints(&self) -> Vec<ConstraintProgress> {
        self.counts.lock().constraints.clone()
    }

    /// The latencies of the whole run, a value per micro-batch.
    pub fn latencies(&self) -> Histogram {
        self.counts.lock().all.clone()
    }
}

impl Listener for FlowWatch {
    fn runs(&self) {
        self.counts.lock().restart = None;
    }

    fn contact(&self, contact: &Contact) {
        self.counts.lock().silences.change(contact);
    }

    fn restarts(&self, restart: &Restart) {
        let mut counts = self.counts.lock();
        counts.restart = Some(restart.count);
        // Whoever is asked next is asked by the next run.
        counts.silences = Silences::default();
    }

    fn published(&self, progress: &Progress) {
        let now = self.env.monotonic();
        let mut counts = self.counts.lock();
        counts.last = Some(progress.batch_id);
        counts.rows_in += progress.rows_in;
        counts.rows_out += progress.rows_out;
        counts.all.record(progress.latency);
        counts.recent.record(now, progress.latency);
        counts.sources.clone_from(&progress.sources);
        if counts.constraints.is_empty() {
            counts.constraints.clone_from(&progress.constraints);
            return;
        }
        for (all, more) in counts.constraints.iter_mut().zip(&progress.constraints) {
            all.passed += more.passed;
            all.failed += more.failed;
        }
    }
}

/// A histogram for each of the last seconds.
struct Recent {
    seconds: Vec<(u64, Histogram)>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { seconds: vec![(0, Histogram::default()); RECENT_SECONDS] }
    }
}

impl Recent {
    fn record(&mut self, now: Duration, latency: Duration) {
        let second = now.as_secs();
        let (of, histogram) = &mut self.seconds[second as usize % RECENT_SECONDS];
        if *of != second {
            histogram.clear();
            *of = second;
        }
        histogram.record(latency);
    }

    fn sum(&self, now: Duration) -> Histogram {
        let oldest = (now.as_secs() + 1).saturating_sub(RECENT_SECONDS as u64);
        let mut sum = Histogram::default();
        for (_, histogram) in self.seconds.iter().filter(|(second, _)| *second >= oldest) {
            sum.add(histogram);
        }
        sum
    }
}

/// How many records the sources have not given out yet, as far as they know; `None` if none does,
/// or one that should does not.
pub fn lag(sources: &[SourceProgress]) -> Option<u64> {
    let mut sum = None;
    for source in sources {
        // A source with offsets by part always has a newest one, if the source reports it.
        let Some(latest) = &source.latest else {
            if source.end.as_str().starts_with('{') { return None } else { continue }
        };
        let latest = serde_json::from_str(latest.as_str()).ok();
        let end = serde_json::from_str(source.end.as_str()).ok();
        let (Some(latest), Some(end)) = (latest, end) else { continue };
        if let Some(distance) = distance(&latest, Some(&end)) {
            sum = Some(sum.unwrap_or(0) + distance);
        }
    }
    sum
}

/// The sum of the differences of all numbers in two offsets of the same shape. What only `latest`
/// has counts from zero: a partition that was not read yet.
fn distance(latest: &Value, end: Option<&Value>) -> Option<u64> {
    match latest {
        Value::Number(latest) => {
            let end = end.map_or(Some(0), Value::as_i64)?;
            Some(u64::try_from(latest.as_i64()?.saturating_sub(end)).unwrap_or(0))
        }
        Value::Object(parts) => {
            let of_part = |(key, latest)| distance(latest, end.and_then(|end| end.get(key)));
            parts.iter().map(of_part).sum()
        }
        _ => None,
    }
}

#[cfg(test)]
pub mod tests {
    use millstream_engine::api::progress::Durations;
    use millstream_store::offset::SourceOffset;

    use super::*;

    fn source(latest: Option<&str>, end: &str) -> SourceProgress {
        SourceProgress {
            description: "KafkaV2[Subscribe[in]]".into(),
            start: None,
            end: SourceOffset::new(end),
            latest: latest.map(SourceOffset::new),
            rows: 7,
            metrics: BTreeMap::new(),
        }
    }

    /// A micro-batch of 7 rows in and 3 out.
    pub fn progress(id: u64) -> Progress {
        let ms = Duration::from_millis;
        Progress {
            batch_id: BatchId(id),
            timestamp_ms: 1_767_225_601_123,
            rows_in: 7,
            rows_out: 3,
            since_previous: (id > 0).then(|| ms(500)),
            latency: ms(4),
            durations: Durations {
                latest_offset: ms(1),
                wal_commit: ms(2),
                query_planning: ms(0),
                add_batch: Duration::from_micros(3_900),
                commit_offsets: ms(5),
                trigger_execution: ms(20),
            },
            sources: vec![source(Some(r#"{"in":{"0":9,"1":4}}"#), r#"{"in":{"0":7}}"#)],
            watermark_ms: None,
            state: Vec::new(),
            sink: "noop".into(),
            sinks: Vec::new(),
            constraints: Vec::new(),
        }
    }

    #[test]
    fn lag_adds_up_partitions_and_sources() {
        let kafka = source(Some(r#"{"in":{"0":9,"1":4}}"#), r#"{"in":{"0":7}}"#);
        let rate = source(Some("10"), "12");
        let unknown = source(None, "5");
        assert_eq!(lag(std::slice::from_ref(&kafka)), Some(6));
        assert_eq!(lag(std::slice::from_ref(&rate)), Some(0), "never below zero");
        assert_eq!(lag(std::slice::from_ref(&unknown)), None);
        assert_eq!(lag(&[unknown, kafka, rate]), Some(6));
        assert_eq!(lag(&[source(Some(r#""text""#), r#""text""#)]), None);
    }

    #[test]
    fn lag_is_unknown_where_the_brokers_did_not_tell() {
        let told = source(Some(r#"{"in":{"0":9}}"#), r#"{"in":{"0":9}}"#);
        let untold = source(None, r#"{"in":{"0":9}}"#);
        assert_eq!(lag(std::slice::from_ref(&told)), Some(0));
        assert_eq!(lag(&[told, untold]), None);
    }

    /// The brokers have not answered since the beginning of 2026, or do again.
    pub fn contact(is_back: bool) -> Contact {
        let (since_ms, at_ms) = (1_767_225_600_000, 1_767_225_605_000);
        Contact { with: "the brokers of in".into(), at_ms, since_ms, is_back }
    }

    #[test]
    fn nothing_is_known_of_lag_while_nobody_answers() {
        let watch = FlowWatch::new(Env::real());
        watch.published(&progress(3));
        watch.contact(&contact(false));
        let snapshot = watch.snapshot();
        assert_eq!(snapshot.lag, None);
        let longest = snapshot.silences.longest();
        assert_eq!(longest, Some(("the brokers of in", 1_767_225_600_000)));
        watch.contact(&contact(true));
        assert_eq!(watch.snapshot().lag, Some(6));
        assert_eq!(watch.snapshot().silences.longest(), None);
    }

    #[test]
    fn a_watch_adds_up() {
        let watch = FlowWatch::new(Env::real());
        watch.published(&progress(3));
        watch.published(&progress(4));
        let snapshot = watch.snapshot();
        assert_eq!(snapshot.last, Some(BatchId(4)));
        assert_eq!((snapshot.rows_in, snapshot.rows_out, snapshot.lag), (14, 6, Some(6)));
        assert_eq!(watch.latencies().quantile(1.0), Some(Duration::from_millis(4)));
    }

    #[test]
    fn recent_latencies_forget() {
        let mut recent = Recent::default();
        let at = Duration::from_secs;
        recent.record(at(100), Duration::from_millis(900));
        recent.record(at(102), Duration::from_millis(2));
        assert_eq!(recent.sum(at(104)).quantile(1.0), Some(Duration::from_millis(900)));
        assert_eq!(recent.sum(at(105)).quantile(1.0), Some(Duration::from_millis(2)));
        recent.record(at(105), Duration::from_millis(3));
        assert_eq!(recent.sum(at(105)).quantile(1.0), Some(Duration::from_millis(3)));
        assert_eq!(recent.sum(at(200)).quantile(1.0), None);
    }
}
