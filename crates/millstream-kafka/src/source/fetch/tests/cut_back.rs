//! Logs that are cut back, read from a broker made for testing.

use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::source::ReadLimit;
use millstream_store::env::Env;

use super::broker::{Broker, Log, State, TOPIC};
use crate::brokers::settings::ConnectionSettings;
use crate::offsets::{PartitionId, PerPartition};
use crate::protocol::fetch::{FetchLimits, Position};
use crate::protocol::security::Security;
use crate::source::fetch::{FetchSettings, Fetcher, brokers};
use crate::source::limits::Limits;
use crate::source::read_ahead::ReadAhead;
use crate::source::reader::Rules;

const PATIENCE: Duration = Duration::from_secs(20);

fn id(partition: i32) -> PartitionId {
    PartitionId::new(TOPIC, partition)
}

/// A reader of both partitions from 0 on.
struct Reading {
    broker: Broker,
    buffer: Arc<ReadAhead>,
    _fetcher: Fetcher,
}

/// What was taken: the ends of both partitions, and the values of each row with its partition.
type Taken = ((i64, i64), Vec<(i32, String)>);

impl Reading {
    /// Of partitions with these values, each a batch of its own.
    fn start(values: [&[&str]; 2], fail_on_data_loss: bool) -> Self {
        Self::start_with(values, fail_on_data_loss, |_| ())
    }

    /// The same, of a broker that is `prepare`d.
    fn start_with(
        values: [&[&str]; 2],
        fail_on_data_loss: bool,
        prepare: impl FnOnce(&mut State),
    ) -> Self {
        let broker = Broker::start();
        for (log, values) in broker.state.lock().logs.iter_mut().zip(values) {
            log.leader_epoch = 4;
            values.iter().for_each(|value| log.append(&[value]));
        }
        prepare(&mut broker.state.lock());
        let env = Env::real();
        let settings = FetchSettings {
            connections: ConnectionSettings {
                servers: vec![broker.address.clone()],
                client: "test".to_owned(),
                security: Security::default(),
                tokens: None,
            },
            limits: FetchLimits {
                wait_ms: 10,
                bytes_min: 1,
                bytes_max: 1 << 20,
                partition_bytes_max: 1 << 20,
                only_committed: false,
                rack: String::new(),
            },
            shares: false,
            checks: true,
        };
        let buffer = Arc::new(ReadAhead::new(env.clone(), Limits::default()));
        let positions: PerPartition = [0, 1].map(|of| (id(of), 0)).into();
        for (id, offset) in &positions {
            buffer.add(id.clone(), *offset);
        }
        let brokers = brokers(&settings, "source", &env);
        let rules = Rules { include_headers: false, fail_on_data_loss };
        let into = (Arc::clone(&buffer), rules);
        let fetcher = Fetcher::start(settings, brokers, ("source", "a:1"), &positions, into, &env);
        Self { broker, buffer, _fetcher: fetcher }
    }

    fn change(&self, partition: usize, change: impl FnOnce(&mut Log)) {
        change(&mut self.broker.state.lock().logs[partition]);
    }

    fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let env = Env::real();
        let begun = env.monotonic();
        while !condition(self) {
            assert!(env.monotonic() - begun < PATIENCE, "{what} does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until both partitions were read up to there.
    fn read_to(&self, ends: [i64; 2]) {
        let read = |it: &Self| it.buffer.read().into_values().eq(ends);
        self.until("a record", read);
    }

    fn take(&self) -> Taken {
        let taken = self.buffer.take(ReadLimit::AllAvailable).unwrap().expect("rows wait");
        let ends = crate::offsets::parse(taken.end.as_str()).unwrap();
        let mut values = Vec::new();
        for (id, chunks) in taken.chunks {
            for value in chunks.iter().flat_map(|chunk| chunk.value.iter().flatten()) {
                values.push((id.partition, String::from_utf8(value.to_vec()).unwrap()));
            }
        }
        ((ends[&id(0)], ends[&id(1)]), values)
    }

    fn failure(&self) -> String {
        let failed = |it: &Self| it.buffer.take(ReadLimit::AllAvailable).err();
        let failure = std::cell::OnceCell::new();
        self.until("a failure", |it| {
            failed(it).is_some_and(|error| failure.set(error.to_string()).is_ok())
        });
        failure.into_inner().unwrap()
    }

    /// The last request for a partition that was answered.
    fn asked(&self, partition: i32) -> Option<Position> {
        let state = self.broker.state.lock();
        state.asked.iter().rev().find(|(of, _)| *of == partition).map(|(_, at)| *at)
    }
}

fn rows(partition: i32, values: &[&str]) -> Vec<(i32, String)> {
    values.iter().map(|value| (partition, (*value).to_owned())).collect()
}

#[test]
fn the_epoch_of_what_was_read_goes_along_by_partition() {
    let reading = Reading::start([&["a"], &[]], true);
    let at = |offset, epoch, leader_epoch| Some(Position { offset, epoch, leader_epoch });
    let first = |it: &Reading| it.broker.state.lock().asked.first().copied();
    reading.until("a request", |it| first(it).is_some());
    assert_eq!(first(&reading).map(|(_, at)| at), at(0, -1, 4), "nothing was read before");
    reading.until("an epoch", |it| it.asked(0) == at(1, 4, 4));
    assert_eq!(reading.asked(1), at(0, -1, 4));
    // A leader that has all of it. The epoch of what was read stays until more is read.
    reading.change(1, |log| log.cut_back(0));
    reading.until("the next leader", |it| it.asked(1) == at(0, -1, 5));
    reading.change(1, |log| log.append(&["b"]));
    reading.until("the next epoch", |it| it.asked(1) == at(1, 5, 5));
    assert_eq!(reading.asked(0), at(1, 4, 4));
    reading.change(0, |log| log.cut_back(1));
    reading.until("the next leader", |it| it.asked(0) == at(1, 4, 5));
}

#[test]
fn a_log_that_was_cut_back_ends_the_query() {
    let reading = Reading::start([&["a", "b", "c"], &["x"]], true);
    reading.read_to([3, 1]);
    // It has grown past the position since, so its end says nothing.
    reading.change(0, |log| {
        log.cut_back(1);
        log.append(&["B"]);
        log.append(&["C", "D"]);
    });
    let failure = reading.failure();
    for part in ["in-0", "offset 3", "offset 1 only", "startingOffsets", "failOnDataLoss"] {
        assert!(failure.contains(part), "{part}: {failure}");
    }
}

#[test]
fn what_was_read_ahead_of_a_log_that_is_cut_back_is_dropped() {
    let reading = Reading::start([&["a", "b", "c"], &["x"]], false);
    reading.read_to([3, 1]);
    reading.change(0, |log| {
        log.cut_back(1);
        log.append(&["B", "C", "D"]);
    });
    reading.read_to([4, 1]);
    let values = [rows(0, &["a", "B", "C", "D"]), rows(1, &["x"])].concat();
    assert_eq!(reading.take(), ((4, 1), values), "nothing of the former log was taken before");
}

#[test]
fn a_partition_goes_back_by_a_micro_batch_without_rows_of_it() {
    // Where topics have no ids, epochs of leaders are not sent, and nothing is refused before.
    let prepare = |state: &mut State| state.topic_id = 0;
    let reading = Reading::start_with([&["a", "b", "c"], &["x"]], false, prepare);
    reading.read_to([3, 1]);
    reading.take();
    {
        let mut state = reading.broker.state.lock();
        state.logs[0].cut_back(1);
        state.logs[0].append(&["B"]);
        state.logs[1].append(&["y"]);
    }
    reading.read_to([2, 2]);
    assert!(
        reading.broker.state.lock().is_mixed,
        "one answer has one log's records and the other's end"
    );
    assert_eq!(reading.take(), ((1, 2), rows(1, &["y"])), "the next one begins where it goes on");
    assert_eq!(reading.take(), ((2, 2), rows(0, &["B"])));
    // What comes is read as if nothing had happened, by its own epoch.
    reading.change(0, |log| log.append(&["C"]));
    reading.read_to([3, 2]);
    assert_eq!(reading.take(), ((3, 2), rows(0, &["C"])));
    let at = Position { offset: 3, epoch: 5, leader_epoch: -1 };
    reading.until("the epoch", |it| it.asked(0) == Some(at));
}

#[test]
fn a_log_that_ends_before_the_position_is_read_on_from_what_is_common() {
    let reading = Reading::start([&["a", "b", "c"], &[]], false);
    reading.read_to([3, 0]);
    reading.take();
    reading.change(0, |log| log.cut_back(2));
    reading.read_to([2, 0]);
    reading.change(0, |log| log.append(&["C"]));
    reading.read_to([3, 0]);
    assert_eq!(reading.take(), ((2, 0), Vec::new()));
    assert_eq!(reading.take(), ((3, 0), rows(0, &["C"])));
}

#[test]
fn brokers_and_descriptions_of_another_epoch_are_waited_for() {
    let moment = Duration::from_millis(50);
    let prepare = |state: &mut State| state.logs[0].described = Some(5);
    let reading = Reading::start_with([&["a"], &["x"]], true, prepare);
    std::thread::sleep(moment);
    assert_eq!(reading.buffer.read()[&id(0)], 0, "the broker has not heard of the epoch 5 yet");
    reading.change(0, |log| log.cut_back(1));
    reading.read_to([1, 1]);
    // Now the description is behind: by an epoch, then by what is known already.
    for described in [5, 4] {
        reading.broker.state.lock().asked.clear();
        reading.change(0, |log| {
            log.cut_back(log.end());
            log.append(&["b"]);
            log.described = Some(described);
        });
        std::thread::sleep(moment);
        reading.change(0, |log| log.described = None);
        let end = reading.broker.state.lock().logs[0].end();
        reading.read_to([end, 1]);
        let asked = reading.broker.state.lock().asked.clone();
        let epochs = asked.iter().filter(|(of, _)| *of == 0).map(|(_, at)| at.leader_epoch);
        assert!(epochs.is_sorted(), "no former leader is asked: {asked:?}");
    }
}

#[test]
fn a_topic_that_was_made_again_has_no_epochs_of_the_former_one() {
    let reading = Reading::start([&["a", "b"], &["x"]], false);
    reading.read_to([2, 1]);
    reading.take();
    {
        let mut state = reading.broker.state.lock();
        state.topic_id = 2;
        state.logs = Default::default();
        // Of the epoch 0, which is before all that were known.
        state.logs[0].append(&["fresh"]);
        state.asked.clear();
    }
    reading.read_to([1, 0]);
    let mut values = Vec::new();
    while let Some(taken) = reading.buffer.take(ReadLimit::AllAvailable).unwrap() {
        values.extend(taken.chunks.into_iter().flat_map(|(_, chunks)| chunks));
    }
    assert_eq!(values.iter().map(|chunk| chunk.rows()).sum::<usize>(), 1);
    let at = |offset, epoch| Some(Position { offset, epoch, leader_epoch: 0 });
    reading.until("the new epoch", |it| it.asked(0) == at(1, 0) && it.asked(1) == at(0, -1));
}
