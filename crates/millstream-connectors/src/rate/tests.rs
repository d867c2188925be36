//! The rate source against a clock that is moved by hand.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use futures::FutureExt;
use millstream_engine::api::connector::{Connector, ReadMode, Table};
use millstream_engine::api::options::Options;
use millstream_engine::api::source::{
    InputBatch, Kind, ReadLimit, Source, SourceLog, SourceOffset,
};

use super::{Pace, Rate, RateOptions, RateSource};
use crate::testing::ManualClock;

const START_US: i64 = 1_767_225_600_000_000;

fn options(entries: &[(&str, &str)]) -> Options {
    Options::new(entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())))
}

fn rate(clock: &ManualClock, entries: &[(&str, &str)]) -> RateSource {
    RateSource::new(RateOptions::parse(&options(entries)).unwrap(), clock.env())
}

/// `(timestamp, value)` of every row, in order.
fn rows(taken: InputBatch) -> Vec<(i64, i64)> {
    let mut rows = Vec::new();
    for split in taken.splits {
        for record_batch in split.read(&[0, 1]) {
            let record_batch = record_batch.unwrap();
            let times = record_batch.column(0).as_primitive::<TimestampMicrosecondType>();
            let values = record_batch.column(1).as_primitive::<Int64Type>();
            rows.extend(times.values().iter().copied().zip(values.values().iter().copied()));
        }
    }
    rows
}

async fn opened(clock: &ManualClock, entries: &[(&str, &str)], log: &SourceLog) -> RateSource {
    let mut source = rate(clock, entries);
    let start = source.open(None, log.clone()).await.unwrap();
    source.start(&start).await.unwrap();
    source
}

#[test]
fn every_row_is_due_exactly_once() {
    let paces = [
        Pace::new(1, 0),
        Pace::new(3, 0),
        Pace::new(999_983, 0),
        Pace::new(1_000_000_000, 0),
        Pace::new(7, 2_500_000),
        Pace::new(1_000_000, 10_000_000),
        Pace::new(1, 300_000),
    ];
    for pace in paces {
        let mut last_us = 0;
        for row in (0..2_000).chain(5_000_000..5_000_100).chain(1 << 33..(1 << 33) + 10) {
            let due_us = pace.due_us(row);
            assert!(due_us >= last_us, "{pace:?} row {row} is due before its predecessor");
            assert!(pace.rows_due(due_us) > row, "{pace:?} row {row} is not there when due");
            if due_us > 0 {
                assert!(pace.rows_due(due_us - 1) <= row, "{pace:?} row {row} comes too early");
            }
            last_us = due_us;
        }
    }
}

#[test]
fn due_times_of_a_range_are_those_of_its_rows() {
    for pace in [Pace::new(3, 0), Pace::new(999_983, 0), Pace::new(50, 3_000_000)] {
        for start in [0, 60, 74, 75, 76, 1 << 40] {
            let mut times = Vec::new();
            pace.extend_due_times(start..start + 40, -5, &mut times);
            let single = (start..start + 40).map(|row| pace.due_us(row) as i64 - 5);
            assert_eq!(times, single.collect::<Vec<_>>(), "{pace:?} from {start}");
        }
    }
}

#[test]
fn a_ramp_grows_linearly_and_costs_half_its_length() {
    let pace = Pace::new(10, 4_000_000);
    let at = |seconds: u64| pace.rows_due(seconds * 1_000_000 - 1);
    assert_eq!([at(1), at(2), at(3), at(4)], [2, 5, 12, 20]);
    assert_eq!(at(5), 30);
    assert_eq!(pace.due_us(20), 4_000_000);
}

#[tokio::test]
async fn rows_carry_their_due_time_and_come_no_earlier() {
    let clock = ManualClock::at(START_US - 1);
    let mut source = opened(&clock, &[("rowsPerSecond", "1000")], &SourceLog::in_memory()).await;
    assert!(source.poll(ReadLimit::Configured).unwrap().is_none());
    clock.set(START_US + 2_999);
    let taken = source.poll(ReadLimit::Configured).unwrap().unwrap();
    assert_eq!(taken.end.as_str(), r#"{"rows":3}"#);
    assert_eq!((taken.rows, taken.oldest_arrival_us), (3, START_US));
    let wanted = vec![(START_US, 0), (START_US + 1_000, 1), (START_US + 2_000, 2)];
    assert_eq!(rows(taken), wanted);
    assert!(source.poll(ReadLimit::Configured).unwrap().is_none());
}

#[tokio::test]
async fn arrived_waits_for_the_next_row_or_the_next_tick() {
    let clock = ManualClock::at(START_US - 1);
    let log = SourceLog::in_memory();
    let mut slow = opened(&clock, &[("rowsPerSecond", "100")], &log).await;
    clock.set(START_US);
    assert!(slow.data_available().now_or_never().is_some());
    slow.poll(ReadLimit::Configured).unwrap().unwrap();
    clock.set(START_US + 9_999);
    assert!(slow.data_available().now_or_never().is_none());
    clock.set(START_US + 10_000);
    assert!(slow.data_available().now_or_never().is_some());

    let mut fast = opened(&clock, &[("rowsPerSecond", "1000000")], &log).await;
    fast.poll(ReadLimit::Configured).unwrap().unwrap();
    clock.advance_us(199);
    assert!(
        fast.data_available().now_or_never().is_none(),
        "rows are due, but the tick is not over"
    );
    clock.advance_us(1);
    assert!(fast.data_available().now_or_never().is_some());
    assert_eq!(fast.poll(ReadLimit::Configured).unwrap().unwrap().rows, 200);
}

#[tokio::test]
async fn a_sleeping_source_wakes_when_the_row_is_due() {
    let clock = ManualClock::at(START_US - 1);
    let mut source = opened(&clock, &[], &SourceLog::in_memory()).await;
    clock.set(START_US);
    source.poll(ReadLimit::Configured).unwrap().unwrap();
    let mut waiting = source.data_available().boxed();
    assert!((&mut waiting).now_or_never().is_none());
    clock.advance_us(1_000_000);
    waiting.await;
    assert_eq!(source.poll(ReadLimit::Configured).unwrap().unwrap().rows, 1);
}

#[tokio::test]
async fn replay_gives_the_same_rows_in_another_process() {
    let clock = ManualClock::at(START_US + 123_456);
    let log = SourceLog::in_memory();
    let entries = [("rowsPerSecond", "777"), ("rampUpTime", "1s"), ("numPartitions", "3")];
    let mut first = opened(&clock, &entries, &log).await;
    clock.advance_us(700_000);
    let start = first.poll(ReadLimit::Configured).unwrap().unwrap().end;
    clock.advance_us(40_000_000);
    let taken = first.poll(ReadLimit::Configured).unwrap().unwrap();
    assert_eq!(taken.splits.len(), 3);
    let end = taken.end.clone();
    let before = rows(taken);

    clock.advance_us(60_000_000);
    let mut second = rate(&clock, &entries);
    assert_eq!(second.open(Some(&end), log).await.unwrap(), end);
    assert_eq!(rows(second.replay(Some(&start), &end).await.unwrap()), before);
    // What came due while nobody ran follows at once.
    second.start(&end).await.unwrap();
    let next = rows(second.poll(ReadLimit::Configured).unwrap().unwrap());
    assert_eq!(next[0].1, before.last().unwrap().1 + 1);
    assert_eq!(next.len(), 777 * 60);
}

#[tokio::test]
async fn a_long_stop_is_caught_up_in_bounded_micro_batches() {
    let clock = ManualClock::at(START_US - 1);
    let entries = [("rowsPerSecond", "1000000")];
    let mut source = opened(&clock, &entries, &SourceLog::in_memory()).await;
    clock.set(START_US + 3_600_000_000);
    assert_eq!(source.poll(ReadLimit::Configured).unwrap().unwrap().rows, 1 << 20);
    assert!(source.data_available().now_or_never().is_none());
    clock.advance_us(500);
    assert!(source.data_available().now_or_never().is_some());
    assert_eq!(
        source.poll(ReadLimit::AllAvailable).unwrap().unwrap().rows,
        3_600_000_501 - (1 << 20)
    );
}

#[tokio::test]
async fn a_fixed_end_is_kept() {
    let clock = ManualClock::at(START_US - 1);
    let entries = [("rowsPerSecond", "10")];
    let mut source = opened(&clock, &entries, &SourceLog::in_memory()).await;
    clock.set(START_US + 950_000);
    source.fix_end().await.unwrap();
    clock.advance_us(5_000_000);
    assert!(!source.at_end());
    assert_eq!(source.poll(ReadLimit::Configured).unwrap().unwrap().rows, 10);
    assert!(source.at_end());
    assert!(source.data_available().now_or_never().is_some());
    assert!(source.poll(ReadLimit::Configured).unwrap().is_none());
}

#[tokio::test]
async fn only_the_columns_asked_for_are_made() {
    let clock = ManualClock::at(START_US - 1);
    let entries = [("rowsPerSecond", "20000")];
    let mut source = opened(&clock, &entries, &SourceLog::in_memory()).await;
    clock.set(START_US + 999_999);
    let read = |taken: InputBatch, projection: &[usize]| -> Vec<RecordBatch> {
        taken
            .splits
            .into_iter()
            .flat_map(|split| split.read(projection))
            .map(Result::unwrap)
            .collect()
    };
    let value_only = read(source.poll(ReadLimit::Configured).unwrap().unwrap(), &[1]);
    assert_eq!(
        value_only.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(),
        [8192, 8192, 3616]
    );
    assert_eq!(value_only[0].schema().field(0).name(), "value");
    clock.advance_us(1_000_000);
    let none = read(source.poll(ReadLimit::Configured).unwrap().unwrap(), &[]);
    assert_eq!(none.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_000);
    assert_eq!(none[0].num_columns(), 0);
}

#[tokio::test]
async fn checkpoints_that_do_not_fit_are_refused() {
    let clock = ManualClock::at(START_US);
    let spark = SourceOffset::new("12");
    let error = rate(&clock, &[]).open(Some(&spark), SourceLog::in_memory()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("'12'"), "{error}");

    let ours = SourceOffset::new(r#"{"rows":5}"#);
    let error = rate(&clock, &[]).open(Some(&ours), SourceLog::in_memory()).await.unwrap_err();
    assert!(error.to_string().contains("no creation time"), "{error}");

    let log = SourceLog::in_memory();
    log.put_if_absent("0", b"v1\nyesterday".to_vec()).await.unwrap();
    let error = rate(&clock, &[]).open(Some(&ours), log).await.unwrap_err();
    assert!(error.to_string().contains("yesterday"), "{error}");
}

#[tokio::test]
async fn the_creation_time_is_logged_as_spark_does() {
    let clock = ManualClock::at(START_US + 1);
    let log = SourceLog::in_memory();
    opened(&clock, &[], &log).await;
    assert_eq!(log.get("0").await.unwrap().unwrap(), b"v1\n1767225600001");
}

#[test]
fn options_are_checked() {
    let problem = |entries: &[(&str, &str)]| RateOptions::parse(&options(entries)).unwrap_err();
    assert_eq!(problem(&[("rowspersecond", "0")]).key.as_deref(), Some("rowsPerSecond"));
    assert_eq!(problem(&[("rowsPerSecond", "many")]).key.as_deref(), Some("rowsPerSecond"));
    assert_eq!(problem(&[("rampUpTime", "soon")]).key.as_deref(), Some("rampUpTime"));
    assert_eq!(problem(&[("numPartitions", "0")]).key.as_deref(), Some("numPartitions"));

    let table = Table { name: "r".into(), columns: None, options: options(&[]) };
    assert_eq!(Rate.check_source(&table, ReadMode::Stream).unwrap(), super::schema());
    assert!(Rate.check_source(&table, ReadMode::Batch).is_err());
    let columns = Some(std::sync::Arc::new(super::schema().project(&[1]).unwrap()));
    let table = Table { columns, ..table };
    assert!(Rate.check_source(&table, ReadMode::Stream).is_err());
}
