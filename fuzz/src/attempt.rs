//! One input, read once: what it panicked with, how long it took, what it allocated.

#![allow(clippy::disallowed_methods)] // a limit of time needs the machine's clock

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use super::Limits;
use super::memory::metered;

/// What is wrong with how an input was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It panicked: the message with its place.
    Panic(String),
    /// It took too long.
    Slow(Duration),
    /// It never ended while anybody waited.
    Hang(Duration),
    /// It allocated too much at once, bytes.
    Memory(usize),
}

impl Problem {
    /// True if it is the same failure, as far as one can say.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// An input that fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The input, made as small as the time allowed.
    pub input: Vec<u8>,
    /// Why it fails.
    pub problem: Problem,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::Panic(message) => write!(f, "it panics: {message}")?,
            Problem::Slow(took) => write!(f, "it takes {took:?}")?,
            Problem::Hang(waited) => write!(f, "it has not ended after {waited:?}")?,
            Problem::Memory(bytes) => write!(f, "it allocates {} MiB", bytes >> 20)?,
        }
        match std::str::from_utf8(&self.input) {
            Ok(text) => write!(f, "\ninput of {} bytes: {text:?}", self.input.len()),
            Err(_) => {
                write!(
                    f,
                    "\ninput of {} bytes: b\"{}\"",
                    self.input.len(),
                    self.input.escape_ascii()
                )
            }
        }
    }
}

/// What became of an input that may be read.
pub struct Done {
    /// What the function returned.
    pub outcome: String,
    /// How long it took.
    pub took: Duration,
    /// The most it had allocated at once.
    pub peak_bytes: usize,
}

thread_local! {
    /// Whether a panic in this thread is caught here, and the message of the last one.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics of an attempt are reported by it; all others as before.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_ours = CAUGHT.with_borrow_mut(|caught| {
                caught.as_mut().map(|message| *message = info.to_string()).is_some()
            });
            if !is_ours {
                before(info);
            }
        }));
    });
}

/// Reads `input` once.
pub fn attempt(
    read: &dyn Fn(&[u8]) -> String,
    input: &[u8],
    limits: &Limits,
) -> Result<Done, Problem> {
    install_hook();
    CAUGHT.set(Some(String::new()));
    let start = Instant::now();
    let (result, peak_bytes) = metered(|| catch_unwind(AssertUnwindSafe(|| read(input))));
    let took = start.elapsed();
    let message = CAUGHT.take().unwrap_or_default();
    let outcome = result.map_err(|payload| match payload.downcast_ref::<String>() {
        // One of another thread, passed on.
        Some(text) if message.is_empty() => Problem::Panic(text.clone()),
        _ => Problem::Panic(message),
    })?;
    if took > limits.time {
        return Err(Problem::Slow(took));
    }
    if peak_bytes > limits.memory_bytes {
        return Err(Problem::Memory(peak_bytes));
    }
    Ok(Done { outcome, took, peak_bytes })
}
