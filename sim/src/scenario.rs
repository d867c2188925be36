//! What a seed stands for: how much data there is, how the world behaves, and what becomes of each
//! run of the query.

use std::time::Duration;

use millstream_engine::api::settings::{ProgressTracking, SnapshotSettings};
use millstream_engine::api::sink::Delivery;
use millstream_engine::api::trigger::Trigger;
use millstream_store::log_writer::{PurgeTime, Settings};

use crate::chance::Chance;
use crate::query::{Records, Rows};

/// A world, and what happens in it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the query publishes, and where. Dead letters come last.
    pub outputs: Vec<OutputTraits>,
    /// When snapshots of the state are made.
    pub snapshots: SnapshotSettings,
    /// How many sources, 1 or 2.
    pub sources: usize,
    /// Rows of each source, in all.
    pub rows: u64,
    /// The most rows that come into a source at once, and the longest time between.
    pub burst_rows: u64,
    /// See `burst_rows`.
    pub burst_gap: Duration,
    /// The most rows of one micro-batch, by source.
    pub rows_max: u64,
    /// How the object store behaves, and how the logs are written.
    pub store: StoreTraits,
    /// The disk that the checkpoint is on, if it is not in an object store.
    pub disk: Option<DiskTraits>,
    /// The runs before the last, quiet ones.
    pub runs: Vec<RunPlan>,
    /// When the wall clock jumps, and by how many microseconds.
    pub clock_jumps: Vec<(Duration, i64)>,
}

/// An output of the query, and its sink.
#[derive(Clone, Debug)]
pub struct OutputTraits {
    /// What it gets.
    pub rows: Rows,
    /// How its sink behaves.
    pub sink: SinkTraits,
}

/// How a sink behaves.
#[derive(Clone, Debug)]
pub struct SinkTraits {
    /// What it promises.
    pub delivery: Delivery,
    /// It publishes within the call.
    pub at_once: bool,
    /// It keeps no record of micro-batches without rows.
    pub skips_empty: bool,
    /// The longest way of a micro-batch to the outside.
    pub there: Duration,
    /// The longest way of an acknowledgement back.
    pub back: Duration,
    /// How often a micro-batch is refused, percent.
    pub refused: u64,
    /// How often one is published and its acknowledgement is lost, percent.
    pub unanswered: u64,
}

/// How an object store behaves.
#[derive(Clone, Debug)]
pub struct StoreTraits {
    /// The longest way of a request, and of its answer.
    pub way: Duration,
    /// How often a put takes up to a second instead, percent.
    pub slow: u64,
    /// How often a put fails, percent: not done; done and not answered; done, not answered and
    /// repeated by the client, which finds it there.
    pub failed: [u64; 3],
    /// How the logs are written.
    pub settings: Settings,
}

/// How a local disk behaves.
#[derive(Clone, Debug)]
pub struct DiskTraits {
    /// What was written so long ago is on the disk, flushed or not.
    pub writeback: Duration,
    /// The longest time until a piece of work on the disk begins.
    pub way: Duration,
}

/// One run of the query.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Which micro-batches get entries.
    pub tracking: ProgressTracking,
    /// When micro-batches start.
    pub trigger: Trigger,
    /// What becomes of it, unless it ends by itself.
    pub end: RunEnd,
    /// Whether its end is that of the machine, where the checkpoint is on a disk.
    pub machine_fails: bool,
    /// From the end of the run before to the start of this one.
    pub pause: Duration,
    /// The next run begins so long after this one has begun, whether it has ended or not.
    pub overlapped_after: Option<Duration>,
    /// How long this one stands still when the next one has begun.
    pub frozen: Duration,
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
pub enum RunEnd {
    /// Its process is gone when it has done something so many times.
    CrashAfterSteps(u64),
    /// Its process is gone after so long.
    CrashAfter(Duration),
    /// It is asked to stop after so long.
    StopAfter(Duration),
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Scenario {
    /// The scenario of a seed's draws.
    pub fn draw(chance: &Chance) -> Self {
        let outputs = draw_outputs(chance);
        let is_plain = outputs.len() == 1 && outputs[0].rows == Rows::Most;
        let has_state = outputs.iter().any(|output| output.rows.has_state());
        let tracking = chance.pick(&[Mode::Every, Mode::Every, Mode::Sparse, Mode::Mixed]);
        let disk = chance.percent(40).then(|| DiskTraits::draw(chance));
        let overlaps = disk.is_none() && chance.percent(25);
        let runs = chance.among(1..=4);
        Self {
            snapshots: SnapshotSettings {
                after_bytes: chance.pick(&[1, 2_000, u64::MAX]),
                interval: chance.percent(20).then(|| ms(100)),
            },
            sources: if is_plain && chance.percent(10) { 2 } else { 1 },
            rows: chance.among(3..=if has_state { 90 } else { 45 }),
            burst_rows: chance.among(1..=12),
            burst_gap: ms(chance.pick(&[1, 10, 60])),
            rows_max: chance.pick(&[1, 3, 8, 20, 1_000]),
            store: StoreTraits::draw(chance, disk.is_some()),
            runs: (0..runs)
                .map(|_| RunPlan::draw(chance, tracking, overlaps, disk.is_some()))
                .collect(),
            disk,
            outputs,
            clock_jumps: draw_jumps(chance),
        }
    }
}

impl Scenario {
    /// What the records are.
    pub fn records(&self) -> Records {
        let any = |rows| self.outputs.iter().any(|output| output.rows == rows);
        Records { malformed: any(Rows::Letters), repeating: any(Rows::Distinct) }
    }

    /// Whether the query has state.
    pub fn has_state(&self) -> bool {
        self.outputs.iter().any(|output| output.rows.has_state())
    }

    /// Whether an intent is in the offset log before its micro-batch is published.
    pub fn logs_at_once(&self) -> bool {
        let mut outputs = self.outputs.iter();
        !self.has_state() && outputs.any(|output| output.sink.delivery == Delivery::Idempotent)
    }
}

/// Mostly one output; else several, with state or dead letters among them.
fn draw_outputs(chance: &Chance) -> Vec<OutputTraits> {
    use Rows::{Distinct, Groups, Half, Letters, Most};
    let rows: &[Rows] = match chance.among(0..=99) {
        0..=54 => &[Most],
        55..=64 => &[Most, Half],
        65..=72 => &[Most, Letters],
        73..=79 => &[Half, Most, Letters],
        80..=83 => &[Distinct],
        84..=86 => &[Distinct, Letters],
        87..=92 => &[Groups],
        93..=96 => &[Most, Groups],
        _ => &[Groups, Half, Letters],
    };
    let output = |rows: &Rows| OutputTraits { rows: *rows, sink: SinkTraits::draw(chance) };
    rows.iter().map(output).collect()
}

/// Which kinds of progress tracking the runs have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Every,
    Sparse,
    Mixed,
}

impl SinkTraits {
    fn draw(chance: &Chance) -> Self {
        let delivery = [Delivery::AtLeastOnce, Delivery::Idempotent, Delivery::Transactional];
        Self {
            delivery: chance.pick(&delivery),
            at_once: chance.percent(15),
            skips_empty: chance.percent(50),
            there: ms(chance.pick(&[0, 1, 10, 40])),
            back: ms(chance.pick(&[0, 1, 10, 80])),
            refused: chance.pick(&[0, 0, 1, 4]),
            unanswered: chance.pick(&[0, 0, 1, 4]),
        }
    }
}

impl StoreTraits {
    fn draw(chance: &Chance, on_disk: bool) -> Self {
        let rarely = || chance.pick(&[0, 0, 0, 1, 3]);
        Self {
            way: ms(chance.pick(&[0, 1, 8, 40])),
            slow: chance.pick(&[0, 0, 2, 10]),
            failed: [rarely(), rarely(), rarely()],
            settings: Settings {
                retain_entries_min: chance.among(2..=6),
                in_flight_max: chance.among(1..=4) as usize,
                purge: chance.pick(&[PurgeTime::InBackground, PurgeTime::WhenCalled]),
                purge_step_entries: chance.among(1..=4) as usize,
                // The simulation has one thread.
                shares_threads: on_disk,
            },
        }
    }
}

impl DiskTraits {
    fn draw(chance: &Chance) -> Self {
        Self { writeback: ms(chance.pick(&[5, 50, 500, 5_000])), way: ms(chance.pick(&[0, 1, 8])) }
    }
}

impl RunPlan {
    fn draw(chance: &Chance, mode: Mode, overlaps: bool, on_disk: bool) -> Self {
        let sparse = mode == Mode::Sparse || mode == Mode::Mixed && chance.percent(50);
        let tracking = match sparse {
            true => ProgressTracking::Interval(ms(chance.pick(&[0, 20, 100, 500]))),
            false if chance.percent(20) => ProgressTracking::Blocking,
            false => ProgressTracking::EveryMicroBatch,
        };
        let trigger = match chance.among(0..=9) {
            0..=5 => Trigger::BackToBack,
            6 if !sparse => Trigger::AvailableNow,
            7 if !sparse => Trigger::Once,
            _ => Trigger::Interval(ms(chance.pick(&[1, 10, 50]))),
        };
        let end = match chance.among(0..=9) {
            0..=4 if on_disk => RunEnd::CrashAfterSteps(chance.among(1..=500)),
            0..=4 => RunEnd::CrashAfterSteps(chance.among(1..=100)),
            5..=6 => RunEnd::CrashAfter(chance.up_to(ms(900))),
            _ => RunEnd::StopAfter(chance.up_to(ms(900))),
        };
        let overlapped = overlaps && chance.percent(50);
        Self {
            tracking,
            trigger,
            end,
            machine_fails: on_disk && chance.percent(60),
            pause: chance.up_to(ms(60)),
            overlapped_after: overlapped.then(|| chance.up_to(ms(400))),
            frozen: ms(chance.pick(&[0, 0, 100, 1_000])),
        }
    }
}

/// Seldom some, forwards and backwards, up to an hour.
fn draw_jumps(chance: &Chance) -> Vec<(Duration, i64)> {
    const HOUR_US: u64 = 3_600_000_000;
    if !chance.percent(25) {
        return Vec::new();
    }
    let jump = |_| {
        let by = chance.among(0..=2 * HOUR_US) as i64 - HOUR_US as i64;
        (chance.up_to(ms(1_500)), by)
    };
    (0..chance.among(1..=3)).map(jump).collect()
}
