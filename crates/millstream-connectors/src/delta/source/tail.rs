//! Reading the log ahead: a task goes through it and puts what it finds into a short queue, from
//! which micro-batches are made.
//!
//! The next version is looked for by its name, again and again. Only once in a while, when nothing
//! comes, is the log listed: whether the table is still the same one, and whether a version is
//! missing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millstream_engine::api::source::{Failure, ReadLimit};
use millstream_lake::error::TableError;
use millstream_lake::stream::{Follower, Position, Step, StreamError, StreamFile, StreamScan};
use millstream_store::env::Env;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::options::StreamOptions;

/// Steps that wait for the driver: some megabytes.
const STEPS_MAX: usize = 10_000;
/// Steps that are handed over together, so that the last file of a version and its end are.
const STEPS_AT_ONCE: usize = 50;
/// How often the log is listed at most, while nothing comes.
const LOOK_AROUND: Duration = Duration::from_secs(30);
/// A listing takes no more than this part of the time.
const LOOK_AROUND_SHARE: u32 = 100;

/// What was found and not taken yet.
pub(super) struct Buffer {
    state: Mutex<State>,
    changed: Notify,
    room: Notify,
}

struct State {
    steps: VecDeque<Arrived>,
    /// Where the log was read to.
    read: Position,
    /// The last version, of a query that ends.
    last_version: Option<u64>,
    failure: Option<Failure>,
    is_over: bool,
}

struct Arrived {
    step: Step,
    at_us: i64,
}

impl Arrived {
    fn version(&self) -> u64 {
        match &self.step.file {
            Some(file) => file.version,
            None => self.step.after.version - u64::from(self.step.after.index.is_none()),
        }
    }
}

/// Files of one micro-batch.
pub(super) struct Taken {
    pub(super) end: Position,
    pub(super) files: Vec<StreamFile>,
    pub(super) oldest_arrival_us: i64,
}

impl Buffer {
    pub(super) fn new(position: Position) -> Self {
        let state = State {
            steps: VecDeque::new(),
            read: position,
            last_version: None,
            failure: None,
            is_over: false,
        };
        Self { state: Mutex::new(state), changed: Notify::new(), room: Notify::new() }
    }

    /// Takes files up to the limits. What was found before a failure is given first.
    pub(super) fn take(
        &self,
        limit: ReadLimit,
        options: &StreamOptions,
        bytes_held_max: u64,
    ) -> Result<Option<Taken>, Failure> {
        let mut state = self.state.lock();
        let (files_max, bytes_max) = match limit {
            ReadLimit::Configured => (options.files_max, options.bytes_max.min(bytes_held_max)),
            ReadLimit::AllAvailable => (usize::MAX, u64::MAX),
        };
        let count = state.takeable(files_max, bytes_max);
        if count == 0 {
            return match state.failure.take() {
                Some(failure) => {
                    state.is_over = true;
                    Err(failure)
                }
                None => Ok(None),
            };
        }
        let steps: Vec<Arrived> = state.steps.drain(..count).collect();
        drop(state);
        self.room.notify_one();
        let end = steps[count - 1].step.after;
        let oldest_arrival_us = steps[0].at_us;
        let files = steps.into_iter().filter_map(|arrived| arrived.step.file).collect();
        Ok(Some(Taken { end, files, oldest_arrival_us }))
    }

    /// Completes when [`Self::take`] would give something or fail.
    pub(super) async fn filled(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state.lock();
                if state.takeable(1, 1) > 0 || state.failure.is_some() || state.is_at_end() {
                    return;
                }
            }
            changed.await;
        }
    }

    pub(super) fn fix_end(&self, last_version: u64) {
        self.state.lock().last_version = Some(last_version);
        self.changed.notify_one();
    }

    /// Where the log was read to.
    pub(super) fn read(&self) -> Position {
        self.state.lock().read
    }

    /// Whether the log was read beyond the query's end, and all before it was taken.
    pub(super) fn is_at_end(&self) -> bool {
        self.state.lock().is_at_end()
    }

    /// The query's last version, if the one at `version` is known to be there by that.
    fn expected(&self, version: u64) -> Option<u64> {
        self.state.lock().last_version.filter(|last| version <= *last)
    }

    fn has_room(&self) -> bool {
        let state = self.state.lock();
        // Files that belong together are held together.
        let is_whole = state.steps.back().is_none_or(|last| last.step.may_end);
        state.steps.len() < STEPS_MAX || !is_whole
    }

    fn push(&self, steps: Vec<Step>, at_us: i64) {
        let Some(last) = steps.last() else { return };
        let mut state = self.state.lock();
        state.read = last.after;
        state.steps.extend(steps.into_iter().map(|step| Arrived { step, at_us }));
        drop(state);
        self.changed.notify_one();
    }

    /// Lost versions were passed over, as the options allow: `after` is behind them.
    pub(super) fn push_passed_over(&self, after: Position, at_us: i64) {
        self.push(vec![Step { after, file: None, may_end: true }], at_us);
    }

    fn fail(&self, failure: Failure) {
        self.state.lock().failure = Some(failure);
        self.changed.notify_one();
    }
}

impl State {
    fn is_at_end(&self) -> bool {
        let is_beyond = self.last_version.is_some_and(|last| self.read.version > last);
        is_beyond && self.failure.is_none() && self.takeable(usize::MAX, u64::MAX) == 0
    }

    /// How many steps a micro-batch takes: up to the limits, and up to where it may end. Ends of
    /// versions behind its last file go along, and a group of files goes as a whole.
    fn takeable(&self, files_max: usize, bytes_max: u64) -> usize {
        if self.is_over {
            return 0;
        }
        let (mut files, mut bytes, mut count) = (0, 0_u64, 0);
        for (number, arrived) in self.steps.iter().enumerate() {
            if self.last_version.is_some_and(|last| arrived.version() > last) {
                break;
            }
            if let Some(file) = &arrived.step.file {
                if count == number && (files >= files_max || bytes >= bytes_max) {
                    break;
                }
                files += 1;
                bytes = bytes.saturating_add(file.bytes);
            }
            if arrived.step.may_end {
                count = number + 1;
            }
        }
        count
    }
}

/// What the task that reads the log needs.
pub(super) struct Tail {
    pub(super) follower: Follower,
    pub(super) buffer: Arc<Buffer>,
    /// Counts rows of files of which the log does not tell.
    pub(super) counter: StreamScan,
    pub(super) options: Arc<StreamOptions>,
    pub(super) env: Env,
    pub(super) poll_interval: Duration,
    /// Commits of this process to the table.
    pub(super) commits: watch::Receiver<u64>,
}

/// What a stretch of reading has come to.
enum Outcome {
    /// There may be more.
    More,
    /// The next version is not there yet.
    Nothing,
    Failed,
}

impl Tail {
    /// Reads until it fails or is dropped.
    pub(super) async fn run(mut self) {
        let env = self.env.clone();
        let mut next_look = env.monotonic() + LOOK_AROUND;
        loop {
            while !self.buffer.has_room() {
                self.buffer.room.notified().await;
            }
            let outcome;
            (self, outcome) = env.spawn_blocking("delta-tail", move || self.read()).join().await;
            match outcome {
                Outcome::Failed => return,
                Outcome::More => continue,
                Outcome::Nothing => {}
            }
            let expected = self.buffer.expected(self.follower.position().version);
            let began = env.monotonic();
            if began >= next_look || expected.is_some() {
                expected.into_iter().for_each(|version| self.follower.expect(version));
                let found;
                (self, found) =
                    env.spawn_blocking("delta-tail", move || self.look_around()).join().await;
                if !found {
                    return;
                }
                let took = env.monotonic().saturating_sub(began);
                next_look = env.monotonic() + LOOK_AROUND.max(took * LOOK_AROUND_SHARE);
            }
            tokio::select! {
                () = env.sleep(self.poll_interval) => {}
                Ok(()) = self.commits.changed() => {}
            }
        }
    }

    fn read(mut self) -> (Self, Outcome) {
        let mut steps = Vec::new();
        let outcome = loop {
            if steps.len() == STEPS_AT_ONCE {
                break Ok(Outcome::More);
            }
            match self.step() {
                Ok(Some(step)) => steps.push(step),
                Ok(None) => break Ok(Outcome::Nothing),
                Err(failure) => break Err(failure),
            }
        };
        self.buffer.push(steps, self.env.now_us());
        let outcome = outcome.unwrap_or_else(|failure| {
            self.buffer.fail(failure);
            Outcome::Failed
        });
        (self, outcome)
    }

    fn step(&mut self) -> Result<Option<Step>, Failure> {
        let Some(step) = self.follower.next_step()? else { return Ok(None) };
        Ok(Some(prepared(step, &self.options, &self.counter)?))
    }

    /// False once it has failed.
    fn look_around(mut self) -> (Self, bool) {
        let before = self.follower.position();
        match self.follower.look_around() {
            Ok(()) => {
                let after = self.follower.position();
                if after != before {
                    self.buffer.push_passed_over(after, self.env.now_us());
                }
                (self, true)
            }
            Err(error) => {
                self.buffer.fail(error.into());
                (self, false)
            }
        }
    }
}

/// The step without a file that the options leave out, and with its number of rows.
pub(super) fn prepared(
    mut step: Step,
    options: &StreamOptions,
    counter: &StreamScan,
) -> Result<Step, StreamError> {
    let is_left_out = |file: &StreamFile| {
        options.exclude.as_ref().is_some_and(|exclude| exclude.is_match(&file.path))
    };
    step.file = step.file.filter(|file| !is_left_out(file));
    if let Some(file) = &mut step.file
        && file.rows.is_none()
    {
        file.rows = match counter.count(file) {
            Ok(rows) => Some(rows),
            Err(missing @ TableError::FileMissing { .. }) if options.rules.fail_on_data_loss => {
                return Err(StreamError::FileGone { missing });
            }
            // It is reported when it is read.
            Err(TableError::FileMissing { .. }) => Some(0),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(steps: &[(u64, Option<u64>, bool)]) -> State {
        let steps = steps.iter().map(|(version, index, may_end)| Arrived {
            step: Step {
                after: match index {
                    Some(index) => {
                        Position { version: *version, index: Some(*index), is_in_snapshot: false }
                    }
                    None => Position::before(*version + 1),
                },
                file: index.map(|_| StreamFile::for_tests(*version, 10)),
                may_end: *may_end,
            },
            at_us: 0,
        });
        State {
            steps: steps.collect(),
            read: Position::before(0),
            last_version: None,
            failure: None,
            is_over: false,
        }
    }

    #[test]
    fn a_micro_batch_ends_at_the_limits() {
        let mut state = state(&[
            (1, Some(0), true),
            (1, Some(1), true),
            (1, None, true),
            (2, None, true),
            (3, Some(0), true),
            (3, None, true),
        ]);
        assert_eq!(state.takeable(1, u64::MAX), 1);
        assert_eq!(state.takeable(2, u64::MAX), 4, "ends of versions go along");
        assert_eq!(state.takeable(usize::MAX, 15), 4, "the file that reaches the limit goes along");
        assert_eq!(state.takeable(usize::MAX, u64::MAX), 6);
        state.last_version = Some(2);
        assert_eq!(state.takeable(usize::MAX, u64::MAX), 4, "a query that ends at version 2");
    }

    #[test]
    fn files_that_belong_together_are_not_parted() {
        let mut state = state(&[
            (1, Some(0), true),
            (1, None, true),
            (2, Some(0), false),
            (2, Some(1), false),
            (2, None, true),
        ]);
        assert_eq!(state.takeable(1, u64::MAX), 2);
        assert_eq!(state.takeable(2, u64::MAX), 5);
        state.steps.pop_back();
        assert_eq!(state.takeable(2, u64::MAX), 2, "the rest of the group has not arrived");
    }
}
