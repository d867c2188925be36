//! What lines and tables say: how fast, and how many times as fast as librdkafka alone.

use serde::Serialize;

use crate::report;
use crate::throughput::{Medians, Throughput};

/// Characters of the longest name.
pub const NAME_WIDTH: usize = 21;

/// One result line: one run.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What became of the records.
    pub route: String,
    /// Who dealt with them.
    pub configuration: String,
    /// From 1.
    pub round: u32,
    /// What librdkafka was given where it is alone.
    pub client_options: Vec<String>,
    /// Records a second, on the clock.
    pub messages_per_s: f64,
    /// The rest of it.
    #[serde(flatten)]
    pub throughput: Throughput,
    /// Processor time of the broker meanwhile; `None` for one that the benchmark did not start.
    pub broker_cpu_seconds: Option<f64>,
    /// Rows less records; `None` where nothing tells.
    pub surplus_rows: Option<i64>,
}

impl Line {
    /// False if records are missing or there are too many.
    pub fn is_whole(&self) -> bool {
        self.surplus_rows.unwrap_or(0) == 0
    }

    /// A row of the table of rounds.
    pub fn table_row(&self) -> String {
        let surplus = self.surplus_rows.filter(|rows| *rows != 0);
        let surplus = surplus.map(|rows| format!("  {rows:+} rows")).unwrap_or_default();
        let row = self.throughput.table_row(&self.configuration, NAME_WIDTH, self.round);
        format!("{row}{surplus}")
    }
}

/// Medians of a contender's rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    route: String,
    configuration: String,
    message_bytes: usize,
    #[serde(flatten)]
    medians: Medians,
    /// Over librdkafka alone, more is better; `None` if that was not measured.
    ratio_mb_per_s: Option<f64>,
    ratio_mb_per_busy_core_second: Option<f64>,
}

impl Summary {
    /// Of all contenders in `lines`, which are of one route and size; `floor` is what they are
    /// compared with.
    pub fn of_all(names: impl Iterator<Item = String>, floor: &str, lines: &[Line]) -> Vec<Self> {
        let floor = medians(floor, lines);
        names.filter_map(|name| Self::of(name, floor.as_ref(), lines)).collect()
    }

    fn of(configuration: String, floor: Option<&Medians>, lines: &[Line]) -> Option<Self> {
        let line = lines_of(&configuration, lines).next()?;
        let medians = medians(&configuration, lines)?;
        let ratio = |value: fn(&Medians) -> f64| {
            let floor = value(floor?);
            (floor > 0.0).then(|| report::rounded(value(&medians) / floor, 2))
        };
        let (ratio_mb_per_s, ratio_mb_per_busy_core_second) =
            (ratio(|it| it.mb_per_s), ratio(|it| it.mb_per_busy_core_second));
        Some(Self {
            route: line.route.clone(),
            configuration,
            message_bytes: line.throughput.message_bytes,
            medians,
            ratio_mb_per_s,
            ratio_mb_per_busy_core_second,
        })
    }

    /// A row of the table at the end.
    pub fn table_row(&self) -> String {
        let times = |ratio: Option<f64>| ratio.map_or_else(String::new, |it| format!("x{it:.2}"));
        let Self { configuration, medians, .. } = self;
        format!(
            "{configuration:<NAME_WIDTH$} {:>9.1} {:>12} {:>18.1} {:>12} {:>8.1}",
            medians.mb_per_s,
            times(self.ratio_mb_per_s),
            medians.mb_per_busy_core_second,
            times(self.ratio_mb_per_busy_core_second),
            medians.peak_rss_mb
        )
    }
}

fn lines_of<'l>(name: &str, lines: &'l [Line]) -> impl Iterator<Item = &'l Line> {
    lines.iter().filter(move |line| line.configuration == name)
}

/// `None` without a line.
fn medians(name: &str, lines: &[Line]) -> Option<Medians> {
    lines_of(name, lines).next()?;
    Some(Medians::of(lines_of(name, lines).map(|line| &line.throughput)))
}

/// The heading of the table at the end.
pub fn summary_head() -> String {
    format!(
        "{:<NAME_WIDTH$} {:>9} {:>12} {:>18} {:>12} {:>8}",
        "medians", "MB/s", "x librdkafka", "MB/s per busy core", "x librdkafka", "RSS MB"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millstream_testkit::program::Usage;

    use super::*;
    use crate::throughput::Took;

    fn line(configuration: &str, seconds: u64) -> Line {
        let usage = Usage { cpu_seconds: 0.5 * seconds as f64, peak_rss_mb: 10.0 };
        let took = Took { elapsed: Duration::from_secs(seconds), usage };
        Line {
            route: "read".to_owned(),
            configuration: configuration.to_owned(),
            round: 1,
            client_options: Vec::new(),
            messages_per_s: 1.0,
            throughput: Throughput::of_size(1_000_000, 100, 4, &[], &took),
            broker_cpu_seconds: None,
            surplus_rows: None,
        }
    }

    #[test]
    fn ratios_are_over_librdkafka_alone() {
        let lines = [line("a", 4), line("librdkafka", 8), line("a", 2), line("a", 1)];
        let names = || ["a", "librdkafka", "absent"].map(str::to_owned).into_iter();
        let summaries = Summary::of_all(names(), "librdkafka", &lines);
        assert_eq!(summaries.len(), 2, "{summaries:?}");
        // 100 MB: 50 a second in the median, beside 12.5.
        assert_eq!(summaries[0].medians.mb_per_s, 50.0);
        assert_eq!(summaries[0].ratio_mb_per_s, Some(4.0));
        assert_eq!(summaries[0].ratio_mb_per_busy_core_second, Some(4.0));
        assert_eq!(summaries[1].ratio_mb_per_s, Some(1.0));
        let alone = Summary::of_all(names(), "librdkafka", &lines[..1]);
        assert_eq!(alone[0].ratio_mb_per_s, None);
        assert_eq!(summary_head().len(), summaries[0].table_row().len());
    }

    #[test]
    fn rows_that_are_missing_are_told() {
        let lost = Line { surplus_rows: Some(-2), ..line("a", 1) };
        assert!(!lost.is_whole() && lost.table_row().ends_with("-2 rows"));
        assert!(line("a", 1).is_whole());
    }
}
