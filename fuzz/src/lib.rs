//! Mutated inputs for whatever reads bytes or text that come from outside.
//!
//! A test names a [`Target`] and gives a function that reads one input. The function gets each
//! entry of the target's corpus (`tests/fuzz/corpus/<target>/`), then mutants of them until the
//! time is over. An input fails the test if the function panics, takes longer than
//! [`Limits::time`], or allocates more than [`Limits::memory_bytes`]. It is made smaller, saved in
//! the corpus as `found-<hash>`, and printed; every later run begins with it.
//!
//! 1. [`corpus`] reads the entries;
//! 2. [`mutate`] makes an input of one or two of them, bytes or words ([`random`] has a seed, so
//!    the sequence of inputs is the same in each run);
//! 3. [`attempt`] runs the function once: panics are caught, time and [`memory`] are measured;
//! 4. [`search`] repeats this in a thread of its own, while another one watches for an input that
//!    never ends. What the function returns is its outcome: an input with a new one is mutated
//!    further, which takes the place of a compiler's coverage counters;
//! 5. [`shrink`] removes from a failing input what the failure does not need.
//!
//! What ends the process at once, as an overflow of the stack does, cannot be caught: the input is
//! then in `fuzz/<target>.running` beside the test's binary, in the directory above.
//!
//! `MILLSTREAM_FUZZ_SECONDS` is the time for each target (without it, about a second), and
//! `MILLSTREAM_FUZZ_SEED` the seed.

mod attempt;
mod corpus;
mod memory;
mod mutate;
mod random;
mod search;
mod shrink;

use std::time::Duration;

pub use attempt::{Failure, Problem};
pub use search::Summary;

/// How far an input may go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time for one input.
    pub time: Duration,
    /// What is allocated at once while one input is read, in bytes; the function's thread counts.
    pub memory_bytes: usize,
    /// The length of a mutant, in bytes.
    pub input_bytes: usize,
    /// The stack of the thread that reads, in bytes.
    pub stack_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let factor = if cfg!(debug_assertions) { 10 } else { 1 };
        Self {
            time: Duration::from_secs(2) * factor,
            memory_bytes: 256 << 20,
            input_bytes: 8 << 10,
            // What tokio gives its threads, and the standard library.
            stack_bytes: 2 << 20,
        }
    }
}

/// What inputs are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Material {
    Bytes,
    Text,
}

/// Something that reads inputs, and what its inputs look like.
#[derive(Clone, Debug)]
pub struct Target {
    name: &'static str,
    material: Material,
    words: &'static [&'static str],
    seeds: Vec<Vec<u8>>,
    limits: Limits,
    duration: Duration,
    seed: u64,
}

impl Target {
    /// A target that reads bytes; `name` is its directory in the corpus.
    ///
    /// # Panics
    /// When the environment has a time or a seed that is no number.
    pub fn bytes(name: &'static str) -> Self {
        let number = |variable: &str| {
            let value = std::env::var(variable).ok()?;
            Some(value.parse::<u64>().unwrap_or_else(|_| panic!("{variable} is not a number")))
        };
        Self {
            name,
            material: Material::Bytes,
            words: &[],
            seeds: Vec::new(),
            limits: Limits::default(),
            duration: Duration::from_secs(number("MILLSTREAM_FUZZ_SECONDS").unwrap_or(1)),
            seed: number("MILLSTREAM_FUZZ_SEED").unwrap_or(0x5eed),
        }
    }

    /// A target that reads text: mutants are made of words, and mostly valid UTF-8.
    pub fn text(name: &'static str) -> Self {
        Self { material: Material::Text, ..Self::bytes(name) }
    }

    /// Words of the language that inputs are in; mutants contain them often.
    pub fn words(self, words: &'static [&'static str]) -> Self {
        Self { words, ..self }
    }

    /// Inputs to begin with, beside those of the corpus.
    pub fn seeds<T: Into<Vec<u8>>>(mut self, seeds: impl IntoIterator<Item = T>) -> Self {
        self.seeds.extend(seeds.into_iter().map(Into::into));
        self
    }

    /// Other limits than the usual ones.
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Another time to search than the environment's.
    pub fn duration(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// Gives `read` the corpus and mutants of it.
    ///
    /// # Panics
    /// With an input that fails, which is then in the corpus.
    pub fn run(self, read: impl Fn(&[u8]) -> String + Send + Sync + 'static) {
        let name = self.name;
        match search::search(self, read) {
            Ok(summary) => eprintln!("{name}: {summary}"),
            Err(failure) => {
                let saved = corpus::save(name, &failure.input);
                panic!("{name}: {failure}\nsaved as {}", saved.display());
            }
        }
    }

    /// As [`Target::run`], but returns what it finds and saves nothing.
    ///
    /// # Errors
    /// An input that fails.
    pub fn search(
        self,
        read: impl Fn(&[u8]) -> String + Send + Sync + 'static,
    ) -> Result<Summary, Failure> {
        search::search(self, read)
    }
}

/// What became of an input, for functions that return a result: the error, or that there is none.
pub fn outcome<T, E: std::fmt::Display>(result: &Result<T, E>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.to_string(),
    }
}
