//! The driver, its logs and its recovery under schedules that a seed decides: crashes, delays,
//! failed puts, lost acknowledgements, two processes at once, jumps of the clock.
//!
//! The real [`Query`](millstream_engine::driver::Query) runs on a real checkpoint. What it touches
//! is a model: time ([`world`]), the object store ([`store`]), the source ([`topic`]), the sink and
//! what is behind it ([`outside`]). A process ([`running`]) is a runtime of one thread; it is
//! dropped in the middle of something to crash it, and the next one starts from what the models
//! have kept. The [`checks`] look at each entry and each row as they arrive, which is the same as
//! to look after a crash at any moment.
//!
//! One seed is one schedule: [`run`] gives the same trace again, line by line.

mod chance;
mod checks;
mod director;
mod disk;
mod flaw;
mod machine;
mod mutation;
mod outside;
mod process;
mod query;
mod running;
mod scenario;
mod store;
mod topic;
mod trace;
mod world;

pub use flaw::Flaw;
pub use mutation::Mutation;
pub use trace::Trace;

/// Lines of the trace that a failure shows.
const TAIL_LINES: usize = 40;

/// What became of a seed.
pub struct Run {
    /// The seed.
    pub seed: u64,
    /// What must not have happened.
    pub violation: Option<String>,
    /// Everything that happened.
    pub trace: Trace,
}

/// A mistake that is made on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// None.
    #[default]
    Nothing,
    /// One of the model.
    World(Flaw),
    /// One of the driver.
    Driver(Mutation),
}

/// Runs the schedule of `seed`, with a mistake if one is given.
pub fn run(seed: u64, planted: Planted) -> Run {
    let world = world::World::new(seed, planted);
    director::Director::new(&world).run();
    world.with(|state| Run {
        seed,
        violation: state.violation.take(),
        trace: std::mem::take(&mut state.trace),
    })
}

impl Run {
    /// The failure in words, with the command that repeats it; `None` where all is well.
    pub fn failure(&self) -> Option<String> {
        let violation = self.violation.as_ref()?;
        let seed = self.seed;
        Some(format!(
            "seed {seed}: {violation}\n\nThe last lines of its trace:\n{}\n\nAll of it: \
             MILLSTREAM_SIM_SEED={seed} cargo test --workspace --test simulation replay -- --nocapture",
            self.trace.tail(TAIL_LINES),
        ))
    }
}
