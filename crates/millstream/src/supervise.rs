//! Several flows side by side: one that fails stops the others after their micro-batch.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use millstream_engine::driver::Finished;
use millstream_engine::driver::stop::Stopper;
use millstream_engine::flow::{PlannedFlow, RunSettings};
use millstream_store::error::{Failure, Kind};

use crate::app::App;
use crate::report;

/// A flow and how to run it.
pub struct Job {
    /// The flow.
    pub plan: PlannedFlow,
    /// Where, when, and who listens.
    pub settings: RunSettings,
}

/// How a flow ended.
pub struct Outcome {
    /// The flow's name.
    pub flow: String,
    /// What it did, or `None` if it failed; its failure is told already.
    pub finished: Option<Finished>,
    /// How long it ran.
    pub took: Duration,
}

/// Runs flows until each has ended. A failure is told at once.
pub async fn side_by_side(app: &App, jobs: Vec<Job>, stopper: &Stopper) -> Vec<Outcome> {
    let start = |job| {
        let (env, screen, stopper) = (app.env.clone(), app.screen.clone(), stopper.clone());
        app.env.spawn_on_own_thread("flow", async move {
            let Job { plan, settings } = job;
            let (flow, began) = (plan.name().to_owned(), env.monotonic());
            let ran = AssertUnwindSafe(plan.run(settings)).catch_unwind().await;
            let took = env.monotonic().saturating_sub(began);
            let finished = match ran.unwrap_or_else(|panic| Err(panicked(&*panic))) {
                Ok(finished) => Some(finished),
                Err(failure) => {
                    screen.say(&report::failure(&flow, &failure));
                    stopper.stop();
                    None
                }
            };
            Outcome { flow, finished, took }
        })
    };
    let tasks: Vec<_> = jobs.into_iter().map(start).collect();
    let mut outcomes = Vec::with_capacity(tasks.len());
    for task in tasks {
        outcomes.push(task.join().await);
    }
    outcomes
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = text.unwrap_or_else(|| "a panic without a message".to_owned());
    Failure::new(Kind::Bug, format!("an invariant does not hold: {text}"))
}
