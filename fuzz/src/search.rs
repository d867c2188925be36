//! The loop: an input, an attempt, and what is kept of it.

#![allow(clippy::disallowed_methods)] // a search has a time, and a thread that may never end

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::attempt::{Done, Failure, Problem, attempt};
use super::mutate::Mutator;
use super::random::Random;
use super::shrink::shrink;
use super::{Target, corpus};

/// Inputs that are mutated further; a new one takes the place of another when there are more.
const KEPT_MAX: usize = 2_000;

/// What a search without a failure has seen.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Inputs, with those of the corpus.
    pub inputs: u64,
    /// Different outcomes.
    pub outcomes: usize,
    /// The time of the slowest input.
    pub slowest: Duration,
    /// The length of that input, in bytes.
    pub slowest_bytes: usize,
    /// The most that an input had allocated at once, in bytes.
    pub peak_bytes: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, outcomes, slowest, slowest_bytes, peak_bytes } = self;
        write!(f, "{inputs} inputs, {outcomes} outcomes, slowest {slowest:.1?} ")?;
        write!(f, "({slowest_bytes} bytes), at most {} KiB", peak_bytes >> 10)
    }
}

/// What is being read, and since when.
#[derive(Default)]
struct Running(Mutex<Option<(Instant, Vec<u8>)>>);

impl Running {
    fn set(&self, running: Option<(Instant, Vec<u8>)>) {
        *self.0.lock().expect("nothing panics with it") = running;
    }

    /// What has been running for longer than `limit`.
    fn longer_than(&self, limit: Duration) -> Option<Failure> {
        let running = self.0.lock().expect("nothing panics with it");
        let (since, input) = running.as_ref()?;
        let waited = since.elapsed();
        (waited > limit).then(|| Failure { input: input.clone(), problem: Problem::Hang(waited) })
    }
}

/// Runs the target in a thread of its own; one that never ends is left alone.
pub fn search(
    target: Target,
    read: impl Fn(&[u8]) -> String + Send + Sync + 'static,
) -> Result<Summary, Failure> {
    let running = Arc::new(Running::default());
    let watched = running.clone();
    let limits = target.limits;
    let (sender, receiver) = channel();
    let builder = thread::Builder::new().name(format!("fuzz {}", target.name));
    let run = move || {
        let search = Search::new(target, &read, &running);
        let _ = sender.send(search.run());
    };
    let thread = builder.stack_size(limits.stack_bytes).spawn(run).expect("a thread starts");
    let hang = limits.time * 4;
    loop {
        match receiver.recv_timeout(hang / 8) {
            Ok(found) => {
                let _ = thread.join();
                return found;
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(failure) = watched.longer_than(hang) {
                    return Err(failure);
                }
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the search itself has failed"),
        }
    }
}

struct Search<'a> {
    target: Target,
    read: &'a dyn Fn(&[u8]) -> String,
    running: &'a Running,
    trace: Trace,
    outcomes: HashSet<u64>,
    kept: Vec<Vec<u8>>,
    summary: Summary,
}

impl<'a> Search<'a> {
    fn new(target: Target, read: &'a dyn Fn(&[u8]) -> String, running: &'a Running) -> Self {
        let trace = Trace::new(target.name);
        let (outcomes, kept, summary) = Default::default();
        Self { target, read, running, trace, outcomes, kept, summary }
    }

    fn run(mut self) -> Result<Summary, Failure> {
        let start = Instant::now();
        for input in corpus::entries(self.target.name) {
            self.try_input(&input)?;
            self.kept.push(input);
        }
        for input in std::mem::take(&mut self.target.seeds) {
            // There may be very many, which are known from elsewhere to be read.
            if start.elapsed() < self.target.duration / 3 {
                self.try_input(&input)?;
            }
            self.kept.push(input);
        }
        if self.kept.is_empty() {
            self.kept.push(b"0".to_vec());
        }
        let mut random = Random::new(self.target.seed);
        let mutator = Mutator {
            material: self.target.material,
            words: self.target.words,
            bytes_max: self.target.limits.input_bytes,
        };
        let start = Instant::now();
        while start.elapsed() < self.target.duration {
            let input = mutator.mutant(&self.kept, &mut random);
            if self.try_input(&input)? {
                if self.kept.len() < KEPT_MAX {
                    self.kept.push(input);
                } else {
                    let at = random.below(KEPT_MAX);
                    self.kept[at] = input;
                }
            }
        }
        self.trace.remove();
        self.summary.outcomes = self.outcomes.len();
        Ok(self.summary)
    }

    /// Reads an input; true if its outcome is new.
    fn try_input(&mut self, input: &[u8]) -> Result<bool, Failure> {
        let done = match self.attempt(input) {
            Ok(done) => done,
            // The machine may have been busy with something else.
            Err(Problem::Slow(_)) => {
                self.attempt(input).map_err(|problem| self.failed(input, problem))?
            }
            Err(problem) => return Err(self.failed(input, problem)),
        };
        let summary = &mut self.summary;
        summary.inputs += 1;
        summary.peak_bytes = summary.peak_bytes.max(done.peak_bytes);
        if done.took > summary.slowest {
            (summary.slowest, summary.slowest_bytes) = (done.took, input.len());
        }
        Ok(self.outcomes.insert(shape(&done.outcome)))
    }

    fn attempt(&self, input: &[u8]) -> Result<Done, Problem> {
        self.trace.write(input);
        self.running.set(Some((Instant::now(), input.to_vec())));
        let done = attempt(self.read, input, &self.target.limits);
        self.running.set(None);
        done
    }

    fn failed(&self, input: &[u8], problem: Problem) -> Failure {
        let failure = Failure { input: input.to_vec(), problem };
        let failure = shrink(failure, |input| self.attempt(input).err());
        self.trace.remove();
        failure
    }
}

/// A number for outcomes that differ in more than numbers, names and what they quote.
fn shape(outcome: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let quotes = ['\'', '"', '`'];
    for (index, part) in outcome.split(quotes).enumerate().take(12) {
        if index % 2 == 0 {
            let words = part.chars().filter(|character| !character.is_numeric());
            words.take(80).for_each(|character| character.hash(&mut hasher));
        }
    }
    hasher.finish()
}

/// A file with the input that is being read, for what ends the process.
struct Trace(Option<(PathBuf, File)>);

impl Trace {
    fn new(target: &str) -> Self {
        let open = || {
            let binary = std::env::current_exe().ok()?;
            let directory = binary.ancestors().nth(2)?.join("fuzz");
            fs::create_dir_all(&directory).ok()?;
            let path = directory.join(format!("{target}.running"));
            Some((path.clone(), File::create(&path).ok()?))
        };
        Self(open())
    }

    fn write(&self, input: &[u8]) {
        if let Some((_, file)) = &self.0 {
            let _ = file.write_all_at(input, 0).and_then(|()| file.set_len(input.len() as u64));
        }
    }

    fn remove(&self) {
        if let Some((path, _)) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
