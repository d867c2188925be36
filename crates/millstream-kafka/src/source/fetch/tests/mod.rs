//! Who reads what, without brokers; and what is read, from one made for testing. Real ones are read
//! in the end-to-end tests.

mod broker;
mod cut_back;

use std::time::Duration;

use super::assignment::{Assignment, Leader, Progress, Share, Unplaced};
use super::epochs::Beginning;
use crate::offsets::PartitionId;
use crate::protocol::fetch::{Diverging, NO_EPOCH, Position};
use crate::protocol::responses::Address;

const NOW: Duration = Duration::from_secs(10);

fn id(partition: i32) -> PartitionId {
    PartitionId::new("t", partition)
}

fn by(node: i32) -> Leader {
    Leader { node, epoch: 4 }
}

fn share(assignment: &Assignment, node: i32) -> Vec<(i32, i64)> {
    let never = Share { generation: u64::MAX, ..Share::default() };
    let share = assignment.share(node, &never, Duration::ZERO).unwrap();
    share.positions.into_iter().map(|(id, at)| (id.partition, at.offset)).collect()
}

fn advance(assignment: &Assignment, node: i32, asked: i64, end: i64) -> bool {
    let mut counts = false;
    let progress = Progress { asked, end, epochs: &[], seen: end };
    assignment.advance(&id(0), node, progress, || counts = true);
    counts
}

#[test]
fn an_answer_counts_only_where_and_from_where_it_was_asked_for() {
    let assignment = Assignment::default();
    assignment.start(id(0), 5);
    assert_eq!(assignment.unplaced(NOW), [(id(0), 5, Unplaced::Lost)]);
    assignment.place(&id(0), by(1), 5);
    assert!(advance(&assignment, 1, 5, 8));
    // Repeated, from another broker, and from one that was given up.
    assert!(!advance(&assignment, 1, 5, 8));
    assert!(!advance(&assignment, 2, 8, 9));
    assignment.take_away(&id(0), 1, Unplaced::Lost, NOW);
    assert!(!advance(&assignment, 1, 8, 9));
    assignment.place(&id(0), by(2), 8);
    assert!(advance(&assignment, 2, 8, 9));
    assert_eq!((share(&assignment, 1), share(&assignment, 2)), (vec![], vec![(0, 9)]));
    assert_eq!(assignment.end_seen(&id(0)), Some(9));
    assignment.stop(&id(0));
    assert!(!advance(&assignment, 2, 9, 10));
}

#[test]
fn whoever_asks_from_elsewhere_learns_where_to_ask() {
    let assignment = Assignment::default();
    assignment.start(id(0), 5);
    assignment.place(&id(0), by(1), 5);
    let never = Share { generation: u64::MAX, ..Share::default() };
    let share = assignment.share(1, &never, Duration::ZERO).unwrap();
    assert!(assignment.is_as_in(&share));
    assert!(!advance(&assignment, 1, 7, 9));
    assert!(!assignment.is_as_in(&share));
}

#[test]
fn a_topic_that_was_made_again_is_read_from_its_beginning() {
    let assignment = Assignment::default();
    for (partition, node) in [(0, 1), (1, 2)] {
        assignment.start(id(partition), 9);
        assignment.place(&id(partition), by(node), 9);
    }
    assignment.begin_anew("other");
    assert_eq!(assignment.unplaced(NOW), []);
    assignment.begin_anew("t");
    let lost = |partition| (id(partition), -1, Unplaced::Lost);
    assert_eq!(assignment.unplaced(NOW), [lost(0), lost(1)]);
}

#[test]
fn an_answer_that_has_come_is_not_waited_for() {
    let assignment = Assignment::default();
    assignment.start(id(0), 5);
    assignment.place(&id(0), by(1), 5);
    assignment.waits(1, NOW, None);
    assignment.answered(1);
    assert_eq!(assignment.stuck(NOW + Duration::from_secs(60)), []);
}

#[test]
fn leaders_are_looked_for_less_and_less_often() {
    let assignment = Assignment::default();
    assignment.start(id(0), 5);
    let mut now = NOW;
    let mut looks = 0;
    while now < NOW + Duration::from_secs(10) {
        if !assignment.unplaced(now).is_empty() {
            looks += 1;
            assignment.postpone(&id(0), now);
        }
        now += Duration::from_millis(1);
    }
    assert!((20..40).contains(&looks), "{looks}");
}

#[test]
fn a_lost_broker_loses_its_own_partitions_alone() {
    let assignment = Assignment::default();
    for (partition, node) in [(0, 1), (1, 2)] {
        assignment.start(id(partition), 0);
        assignment.place(&id(partition), by(node), 0);
    }
    assignment.lost(1, NOW);
    assert_eq!(assignment.unplaced(NOW), [(id(0), 0, Unplaced::Lost)]);
    assert_eq!(assignment.nodes_in_use().into_iter().collect::<Vec<_>>(), [2]);
}

#[test]
fn a_replica_that_is_followed_is_left_when_it_lacks_an_offset() {
    let assignment = Assignment::default();
    assignment.know([(2, Address { host: "h".to_owned(), port: 1 })]);
    assignment.start(id(0), 5);
    assignment.place(&id(0), by(1), 5);
    // One that nobody knows is not followed.
    assignment.follow(&id(0), 1, 3, NOW);
    assert_eq!(share(&assignment, 1), [(0, 5)]);
    assignment.follow(&id(0), 1, 2, NOW);
    assert_eq!(share(&assignment, 2), [(0, 5)]);
    assignment.take_away(&id(0), 2, Unplaced::OutOfRange, NOW);
    assert_eq!(assignment.unplaced(NOW), [(id(0), 5, Unplaced::Lost)], "the leader knows better");
    assignment.place(&id(0), by(1), 5);
    assignment.take_away(&id(0), 1, Unplaced::OutOfRange, NOW);
    let later = NOW + Duration::from_secs(1);
    assert_eq!(assignment.unplaced(later), [(id(0), 5, Unplaced::OutOfRange)]);
    // Nor is it followed for ever.
    assignment.place(&id(0), by(1), 5);
    assignment.follow(&id(0), 1, 2, NOW);
    assert_eq!(assignment.unplaced(NOW + Duration::from_secs(299)), []);
    assert_eq!(assignment.unplaced(NOW + Duration::from_secs(301)).len(), 1);
}

#[test]
fn silence_is_noticed() {
    let assignment = Assignment::default();
    assignment.start(id(0), 5);
    assignment.place(&id(0), by(1), 5);
    assignment.waits(1, NOW, None);
    assert_eq!(assignment.stuck(NOW), []);
    assert_eq!(assignment.stuck(NOW + Duration::from_millis(1)), [(id(0), 1)]);
}

fn position(assignment: &Assignment) -> Position {
    let never = Share { generation: u64::MAX, ..Share::default() };
    assignment.share(1, &never, Duration::ZERO).unwrap().positions[&id(0)]
}

/// Reads a partition from 10 on: epoch 3 up to 15, then 4 up to 20.
fn read_of_two_epochs() -> Assignment {
    let assignment = Assignment::default();
    assignment.know([(2, Address { host: "h".to_owned(), port: 1 })]);
    assignment.start(id(0), 10);
    assignment.place(&id(0), by(1), 10);
    let epochs = [Beginning { epoch: 3, offset: 10 }, Beginning { epoch: 4, offset: 15 }];
    let progress = Progress { asked: 10, end: 20, epochs: &epochs, seen: 20 };
    assignment.advance(&id(0), 1, progress, || {});
    assert_eq!(position(&assignment), Position { offset: 20, epoch: 4, leader_epoch: 4 });
    assignment
}

#[test]
fn where_a_log_diverges_is_found_by_the_epochs_that_were_read() {
    let assignment = read_of_two_epochs();
    let asked = position(&assignment);
    let diverging = Diverging { epoch: 3, end_offset: 18 };
    // From elsewhere, and asked for from elsewhere.
    assignment.diverges(&id(0), 2, asked, diverging, NOW);
    assignment.diverges(&id(0), 1, Position { offset: 19, ..asked }, diverging, NOW);
    assert_eq!(assignment.unplaced(NOW), []);
    assignment.diverges(&id(0), 1, asked, diverging, NOW);
    assert_eq!(assignment.unplaced(NOW), [(id(0), 20, Unplaced::Diverged(15))]);
    // From there on it is another log, of which nothing is known.
    assignment.place(&id(0), by(1), 15);
    assert_eq!(position(&assignment), Position { offset: 15, epoch: NO_EPOCH, leader_epoch: 4 });
}

#[test]
fn a_replica_that_follows_does_not_say_that_a_log_diverges() {
    let assignment = read_of_two_epochs();
    let asked = position(&assignment);
    assignment.follow(&id(0), 1, 2, NOW);
    let diverging = Diverging { epoch: 4, end_offset: 18 };
    assignment.diverges(&id(0), 2, asked, diverging, NOW);
    assert_eq!(assignment.unplaced(NOW), [(id(0), 20, Unplaced::Lost)], "it may be behind");
    assignment.place(&id(0), by(1), 20);
    assert_eq!(position(&assignment), asked, "the leader is asked with the same epoch");
}

#[test]
fn an_epoch_that_is_refused_with_its_offset_is_not_sent_again() {
    let assignment = read_of_two_epochs();
    assignment.take_away(&id(0), 1, Unplaced::OutOfRange, NOW);
    assignment.place(&id(0), by(1), 20);
    assert_eq!(position(&assignment).epoch, NO_EPOCH);
}

#[test]
fn a_leader_of_before_is_not_gone_back_to() {
    let assignment = read_of_two_epochs();
    let knows_later = |epoch| assignment.knows_later(&id(0), Leader { node: 2, epoch });
    assert_eq!([3, 4, 5, NO_EPOCH].map(knows_later), [true, false, false, false]);
    // A topic that is made again counts from 0.
    assignment.begin_anew("t");
    assert!(!assignment.knows_later(&id(0), Leader { node: 2, epoch: 0 }));
}
