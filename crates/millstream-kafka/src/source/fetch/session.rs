//! What a broker remembers of the requests before, so that each names only what is new: a request
//! for 40 partitions that have not moved has the length of one for none (KIP-227).

use std::collections::BTreeMap;

use crate::offsets::PartitionId;
use crate::protocol::fetch::{OfTopic, Position, SessionNumber};

/// A session of requests to one broker.
#[derive(Debug, Default)]
pub struct Session {
    number: SessionNumber,
    /// What the broker knows: each partition, and where it was asked for last.
    known: BTreeMap<PartitionId, Position>,
}

/// What a request has to name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Partitions that are new or have moved, and where they are. An epoch that is another one is
    /// a move, too.
    pub wanted: Vec<(PartitionId, Position)>,
    /// Partitions that are not read any more.
    pub unwanted: Vec<PartitionId>,
}

impl Session {
    /// Its number in the next request.
    pub fn number(&self) -> SessionNumber {
        self.number
    }

    /// What the next request names, for all that is read now: `positions` are ordered.
    pub fn ask(&mut self, positions: &BTreeMap<PartitionId, Position>) -> Changes {
        let is_whole = self.number.epoch == 0;
        if is_whole {
            self.known.clear();
        }
        let mut changes = Changes::default();
        self.known.retain(|id, _| {
            let is_wanted = positions.contains_key(id);
            if !is_wanted {
                changes.unwanted.push(id.clone());
            }
            is_wanted
        });
        for (id, position) in positions {
            match self.known.get_mut(id) {
                Some(known) if known == position => continue,
                Some(known) => *known = *position,
                None => _ = self.known.insert(id.clone(), *position),
            }
            changes.wanted.push((id.clone(), *position));
        }
        changes
    }

    /// Where a partition was asked for last.
    pub fn asked(&self, id: &PartitionId) -> Option<Position> {
        self.known.get(id).copied()
    }

    /// Notes an answer, which names the session; 0 if the broker keeps none.
    pub fn answered(&mut self, id: i32) {
        if id == 0 {
            self.forget();
            return;
        }
        let next = if self.number.epoch == i32::MAX { 1 } else { self.number.epoch + 1 };
        self.number = SessionNumber { id, epoch: next };
    }

    /// The broker no longer knows the session, or may not: the next request is a whole one.
    pub fn forget(&mut self) {
        self.number = SessionNumber::default();
    }
}

/// Partitions in order, by topic.
pub fn by_topic<'a, T>(
    partitions: impl IntoIterator<Item = (&'a PartitionId, T)>,
) -> Vec<OfTopic<'a, T>> {
    let mut topics: Vec<OfTopic<'a, T>> = Vec::new();
    for (id, what) in partitions {
        match topics.last_mut() {
            Some((topic, of_topic)) if *topic == &*id.topic => of_topic.push((id.partition, what)),
            _ => topics.push((&id.topic, vec![(id.partition, what)])),
        }
    }
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(partition: i32) -> PartitionId {
        PartitionId::new("t", partition)
    }

    fn at(positions: &[(i32, i64)]) -> BTreeMap<PartitionId, Position> {
        positions.iter().map(|at| (id(at.0), Position::at(at.1))).collect()
    }

    fn wanted(positions: &[(i32, i64)]) -> Vec<(PartitionId, Position)> {
        at(positions).into_iter().collect()
    }

    #[test]
    fn a_partition_with_another_epoch_is_named_again() {
        let mut session = Session::default();
        session.ask(&at(&[(0, 5), (1, 7)]));
        session.answered(9);
        for (epoch, leader_epoch) in [(3, -1), (3, 4)] {
            let mut positions = at(&[(0, 5), (1, 7)]);
            let moved = Position { offset: 7, epoch, leader_epoch };
            positions.insert(id(1), moved);
            assert_eq!(session.ask(&positions).wanted, [(id(1), moved)]);
            session.answered(9);
            assert_eq!(session.ask(&positions), Changes::default());
            assert_eq!(session.asked(&id(1)), Some(moved));
        }
    }

    #[test]
    fn only_changes_are_named_until_the_session_is_gone() {
        let mut session = Session::default();
        let first = session.ask(&at(&[(0, 5), (1, 7)]));
        assert_eq!(first.wanted, wanted(&[(0, 5), (1, 7)]));
        session.answered(9);
        assert_eq!(session.number(), SessionNumber { id: 9, epoch: 1 });
        let next = session.ask(&at(&[(1, 8), (2, 0)]));
        assert_eq!((next.wanted, next.unwanted), (wanted(&[(1, 8), (2, 0)]), vec![id(0)]));
        session.answered(9);
        assert_eq!(session.ask(&at(&[(1, 8), (2, 0)])), Changes::default());
        let asked = (session.asked(&id(1)), session.asked(&id(0)));
        assert_eq!(asked, (Some(Position::at(8)), None));
        session.forget();
        let whole = session.ask(&at(&[(1, 8), (2, 0)]));
        assert_eq!(whole.wanted, wanted(&[(1, 8), (2, 0)]));
    }

    #[test]
    fn without_a_session_each_request_is_whole() {
        let mut session = Session::default();
        for _ in 0..2 {
            assert_eq!(session.ask(&at(&[(0, 5)])).wanted, wanted(&[(0, 5)]));
            session.answered(0);
            assert_eq!(session.number(), SessionNumber::default());
        }
    }

    #[test]
    fn partitions_are_gathered_by_topic() {
        let ids = [PartitionId::new("a", 1), PartitionId::new("a", 3), PartitionId::new("b", 0)];
        let gathered = by_topic(ids.iter().map(|id| (id, ())));
        assert_eq!(gathered, [("a", vec![(1, ()), (3, ())]), ("b", vec![(0, ())])]);
    }
}
