use millstream_engine::api::sink::Kind;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::Env;
use millstream_store::storage::Storage;

use super::*;

/// A checkpoint in memory, and runs of a query on it.
struct Runs {
    checkpoint: Checkpoint,
}

impl Runs {
    async fn new() -> Self {
        let opened = Checkpoint::open_in(Storage::in_memory(), &Env::real()).await;
        Self { checkpoint: opened.expect("it is new") }
    }

    /// A run that starts at this millisecond.
    async fn start(&self, now_ms: i64) -> WriteTimes {
        let log = self.checkpoint.sink_log("t");
        WriteTimes::open(Some(log), "k.t", now_ms).await.expect("it can be read")
    }
}

async fn time(times: &mut WriteTimes, batch_id: u64, batch_time_ms: i64) -> i64 {
    times.time(BatchId(batch_id), batch_time_ms).await.expect("it can be kept")
}

#[tokio::test]
async fn times_grow_while_the_clock_stands_still_and_when_it_goes_back() {
    let runs = Runs::new().await;
    let mut times = runs.start(1_000).await;
    let clock = [1_000, 1_000, 1_000, 1_001, 900, 2, 1_700, 1_700, 60_000];
    let mut last = 0;
    for (batch_id, now_ms) in (0..).zip(clock) {
        let time = time(&mut times, batch_id, now_ms).await;
        assert!(time >= last + STEP_US, "micro-batch {batch_id}: {last}, {time}");
        last = time;
    }
    assert_eq!(last, 60_000_000, "a lease begins at the clock");
    assert_eq!(times.entry.leases.len(), 3, "few are written: {:?}", times.entry);
}

#[tokio::test]
async fn a_replay_has_the_time_that_it_had() {
    let runs = Runs::new().await;
    let mut times = runs.start(1_000).await;
    let mut given = Vec::new();
    for batch_id in 0_u64..40 {
        let now_ms = 1_000 + 90 * batch_id.cast_signed();
        given.push((batch_id, now_ms, time(&mut times, batch_id, now_ms).await));
    }
    assert!(times.entry.leases.len() > 3);
    for from in [0, 7, 39] {
        let mut again = runs.start(100_000).await;
        for (batch_id, now_ms, was) in &given[from..] {
            assert_eq!(time(&mut again, *batch_id, *now_ms).await, *was, "{batch_id}");
        }
    }
    // What follows is later than all of them, whatever the clock says.
    for now_ms in [100_000, 100_001, 5] {
        let mut again = runs.start(now_ms).await;
        assert!(time(&mut again, 40, now_ms).await > given[39].2);
    }
}

#[tokio::test]
async fn a_number_whose_entry_was_lost_is_a_new_one() {
    let runs = Runs::new().await;
    let mut times = runs.start(1_000).await;
    let mut last = 0;
    for batch_id in 0_u64..30 {
        last = time(&mut times, batch_id, 1_000 + batch_id.cast_signed()).await;
    }
    // Progress was tracked asynchronously: the log ends at micro-batch 10.
    let mut again = runs.start(1_100).await;
    let replayed = time(&mut again, 10, 1_010).await;
    assert!(replayed < last);
    let fresh = time(&mut again, 11, 1_100).await;
    assert!(fresh > last, "rows of micro-batch 29 are not to hide those of the new 11");
    let mut third = runs.start(1_200).await;
    assert_eq!(time(&mut third, 11, 1_100).await, fresh);
    assert_eq!(time(&mut third, 12, 1_101).await, fresh + STEP_US);
}

#[tokio::test]
async fn old_leases_go_and_what_they_gave_is_given_anew() {
    let runs = Runs::new().await;
    let mut times = runs.start(0).await;
    let first = time(&mut times, 0, 1_000).await;
    for batch_id in 1_u64..200 {
        time(&mut times, batch_id, 1_000 * batch_id.cast_signed() + 1_000).await;
    }
    assert_eq!(times.entry.leases.len(), LEASES_MAX);
    let mut again = runs.start(1_000_000).await;
    let anew = time(&mut again, 0, 1_000).await;
    assert!(anew > first && anew > 200_000_000, "later than all others");
}

#[tokio::test]
async fn the_form_of_entries_stays() {
    let runs = Runs::new().await;
    time(&mut runs.start(1_000).await, 7, 1_000).await;
    let (_, bytes) = runs.checkpoint.sink_log("t").last().await.expect("readable").expect("one");
    let form = r#"{"version":1,"table":"k.t","leases":[{"batchId":7,"us":1000000}]}"#;
    assert_eq!(String::from_utf8_lossy(&bytes), form);
}

#[tokio::test]
async fn a_query_that_runs_once_has_the_time_at_which_it_began() {
    let mut times = WriteTimes::open(None, "k.t", 1_000).await.expect("nothing is read");
    assert_eq!(time(&mut times, 0, 0).await, 1_000_000);
}

#[tokio::test]
async fn of_two_instances_one_is_refused() {
    let runs = Runs::new().await;
    let (mut first, mut second) = (runs.start(1_000).await, runs.start(1_000).await);
    time(&mut first, 0, 1_000).await;
    let refused = second.time(BatchId(0), 1_001).await.expect_err("there is another");
    assert_eq!(refused.kind(), Kind::Fenced);
}

#[tokio::test]
async fn a_damaged_entry_is_reported_with_its_place() {
    for damage in [
        "{",
        r#"{"version":2,"table":"k.t","leases":[]}"#,
        r#"{"version":1,"table":"k.t","leases":[{"batchId":2,"us":9},{"batchId":1,"us":10}]}"#,
        r#"{"version":1,"table":"k.t","leases":[{"batchId":0,"us":9223372036854775807}]}"#,
    ] {
        let runs = Runs::new().await;
        let log = runs.checkpoint.sink_log("t");
        log.append(None, damage.into()).await.expect("it can be written");
        let refused = WriteTimes::open(Some(log), "k.t", 0).await.err().expect("it is damaged");
        assert!(refused.to_string().contains("sinks/t"), "{refused}");
    }
}
