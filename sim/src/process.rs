//! One process as the models see it: who acts, and whether it still may.
//!
//! A process that has done as many steps as its plan allows is gone in the middle of the next one:
//! whatever it does then has no effect any more.

use std::fmt::Arguments;
use std::time::Duration;

use millstream_engine::api::settings::ProgressTracking;
use millstream_store::env::Clock;
use tokio::sync::oneshot;

use crate::mutation::Mutation;
use crate::world::{State, Way, World, or_never};

/// What the world knows of a process.
pub struct ProcessFacts {
    /// False once it has crashed or ended.
    pub alive: bool,
    /// Steps until it crashes, if that is planned.
    pub steps_left: Option<u64>,
    /// Which micro-batches get entries.
    pub tracking: ProgressTracking,
    /// What it has done with each sink.
    pub sinks: Vec<SinkFacts>,
}

/// What a process has done with one of its sinks.
#[derive(Clone)]
pub struct SinkFacts {
    /// The rows it has published last, by source; what comes is above them.
    pub published: Vec<i64>,
    /// The last micro-batch that it gave to the sink.
    pub handed_over: Option<u64>,
    /// When the last request to the sink arrives there.
    pub busy_until: Duration,
    /// The sink takes nothing more from it, because something failed.
    pub has_failed: bool,
    /// How many writers of the sink had come before it, and it.
    pub epoch: u64,
    /// How much is added to numbers, of [`Mutation::RenumbersReplays`].
    pub renumbered_by: u64,
}

impl ProcessFacts {
    /// A new process.
    pub fn new(tracking: ProgressTracking, sources: usize, sinks: usize) -> Self {
        let sink = SinkFacts {
            published: vec![-1; sources],
            handed_over: None,
            busy_until: Duration::ZERO,
            has_failed: false,
            epoch: 0,
            renumbered_by: 0,
        };
        Self { alive: true, steps_left: None, tracking, sinks: vec![sink; sinks] }
    }

    /// Whether it has given a sink anything.
    pub fn has_handed_over(&self) -> bool {
        self.sinks.iter().any(|sink| sink.handed_over.is_some())
    }

    /// Whether there are micro-batches without entries.
    pub fn is_sparse(&self) -> bool {
        matches!(self.tracking, ProgressTracking::Interval(_))
    }
}

/// A process's handle on the world.
#[derive(Clone)]
pub struct Process {
    world: World,
    /// Its number.
    pub id: usize,
}

impl Process {
    /// Process number `id` of `world`.
    pub fn new(world: &World, id: usize) -> Self {
        Self { world: world.clone(), id }
    }

    /// Looks at the world, or changes it.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        self.world.with(look)
    }

    /// Whether its driver makes this mistake.
    pub fn is_mutated(&self, mutation: Mutation) -> bool {
        self.with(|state| state.is_mutated(mutation))
    }

    /// True once it can do nothing any more.
    pub fn is_gone(&self) -> bool {
        self.with(|state| !state.processes[self.id].alive)
    }

    /// Does something. False if it is gone instead.
    pub fn try_step(&self, what: Arguments<'_>) -> bool {
        self.with(|state| {
            let facts = &mut state.processes[self.id];
            if !facts.alive {
                return false;
            }
            match &mut facts.steps_left {
                Some(0) => facts.alive = false,
                Some(left) => *left -= 1,
                None => {}
            }
            let alive = facts.alive;
            let what = if alive { what } else { format_args!("is gone, about to: {what}") };
            state.note(Some(self.id), what);
            alive
        })
    }

    /// Does something, or never comes back.
    pub async fn step(&self, what: String) {
        if !self.try_step(format_args!("{what}")) {
            std::future::pending::<()>().await;
        }
    }

    /// Sleeps.
    pub async fn sleep(&self, duration: Duration) {
        self.world.sleep(duration).await;
    }

    /// Sends a request that arrives after `there`, and gives what comes back after `back`.
    pub fn send<T: Send + 'static>(
        &self,
        way: Way,
        there: Duration,
        back: Duration,
        effect: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> impl Future<Output = T> + Send + 'static {
        let answered: oneshot::Receiver<T> =
            self.with(|state| state.send(self.id, way, state.now + there, back, effect));
        or_never(answered)
    }
}
