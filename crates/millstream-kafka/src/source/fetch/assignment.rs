//! Which partition is read where, and up to where: what the threads of the reader share.
//!
//! A partition has a *place*: the broker that it is read from, or none until the leader is known.
//! The thread of a broker reads those that are placed there. Whoever finds that a partition is
//! elsewhere takes it away from its place, and the thread that knows the leaders gives it another.
//!
//! What has come of a partition counts only while the partition is still where it was asked for, at
//! the offset that it was asked from; and it is handed over under the same lock. So an answer that
//! comes late, from a broker that was given up, neither doubles records nor changes their order.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::epochs::{Beginning, Epochs};
use crate::offsets::PartitionId;
use crate::protocol::fetch::{Diverging, NO_EPOCH, Position};
use crate::protocol::responses::Address;

/// How long a partition is read from a replica that its leader has named.
const FOLLOWED_FOR: Duration = Duration::from_secs(300);
/// How long a partition without a place waits for the next look at the leaders; doubled each time.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Why a partition has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// Its leader is to be found.
    Lost,
    /// Its leader does not have the offset.
    OutOfRange,
    /// The log of its leader is the one that was read up to this offset only.
    Diverged(i64),
}

/// Who leads a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The number of a broker.
    pub node: i32,
    /// Larger than that of any leader before, or [`NO_EPOCH`].
    pub epoch: i32,
}

/// What an answer has brought of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// From where on it was asked for.
    pub asked: i64,
    /// Where to read on.
    pub end: i64,
    /// Epochs that begin in between.
    pub epochs: &'a [Beginning],
    /// The partition's end; below 0 if it is not known.
    pub seen: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    None(Unplaced),
    /// The number of a broker.
    At(i32),
}

#[derive(Debug)]
struct Tracked {
    position: Position,
    /// What was read before the position.
    epochs: Epochs,
    place: Place,
    /// Until when it is read from a replica that does not lead it, on the monotonic clock.
    follower_until: Option<Duration>,
    /// The end of the partition as a broker has reported it.
    end: Option<i64>,
    /// How often in a row it had to be given another place.
    misses: u32,
    /// When its leader is looked for, on the monotonic clock.
    retry_at: Duration,
}

/// The partitions, and the brokers they are read from.
#[derive(Debug, Default)]
pub struct Assignment {
    state: Mutex<State>,
    /// Something changed that a broker's thread waits for.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    /// One more for each change of places.
    generation: u64,
    partitions: BTreeMap<PartitionId, Tracked>,
    nodes: HashMap<i32, Address>,
    /// Requests that wait for their answer: since when, and how to end the wait.
    waiting: HashMap<i32, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Duration,
    socket: Option<TcpStream>,
}

/// What a thread of a broker reads.
#[derive(Debug, Default)]
pub struct Share {
    /// When this was so; see [`Assignment::share`].
    pub generation: u64,
    /// Where each partition is read on.
    pub positions: BTreeMap<PartitionId, Position>,
}

impl Assignment {
    /// Begins to read a partition at `position`, once its leader is known; below 0 at its
    /// beginning.
    pub fn start(&self, id: PartitionId, position: i64) {
        let place = Place::None(Unplaced::Lost);
        let tracked = Tracked {
            position: Position::at(position),
            epochs: Epochs::default(),
            place,
            follower_until: None,
            end: None,
            misses: 0,
            retry_at: Duration::ZERO,
        };
        let mut state = self.state.lock();
        state.partitions.insert(id, tracked);
        state.generation += 1;
    }

    /// Reads a partition no more.
    pub fn stop(&self, id: &PartitionId) {
        let mut state = self.state.lock();
        state.partitions.remove(id);
        state.generation += 1;
    }

    /// Reads all partitions of a topic from their beginning, wherever they are now.
    pub fn begin_anew(&self, topic: &str) {
        let mut state = self.state.lock();
        for (id, tracked) in &mut state.partitions {
            if &*id.topic == topic {
                // Epochs of another topic are compared with nothing, those of leaders neither.
                (tracked.position, tracked.epochs) = (Position::at(-1), Epochs::default());
                tracked.place = Place::None(Unplaced::Lost);
                (tracked.misses, tracked.retry_at) = (0, Duration::ZERO);
            }
        }
        state.generation += 1;
    }

    /// Ends all waiting for brokers, for good.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.waiting.values().for_each(Waiting::interrupt);
        self.changed.notify_all();
    }

    /// True once [`end`](Self::end) was called.
    pub fn has_ended(&self) -> bool {
        self.state.lock().stopped
    }

    /// Partitions whose leader is to be looked for at `now`: where each stands, and why.
    pub fn unplaced(&self, now: Duration) -> Vec<(PartitionId, i64, Unplaced)> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut unplaced = Vec::new();
        for (id, tracked) in &mut state.partitions {
            if tracked.follower_until.is_some_and(|until| until <= now) {
                tracked.follower_until = None;
                tracked.place = Place::None(Unplaced::Lost);
                state.generation += 1;
            }
            if let Place::None(why) = tracked.place
                && tracked.retry_at <= now
            {
                unplaced.push((id.clone(), tracked.position.offset, why));
            }
        }
        unplaced
    }

    /// Knows these brokers.
    pub fn know(&self, nodes: impl IntoIterator<Item = (i32, Address)>) {
        let mut state = self.state.lock();
        for (node, address) in nodes {
            let before = state.nodes.insert(node, address.clone());
            // A broker that has moved is not waited for where it was.
            if before.is_some_and(|before| before != address)
                && let Some(waiting) = state.waiting.get(&node)
            {
                waiting.interrupt();
            }
        }
    }

    /// Where a broker is.
    pub fn address(&self, node: i32) -> Option<Address> {
        self.state.lock().nodes.get(&node).cloned()
    }

    /// True if a partition has had a later leader than `leader`: whoever names this one has not
    /// heard of the later one yet.
    pub fn knows_later(&self, id: &PartitionId, leader: Leader) -> bool {
        let state = self.state.lock();
        let known = state.partitions.get(id).map_or(NO_EPOCH, |it| it.position.leader_epoch);
        leader.epoch != NO_EPOCH && leader.epoch < known
    }

    /// Reads a partition from `leader`, from `offset` on.
    pub fn place(&self, id: &PartitionId, leader: Leader, offset: i64) {
        let mut state = self.state.lock();
        let Some(tracked) = state.partitions.get_mut(id) else { return };
        tracked.place = Place::At(leader.node);
        tracked.follower_until = None;
        if tracked.position.offset != offset {
            tracked.position = Position::at(offset);
            tracked.epochs.cut(offset);
        }
        tracked.position.leader_epoch = leader.epoch;
        state.generation += 1;
        self.changed.notify_all();
    }

    /// Looks for the leader of a partition later.
    pub fn postpone(&self, id: &PartitionId, now: Duration) {
        if let Some(tracked) = self.state.lock().partitions.get_mut(id) {
            tracked.miss(now);
        }
    }

    /// The brokers that partitions are read from.
    pub fn nodes_in_use(&self) -> BTreeSet<i32> {
        let state = self.state.lock();
        let places = state.partitions.values().map(|tracked| tracked.place);
        let at = |place| match place {
            Place::At(node) => Some(node),
            Place::None(_) => None,
        };
        places.filter_map(at).collect()
    }

    /// What is read from `node`, if that is no longer `known`. Without a partition to read it waits
    /// for a change, for `patience` at most.
    pub fn share(&self, node: i32, known: &Share, patience: Duration) -> Option<Share> {
        let mut state = self.state.lock();
        if state.generation == known.generation {
            if !known.positions.is_empty() || state.stopped {
                return None;
            }
            self.changed.wait_for(&mut state, patience);
        }
        Some(state.share(node))
    }

    /// True if places are as they were when `share` was made.
    pub fn is_as_in(&self, share: &Share) -> bool {
        self.state.lock().generation == share.generation
    }

    /// A request to `node` waits for its answer from `now` on. `socket` is that of a connection
    /// which was just made.
    pub fn waits(&self, node: i32, now: Duration, socket: Option<TcpStream>) {
        let mut state = self.state.lock();
        let waiting = state.waiting.entry(node).or_insert(Waiting { since: now, socket: None });
        waiting.since = now;
        if socket.is_some() {
            waiting.socket = socket;
        }
        if state.stopped {
            state.waiting.values().for_each(Waiting::interrupt);
        }
    }

    /// The answer of `node` has come.
    pub fn answered(&self, node: i32) {
        if let Some(waiting) = self.state.lock().waiting.get_mut(&node) {
            waiting.since = Duration::MAX;
        }
    }

    /// The topics of brokers that have not answered since `before`.
    pub fn stuck(&self, before: Duration) -> Vec<(PartitionId, i32)> {
        let state = self.state.lock();
        let is_stuck = |node| state.waiting.get(&node).is_some_and(|at| at.since < before);
        let stuck = |(id, tracked): (&PartitionId, &Tracked)| match tracked.place {
            Place::At(node) if is_stuck(node) => Some((id.clone(), node)),
            _ => None,
        };
        state.partitions.iter().filter_map(stuck).collect()
    }

    /// Ends the wait for `node`.
    pub fn interrupt(&self, node: i32) {
        if let Some(waiting) = self.state.lock().waiting.get(&node) {
            waiting.interrupt();
        }
    }

    /// No request to `node` waits any more, and its connection is gone.
    pub fn lost(&self, node: i32, now: Duration) {
        let mut state = self.state.lock();
        state.waiting.remove(&node);
        let state = &mut *state;
        for tracked in state.partitions.values_mut().filter(|it| it.place == Place::At(node)) {
            tracked.take_away(Unplaced::Lost, now);
        }
        state.generation += 1;
    }

    /// `node` does not have a partition, or not the offset.
    pub fn take_away(&self, id: &PartitionId, node: i32, why: Unplaced, now: Duration) {
        let mut state = self.state.lock();
        let Some(tracked) = state.partitions.get_mut(id) else { return };
        if tracked.place != Place::At(node) {
            return;
        }
        // A replica that follows may lack what its leader has.
        let why = if tracked.follower_until.is_some() { Unplaced::Lost } else { why };
        if why == Unplaced::OutOfRange {
            // A broker that cannot tell where the epoch ends says the same. If the offset turns out
            // to be there, the epoch would be refused again and again.
            tracked.position.epoch = NO_EPOCH;
        }
        tracked.take_away(why, now);
        state.generation += 1;
    }

    /// The log of `node` is not the one that was read up to `asked`.
    pub fn diverges(
        &self,
        id: &PartitionId,
        node: i32,
        asked: Position,
        diverging: Diverging,
        now: Duration,
    ) {
        let mut state = self.state.lock();
        let Some(tracked) = state.partitions.get_mut(id) else { return };
        if tracked.place != Place::At(node) {
            return;
        }
        if tracked.position != asked {
            state.generation += 1;
            return;
        }
        let common = tracked.epochs.common(diverging, asked.offset);
        // A replica that follows may lack what its leader has.
        let is_leader = tracked.follower_until.is_none();
        tracked.position.epoch = if is_leader { NO_EPOCH } else { tracked.position.epoch };
        let why = if is_leader { Unplaced::Diverged(common) } else { Unplaced::Lost };
        tracked.take_away(why, now);
        state.generation += 1;
    }

    /// Reads a partition from the replica `other`, which its leader `node` has named.
    pub fn follow(&self, id: &PartitionId, node: i32, other: i32, now: Duration) {
        let mut state = self.state.lock();
        let is_known = state.nodes.contains_key(&other);
        let Some(tracked) = state.partitions.get_mut(id) else { return };
        if tracked.place == Place::At(node) && is_known {
            tracked.place = Place::At(other);
            tracked.follower_until = Some(now + FOLLOWED_FOR);
            state.generation += 1;
            self.changed.notify_all();
        }
    }

    /// Has `hand_over` take what came of a partition from `node`, if it still counts.
    pub fn advance(
        &self,
        id: &PartitionId,
        node: i32,
        progress: Progress<'_>,
        hand_over: impl FnOnce(),
    ) {
        let mut state = self.state.lock();
        let Some(tracked) = state.partitions.get_mut(id) else { return };
        if tracked.place != Place::At(node) {
            return;
        }
        let Progress { asked, end, epochs, seen } = progress;
        if tracked.position.offset != asked {
            // Whoever asked has another position than the one that counts, and is to learn it.
            state.generation += 1;
            return;
        }
        tracked.position.offset = end;
        for beginning in epochs {
            tracked.position.epoch = beginning.epoch;
            tracked.epochs.note(*beginning);
        }
        tracked.misses = 0;
        if seen >= 0 {
            tracked.end = Some(seen);
        }
        hand_over();
    }

    /// A thread of a broker is to learn anew where a partition stands.
    pub fn is_elsewhere(&self, id: &PartitionId) {
        let mut state = self.state.lock();
        if state.partitions.contains_key(id) {
            state.generation += 1;
        }
    }

    /// The end of a partition, as far as a broker has reported it.
    pub fn end_seen(&self, id: &PartitionId) -> Option<i64> {
        self.state.lock().partitions.get(id)?.end
    }
}

impl State {
    fn share(&self, node: i32) -> Share {
        let here = self.partitions.iter().filter(|(_, it)| it.place == Place::At(node));
        let positions = here.map(|(id, it)| (id.clone(), it.position)).collect();
        Share { generation: self.generation, positions }
    }
}

impl Tracked {
    fn take_away(&mut self, why: Unplaced, now: Duration) {
        self.place = Place::None(why);
        self.follower_until = None;
        self.miss(now);
    }

    fn miss(&mut self, now: Duration) {
        // The first time it is looked for at once.
        let pause = match self.misses {
            0 => Duration::ZERO,
            misses => PAUSE.saturating_mul(1 << (misses - 1).min(10)).min(PAUSE_MAX),
        };
        self.misses = self.misses.saturating_add(1);
        self.retry_at = now + pause;
    }
}

impl Waiting {
    fn interrupt(&self) {
        if let Some(socket) = &self.socket {
            // It may be closed already.
            _ = socket.shutdown(Shutdown::Both);
        }
    }
}
