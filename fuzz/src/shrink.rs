//! Removes from a failing input what the failure does not need.

#![allow(clippy::disallowed_methods)] // its time is limited

use std::time::{Duration, Instant};

use super::attempt::{Failure, Problem};

const TIME_MAX: Duration = Duration::from_secs(20);

/// A smaller input that fails alike; `fails` says how an input fails.
pub fn shrink(mut failure: Failure, mut fails: impl FnMut(&[u8]) -> Option<Problem>) -> Failure {
    let start = Instant::now();
    let mut piece = failure.input.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < failure.input.len() {
            if start.elapsed() > TIME_MAX {
                return failure;
            }
            let end = (at + piece).min(failure.input.len());
            let smaller = [&failure.input[..at], &failure.input[end..]].concat();
            match fails(&smaller).filter(|problem| problem.is_like(&failure.problem)) {
                Some(problem) => failure = Failure { input: smaller, problem },
                None => at += piece,
            }
        }
        piece /= 2;
    }
    failure
}
