//! The world that outlives every process: virtual time, what is on its way, and what the store, the
//! topics and the outside hold.
//!
//! Everything that will happen stands on the agenda with its moment, in a fixed order. Nothing
//! happens while a process computes; when none can go on, [`World::advance`] takes the next entry
//! and time jumps to it. A request lives on the agenda, not in the process that made it, so a crash
//! does not undo what was sent; [`State::crash`] decides what becomes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use millstream_store::env::Clock;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::Planted;
use crate::chance::Chance;
use crate::director::Command;
use crate::disk::Disk;
use crate::flaw::Flaw;
use crate::mutation::Mutation;
use crate::outside::Outside;
use crate::process::ProcessFacts;
use crate::scenario::Scenario;
use crate::store::Objects;
use crate::topic::Topic;
use crate::trace::Trace;

/// 2026-01-01, microseconds since the epoch.
const WALL_CLOCK_START_US: i64 = 1_767_225_600_000_000;

/// Everything, and what is going to happen.
pub struct State {
    /// Since the beginning.
    pub now: Duration,
    /// How far the wall clock has jumped, microseconds.
    pub wall_shift_us: i64,
    /// What the seed decides from here on.
    pub chance: Chance,
    /// The seed's scenario.
    pub scenario: Scenario,
    /// The mistake to make, if any.
    pub planted: Planted,
    /// True once nothing fails any more.
    pub calm: bool,
    /// What happened.
    pub trace: Trace,
    /// The first thing that must not have happened.
    pub violation: Option<String>,
    /// The checkpoint, as the checks see it.
    pub objects: Objects,
    /// The disk that it is on, where it is on one.
    pub disk: Disk,
    /// What the sources read.
    pub topics: Vec<Topic>,
    /// Where the rows go, by sink.
    pub outsides: Vec<Outside>,
    /// All processes, dead ones too.
    pub processes: Vec<ProcessFacts>,
    /// True once two writers may have met: two processes at a time, or a request of a dead one.
    pub crowded: bool,
    /// True once a fault was injected.
    pub faulty: bool,
    /// What the director has to do.
    pub commands: Vec<Command>,
    agenda: BTreeMap<(Duration, u64), Entry>,
    entries: u64,
}

/// Where a request goes, which decides what a crash does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each on its own.
    Store,
    /// One after the other: where one is lost, so are those behind it to the same sink.
    Sink(usize),
}

type Action = Box<dyn FnOnce(&mut State) + Send>;

enum Entry {
    /// A sleeper.
    Timer(oneshot::Sender<()>),
    /// A request that arrives.
    Request { from: usize, way: Way, action: Action },
    /// An answer that arrives.
    Answer { to: usize, action: Action },
    /// Anything else.
    Event(Action),
}

impl State {
    /// Adds a line to the trace.
    pub fn note(&mut self, who: Option<usize>, what: std::fmt::Arguments<'_>) {
        self.trace.add(self.now, who, what);
    }

    /// Whether the model makes this mistake.
    pub fn has(&self, flaw: Flaw) -> bool {
        self.planted == Planted::World(flaw)
    }

    /// Whether the driver makes this mistake.
    pub fn is_mutated(&self, mutation: Mutation) -> bool {
        self.planted == Planted::Driver(mutation)
    }

    /// Takes note that something must not have happened; the first is kept.
    pub fn violated(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(None, format_args!("VIOLATION {what}"));
        self.violation.get_or_insert(what);
    }

    /// Wall clock, microseconds since the epoch.
    pub fn wall_us(&self) -> i64 {
        WALL_CLOCK_START_US + self.now.as_micros() as i64 + self.wall_shift_us
    }

    /// Lets `action` happen at `moment`.
    pub fn at(&mut self, moment: Duration, action: impl FnOnce(&mut Self) + Send + 'static) {
        self.put(moment, Entry::Event(Box::new(action)));
    }

    fn put(&mut self, moment: Duration, entry: Entry) {
        self.entries += 1;
        self.agenda.insert((moment.max(self.now), self.entries), entry);
    }

    /// Sends a request that arrives at `moment`, and its answer after `back`.
    pub fn send<T: Send + 'static>(
        &mut self,
        from: usize,
        way: Way,
        moment: Duration,
        back: Duration,
        effect: impl FnOnce(&mut Self) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        let action = Box::new(move |state: &mut Self| {
            let value = effect(state);
            // Nobody waits for it if the process is gone, or has given up.
            let action = Box::new(|_: &mut Self| drop(answer.send(value)));
            state.put(state.now + back, Entry::Answer { to: from, action });
        });
        self.put(moment, Entry::Request { from, way, action });
        answered
    }

    /// Ends a process. What it has sent is lost, arrives at once or arrives late, as chance will.
    pub fn crash(&mut self, id: usize) {
        self.processes[id].alive = false;
        self.agenda.retain(|_, entry| !matches!(entry, Entry::Answer { to, .. } if *to == id));
        let is_its = |entry: &Entry| matches!(entry, Entry::Request { from, .. } if *from == id);
        let sent: Vec<_> = self.agenda.extract_if(.., |_, entry| is_its(entry)).collect();
        let mut cut = BTreeSet::new();
        for ((moment, _), entry) in sent {
            let Entry::Request { from, way, action } = entry else { unreachable!("filtered") };
            match self.chance.among(0..=2) {
                _ if matches!(way, Way::Sink(sink) if cut.contains(&sink)) => {}
                0 => cut.extend(match way {
                    Way::Sink(sink) => Some(sink),
                    Way::Store => None,
                }),
                1 if way == Way::Store => action(self),
                _ => {
                    self.crowded = true;
                    self.put(moment, Entry::Request { from, way, action });
                }
            }
        }
        if self.has(Flaw::ForgetsTheLastPut) {
            self.forget_the_last_put();
        }
    }
}

/// A handle on the world.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

impl World {
    /// The world of `seed` before anything has happened.
    pub fn new(seed: u64, planted: Planted) -> Self {
        let chance = Chance::new(seed);
        let scenario = Scenario::draw(&chance);
        let topics = (0..scenario.sources).map(|_| Topic::new(scenario.rows)).collect();
        let records = scenario.records();
        let outside = |output| Outside::new(output, records, scenario.sources, scenario.rows);
        let outsides = scenario.outputs.iter().map(outside).collect();
        let mut state = State {
            now: Duration::ZERO,
            wall_shift_us: 0,
            chance,
            scenario,
            planted,
            calm: false,
            trace: Trace::default(),
            violation: None,
            objects: Objects::default(),
            disk: Disk::default(),
            topics,
            outsides,
            processes: Vec::new(),
            crowded: false,
            faulty: false,
            commands: Vec::new(),
            agenda: BTreeMap::new(),
            entries: 0,
        };
        let scenario = state.scenario.clone();
        state.note(None, format_args!("{scenario:?}"));
        for (moment, by_us) in scenario.clock_jumps {
            state.at(moment, move |state| {
                state.wall_shift_us += by_us;
                state.note(None, format_args!("the wall clock jumps by {by_us} us"));
            });
        }
        for source in 0..scenario.sources {
            state.at(Duration::ZERO, move |state| state.rows_arrive(source));
        }
        Self(Arc::new(Mutex::new(state)))
    }

    /// Looks at the world, or changes it.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock())
    }

    /// Lets time go on to the next entry of the agenda, and lets that happen. False if there is
    /// none.
    pub fn advance(&self) -> bool {
        self.with(|state| {
            loop {
                let Some(((moment, _), entry)) = state.agenda.pop_first() else { return false };
                if matches!(&entry, Entry::Timer(sleeper) if sleeper.is_closed()) {
                    continue;
                }
                state.now = moment;
                match entry {
                    // A sleeper that is dropped at this moment has been skipped.
                    Entry::Timer(sleeper) => drop(sleeper.send(())),
                    Entry::Request { action, .. }
                    | Entry::Answer { action, .. }
                    | Entry::Event(action) => action(state),
                }
                return true;
            }
        })
    }
}

impl Clock for World {
    fn now_us(&self) -> i64 {
        self.with(|state| state.wall_us())
    }

    fn monotonic(&self) -> Duration {
        self.with(|state| state.now)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        let (timer, rung) = oneshot::channel();
        self.with(|state| state.put(state.now.saturating_add(duration), Entry::Timer(timer)));
        Box::pin(or_never(rung))
    }
}

/// The value, or nothing at all where nobody will send one: the process is gone.
pub async fn or_never<T>(answered: oneshot::Receiver<T>) -> T {
    match answered.await {
        Ok(value) => value,
        Err(_) => std::future::pending().await,
    }
}
