use std::sync::Arc;

use millstream_engine::api::source::Kind;
use proptest::prelude::*;

use super::*;
use crate::error::{DataLoss, RowsError, SourceError};
use crate::source::chunk::ChunkBuilder;

fn id(partition: i32) -> PartitionId {
    PartitionId::new("in", partition)
}

fn rows(offsets: impl IntoIterator<Item = i64>) -> Arrival {
    let mut builder = ChunkBuilder::new(false);
    for offset in offsets {
        builder.push(None, Some(b"value"), offset, 0, 0);
    }
    Arrival::Rows(builder.finish(1))
}

fn buffer(limits: Limits, partitions: i32) -> ReadAhead {
    let buffer = ReadAhead::new(Env::real(), limits);
    for partition in 0..partitions {
        buffer.add(id(partition), 0);
    }
    buffer
}

fn nothing_more() -> More {
    More::WillBeNotified
}

fn take(buffer: &ReadAhead, limit: ReadLimit) -> Option<(String, u64)> {
    let taken = buffer.take(limit).unwrap()?;
    Some((taken.end.as_str().to_owned(), taken.rows))
}

fn ends(entries: &[(i32, i64)]) -> PerPartition {
    entries.iter().map(|(partition, end)| (id(*partition), *end)).collect()
}

#[test]
fn everything_is_taken_without_limits() {
    let buffer = buffer(Limits::default(), 2);
    assert_eq!(take(&buffer, ReadLimit::Configured), None);
    buffer.push([(id(0), rows(0..3)), (id(1), rows([4, 9])), (id(0), rows(3..5))]);
    let expected = Some((r#"{"in":{"0":5,"1":10}}"#.to_owned(), 7));
    assert_eq!(take(&buffer, ReadLimit::Configured), expected);
    assert_eq!(take(&buffer, ReadLimit::Configured), None);
}

#[test]
fn a_limit_is_shared_and_nothing_is_lost() {
    let buffer = buffer(Limits { rows_max: Some(4), ..Limits::default() }, 2);
    buffer.push([(id(0), rows(0..6)), (id(1), rows(0..2))]);
    let expected = Some((r#"{"in":{"0":3,"1":1}}"#.to_owned(), 4));
    assert_eq!(take(&buffer, ReadLimit::Configured), expected);
    let expected = Some((r#"{"in":{"0":6,"1":2}}"#.to_owned(), 4));
    assert_eq!(take(&buffer, ReadLimit::Configured), expected);
    buffer.push([(id(0), rows(6..20))]);
    assert_eq!(take(&buffer, ReadLimit::AllAvailable).map(|(_, rows)| rows), Some(14));
}

#[test]
fn the_end_of_a_partition_moves_past_markers() {
    let buffer = buffer(Limits::default(), 1);
    buffer.push([(id(0), rows(0..2)), (id(0), Arrival::End(5))]);
    assert_eq!(take(&buffer, ReadLimit::AllAvailable), Some((r#"{"in":{"0":5}}"#.to_owned(), 2)));
}

#[test]
fn nothing_is_taken_past_a_fixed_end() {
    let buffer = buffer(Limits::default(), 2);
    buffer.push([(id(0), rows(0..10))]);
    buffer.fix_end(&ends(&[(0, 4), (1, 2)]));
    buffer.push([(id(0), rows(10..12))]);
    assert!(!buffer.at_end());
    assert_eq!(
        take(&buffer, ReadLimit::Configured),
        Some((r#"{"in":{"0":4,"1":0}}"#.to_owned(), 4))
    );
    assert!(!buffer.at_end(), "partition 1 has not been read to its end");
    // The records 0 and 1 were compacted away: only the end is reported, and has to be logged.
    buffer.push([(id(1), Arrival::End(2))]);
    assert!(!buffer.at_end());
    assert_eq!(
        take(&buffer, ReadLimit::Configured),
        Some((r#"{"in":{"0":4,"1":2}}"#.to_owned(), 0))
    );
    assert!(buffer.at_end());
    assert_eq!(take(&buffer, ReadLimit::Configured), None);
    buffer.add(id(2), 0);
    assert!(buffer.at_end(), "a partition that appears later does not belong to the query");
}

#[tokio::test]
async fn all_up_to_a_fixed_end_comes_in_one_go() {
    let buffer = Arc::new(buffer(Limits::default(), 1));
    buffer.push([(id(0), rows(0..2))]);
    buffer.fix_end(&ends(&[(0, 5)]));
    assert_eq!(take(&buffer, ReadLimit::AllAvailable), None);
    let waiting = buffer.clone();
    let task = Env::real().spawn("arrived", async move { waiting.arrived(nothing_more).await });
    buffer.push([(id(0), rows(2..4))]);
    buffer.notify();
    tokio::task::yield_now().await;
    assert!(!task.is_finished(), "it waits for the rest");
    buffer.push([(id(0), rows(4..6))]);
    buffer.notify();
    task.join().await;
    assert_eq!(take(&buffer, ReadLimit::AllAvailable), Some((r#"{"in":{"0":5}}"#.to_owned(), 5)));
    assert!(buffer.at_end());
}

#[test]
fn a_removed_partition_takes_its_rows_along() {
    let buffer = buffer(Limits::default(), 2);
    buffer.push([(id(0), rows(0..3)), (id(1), rows(0..1))]);
    buffer.remove(&id(0));
    buffer.push([(id(0), rows(3..4))]);
    assert_eq!(take(&buffer, ReadLimit::AllAvailable), Some((r#"{"in":{"1":1}}"#.to_owned(), 1)));
}

#[test]
fn a_failure_comes_out_once() {
    let buffer = buffer(Limits::default(), 1);
    let loss = DataLoss::OutOfRange { id: id(0), position: 0 };
    buffer.fail(SourceError::DataLoss { loss }.into());
    buffer.fail(RowsError::NoValues.into());
    assert_eq!(
        buffer.take(ReadLimit::AllAvailable).err().map(|failure| failure.kind()),
        Some(Kind::Data)
    );
    assert!(buffer.take(ReadLimit::AllAvailable).is_ok());
}

#[tokio::test]
async fn arrived_waits_for_rows() {
    let buffer = Arc::new(buffer(Limits::default(), 1));
    let waiting = buffer.clone();
    let task = Env::real().spawn("arrived", async move { waiting.arrived(nothing_more).await });
    tokio::task::yield_now().await;
    assert!(!task.is_finished());
    buffer.push([(id(0), Arrival::End(0))]);
    buffer.notify();
    tokio::task::yield_now().await;
    assert!(!task.is_finished(), "an end without rows is nothing to take");
    buffer.push([(id(0), rows(0..1))]);
    buffer.notify();
    task.join().await;
}

#[tokio::test]
async fn arrived_looks_until_the_client_has_no_more() {
    let buffer = buffer(Limits::default(), 1);
    buffer.fix_end(&ends(&[(0, 4)]));
    // Asked for in one go: two rows alone are no reason to come back.
    assert_eq!(take(&buffer, ReadLimit::AllAvailable), None);
    let looks = std::cell::Cell::new(0);
    let look = || {
        let first = looks.get() * 2;
        buffer.push([(id(0), rows(first..first + 2))]);
        looks.set(looks.get() + 1);
        More::Waits
    };
    buffer.arrived(look).await;
    assert_eq!(
        (looks.get(), take(&buffer, ReadLimit::AllAvailable).map(|(_, rows)| rows)),
        (2, Some(4))
    );
}

#[tokio::test]
async fn a_small_micro_batch_waits_for_its_delay() {
    let delay_max = Duration::from_millis(60);
    let limits = Limits { rows_min: Some(3), delay_max, ..Limits::default() };
    let buffer = buffer(limits, 1);
    let start = Env::real();
    let begun = start.monotonic();
    buffer.push([(id(0), rows(0..2))]);
    assert_eq!(take(&buffer, ReadLimit::Configured), None);
    buffer.arrived(nothing_more).await;
    assert!(start.monotonic() - begun >= Duration::from_millis(55));
    assert_eq!(take(&buffer, ReadLimit::Configured).map(|(_, rows)| rows), Some(2));
    buffer.push([(id(0), rows(2..5))]);
    assert_eq!(take(&buffer, ReadLimit::Configured).map(|(_, rows)| rows), Some(3));
}

#[test]
fn the_reader_pauses_while_much_waits() {
    let buffer = buffer(Limits::default(), 1);
    assert!(buffer.has_space());
    let mut builder = ChunkBuilder::new(false);
    builder.push(None, Some(&vec![0; WAITING_BYTES_MAX]), 0, 0, 0);
    buffer.push([(id(0), Arrival::Rows(builder.finish(0)))]);
    assert!(!buffer.has_space());
    assert!(take(&buffer, ReadLimit::AllAvailable).is_some());
    assert!(buffer.has_space());
}

proptest! {
    /// Whatever the limit and the cuts, rows come out once, in order, and the ends say how far.
    #[test]
    fn rows_come_out_once_and_in_order(
        rows_max in 1..20_u64,
        drains in proptest::collection::vec((0..3_i32, 1..8_i64, 0..3_i64), 1..30),
    ) {
        let buffer = buffer(Limits { rows_max: Some(rows_max), ..Limits::default() }, 3);
        let mut next = [0_i64; 3];
        let (mut pushed, mut seen) = (vec![Vec::new(); 3], vec![Vec::new(); 3]);
        let mut check = |taken: PolledChunks| {
            let positions = crate::offsets::parse(taken.end.as_str()).unwrap();
            let mut rows = 0;
            for (id, chunks) in taken.chunks {
                for chunk in &chunks {
                    rows += chunk.rows() as u64;
                    seen[id.partition as usize].extend_from_slice(chunk.offset.values());
                }
                let end = chunks.last().map(Chunk::end_offset);
                assert!(end <= Some(positions[&id]));
            }
            assert_eq!(rows, taken.rows);
        };
        for (partition, count, gap) in drains {
            let at = partition as usize;
            let first = next[at] + gap;
            next[at] = first + count;
            pushed[at].extend(first..next[at]);
            buffer.push([(id(partition), rows(first..next[at]))]);
            if count % 2 == 0 {
                buffer.take(ReadLimit::Configured).unwrap().into_iter().for_each(&mut check);
            }
        }
        while let Some(taken) = buffer.take(ReadLimit::Configured).unwrap() {
            check(taken);
        }
        prop_assert_eq!(seen, pushed);
        prop_assert_eq!(buffer.state.lock().bytes, 0);
        prop_assert_eq!(buffer.state.lock().rows, 0);
    }
}

#[test]
fn arrivals_are_send() {
    fn is_send<T: Send>() {}
    is_send::<Arc<ReadAhead>>();
    is_send::<Arrival>();
}

#[test]
fn what_waits_is_counted_also_where_chunks_are_cut() {
    let buffer = buffer(Limits { rows_max: Some(4), ..Limits::default() }, 2);
    buffer.push([(id(0), rows(0..6)), (id(1), rows(0..2)), (id(0), rows(6..9))]);
    buffer.fix_end(&ends(&[(0, 8), (1, 2)]));
    while take(&buffer, ReadLimit::Configured).is_some() {}
    let state = buffer.state.lock();
    assert_eq!((state.rows, state.bytes), (0, 0));
}

#[test]
fn the_ends_of_partitions_are_asked_for_without_the_lock() {
    let buffer = buffer(Limits::default(), 2);
    let end_seen = |id: &PartitionId| {
        // As a reader does that hands rows over while it is asked.
        assert!(buffer.has_space());
        Some(i64::from(id.partition))
    };
    assert_eq!(buffer.behind(end_seen), [id(1)]);
}

fn take_all(buffer: &ReadAhead) -> Vec<(String, Vec<i64>)> {
    let take = || buffer.take(ReadLimit::Configured).unwrap();
    let taken = std::iter::from_fn(take).map(|taken| {
        let chunks = taken.chunks.iter().flat_map(|(_, chunks)| chunks);
        let offsets: Vec<i64> = chunks.flat_map(|chunk| chunk.offset.values().to_vec()).collect();
        assert_eq!(offsets.len() as u64, taken.rows);
        (taken.end.as_str().to_owned(), offsets)
    });
    let all = taken.collect();
    assert_eq!(buffer.state.lock().rows, 0);
    assert_eq!(buffer.state.lock().bytes, 0);
    all
}

fn end_of_both(first: i64, second: i64) -> String {
    format!(r#"{{"in":{{"0":{first},"1":{second}}}}}"#)
}

#[test]
fn a_log_that_is_cut_back_behind_what_was_taken_goes_on_in_the_next_micro_batch() {
    let buffer = buffer(Limits::default(), 2);
    buffer.push([(id(0), rows(0..6))]);
    assert_eq!(take(&buffer, ReadLimit::Configured), Some((end_of_both(6, 0), 6)));
    buffer.push([(id(0), rows(6..9)), (id(1), rows(0..1))]);
    buffer.cut_back(&id(0), 4, 9);
    buffer.push([(id(0), rows(4..8))]);
    // And once more, before any of it was taken.
    buffer.cut_back(&id(0), 7, 9);
    buffer.cut_back(&id(0), 2, 9);
    buffer.push([(id(0), rows(2..5)), (id(1), rows(1..2))]);
    let expected = [(end_of_both(2, 2), vec![0, 1]), (end_of_both(5, 2), vec![2, 3, 4])];
    assert_eq!(take_all(&buffer), expected);
}

#[test]
fn a_log_that_is_cut_back_ahead_of_what_was_taken_leaves_no_trace() {
    let buffer = buffer(Limits::default(), 2);
    buffer.push([(id(0), rows(0..6)), (id(0), rows(6..9)), (id(0), Arrival::End(12))]);
    buffer.cut_back(&id(0), 7, 9);
    assert_eq!(buffer.read(), ends(&[(0, 7), (1, 0)]));
    buffer.push([(id(0), rows(7..9))]);
    assert_eq!(take_all(&buffer), [(end_of_both(9, 0), (0..9).collect::<Vec<_>>())]);
    // One that does not go back is not touched.
    buffer.cut_back(&id(0), 9, 9);
    buffer.cut_back(&id(7), 0, 9);
    assert_eq!(take_all(&buffer), []);
}

#[test]
fn what_was_read_of_a_topic_before_it_was_made_again_is_handed_out() {
    let buffer = buffer(Limits { rows_max: Some(3), ..Limits::default() }, 2);
    buffer.push([(id(0), rows(0..4))]);
    buffer.begin_again(&id(0), 0, 2);
    buffer.push([(id(0), rows(0..2)), (id(1), rows(0..1))]);
    let all = take_all(&buffer);
    let offsets: Vec<i64> = all.iter().flat_map(|(_, offsets)| offsets.clone()).collect();
    let ends: Vec<&str> = all.iter().map(|(end, _)| end.as_str()).collect();
    assert_eq!(offsets, [0, 1, 0, 2, 3, 0, 1]);
    let expected =
        [(2, 1), (4, 1), (0, 1), (2, 1)].map(|(first, second)| end_of_both(first, second));
    assert_eq!(ends, expected);
}

#[test]
fn an_end_that_a_log_does_not_have_any_more_is_not_waited_for() {
    for (latest, end) in [(7, 7), (3, 4), (20, 9)] {
        let buffer = buffer(Limits::default(), 1);
        buffer.push([(id(0), rows(0..6))]);
        buffer.fix_end(&ends(&[(0, 9)]));
        assert_eq!(take(&buffer, ReadLimit::Configured).map(|(_, rows)| rows), Some(6));
        buffer.cut_back(&id(0), 4, latest);
        assert!(!buffer.at_end(), "that it goes back has to be logged");
        if end > 4 {
            buffer.push([(id(0), rows(4..end))]);
        }
        let rows = (4..end).collect::<Vec<_>>();
        let last = format!(r#"{{"in":{{"0":{end}}}}}"#);
        let all = take_all(&buffer);
        assert_eq!(all[0], (r#"{"in":{"0":4}}"#.to_owned(), vec![]));
        assert_eq!(all.get(1), (end > 4).then_some(&(last, rows)));
        assert!(buffer.at_end());
    }
}

#[test]
fn an_end_is_fixed_for_what_comes_after_going_back() {
    let buffer = buffer(Limits::default(), 1);
    buffer.push([(id(0), rows(0..9))]);
    assert!(take(&buffer, ReadLimit::Configured).is_some());
    buffer.begin_again(&id(0), 0, i64::MAX);
    buffer.push([(id(0), rows(0..3))]);
    buffer.fix_end(&ends(&[(0, 2)]));
    let expected = [(r#"{"in":{"0":0}}"#, vec![]), (r#"{"in":{"0":2}}"#, vec![0, 1])];
    assert_eq!(take_all(&buffer), expected.map(|(end, rows)| (end.to_owned(), rows)));
    assert!(buffer.at_end());
}
