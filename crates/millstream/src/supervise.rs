//! Several flows side by side: one that fails for good stops the others after their micro-batch.
//!
//! A few flows have a thread each, and another for their checkpoint: whoever waits for a row is
//! woken at once. Of many flows most wait at any time, and share [`SHARED_THREADS`]; a thousand of
//! them would need thousands otherwise.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use millstream_engine::api::progress::{Listener, Progress, Restart};
use millstream_engine::api::sink::LeftToNextRun;
use millstream_engine::driver::Finished;
use millstream_engine::driver::stop::Stopper;
use millstream_engine::flow::{PlannedFlow, RunSettings};
use millstream_store::env::Env;
use millstream_store::error::{Classified, Failure, Kind};
use parking_lot::Mutex;
use thiserror::Error;

use crate::app::App;
use crate::large_state::LargeState;
use crate::load::Planner;
use crate::report;
use crate::restart::{Policy, Starts};
use crate::screen::Screen;
use crate::watch::Listeners;

/// With more flows than this, they share threads.
const OWN_THREADS_MAX: usize = 32;
/// Few enough that they and what blocks beside them are under two hundred threads.
pub const SHARED_THREADS: usize = 8;

/// A flow and how to run it.
pub struct Job {
    /// The flow.
    pub plan: PlannedFlow,
    /// What plans it once more.
    pub planner: Planner,
    /// Where, when, and who listens.
    pub settings: RunSettings,
    /// Whether it is started again when it fails.
    pub restart: Policy,
}

/// How a flow ended.
pub struct FlowOutcome {
    /// The flow's name.
    pub flow: String,
    /// What it did, or `None` if it failed; its failure is reported already.
    pub finished: Option<Finished>,
    /// How long it ran.
    pub took: Duration,
}

/// Runs flows until each has ended. A failure is reported at once.
pub async fn side_by_side(app: &App, jobs: Vec<Job>, stopper: &Stopper) -> Vec<FlowOutcome> {
    if share_threads(jobs.len()) {
        return on_shared_threads(app, jobs, stopper).await;
    }
    let start = |job| app.env.spawn_on_own_thread("flow", alone(app, job, stopper));
    let tasks: Vec<_> = jobs.into_iter().map(start).collect();
    let mut outcomes = Vec::with_capacity(tasks.len());
    for task in tasks {
        outcomes.push(task.join().await);
    }
    outcomes
}

/// Whether so many flows share threads, instead of having some of their own.
pub fn share_threads(flows: usize) -> bool {
    flows > OWN_THREADS_MAX
}

/// Deals the flows out to a few threads.
async fn on_shared_threads(app: &App, jobs: Vec<Job>, stopper: &Stopper) -> Vec<FlowOutcome> {
    let mut hands: Vec<Vec<_>> = (0..SHARED_THREADS).map(|_| Vec::new()).collect();
    for (index, job) in jobs.into_iter().enumerate() {
        let run = alone(app, job, stopper);
        hands[index % SHARED_THREADS].push(async move { (index, run.await) });
    }
    let start = |hand| app.env.spawn_on_shared_thread("flows", hand);
    let tasks: Vec<_> = hands.into_iter().map(start).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.extend(task.join().await);
    }
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// One flow, to its end.
fn alone(
    app: &App,
    job: Job,
    stopper: &Stopper,
) -> impl Future<Output = FlowOutcome> + Send + 'static {
    let (env, screen, stopper) = (app.env.clone(), app.screen.clone(), stopper.clone());
    async move {
        let (flow, began) = (job.plan.name().to_owned(), env.monotonic());
        let finished = run(job, &env, &screen, &flow).await;
        if finished.is_none() {
            stopper.stop();
        }
        FlowOutcome { flow, finished, took: env.monotonic().saturating_sub(began) }
    }
}

/// Runs one flow, again and again where it fails and may be started again.
async fn run(job: Job, env: &Env, screen: &Screen, flow: &str) -> Option<Finished> {
    let Job { plan, planner, mut settings, restart } = job;
    let told = Arc::clone(&settings.listener);
    let tally = Arc::new(Tally { env: env.clone(), seen: Mutex::default() });
    let large_state = Arc::new(LargeState::new(env));
    settings.listener = Arc::new(Listeners(vec![Arc::clone(&told), tally.clone(), large_state]));
    let (mut plan, mut starts) = (Ok(plan), Starts::new(restart));
    loop {
        let ran = match plan {
            Ok(plan) => {
                let ran = AssertUnwindSafe(plan.run(settings.clone())).catch_unwind().await;
                ran.unwrap_or_else(|panic| Err(panicked(&*panic)))
            }
            Err(failure) => Err(failure),
        };
        let failure = match ran {
            // What it did before it was started again counts, too.
            Ok(last) => return Some(tally.all().unwrap_or(last)),
            Err(failure) if settings.stop.is_requested() && is_left_to_next_run(&failure) => {
                screen.say(&report::left(flow, &failure));
                return Some(tally.seen.lock().all);
            }
            Err(failure) => failure,
        };
        let again = starts.again(env, failure.kind(), tally.ran());
        let Some(again) = again.filter(|_| !settings.stop.is_requested()) else {
            screen.say(&report::failure(flow, &failure));
            return None;
        };
        told.restarts(&Restart {
            at_ms: env.now_ms(),
            count: again.count,
            count_max: again.count_max,
            wait: again.wait,
            reason: report::reason(&failure),
        });
        tokio::select! {
            () = settings.stop.requested() => {
                screen.say(&report::failure(flow, &failure));
                return None;
            }
            () = env.sleep(again.wait) => {}
        }
        plan = planner.plan();
    }
}

/// Whether a run that was asked to stop has come to its end as it should.
fn is_left_to_next_run(failure: &Failure) -> bool {
    failure.cause().is::<LeftToNextRun>()
}

/// Remembers when a flow last came to run, and what all its runs did.
struct Tally {
    env: Env,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// When everything was open, on the monotonic clock; `None` in a run that did not come there.
    runs_since: Option<Duration>,
    starts: u32,
    all: Finished,
}

impl Tally {
    /// How long the run that has just failed ran, if it came that far. Forgets it.
    fn ran(&self) -> Option<Duration> {
        let since = self.seen.lock().runs_since.take()?;
        Some(self.env.monotonic().saturating_sub(since))
    }

    /// What several runs did together.
    fn all(&self) -> Option<Finished> {
        let seen = self.seen.lock();
        (seen.starts > 1).then_some(seen.all)
    }
}

impl Listener for Tally {
    fn runs(&self) {
        let mut seen = self.seen.lock();
        seen.runs_since = Some(self.env.monotonic());
        seen.starts += 1;
    }

    fn published(&self, progress: &Progress) {
        let all = &mut self.seen.lock().all;
        all.micro_batches += 1;
        all.rows_in += progress.rows_in;
        all.rows_out += progress.rows_out;
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let fixed = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = fixed.or_else(|| panic.downcast_ref::<String>().cloned());
    let text = said.unwrap_or_else(|| "a panic without a message".to_owned());
    Panicked { text }.into()
}

/// A flow's task has panicked.
#[derive(Debug, Error)]
#[error("an invariant does not hold: {text}")]
struct Panicked {
    text: String,
}

impl Classified for Panicked {
    fn kind(&self) -> Kind {
        Kind::Bug
    }
}
