//! What is said about a measurement: lines of JSON, and a table for people.

use serde::Serialize;

use super::step::{CheckpointFacts, CommitFacts, OpenFacts, SteadyFacts, StepOutcome};
use crate::quantiles::{Latencies, Quantiles};
use crate::report::{median, rounded};

use super::peers::PeerFacts;

/// One measurement of one configuration, or of one peer.
#[derive(Clone, Debug, Serialize)]
pub struct DeltaLine {
    /// Or the name of a peer.
    pub configuration: String,
    pub actions: u64,
    pub round: u32,
    pub put_latency_ms: u64,
    pub pause_ms: u64,
    pub part_size: u64,
    /// Time of a commit with its data file.
    pub commit_time: Quantiles,
    /// Time of the entry alone; peers do both in one call.
    pub append: Option<Quantiles>,
    /// The first checkpoint, of commits alone.
    pub first: Option<StepOutcome<CheckpointFacts>>,
    /// One of all rows in other parts.
    pub full: Option<StepOutcome<CheckpointFacts>>,
    pub stream: Run,
    pub steady: Option<StepOutcome<SteadyFacts>>,
    pub open: StepOutcome<OpenFacts>,
}

/// The commits of a measurement.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Run {
    Stream(StepOutcome<CommitFacts>),
    Peer(StepOutcome<PeerFacts>),
}

/// Medians over the rounds, beside those of the same without checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub configuration: String,
    pub actions: u64,
    pub put_latency_ms: u64,
    pub rounds: usize,
    pub commit_p50_ms: f64,
    pub commit_p99_ms: f64,
    pub commit_max_ms: f64,
    pub append_p50_ms: Option<f64>,
    pub append_p99_ms: Option<f64>,
    pub append_max_ms: Option<f64>,
    /// What it is compared with; `None` if that was not measured.
    pub without: Option<&'static str>,
    pub ratio_commit_p50: Option<f64>,
    pub ratio_commit_p99: Option<f64>,
    pub ratio_append_p50: Option<f64>,
    pub ratio_append_p99: Option<f64>,
}

impl DeltaLine {
    /// A line without what only some have.
    pub fn new(configuration: String, run: Run, open: StepOutcome<OpenFacts>) -> Self {
        Self {
            configuration,
            actions: 0,
            round: 1,
            put_latency_ms: 0,
            pause_ms: 0,
            part_size: 0,
            commit_time: quantiles(run.commit_ms()),
            append: run.append_ms().map(quantiles),
            first: None,
            full: None,
            stream: run,
            steady: None,
            open,
        }
    }
}

impl Run {
    /// Of each commit.
    pub fn commit_ms(&self) -> &[f64] {
        match self {
            Self::Stream(outcome) => &outcome.facts.commit_ms,
            Self::Peer(outcome) => &outcome.facts.commit_ms,
        }
    }

    fn append_ms(&self) -> Option<&[f64]> {
        match self {
            Self::Stream(outcome) => Some(&outcome.facts.append_ms),
            Self::Peer(_) => None,
        }
    }

    /// How many checkpoints were written, and how long one took; zero without any.
    fn checkpoints(&self) -> (u64, f64) {
        match self {
            Self::Stream(StepOutcome { facts, .. }) => {
                (facts.checkpoints, facts.checkpoint_ms_mean)
            }
            Self::Peer(StepOutcome { facts, .. }) => (
                facts.commits_with_checkpoint.len() as u64,
                facts.checkpoint_ms.unwrap_or_default(),
            ),
        }
    }

    fn peak_rss_mb(&self) -> f64 {
        match self {
            Self::Stream(outcome) => outcome.peak_rss_mb,
            Self::Peer(outcome) => outcome.peak_rss_mb,
        }
    }
}

fn quantiles(times_ms: &[f64]) -> Quantiles {
    let mut latencies = Latencies::new();
    times_ms.iter().for_each(|ms| latencies.add((ms * 1_000.0).round() as i64));
    latencies.quantiles()
}

/// The same without checkpoints.
fn without_of(configuration: &str) -> Option<&'static str> {
    match configuration {
        "classic" | "multi-part" | "steered" | "v2" => Some("off"),
        "deltalake" => Some("deltalake-off"),
        _ => None,
    }
}

/// One of each configuration in each setting, in the order of the lines.
pub fn summaries(lines: &[DeltaLine]) -> Vec<Summary> {
    let mut summaries: Vec<Summary> = Vec::new();
    for line in lines {
        let is_same = |summary: &Summary| {
            summary.configuration == line.configuration
                && summary.actions == line.actions
                && summary.put_latency_ms == line.put_latency_ms
        };
        if !summaries.iter().any(is_same) {
            summaries.push(summary(line, lines));
        }
    }
    summaries
}

/// Of all rounds of what `line` is a round of.
fn summary(line: &DeltaLine, lines: &[DeltaLine]) -> Summary {
    let of = |name: &str| -> Vec<&DeltaLine> {
        let is_of = |other: &&DeltaLine| {
            other.configuration == name
                && other.actions == line.actions
                && other.put_latency_ms == line.put_latency_ms
        };
        lines.iter().filter(is_of).collect()
    };
    let own = of(&line.configuration);
    let without = without_of(&line.configuration).filter(|name| !of(name).is_empty());
    let base = without.map(of).unwrap_or_default();
    let commit =
        |lines, value| middle(lines, |line| Some(line.commit_time), value).unwrap_or_default();
    let append = |lines, value| middle(lines, |line| line.append, value);
    let ratio = |part: fn(&DeltaLine) -> Option<Quantiles>, value: fn(Quantiles) -> f64| {
        let (own, base) = (middle(&own, part, value)?, middle(&base, part, value)?);
        (base > 0.0).then(|| rounded(own / base, 3))
    };
    Summary {
        configuration: line.configuration.clone(),
        actions: line.actions,
        put_latency_ms: line.put_latency_ms,
        rounds: own.len(),
        commit_p50_ms: commit(&own, |times| times.p50_ms),
        commit_p99_ms: commit(&own, |times| times.p99_ms),
        commit_max_ms: commit(&own, |times| times.max_ms),
        append_p50_ms: append(&own, |times| times.p50_ms),
        append_p99_ms: append(&own, |times| times.p99_ms),
        append_max_ms: append(&own, |times| times.max_ms),
        without,
        ratio_commit_p50: ratio(|line| Some(line.commit_time), |times| times.p50_ms),
        ratio_commit_p99: ratio(|line| Some(line.commit_time), |times| times.p99_ms),
        ratio_append_p50: ratio(|line| line.append, |times| times.p50_ms),
        ratio_append_p99: ratio(|line| line.append, |times| times.p99_ms),
    }
}

/// The median over the rounds; `None` if there are none.
fn middle(
    lines: &[&DeltaLine],
    part: fn(&DeltaLine) -> Option<Quantiles>,
    value: fn(Quantiles) -> f64,
) -> Option<f64> {
    let values: Vec<f64> = lines.iter().filter_map(|line| part(line).map(value)).collect();
    (!values.is_empty()).then(|| rounded(median(values), 3))
}

/// The names of the columns of [`table_row`].
pub fn table_head() -> String {
    let columns = format!(
        "{:<14}{:>8} {:>7} {:>5} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "actions", "latency", "round", "p50 ms", "p99 ms", "max ms", "append50", "append99"
    );
    format!(
        "{columns} {:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>8}",
        "check",
        "each ms",
        "alone ms",
        "CPU ms",
        "first s",
        "full s",
        "RSS MB",
        "open ms",
        "list ms"
    )
}

/// A measurement for people.
pub fn table_row(line: &DeltaLine) -> String {
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    let seconds = |step: &Option<StepOutcome<CheckpointFacts>>| {
        step.as_ref().map_or("-".to_owned(), |step| format!("{:.2}", step.wall_ms / 1_000.0))
    };
    let columns = format!(
        "{:<14}{:>8} {:>7} {:>5} {:>9.2} {:>9.2} {:>9.2} {:>9} {:>9}",
        line.configuration,
        line.actions,
        line.put_latency_ms,
        line.round,
        line.commit_time.p50_ms,
        line.commit_time.p99_ms,
        line.commit_time.max_ms,
        ms(line.append.map(|append| append.p50_ms)),
        ms(line.append.map(|append| append.p99_ms)),
    );
    let steady = line.steady.as_ref().map(|steady| &steady.facts);
    let (checkpoints, each_ms) = line.stream.checkpoints();
    format!(
        "{columns} {:>5} {:>8.0} {:>8} {:>8} {:>8} {:>8} {:>7.0} {:>8.0} {:>8.0}",
        checkpoints,
        each_ms,
        ms(steady.map(|steady| steady.checkpoint_ms_median)),
        ms(steady.map(|steady| steady.checkpoint_cpu_ms)),
        seconds(&line.first),
        seconds(&line.full),
        line.stream.peak_rss_mb(),
        line.open.facts.open_ms,
        line.open.facts.list_ms,
    )
}

/// A summary for people.
pub fn in_words(summary: &Summary) -> String {
    let Summary { configuration, actions, put_latency_ms, .. } = summary;
    let Summary { commit_p50_ms, commit_p99_ms, commit_max_ms, .. } = summary;
    let beside = match (summary.without, summary.ratio_commit_p99, summary.ratio_append_p99) {
        (Some(without), Some(commit), Some(append)) => {
            format!("; p99 beside {without}: times {commit:.2}, of the entry alone {append:.2}")
        }
        (Some(without), Some(commit), None) => format!("; p99 beside {without}: times {commit:.2}"),
        _ => String::new(),
    };
    let behind = match put_latency_ms {
        0 => String::new(),
        ms => format!(" behind {ms} ms"),
    };
    format!(
        "{configuration} on {actions} actions{behind}: commit p50 {commit_p50_ms:.2} ms, \
         p99 {commit_p99_ms:.2} ms, max {commit_max_ms:.2} ms{beside}"
    )
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A line with such commits.
    pub fn line(configuration: &str, commit_ms: &[f64]) -> DeltaLine {
        let facts = CommitFacts {
            commit_ms: commit_ms.to_vec(),
            append_ms: commit_ms.iter().map(|ms| ms / 2.0).collect(),
            ..CommitFacts::default()
        };
        let run = Run::Stream(outcome(facts));
        let line = DeltaLine::new(configuration.to_owned(), run, outcome(OpenFacts::default()));
        DeltaLine { actions: 1_000, ..line }
    }

    fn outcome<T>(facts: T) -> StepOutcome<T> {
        StepOutcome { facts, wall_ms: 0.0, cpu_ms: 0.0, peak_rss_mb: 0.0 }
    }

    #[test]
    fn ratios_are_of_medians_over_rounds() {
        let lines = [
            line("off", &[1.0, 1.0, 2.0]),
            line("steered", &[1.0, 3.0]),
            line("off", &[1.0, 4.0]),
            line("steered", &[1.0, 6.0]),
            DeltaLine { actions: 7, ..line("steered", &[1.0]) },
        ];
        let summaries = summaries(&lines);
        assert_eq!(summaries.len(), 3);
        let steered = &summaries[1];
        assert_eq!((steered.configuration.as_str(), steered.rounds), ("steered", 2));
        // Medians of the maxima: (3 + 6) / 2 beside (2 + 4) / 2.
        assert_eq!((steered.commit_p99_ms, steered.ratio_commit_p99), (4.5, Some(1.5)));
        assert_eq!((steered.append_p99_ms, steered.ratio_append_p99), (Some(2.25), Some(1.5)));
        assert_eq!((summaries[0].without, summaries[0].ratio_commit_p99), (None, None));
        assert_eq!((summaries[2].actions, summaries[2].without), (7, None));
        let text = in_words(steered);
        assert!(text.contains("p99 beside off: times 1.50"), "{text}");
    }

    #[test]
    fn rows_stand_under_their_heads() {
        let row = table_row(&line("multi-part", &[1.5]));
        assert_eq!(row.chars().count(), table_head().chars().count());
    }

    #[test]
    fn a_round_tells_every_commit() {
        let line = serde_json::to_value(line("off", &[1.0, 2.0])).expect("plain values");
        assert_eq!(line["stream"]["commit_ms"], serde_json::json!([1.0, 2.0]));
        assert_eq!(line["commit_time"]["max_ms"], 2.0);
        assert!(line["steady"].is_null());
    }
}
