//! A process that runs: the real driver and checkpoint on the models, in a runtime of its own.
//!
//! The runtime has one thread, ours, and neither clock nor I/O: tasks run in the order in which
//! they are woken, until none can go on. To drop it is to crash.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use millstream_engine::api::dead_letter::{Form, Layout};
use millstream_engine::api::progress::Silent;
use millstream_engine::api::settings::{Idling, Policy};
use millstream_engine::api::sink::Sink;
use millstream_engine::api::source::{Failure, Source};
use millstream_engine::driver::branch::Branch;
use millstream_engine::driver::branches::Branches;
use millstream_engine::driver::dead_letter_sinks::{DeadLetterSink, DeadLetterSinks};
use millstream_engine::driver::side_outputs::{DecodingRoute, Rejections};
use millstream_engine::driver::stop::{Stop, Stopper, stop_pair};
use millstream_engine::driver::{Finished, Query};
use millstream_engine::state::watermark::Watermarks;
use millstream_sql::functions::BatchClock;
use millstream_store::checkpoint::Checkpoint;
use millstream_store::env::{Env, SeededRng, Task};
use tokio::runtime::Runtime;

use crate::machine::ModelDisk;
use crate::outside::ModelSink;
use crate::process::{Process, ProcessFacts};
use crate::query::{self, DELAY_S, Rows};
use crate::scenario::{RunEnd, RunPlan, Scenario};
use crate::store::ModelStore;
use crate::topic::{ModelSource, schema};
use crate::world::World;

/// A process.
pub struct Running {
    /// Its number.
    pub id: usize,
    /// When it goes on, where it stands still.
    pub frozen_until: Duration,
    /// Whether the machine fails with it, where it crashes.
    pub machine_fails: bool,
    stopper: Stopper,
    task: Task<Result<Finished, Failure>>,
    // Dropped last: the others may refer to it.
    runtime: Runtime,
}

impl Running {
    /// Starts the query anew.
    pub fn start(world: &World, plan: &RunPlan) -> Self {
        let (id, bits) = world.with(|state| {
            let mut facts = {
                let (sources, sinks) = (state.topics.len(), state.outsides.len());
                ProcessFacts::new(plan.tracking, sources, sinks)
            };
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
        let rng = Arc::new(SeededRng::new(bits));
        let of_disk = world.clone();
        let wait = move || of_disk.with(|state| state.draw_disk_wait());
        let env = Env::on_one_thread(Arc::new(world.clone()), rng, wait);
        let query = run(Process::new(world, id), plan.clone(), stop, env.clone());
        let task = env.spawn("query", query);
        drop(guard);
        let (frozen_until, machine_fails) = (Duration::ZERO, plan.machine_fails);
        Self { id, frozen_until, machine_fails, stopper, task, runtime }
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
    let storage = match process.with(|state| state.scenario.disk.is_some()) {
        true => ModelDisk::storage(&process, &env),
        false => ModelStore::storage(&process),
    };
    let checkpoint = Checkpoint::open_in(storage, &env).await?;
    let scenario = process.with(|state| state.scenario.clone());
    let sources = scenario.sources;
    let source = |source| Box::new(ModelSource::new(&process, source)) as Box<dyn Source>;
    let delay = scenario.has_state().then(|| Duration::from_secs(DELAY_S));
    let query = Query {
        snapshots: scenario.snapshots,
        watermarks: Watermarks::new(&vec![delay; sources], Policy::default(), Idling::default()),
        branches: branches(&process, &scenario),
        sources: (0..sources).map(source).collect(),
        statics: Vec::new(),
        checkpoint,
        log_settings: scenario.store.settings,
        trigger: plan.trigger,
        tracking: plan.tracking,
        batch_clock: BatchClock::default(),
        listener: Arc::new(Silent),
        stop,
        env,
    };
    query.run().await
}

/// The query's branches and its table of dead letters.
fn branches(process: &Process, scenario: &Scenario) -> Branches {
    let (mut branches, mut letters) = (Vec::new(), Vec::new());
    for (sink, output) in scenario.outputs.iter().enumerate() {
        let sink: Box<dyn Sink> = Box::new(ModelSink::new(process, sink));
        if output.rows == Rows::Letters {
            let columns = Schema::new(vec![Field::new("offset", DataType::Int64, true)]);
            let layout = Layout::new(Some(&Arc::new(columns)), Form::Table).expect("a column");
            letters.push(DeadLetterSink { name: "letters".to_owned(), sink, layout });
        } else {
            let plan = query::plan(output.rows, scenario.sources);
            branches.push(Branch { plan, sink });
        }
    }
    let branches = Branches::new(branches);
    if letters.is_empty() {
        return branches;
    }
    let columns = schema().fields().len();
    let route = DecodingRoute { source_table: "model".into(), columns, side_output: Some(0) };
    let rejections = Rejections { decoding: vec![Some(route)], ..Rejections::default() };
    branches.with_dead_letters(DeadLetterSinks::new("flow", rejections, letters))
}
