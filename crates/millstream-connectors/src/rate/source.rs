//! Reads the clock and hands out ranges of row numbers; rows are made in [`Split::read`].

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray,
};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millstream_engine::api::dead_letter::{Letter, Place};
use millstream_engine::api::error::ArrowBug;
use millstream_engine::api::source::{
    Classified, Failure, InputBatch, Kind, ReadLimit, RecordBatches, Records, Source, SourceLog,
    SourceOffset, Split, Traced,
};
use millstream_store::env::Env;
use millstream_store::timer::Timer;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{RateOptions, schema};

/// The file of the source log that holds the creation time.
const CREATED: &str = "0";
/// Rows in one record batch.
const RECORD_BATCH_ROWS: u64 = 8_192;
/// Rows in one micro-batch. After a long stop the rows that came due meanwhile follow in
/// micro-batches of this size, so that catching up does not need memory for all of them at once.
const TAKE_ROWS_MAX: u64 = 1 << 20;
/// A time and a number.
const ROW_BYTES: u64 = 16;
/// Rows that come faster than this are handed over in ticks: waking for each would be spinning.
const TICK_US: i64 = 200;
/// The clock is looked at again at least this often, in case somebody set it.
const SLEEP_US_MAX: i64 = 1_000_000;

/// What can go wrong when a `rate` source is opened or replayed.
#[derive(Debug, Error)]
pub enum RateError {
    /// The offset log holds an offset of some other source, or of Spark's `rate`.
    #[error(
        "the checkpoint's offset '{offset}' is not one of 'rate', which looks like {{\"rows\":120}}; \
         a checkpoint of Spark's rate source cannot be continued here: use a new checkpoint"
    )]
    ForeignOffset {
        /// The offset as logged.
        offset: String,
    },
    /// The checkpoint has offsets but not the creation time they count from.
    #[error(
        "the checkpoint has offsets of a 'rate' source but no creation time in its sources/ \
         directory: restore that file, or use a new checkpoint"
    )]
    NoCreationTime,
    /// The creation time does not read as one.
    #[error(
        "the creation time of the 'rate' source in the checkpoint reads '{content}', but should be \
         'v1' and milliseconds since the epoch: restore that file, or use a new checkpoint"
    )]
    DamagedCreationTime {
        /// What stands there.
        content: String,
    },
}

impl Classified for RateError {
    fn kind(&self) -> Kind {
        Kind::Data
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Offset {
    rows: u64,
}

fn offset(rows: u64) -> SourceOffset {
    SourceOffset::new(format!("{{\"rows\":{rows}}}"))
}

fn rows_of(offset: &SourceOffset) -> Result<u64, RateError> {
    let parsed: Result<Offset, _> = serde_json::from_str(offset.as_str());
    let foreign = |_| RateError::ForeignOffset { offset: offset.to_string() };
    Ok(parsed.map_err(foreign)?.rows)
}

/// Rows on a clock; see the module's head.
pub struct RateSource {
    options: RateOptions,
    env: Env,
    timer: Timer,
    /// When row 0 is due, microseconds since the epoch.
    created_us: i64,
    /// Rows handed over so far.
    taken: u64,
    /// When rows were last handed over.
    taken_at_us: i64,
    end: Option<u64>,
    /// Rows in one micro-batch.
    rows_max: u64,
}

impl RateSource {
    /// A source that keeps to the pace in `options` by the clock of `env`.
    pub fn new(options: RateOptions, env: Env) -> Self {
        let now = env.now_us();
        let (taken_at_us, rows_max) = (i64::MIN, TAKE_ROWS_MAX);
        let timer = Timer::new(env.clone());
        Self { options, env, timer, created_us: now, taken: 0, taken_at_us, end: None, rows_max }
    }

    /// The same, where a limit of memory has `bytes` for a micro-batch's rows.
    pub fn holding(mut self, bytes: Option<usize>) -> Self {
        if let Some(bytes) = bytes {
            self.rows_max = (bytes as u64 / ROW_BYTES).clamp(1, TAKE_ROWS_MAX);
        }
        self
    }

    /// Rows that may be handed over by now.
    fn rows_due(&self, now_us: i64) -> u64 {
        // The clock may have been set to before the creation.
        let due = match u64::try_from(now_us - self.created_us) {
            Ok(elapsed_us) => self.options.pace.rows_due(elapsed_us),
            Err(_) => 0,
        };
        due.min(self.end.unwrap_or(u64::MAX))
    }

    fn due_us(&self, row: u64) -> i64 {
        self.created_us.saturating_add_unsigned(self.options.pace.due_us(row))
    }

    /// When to look for rows again: when the next one is due, or at the next tick.
    fn wake_us(&self) -> i64 {
        let due = self.due_us(self.taken);
        let spacing = due - self.due_us(self.taken.saturating_sub(1));
        if spacing < TICK_US { due.max(self.taken_at_us.saturating_add(TICK_US)) } else { due }
    }

    fn rows(&self, range: Range<u64>) -> InputBatch {
        let rows = range.end - range.start;
        let partitions = (self.options.partitions as u64).min(rows).max(1);
        let bound = |partition| range.start + split_at(rows, partition, partitions);
        let splits = (0..partitions).map(|partition| {
            let split = RateSplit {
                options: self.options,
                created_us: self.created_us,
                rows: bound(partition)..bound(partition + 1),
            };
            Box::new(split) as Box<dyn Split>
        });
        InputBatch {
            end: offset(range.end),
            rows,
            splits: splits.collect(),
            oldest_arrival_us: self.due_us(range.start),
        }
    }
}

/// Where piece `piece` of `pieces` begins in `rows` rows.
fn split_at(rows: u64, piece: u64, pieces: u64) -> u64 {
    let at = u128::from(rows) * u128::from(piece) / u128::from(pieces);
    u64::try_from(at).expect("a piece lies inside the whole")
}

#[async_trait]
impl Source for RateSource {
    fn description(&self) -> String {
        let pace = self.options.pace;
        format!(
            "RateStreamV2[rowsPerSecond={}, rampUpTimeSeconds={}, numPartitions={}]",
            pace.rows_per_second(),
            Duration::from_micros(pace.ramp_up_us()).as_secs_f64(),
            self.options.partitions
        )
    }

    fn schema(&self) -> SchemaRef {
        schema()
    }

    async fn open(
        &mut self,
        position: Option<&SourceOffset>,
        log: SourceLog,
    ) -> Result<SourceOffset, Failure> {
        self.taken = position.map_or(Ok(0), rows_of)?;
        self.created_us = match log.get(CREATED).await? {
            Some(bytes) => created_us(&bytes)?,
            None if position.is_some() => return Err(RateError::NoCreationTime.into()),
            None => {
                // The log keeps milliseconds; the next whole one is the start.
                let created_ms = self.env.now_us().div_euclid(1_000) + 1;
                log.put_if_absent(CREATED, format!("v1\n{created_ms}").into_bytes()).await?;
                created_ms * 1_000
            }
        };
        Ok(offset(self.taken))
    }

    async fn replay(
        &mut self,
        start: Option<&SourceOffset>,
        end: &SourceOffset,
    ) -> Result<InputBatch, Failure> {
        let start = start.map_or(Ok(0), rows_of)?;
        Ok(self.rows(start..rows_of(end)?.max(start)))
    }

    async fn start(&mut self, position: &SourceOffset) -> Result<(), Failure> {
        self.taken = rows_of(position)?;
        Ok(())
    }

    async fn fix_end(&mut self) -> Result<(), Failure> {
        self.end = Some(self.rows_due(self.env.now_us()).max(self.taken));
        Ok(())
    }

    fn at_end(&self) -> bool {
        self.end.is_some_and(|end| self.taken >= end)
    }

    fn poll(&mut self, limit: ReadLimit) -> Result<Option<InputBatch>, Failure> {
        let now_us = self.env.now_us();
        let rows_max = match limit {
            ReadLimit::Configured => self.rows_max,
            ReadLimit::AllAvailable => u64::MAX,
        };
        let end = self.rows_due(now_us).min(self.taken.saturating_add(rows_max));
        if end <= self.taken {
            return Ok(None);
        }
        let taken = self.rows(self.taken..end);
        self.taken = end;
        self.taken_at_us = now_us;
        Ok(Some(taken))
    }

    async fn data_available(&mut self) {
        while !self.at_end() {
            let wait_us = self.wake_us() - self.env.now_us();
            if wait_us <= 0 {
                return;
            }
            let wait_us = wait_us.min(SLEEP_US_MAX).unsigned_abs();
            self.timer.sleep(Duration::from_micros(wait_us)).await;
        }
    }

    fn committed(&mut self, _end: &SourceOffset) {}

    fn latest(&self) -> Option<SourceOffset> {
        Some(offset(self.rows_due(self.env.now_us()).max(self.taken)))
    }

    async fn close(&mut self) {}
}

/// The creation time in the source log: `v1`, a line break, milliseconds since the epoch.
///
/// Origin: Spark's rate source (`RateStreamMicroBatchStream`).
fn created_us(bytes: &[u8]) -> Result<i64, RateError> {
    let text = String::from_utf8_lossy(bytes);
    let created_ms = text.strip_prefix("v1\n").and_then(|ms| ms.trim().parse::<i64>().ok());
    match created_ms.and_then(|ms| ms.checked_mul(1_000)) {
        Some(created_us) => Ok(created_us),
        None => Err(RateError::DamagedCreationTime { content: text.into_owned() }),
    }
}

/// A range of rows, not yet made.
#[derive(Clone)]
struct RateSplit {
    options: RateOptions,
    created_us: i64,
    rows: Range<u64>,
}

impl Split for RateSplit {
    fn rows(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    fn read(self: Box<Self>, projection: &[usize]) -> RecordBatches {
        let projection = projection.to_vec();
        let projected = match schema().project(&projection) {
            Ok(projected) => Arc::new(projected),
            Err(error) => return Box::new(std::iter::once(Err(ArrowBug(error).into()))),
        };
        let starts = self.rows.clone().step_by(RECORD_BATCH_ROWS as usize);
        Box::new(starts.map(move |start| {
            let range = start..self.rows.end.min(start + RECORD_BATCH_ROWS);
            let columns = projection.iter().map(|column| self.column(*column, range.clone()));
            let rows = usize::try_from(range.end - range.start).expect("some thousand rows");
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(projected.clone(), columns.collect(), &options)
                .map_err(|error| ArrowBug(error).into())
        }))
    }

    fn records(&self) -> Vec<Arc<dyn Records>> {
        vec![Arc::new(self.clone())]
    }
}

impl Records for RateSplit {
    fn read(&self, projection: &[usize], _: bool) -> Result<Vec<Traced>, Failure> {
        Traced::all_in_order(Split::read(Box::new(self.clone()), projection), self.rows.start)
    }

    fn letter(&self, row: u64) -> Result<Letter, Failure> {
        Ok(Letter { place: Some(Place::Row { of: "rate".into(), row }), ..Letter::default() })
    }
}

impl RateSplit {
    fn column(&self, index: usize, range: Range<u64>) -> ArrayRef {
        if index == 0 {
            let mut times = Vec::with_capacity(RECORD_BATCH_ROWS as usize);
            self.options.pace.extend_due_times(range, self.created_us, &mut times);
            return Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"));
        }
        Arc::new(Int64Array::from_iter_values(range.map(u64::cast_signed)))
    }
}
