//! A process that runs: the real driver and checkpoint on the models, in a runtime of its own.
//!
//! The runtime has one thread, ours, and neither clock nor I/O: tasks run in the order in which
//! they are woken, until none can go on. To drop it is to crash.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::progress::Silent;
use millstream_engine::api::settings::{Idling, Policy, SnapshotSettings};
use millstream_engine::api::source::{Failure, Source};
use millstream_engine::driver::branches::Branches;
use millstream_engine::driver::stop::{Stop, Stopper, stop_pair};
use millstream_engine::driver::{Finished, Query};
use millstream_engine::state::watermark::Watermarks;
use millstream_sql::functions::BatchClock;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::{Env, SeededRng, Task};
use tokio::runtime::Runtime;

use crate::outside::ModelSink;
use crate::process::{Process, ProcessFacts};
use crate::query;
use crate::scenario::{RunEnd, RunPlan};
use crate::store::ModelStore;
use crate::topic::ModelSource;
use crate::world::World;

/// A process.
pub struct Running {
    /// Its number.
    pub id: usize,
    /// When it goes on, where it stands still.
    pub frozen_until: Duration,
    stopper: Stopper,
    task: Task<Result<Finished, Failure>>,
    // Dropped last: the others may refer to it.
    runtime: Runtime,
}

impl Running {
    /// Starts the query anew.
    pub fn start(world: &World, plan: &RunPlan) -> Self {
        let (id, bits) = world.with(|state| {
            let mut facts = ProcessFacts::new(plan.tracking, state.topics.len());
            if let RunEnd::CrashAfterSteps(steps) = plan.end {
                facts.steps_left = Some(steps);
            }
            state.processes.push(facts);
            let id = state.processes.len() - 1;
            let (tracking, trigger) = (plan.tracking, plan.trigger);
            state.note(Some(id), format_args!("starts: {tracking:?}, {trigger:?}"));
            (id, state.chance.bits())
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            // A runtime that looks for I/O in between would call itself idle too early.
            .event_interval(u32::MAX)
            .build()
            .expect("a runtime without drivers needs nothing of the system");
        let (stopper, stop) = stop_pair();
        let guard = runtime.enter();
        let env = Env::new(Arc::new(world.clone()), Arc::new(SeededRng::new(bits)));
        let query = run(Process::new(world, id), plan.clone(), stop, env.clone());
        let task = env.spawn("query", query);
        drop(guard);
        Self { id, frozen_until: Duration::ZERO, stopper, task, runtime }
    }

    /// Runs until everything waits. False if it stands still.
    pub fn go_on(&self, now: Duration) -> bool {
        let goes_on = self.frozen_until <= now;
        if goes_on {
            // It is polled again when no other task can run.
            self.runtime.block_on(tokio::task::yield_now());
        }
        goes_on
    }

    /// Asks it to end.
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// True once the query has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// How the query ended; `Err` with the text where it panicked.
    pub fn outcome(self) -> Result<Result<Finished, Failure>, String> {
        let Self { task, runtime, .. } = self;
        let joined = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(task.join())));
        joined.map_err(|panic| match panic.downcast::<String>() {
            Ok(text) => *text,
            Err(panic) => panic.downcast_ref::<&str>().copied().unwrap_or("a panic").to_owned(),
        })
    }
}

async fn run(process: Process, plan: RunPlan, stop: Stop, env: Env) -> Result<Finished, Failure> {
    let checkpoint = Checkpoint::open_in(ModelStore::storage(&process), &env).await?;
    let (sources, log_settings) = process.with(|state| {
        let scenario = &state.scenario;
        (scenario.sources, scenario.store.settings)
    });
    let source = |source| Box::new(ModelSource::new(&process, source)) as Box<dyn Source>;
    let query = Query {
        snapshots: SnapshotSettings::default(),
        watermarks: Watermarks::new(&[None], Policy::default(), Idling::default()),
        branches: Branches::one(query::plan(sources), Box::new(ModelSink::new(&process))),
        sources: (0..sources).map(source).collect(),
        statics: Vec::new(),
        checkpoint,
        log_settings,
        trigger: plan.trigger,
        tracking: plan.tracking,
        batch_clock: BatchClock::default(),
        listener: Arc::new(Silent),
        stop,
        env,
    };
    query.run().await
}
