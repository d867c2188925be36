//! Starts, stops and crashes processes as the scenario says, and then lets the query come to its
//! end in quiet.

use std::time::Duration;

use millstream_engine::api::settings::ProgressTracking;
use millstream_engine::api::source::Kind;
use millstream_engine::api::trigger::Trigger;

use crate::running::Running;
use crate::scenario::{RunEnd, RunPlan};
use crate::world::World;

/// A run without an end of its own is asked to stop after this time.
const RUN_MAX: Duration = Duration::from_secs(3);
/// The same for the last, quiet runs: there is nothing they wait for.
const QUIET_RUN_MAX: Duration = Duration::from_secs(10);
/// A process that was asked to stop, or has nothing left to do, must have ended within this.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// From one quiet run to the next.
const QUIET_PAUSE: Duration = Duration::from_secs(1);
/// Quiet runs that may end because of what crashed processes had sent.
const QUIET_RUNS_MAX: usize = 20;

/// What is to be done at a moment.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// The next run begins.
    Start,
    /// A process is asked to stop.
    Stop(usize),
    /// A process is gone.
    Crash(usize),
    /// A process must have ended by now.
    MustHaveEnded(usize),
}

/// Where the simulation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The scenario's runs.
    Storm,
    /// Nothing fails any more; runs until one has done everything.
    Quiet,
    /// One more run, which must find nothing to do.
    Idle,
    Done,
}

/// Runs one seed.
pub struct Director {
    world: World,
    plans: Vec<RunPlan>,
    running: Vec<Running>,
    phase: Phase,
    started: usize,
    quiet_runs: usize,
    start_is_due: bool,
}

impl Director {
    /// A director of the world's scenario.
    pub fn new(world: &World) -> Self {
        let plans = world.with(|state| state.scenario.runs.clone());
        Self {
            world: world.clone(),
            plans,
            running: Vec::new(),
            phase: Phase::Storm,
            started: 0,
            quiet_runs: 0,
            start_is_due: false,
        }
    }

    /// Runs until everything is done, or something happened that must not.
    pub fn run(&mut self) {
        self.start_later(Duration::ZERO);
        while self.phase != Phase::Done && !self.is_violated() {
            let now = self.world.with(|state| state.now);
            for running in &self.running {
                running.go_on(now);
            }
            self.bury();
            if !self.obey() && self.phase != Phase::Done && !self.world.advance() {
                self.violated("nothing goes on, and nothing will happen".to_owned());
            }
        }
    }

    fn is_violated(&self) -> bool {
        self.world.with(|state| state.violation.is_some())
    }

    fn violated(&self, what: String) {
        self.world.with(|state| state.violated(what));
    }

    fn later(&self, wait: Duration, command: Command) {
        self.world.with(|state| {
            state.at(state.now.saturating_add(wait), move |state| state.commands.push(command));
        });
    }

    fn start_later(&mut self, wait: Duration) {
        self.start_is_due = true;
        self.later(wait, Command::Start);
    }

    /// Does what is due. False if there is nothing.
    fn obey(&mut self) -> bool {
        let commands = self.world.with(|state| std::mem::take(&mut state.commands));
        for command in &commands {
            match *command {
                Command::Start => self.start(),
                Command::Stop(id) => {
                    if let Some(running) = self.running.iter().find(|running| running.id == id) {
                        self.world.with(|s| s.note(Some(id), format_args!("is asked to stop")));
                        running.stop();
                        self.later(PATIENCE, Command::MustHaveEnded(id));
                    }
                }
                Command::Crash(id) => {
                    if self.running.iter().any(|running| running.id == id) {
                        self.world.with(|state| state.processes[id].alive = false);
                    }
                }
                Command::MustHaveEnded(id) => {
                    if self.running.iter().any(|running| running.id == id) {
                        self.violated(format!("process #{id} does not end"));
                    }
                }
            }
        }
        if !commands.is_empty() {
            self.bury();
        }
        !commands.is_empty()
    }

    fn start(&mut self) {
        self.start_is_due = false;
        let plan = match self.phase {
            Phase::Storm => self.plans[self.started.min(self.plans.len() - 1)].clone(),
            _ => self.quiet_plan(),
        };
        self.started += 1;
        let now = self.world.with(|state| {
            state.crowded |= !self.running.is_empty();
            state.now
        });
        let frozen = self.started.checked_sub(2).and_then(|older| self.plans.get(older));
        let frozen_until = now + frozen.map_or(Duration::ZERO, |plan| plan.frozen);
        for older in &mut self.running {
            older.frozen_until = frozen_until;
            self.world.with(|state| state.at(frozen_until, |_| {}));
        }
        let running = Running::start(&self.world, &plan);
        match plan.end {
            RunEnd::CrashAfter(wait) => self.later(wait, Command::Crash(running.id)),
            RunEnd::StopAfter(wait) => self.later(wait, Command::Stop(running.id)),
            RunEnd::CrashAfterSteps(_) => {}
        }
        let longest = if self.phase == Phase::Storm { RUN_MAX } else { QUIET_RUN_MAX };
        self.later(longest, Command::Stop(running.id));
        self.running.push(running);
        if self.phase == Phase::Storm
            && self.started < self.plans.len()
            && let Some(wait) = plan.overlapped_after
        {
            self.start_later(wait);
        }
    }

    fn quiet_plan(&mut self) -> RunPlan {
        self.quiet_runs += 1;
        if self.quiet_runs > QUIET_RUNS_MAX {
            self.violated("the query does not come to its end in quiet".to_owned());
        }
        let sparse = self.world.with(|state| state.chance.percent(30));
        let (tracking, trigger) = if sparse {
            (ProgressTracking::Interval(Duration::from_millis(50)), Trigger::BackToBack)
        } else {
            (ProgressTracking::EveryMicroBatch, Trigger::AvailableNow)
        };
        let end = RunEnd::StopAfter(QUIET_RUN_MAX);
        let none = Duration::ZERO;
        let (machine_fails, pause, frozen) = (false, none, none);
        RunPlan { tracking, trigger, end, machine_fails, pause, overlapped_after: None, frozen }
    }

    /// Takes out the processes that are gone or have ended.
    fn bury(&mut self) {
        let before = self.running.len();
        for running in std::mem::take(&mut self.running) {
            let is_gone = self.world.with(|state| !state.processes[running.id].alive);
            if is_gone {
                let machine_fails = running.machine_fails;
                self.crash(running);
                if machine_fails {
                    self.world.with(|state| state.machine_fails());
                }
            } else if running.is_finished() {
                self.judge(running);
            } else {
                self.running.push(running);
            }
        }
        if self.running.len() < before && self.running.is_empty() && !self.start_is_due {
            self.go_over();
        }
    }

    fn crash(&self, running: Running) {
        let id = running.id;
        drop(running);
        self.world.with(|state| {
            state.note(Some(id), format_args!("CRASH"));
            state.crash(id);
        });
    }

    /// Looks at how a process ended.
    fn judge(&mut self, running: Running) {
        let id = running.id;
        let outcome = running.outcome();
        let alone = self.running.is_empty();
        let is_whole = matches!(outcome, Ok(Ok(_)));
        self.world.with(|state| {
            match outcome {
                Ok(Ok(finished)) => {
                    state.note(Some(id), format_args!("ENDS: {finished:?}"));
                    if alone && !state.crowded {
                        state.check_stopped(id);
                    }
                }
                Ok(Err(failure)) => {
                    let kind = failure.kind();
                    state.note(Some(id), format_args!("FAILS: {kind:?}: {failure}"));
                    let explained = match kind {
                        Kind::Retry => state.faulty,
                        Kind::Fenced => state.crowded,
                        _ => false,
                    };
                    if !explained {
                        state.violated(format!("process #{id} fails: {failure:?}"));
                    }
                }
                Err(panic) => state.violated(format!("process #{id} panics: {panic}")),
            }
            // What it has sent and not waited for is on its way as after a crash.
            state.crash(id);
        });
        if is_whole && self.phase != Phase::Storm {
            self.end_quiet_run(id);
        }
    }

    fn end_quiet_run(&mut self, id: usize) {
        let next = self.world.with(|state| {
            let repeats = state.processes[id].has_handed_over();
            match self.phase {
                Phase::Idle if repeats => {
                    state.violated(format!("process #{id} repeats what was done"));
                    Phase::Done
                }
                Phase::Idle => Phase::Done,
                _ => {
                    state.check_end();
                    Phase::Idle
                }
            }
        });
        self.phase = next;
    }

    /// The processes are gone: what comes next?
    fn go_over(&mut self) {
        let mut pause = QUIET_PAUSE;
        if self.phase == Phase::Storm {
            if let Some(plan) = self.plans.get(self.started) {
                pause = plan.pause;
            } else {
                self.phase = Phase::Quiet;
                self.world.with(|state| {
                    state.calm = true;
                    state.note(None, format_args!("quiet from here on"));
                    for source in 0..state.topics.len() {
                        state.rows_arrive(source);
                    }
                });
            }
        }
        if self.phase != Phase::Done {
            self.start_later(pause);
        }
    }
}
