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
