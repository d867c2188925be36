//! How fast messages were taken: what result lines, medians and tables say about it.

use std::time::Duration;

use millstream_testkit::program::Usage;
use serde::Serialize;

use crate::messages::MESSAGE_BYTES;
use crate::report;

/// What one run took.
pub struct Took {
    /// From its start to its end.
    pub elapsed: Duration,
    /// What the process used meanwhile.
    pub usage: Usage,
}

/// The part of a result line that says what was read, and how fast.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    messages: u64,
    /// Bytes of a message.
    pub message_bytes: usize,
    partitions: i32,
    engine_options: Vec<String>,
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_mb: f64,
    mb_per_s: f64,
    /// Million bytes of messages for each second of processor time.
    pub mb_per_busy_core_second: f64,
}

/// Medians over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Medians {
    rounds: usize,
    messages: u64,
    /// Million bytes of messages a second, on the clock.
    pub mb_per_s: f64,
    /// Million bytes of messages for each second of processor time.
    pub mb_per_busy_core_second: f64,
    /// The most memory, units of 1,000,000 bytes.
    pub peak_rss_mb: f64,
}

impl Throughput {
    /// Of a run that took `messages` from `partitions` of a topic.
    pub fn new(messages: u64, partitions: i32, engine_options: &[String], took: &Took) -> Self {
        Self::of_size(messages, MESSAGE_BYTES, partitions, engine_options, took)
    }

    /// The same with messages of `message_bytes`.
    pub fn of_size(
        messages: u64,
        message_bytes: usize,
        partitions: i32,
        engine_options: &[String],
        took: &Took,
    ) -> Self {
        let megabytes = messages as f64 * message_bytes as f64 / 1e6;
        let (seconds, cpu_seconds) = (took.elapsed.as_secs_f64(), took.usage.cpu_seconds);
        Self {
            messages,
            message_bytes,
            partitions,
            engine_options: engine_options.to_vec(),
            seconds: report::rounded(seconds, 3),
            cpu_seconds: report::rounded(cpu_seconds, 3),
            peak_rss_mb: report::rounded(took.usage.peak_rss_mb, 1),
            mb_per_s: report::rounded(megabytes / seconds, 1),
            mb_per_busy_core_second: report::rounded(megabytes / cpu_seconds, 1),
        }
    }

    /// The heading of a table of rounds; names have `width` characters.
    pub fn table_head(width: usize) -> String {
        format!(
            "{:<width$} {:>6} {:>9} {:>9} {:>9} {:>18} {:>8}",
            "", "round", "s", "CPU s", "MB/s", "MB/s per busy core", "RSS MB"
        )
    }

    /// A row below it.
    pub fn table_row(&self, name: &str, width: usize, round: u32) -> String {
        format!(
            "{name:<width$} {round:>6} {:>9.2} {:>9.2} {:>9.1} {:>18.1} {:>8.1}",
            self.seconds,
            self.cpu_seconds,
            self.mb_per_s,
            self.mb_per_busy_core_second,
            self.peak_rss_mb
        )
    }
}

impl Medians {
    /// Of at least one round.
    pub fn of<'t>(rounds: impl Iterator<Item = &'t Throughput>) -> Self {
        let rounds: Vec<_> = rounds.collect();
        let of = |value: fn(&Throughput) -> f64| {
            report::rounded(report::median(rounds.iter().map(|round| value(round))), 1)
        };
        Self {
            rounds: rounds.len(),
            messages: rounds.first().map_or(0, |round| round.messages),
            mb_per_s: of(|round| round.mb_per_s),
            mb_per_busy_core_second: of(|round| round.mb_per_busy_core_second),
            peak_rss_mb: of(|round| round.peak_rss_mb),
        }
    }
}
