//! What the engine tells of its progress, read as it comes.
//!
//! `--progress json` has an object for each published micro-batch, a line each, in order. Moments
//! in it are whole milliseconds of the engine's wall clock, cut off; half of what two of them can
//! be off by is added where they are taken together.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use chrono::DateTime;
use millstream_store::env::{Env, Thread};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use crate::clock::Clock;
use crate::error::Error;

/// A moment and a duration, each cut off to the millisecond, are a millisecond too early together,
/// give or take one.
const CUT_OFF_US: i64 = 1_000;

/// What is told of one micro-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Rows read.
    pub rows_in: u64,
    /// Rows handed to the sink.
    pub rows_out: u64,
    /// When it began, microseconds since the epoch.
    pub fired_us: i64,
    /// When its results were handed to the sink, microseconds since the epoch: all is computed,
    /// and its changes of the state are in memory.
    pub computed_us: i64,
    /// When the sink had acknowledged them.
    pub published_us: i64,
    /// From the moment that its first row was due, or had arrived, until the sink had acknowledged
    /// all of it, microseconds.
    pub latency_us: i64,
    /// When the line was read here. With state, its changes have survived by then.
    pub told_us: i64,
    /// The watermark that it ran with, milliseconds since the epoch.
    pub watermark_ms: Option<i64>,
    /// Where it ended in each partition of the source's topic, exclusive, from partition 0 on.
    /// Empty for other sources.
    pub ends: Vec<i64>,
    /// Rows in the state, of all operators.
    pub state_rows: u64,
    /// Bytes of memory of the state; measured about once a second.
    pub state_bytes: u64,
    /// Bytes of the state in files.
    pub spilled_bytes: u64,
    /// Rows left out because they came late.
    pub rows_late: u64,
}

/// A thread that reads what an engine tells.
pub struct ProgressReader {
    shared: Arc<Mutex<Shared>>,
    thread: Thread,
}

#[derive(Default)]
struct Shared {
    told: Vec<Told>,
    failure: Option<Error>,
}

impl ProgressReader {
    /// Reads `output` to its end.
    pub fn start(env: &Env, clock: &Clock, output: impl Read + Send + 'static) -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (theirs, clock) = (Arc::clone(&shared), clock.clone());
        let thread = env.thread("bench-progress", move || read(output, &clock, &theirs));
        Self { shared, thread }
    }

    /// Looks at what was told so far.
    pub fn look<T>(&self, look: impl FnOnce(&[Told]) -> T) -> T {
        look(&self.shared.lock().told)
    }

    /// All of it, once the process has ended. Errors if a line was not what it should be.
    pub fn finish(self) -> Result<Vec<Told>, Error> {
        drop(self.thread);
        let mut shared = self.shared.lock();
        match shared.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(std::mem::take(&mut shared.told)),
        }
    }
}

fn read(output: impl Read, clock: &Clock, shared: &Mutex<Shared>) {
    for line in BufReader::new(output).lines() {
        let told_us = clock.now_us();
        let told = line
            .map_err(|error| error.to_string())
            .and_then(|line| parse(&line, told_us).map_err(|problem| format!("{problem}: {line}")));
        let mut shared = shared.lock();
        match told {
            Ok(told) => shared.told.push(told),
            // The rest is read all the same: a full pipe would hold up the engine.
            Err(problem) => {
                shared.failure.get_or_insert(Error::Progress { problem });
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    timestamp: String,
    batch_duration: i64,
    latency_ms: f64,
    num_input_rows: u64,
    duration_ms: DurationMs,
    event_time: Option<EventTime>,
    #[serde(default)]
    state_operators: Vec<StateOperator>,
    sources: Vec<Source>,
    sink: Sink,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DurationMs {
    commit_offsets: i64,
}

#[derive(Deserialize)]
struct EventTime {
    watermark: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateOperator {
    num_rows_total: u64,
    memory_used_bytes: u64,
    #[serde(default)]
    spilled_bytes: u64,
    num_rows_dropped_by_watermark: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    end_offset: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sink {
    num_output_rows: u64,
}

fn parse(line: &str, told_us: i64) -> Result<Told, String> {
    let object: Object = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let fired_ms = milliseconds(&object.timestamp)?;
    let published_ms = fired_ms + object.batch_duration;
    let computed_ms = published_ms - object.duration_ms.commit_offsets;
    let watermark_ms = object.event_time.map(|time| milliseconds(&time.watermark)).transpose()?;
    let of_operators =
        |value: fn(&StateOperator) -> u64| object.state_operators.iter().map(value).sum::<u64>();
    Ok(Told {
        rows_in: object.num_input_rows,
        rows_out: object.sink.num_output_rows,
        fired_us: fired_ms * 1_000,
        computed_us: computed_ms * 1_000 + CUT_OFF_US,
        published_us: published_ms * 1_000 + CUT_OFF_US,
        latency_us: (object.latency_ms * 1_000.0).round() as i64,
        told_us,
        watermark_ms,
        ends: object.sources.first().map(|source| ends(&source.end_offset)).unwrap_or_default(),
        state_rows: of_operators(|operator| operator.num_rows_total),
        state_bytes: of_operators(|operator| operator.memory_used_bytes),
        spilled_bytes: of_operators(|operator| operator.spilled_bytes),
        rows_late: of_operators(|operator| operator.num_rows_dropped_by_watermark),
    })
}

fn milliseconds(text: &str) -> Result<i64, String> {
    let moment = DateTime::parse_from_rfc3339(text).map_err(|error| format!("{text}: {error}"))?;
    Ok(moment.timestamp_millis())
}

/// `{"topic":{"0":23,"1":17}}` by partition.
fn ends(offset: &Value) -> Vec<i64> {
    let topic = offset.as_object().and_then(|topics| topics.values().next());
    let Some(partitions) = topic.and_then(Value::as_object) else { return Vec::new() };
    let mut ends = vec![0; partitions.len()];
    for (partition, end) in partitions {
        let place = partition.parse().ok().and_then(|partition: usize| ends.get_mut(partition));
        if let (Some(place), Some(end)) = (place, end.as_i64()) {
            *place = end;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{
        "id":"i","runId":"r","name":"f","timestamp":"2026-01-01T00:00:01.500Z","batchId":3,
        "batchDuration":40,"numInputRows":7,"durationMs":{"addBatch":9,"commitOffsets":30},
        "eventTime":{"watermark":"2026-01-01T00:00:00.250Z"},
        "stateOperators":[{"operatorName":"a","numRowsTotal":5,"numRowsUpdated":5,
            "numRowsRemoved":0,"memoryUsedBytes":100,"spilledBytes":50,"numRowsDroppedByWatermark":2}],
        "sources":[{"description":"KafkaV2[Subscribe[in]]","startOffset":null,
            "endOffset":{"in":{"0":23,"3":4,"2":9,"1":17}},"latestOffset":null,"numInputRows":7}],
        "sink":{"description":"s","numOutputRows":2},"latencyMs":41.25
    }"#;
    /// 2026-01-01T00:00:00Z.
    const NEW_YEAR_US: i64 = 1_767_225_600_000_000;

    #[test]
    fn reads_what_the_engine_tells() {
        let told = parse(LINE, 5).expect("it is what is told");
        let expected = Told {
            rows_in: 7,
            rows_out: 2,
            fired_us: NEW_YEAR_US + 1_500_000,
            computed_us: NEW_YEAR_US + 1_511_000,
            published_us: NEW_YEAR_US + 1_541_000,
            latency_us: 41_250,
            told_us: 5,
            watermark_ms: Some(NEW_YEAR_US / 1_000 + 250),
            ends: vec![23, 17, 9, 4],
            state_rows: 5,
            state_bytes: 100,
            spilled_bytes: 50,
            rows_late: 2,
        };
        assert_eq!(told, expected);
        assert!(parse("rows: 5", 0).is_err());
    }

    #[test]
    fn other_offsets_have_no_partitions() {
        assert!(ends(&Value::from(17)).is_empty());
        assert!(ends(&serde_json::json!({"logOffset": 3})).is_empty());
    }
}
