//! What happened, line by line, each with its virtual time: what two runs of one seed must agree
//! on, and what a person reads after a failure.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The lines of one run of a seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    lines: Vec<String>,
}

impl Trace {
    /// Adds what `who` did, or the world if nobody, at `now` since the beginning.
    pub fn add(&mut self, now: Duration, who: Option<usize>, what: std::fmt::Arguments<'_>) {
        let us = now.as_micros();
        let mut line = format!("{:>7}.{:03} ms ", us / 1_000, us % 1_000);
        let written = match who {
            Some(who) => write!(line, "#{who} {what}"),
            None => write!(line, "-- {what}"),
        };
        written.expect("a String takes everything");
        self.lines.push(line);
    }

    /// All lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// A number that differs, most likely, where a line does.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.lines.hash(&mut hasher);
        hasher.finish()
    }

    /// The last `count` lines, as text.
    pub fn tail(&self, count: usize) -> String {
        self.lines[self.lines.len().saturating_sub(count)..].join("\n")
    }

    /// The first line in which `other` differs, with its number: ours and theirs.
    pub fn first_difference(&self, other: &Self) -> Option<String> {
        let lines = self.lines.len().max(other.lines.len());
        let at = (0..lines).find(|&line| self.lines.get(line) != other.lines.get(line))?;
        let shown = |trace: &Self| trace.lines.get(at).map_or("(the end)", |line| line).to_owned();
        Some(format!("line {at}:\n  {}\n  {}", shown(self), shown(other)))
    }
}
