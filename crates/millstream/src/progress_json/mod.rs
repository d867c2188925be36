//! `--progress json`: Spark's StreamingQueryProgress, a line of standard output per micro-batch.
//!
//! Keys, their order and their meaning are those of Spark 4's `StreamingQueryProgress.json`.
//! Between them stand [events](event), which are ours: what does not answer, and restarts. Lines
//! are made and written by a thread of their own. A reader that is too slow holds the flows back
//! once [`LINES_WAITING_MAX`] lines wait, and nothing is left out; a reader that has gone away
//! stops the run, as it stops other programs in a pipe.

mod event;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use millstream_engine::api::progress::OperatorMetrics;
use millstream_engine::api::progress::{
    ConstraintProgress, Contact, Durations, Listener, Progress, QueryStarted, Restart,
    SinkProgress, SourceProgress,
};
use millstream_engine::driver::stop::Stopper;
use millstream_store::env::{Env, Thread};
use millstream_store::offset::SourceOffset;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use event::{Event, EventLine};

const LINES_WAITING_MAX: usize = 1024;

/// Writes the lines of all flows of a run.
pub struct ProgressWriter {
    sender: SyncSender<Message>,
    thread: Thread,
}

enum Message {
    Line(Arc<Identity>, Box<Progress>),
    Event(Arc<Identity>, Event),
    End,
}

impl ProgressWriter {
    /// Writes to `out` until [`ProgressWriter::finish`]; asks the run to stop if `out` is closed.
    pub fn start(env: &Env, out: impl Write + Send + 'static, stopper: Stopper) -> Self {
        let (sender, receiver) = sync_channel(LINES_WAITING_MAX);
        let thread = env.thread("progress", move || write_all(&receiver, out, &stopper));
        Self { sender, thread }
    }

    /// What hears of one flow's micro-batches.
    pub fn listener(&self, flow: &str) -> Arc<dyn Listener> {
        let (name, sender) = (flow.to_owned(), self.sender.clone());
        Arc::new(FlowListener { name, sender, identity: Mutex::default() })
    }

    /// Waits until everything is written.
    pub fn finish(self) {
        // It fails if the thread has ended already, which is what is wanted.
        let _ = self.sender.send(Message::End);
        drop(self.thread);
    }
}

fn write_all(receiver: &Receiver<Message>, mut out: impl Write, stopper: &Stopper) {
    while let Ok(message) = receiver.recv() {
        let written = match &message {
            Message::Line(identity, progress) => write_line(&mut out, identity, progress),
            Message::Event(identity, event) => write_event(&mut out, identity, event),
            Message::End => return,
        };
        if let Err(error) = written {
            if error.kind() != io::ErrorKind::BrokenPipe {
                tracing::error!(%error, "progress cannot be written; stopping");
            }
            return stopper.stop();
        }
    }
}

fn write_line(out: &mut impl Write, identity: &Identity, progress: &Progress) -> io::Result<()> {
    write_json(out, &StreamingQueryProgress::new(identity, progress))
}

fn write_event(out: &mut impl Write, identity: &Identity, event: &Event) -> io::Result<()> {
    write_json(out, &EventLine::new(identity, event))
}

fn write_json(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)?;
    out.flush()
}

struct FlowListener {
    name: String,
    sender: SyncSender<Message>,
    /// Of the run at hand; none before the first.
    identity: Mutex<Option<Arc<Identity>>>,
}

impl FlowListener {
    /// Sends what `message` makes of the run's identity. It fails once the reader has gone away;
    /// the run is stopping then.
    fn send(&self, message: impl FnOnce(Arc<Identity>) -> Message) {
        let identity = self.identity.lock().clone();
        if let Some(identity) = identity {
            let _ = self.sender.send(message(identity));
        }
    }
}

pub struct Identity {
    name: String,
    query: QueryStarted,
}

impl Listener for FlowListener {
    fn started(&self, query: &QueryStarted) {
        let identity = Identity { name: self.name.clone(), query: query.clone() };
        *self.identity.lock() = Some(Arc::new(identity));
    }

    fn contact(&self, contact: &Contact) {
        self.send(|identity| Message::Event(identity, Event::Contact(contact.clone())));
    }

    fn restarts(&self, restart: &Restart) {
        self.send(|identity| Message::Event(identity, Event::Restart(restart.clone())));
    }

    fn published(&self, progress: &Progress) {
        self.send(|identity| Message::Line(identity, Box::new(progress.clone())));
    }
}

/// The object; fields are in the order Spark writes them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StreamingQueryProgress<'a> {
    id: &'a str,
    run_id: &'a str,
    name: &'a str,
    timestamp: String,
    batch_id: u64,
    batch_duration: u64,
    num_input_rows: u64,
    #[serde(flatten)]
    rates: Rates,
    duration_ms: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_time: Option<EventTime>,
    state_operators: Vec<StateOperator>,
    sources: Vec<Source<'a>>,
    sink: Sink<'a>,
    latency_ms: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sinks: Vec<OneSink<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    constraints: Vec<OneConstraint<'a>>,
}

/// What is known of event times.
#[derive(Serialize)]
struct EventTime {
    watermark: String,
}

/// A stateful operator, with those of Spark's keys that say something here.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StateOperator {
    operator_name: &'static str,
    num_rows_total: u64,
    num_rows_updated: u64,
    num_rows_removed: u64,
    memory_used_bytes: u64,
    #[serde(skip_serializing_if = "is_none")]
    spilled_bytes: u64,
    num_rows_dropped_by_watermark: u64,
}

fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

impl StateOperator {
    fn new(operator: &OperatorMetrics) -> Self {
        Self {
            operator_name: operator.name,
            num_rows_total: operator.rows,
            num_rows_updated: operator.rows_updated,
            num_rows_removed: operator.rows_removed,
            memory_used_bytes: operator.bytes,
            spilled_bytes: operator.spilled_bytes,
            num_rows_dropped_by_watermark: operator.rows_late,
        }
    }
}

/// Rates that are not finite, such as the first of a run, are left out.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rates {
    #[serde(skip_serializing_if = "Option::is_none")]
    input_rows_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processed_rows_per_second: Option<f64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Source<'a> {
    description: &'a str,
    start_offset: Value,
    end_offset: Value,
    latest_offset: Value,
    num_input_rows: u64,
    #[serde(flatten)]
    rates: Rates,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metrics: BTreeMap<&'a str, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Sink<'a> {
    description: &'a str,
    num_output_rows: u64,
}

/// One of several sinks; ours, Spark's queries have one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneSink<'a> {
    description: &'a str,
    num_output_rows: u64,
    latency_ms: f64,
}

/// A constraint of the flow; ours too.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneConstraint<'a> {
    name: &'a str,
    passed: u64,
    failed: u64,
}

impl<'a> StreamingQueryProgress<'a> {
    fn new(identity: &'a Identity, progress: &'a Progress) -> Self {
        Self {
            id: &identity.query.query_id,
            run_id: &identity.query.run_id,
            name: &identity.name,
            timestamp: timestamp(progress.timestamp_ms),
            batch_id: progress.batch_id.0,
            batch_duration: whole_ms(progress.durations.trigger_execution),
            num_input_rows: progress.rows_in,
            rates: Rates::of(progress.rows_in, progress),
            duration_ms: durations(&progress.durations),
            event_time: progress.watermark_ms.map(|ms| EventTime { watermark: timestamp(ms) }),
            state_operators: progress.state.iter().map(StateOperator::new).collect(),
            sources: progress.sources.iter().map(|source| Source::new(source, progress)).collect(),
            sink: Sink { description: &progress.sink, num_output_rows: progress.rows_out },
            latency_ms: precise_ms(progress.latency),
            sinks: progress.sinks.iter().map(OneSink::new).collect(),
            constraints: progress.constraints.iter().map(OneConstraint::new).collect(),
        }
    }
}

impl<'a> Source<'a> {
    fn new(source: &'a SourceProgress, progress: &Progress) -> Self {
        Self {
            description: &source.description,
            start_offset: offset(source.start.as_ref()),
            end_offset: offset(Some(&source.end)),
            latest_offset: offset(source.latest.as_ref()),
            num_input_rows: source.rows,
            rates: Rates::of(source.rows, progress),
            metrics: source.metrics.iter().map(metric).collect(),
        }
    }
}

impl<'a> OneSink<'a> {
    fn new(sink: &'a SinkProgress) -> Self {
        Self {
            description: &sink.description,
            num_output_rows: sink.rows,
            latency_ms: precise_ms(sink.latency),
        }
    }
}

impl<'a> OneConstraint<'a> {
    fn new(constraint: &'a ConstraintProgress) -> Self {
        let ConstraintProgress { name, passed, failed } = constraint;
        Self { name, passed: *passed, failed: *failed }
    }
}

/// A metric as text. Spark's averages are fractions, and its readers expect them to look so.
fn metric<'a>((name, value): (&'a String, &u64)) -> (&'a str, String) {
    let text = if name.starts_with("avg") { format!("{value}.0") } else { value.to_string() };
    (name, text)
}

impl Rates {
    /// Input is by the distance of two triggers, processing by the time of the micro-batch, which
    /// counts as a millisecond at least.
    fn of(rows: u64, progress: &Progress) -> Self {
        let took = progress.durations.trigger_execution.max(Duration::from_millis(1));
        Self {
            input_rows_per_second: progress.since_previous.and_then(|since| rate(rows, since)),
            processed_rows_per_second: rate(rows, took),
        }
    }
}

fn rate(rows: u64, during: Duration) -> Option<f64> {
    let rate = (rows as f64 / during.as_secs_f64() * 10.0).round() / 10.0;
    rate.is_finite().then_some(rate)
}

fn durations(durations: &Durations) -> BTreeMap<&'static str, u64> {
    let Durations { latest_offset, wal_commit, query_planning, add_batch, .. } = *durations;
    BTreeMap::from([
        ("latestOffset", whole_ms(latest_offset)),
        ("walCommit", whole_ms(wal_commit)),
        // Splits are handed over with the offsets; there is no second question to the sources.
        ("getBatch", 0),
        ("queryPlanning", whole_ms(query_planning)),
        ("addBatch", whole_ms(add_batch)),
        ("commitOffsets", whole_ms(durations.commit_offsets)),
        ("triggerExecution", whole_ms(durations.trigger_execution)),
    ])
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds to the microsecond.
fn precise_ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

/// An offset as a JSON value; text that is no JSON becomes a string.
fn offset(offset: Option<&SourceOffset>) -> Value {
    let Some(offset) = offset else { return Value::Null };
    let parsed = serde_json::from_str(offset.as_str());
    parsed.unwrap_or_else(|_| Value::String(offset.as_str().to_owned()))
}

fn timestamp(ms: i64) -> String {
    let moment = chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default();
    moment.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::{contact, progress};
    use millstream_engine::driver::stop::stop_pair;

    fn started() -> QueryStarted {
        QueryStarted { query_id: "q".into(), run_id: "r".into() }
    }

    #[test]
    fn an_object_has_sparks_keys_in_sparks_order() {
        let mut progress = progress(1);
        progress.sources[0].start = Some(SourceOffset::new(r#"{"in":{"0":0}}"#));
        let behind = [("maxOffsetsBehindLatest", 4), ("avgOffsetsBehindLatest", 3)];
        progress.sources[0].metrics = behind.map(|(name, value)| (name.into(), value)).into();
        let identity = Identity { name: "pii".into(), query: started() };
        let mut line = Vec::new();
        write_line(&mut line, &identity, &progress).unwrap();
        let expected = concat!(
            r#"{"id":"q","runId":"r","name":"pii","timestamp":"2026-01-01T00:00:01.123Z","#,
            r#""batchId":1,"batchDuration":20,"numInputRows":7,"inputRowsPerSecond":14.0,"#,
            r#""processedRowsPerSecond":350.0,"durationMs":{"addBatch":3,"commitOffsets":5,"#,
            r#""getBatch":0,"latestOffset":1,"queryPlanning":0,"triggerExecution":20,"#,
            r#""walCommit":2},"stateOperators":[],"#,
            r#""sources":[{"description":"KafkaV2[Subscribe[in]]","startOffset":{"in":{"0":0}},"#,
            r#""endOffset":{"in":{"0":7}},"latestOffset":{"in":{"0":9,"1":4}},"numInputRows":7,"#,
            r#""inputRowsPerSecond":14.0,"processedRowsPerSecond":350.0,"#,
            r#""metrics":{"avgOffsetsBehindLatest":"3.0","maxOffsetsBehindLatest":"4"}}],"#,
            r#""sink":{"description":"noop","numOutputRows":3},"latencyMs":4.0}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(line).unwrap(), expected);
    }

    #[test]
    fn what_is_not_known_is_null_or_left_out() {
        let mut progress = progress(0);
        progress.sources[0].latest = None;
        progress.sources[0].end = SourceOffset::new("not JSON");
        let identity = Identity { name: "pii".into(), query: started() };
        let value = serde_json::to_value(StreamingQueryProgress::new(&identity, &progress));
        let value = value.unwrap();
        assert_eq!(value.get("inputRowsPerSecond"), None, "the first micro-batch has none");
        let source = value["sources"][0].as_object().unwrap();
        assert_eq!(source["startOffset"], Value::Null);
        assert_eq!(source["endOffset"], "not JSON");
        assert_eq!(source["latestOffset"], Value::Null);
        assert!(!source.contains_key("metrics"));
    }

    #[test]
    fn rates_have_one_decimal_and_a_floor_of_a_millisecond() {
        assert_eq!(rate(1, Duration::from_secs(3)), Some(0.3));
        assert_eq!(rate(1, Duration::ZERO), None);
        let mut quick = progress(0);
        quick.durations.trigger_execution = Duration::from_micros(10);
        assert_eq!(Rates::of(2, &quick).processed_rows_per_second, Some(2_000.0));
    }

    #[derive(Clone, Default)]
    struct Pipe {
        written: Arc<Mutex<Vec<u8>>>,
        closed: bool,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.closed {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.written.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_micro_batch_is_a_line() {
        let (pipe, (stopper, stop)) = (Pipe::default(), stop_pair());
        let writer = ProgressWriter::start(&Env::real(), pipe.clone(), stopper);
        let listener = writer.listener("pii");
        listener.started(&started());
        for id in 0..5 {
            listener.published(&progress(id));
        }
        writer.finish();
        let text = String::from_utf8(pipe.written.lock().clone()).unwrap();
        let ids = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let ids: Vec<_> = ids.map(|line| line["batchId"].as_u64().unwrap()).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4]);
        assert!(!stop.is_requested());
    }

    #[test]
    fn another_start_is_another_run_of_the_same_flow() {
        let (pipe, (stopper, _stop)) = (Pipe::default(), stop_pair());
        let writer = ProgressWriter::start(&Env::real(), pipe.clone(), stopper);
        let listener = writer.listener("pii");
        for run_id in ["r", "s"] {
            listener.started(&QueryStarted { run_id: run_id.into(), ..started() });
            listener.published(&progress(0));
            listener.contact(&contact(false));
        }
        writer.finish();
        let text = String::from_utf8(pipe.written.lock().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines: Vec<_> =
            lines.map(|line| (line["runId"].clone(), line["event"].clone())).collect();
        let [run, again, unanswered] = ["r", "s", "unanswered"].map(Value::from);
        let null = Value::Null;
        assert_eq!(
            lines,
            [(&run, &null), (&run, &unanswered), (&again, &null), (&again, &unanswered)]
                .map(|(run, event)| (run.clone(), event.clone()))
        );
    }

    #[test]
    fn a_closed_pipe_stops_the_run() {
        let (pipe, (stopper, stop)) = (Pipe { closed: true, ..Pipe::default() }, stop_pair());
        let writer = ProgressWriter::start(&Env::real(), pipe, stopper);
        let listener = writer.listener("pii");
        listener.started(&started());
        for id in 0..3 * LINES_WAITING_MAX as u64 {
            listener.published(&progress(id));
        }
        writer.finish();
        assert!(stop.is_requested());
    }
}
