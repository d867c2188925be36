//! The arithmetic of the meter: lost, repeated and foreign records, warm-up, latency.

use super::*;
use crate::schedule::Schedule;

const DELAY_US: i64 = 1_500;

/// Two seconds at 1000 records a second, the first second warm-up, each received 1.5 ms late.
fn run(mut change: impl FnMut(u64) -> u32) -> Measured {
    let schedule = Schedule::new(0, 1_000, 2, 7);
    let sent = schedule.records();
    let mut tally = Tally::new(sent, 1_000_000);
    for due in schedule {
        for _ in 0..change(due.number) {
            tally.receive(due.due_us, due.number, due.due_us + DELAY_US);
        }
    }
    tally.measured(sent)
}

#[test]
fn everything_once() {
    let measured = run(|_| 1);
    assert_eq!((measured.missing, measured.duplicated, measured.foreign), (0, 0, 0));
    assert_eq!(measured.records, 1_000);
    assert_eq!((measured.latency.p50_ms, measured.latency.max_ms), (1.5, 1.5));
    assert!((measured.throughput_rows_per_s - 1_000.0).abs() < 5.0, "{measured:?}");
}

#[test]
fn a_lost_record_is_noticed_wherever_it_was() {
    for lost in [0, 63, 64, 999, 1_000, 1_999] {
        let measured = run(|number| u32::from(number != lost));
        assert_eq!((measured.missing, measured.duplicated), (1, 0), "record {lost}");
    }
}

#[test]
fn a_repeated_record_is_noticed_and_measured_once() {
    for repeated in [0, 63, 64, 1_999] {
        let measured = run(|number| 1 + u32::from(number == repeated));
        assert_eq!((measured.missing, measured.duplicated), (0, 1), "record {repeated}");
        assert_eq!(measured.records, 1_000);
    }
}

#[test]
fn a_repeat_does_not_make_up_for_a_loss() {
    let measured = run(|number| match number {
        10 => 0,
        11 => 2,
        _ => 1,
    });
    assert_eq!((measured.missing, measured.duplicated), (1, 1));
}

#[test]
fn records_nobody_sent_are_foreign() {
    let mut tally = Tally::new(64, 0);
    tally.receive(0, 64, 10);
    tally.receive(0, u64::MAX, 10);
    tally.receive_foreign();
    let measured = tally.measured(0);
    assert_eq!((measured.missing, measured.foreign, measured.records), (0, 3, 0));
}

#[test]
fn a_stall_shows_in_every_record_that_was_due_during_it() {
    let schedule = Schedule::new(0, 1_000, 1, 7);
    let mut tally = Tally::new(schedule.records(), 0);
    for due in schedule {
        // The system under test sleeps for half a second from 250 ms on.
        let stalled = (250_000..750_000).contains(&due.due_us);
        let now_us = if stalled { 750_000 } else { due.due_us };
        tally.receive(due.due_us, due.number, now_us);
    }
    let latency = tally.measured(1_000).latency;
    assert!(latency.p90_ms > 350.0 && latency.max_ms > 495.0, "{latency:?}");
    assert!(latency.p50_ms < 5.0, "{latency:?}");
}
