//! `millstream-bench plot`: result lines as a bar chart.
//!
//! For each rate, or each number of keys of a curve, a group of bars: p50 and p99 of each
//! configuration, medians over the rounds, with the range of the rounds as a thin line. A curve has
//! the throughput for each busy core below. Lines that tell of no latency are passed over. The
//! scale is logarithmic, because a relay's p50 and a stalled engine's p99 are three orders apart.
//! Plain SVG, made by hand.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::Error;
use crate::report;

const BAR: f64 = 26.0;
const GAP: f64 = 34.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 56.0;
const HEIGHT: f64 = 300.0;
const LEGEND: f64 = 190.0;
/// From one row of a label to the next.
const LABEL: f64 = 16.0;
/// Two tones for each configuration, p50 and p99; colours that the colour-blind can tell apart.
const COLOURS: [[&str; 2]; 7] = [
    ["#9fb3c8", "#627d98"],
    ["#f7b267", "#d9611e"],
    ["#8fd1b5", "#2f8f6b"],
    ["#c3a6e0", "#7a4fb0"],
    ["#e8b4bc", "#a63d4f"],
    ["#d8cf8a", "#8a7f1e"],
    ["#a9d6e5", "#2a7f9e"],
];

/// Flags of `millstream-bench plot`.
#[derive(Debug, clap::Args)]
pub struct Flags {
    /// Result lines of one or several runs
    #[arg(value_name = "FILE.jsonl", required = true)]
    files: Vec<PathBuf>,
    /// The chart to write
    #[arg(short, long, value_name = "FILE.svg")]
    output: PathBuf,
}

/// What all lines have.
#[derive(Clone, Debug, Deserialize)]
struct Head {
    line: String,
}

/// What a chart needs of a line.
#[derive(Clone, Debug, Deserialize)]
struct Point {
    bench: String,
    line: String,
    #[serde(default)]
    configuration: String,
    rate: Option<u64>,
    keys: Option<u64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    throughput: Option<Throughput>,
}

/// What a point of a curve tells besides.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Throughput {
    mb_per_busy_core_second: f64,
}

/// Median and range over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bar {
    median: f64,
    least: f64,
    most: f64,
}

/// One round, as a chart needs it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What bars stand together: a number to sort groups by, and a label.
    pub group: (u64, String),
    /// What is told apart by colour.
    pub configuration: String,
    /// In milliseconds.
    pub p50_ms: f64,
    /// In milliseconds.
    pub p99_ms: f64,
}

/// Groups in order, and for each the p50 and p99 of every configuration that was measured in it.
pub struct Chart {
    title: String,
    configurations: Vec<String>,
    groups: BTreeMap<(u64, String), BTreeMap<usize, [Bar; 2]>>,
}

/// Reads the files and writes the chart.
pub fn run(flags: &Flags) -> Result<(), Error> {
    let mut points = Vec::new();
    for path in &flags.files {
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        for (index, line) in text.lines().enumerate() {
            let point = parse(line).map_err(|error| Error::Result {
                path: path.clone(),
                problem: format!("line {} is no result line: {error}", index + 1),
            })?;
            points.extend(point);
        }
    }
    let chart = Chart::of(&points).ok_or_else(|| Error::Flags {
        problem: "the files tell of no latency; draw what a benchmark of latency printed".into(),
    })?;
    fs::write(&flags.output, chart.svg()).map_err(Error::file("write", &flags.output))
}

/// Reads a line, whatever it is; `None` for those that are not drawn.
fn parse(line: &str) -> Result<Option<Point>, serde_json::Error> {
    let head: Head = serde_json::from_str(line)?;
    match head.line.as_str() {
        "round" | "latency" | "point" => serde_json::from_str(line).map(Some),
        _ => Ok(None),
    }
}

impl Point {
    /// What is drawn of it; `None` where no latency was measured.
    fn sample(&self, all: &[Self]) -> Option<Sample> {
        let group = match (self.line.as_str(), self.rate, self.keys) {
            ("point", _, Some(keys)) => (keys, label_of_keys(keys, all)),
            (_, Some(rate), _) => (rate, format!("{}/s", thousands(rate))),
            _ => return None,
        };
        let configuration = self.configuration.clone();
        Some(Sample { group, configuration, p50_ms: self.p50_ms?, p99_ms: self.p99_ms? })
    }
}

/// The number of keys, and below it the median throughput of each configuration.
fn label_of_keys(keys: u64, all: &[Point]) -> String {
    let mut throughput: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for point in all.iter().filter(|point| point.keys == Some(keys)) {
        let measured = point.throughput.map(|throughput| throughput.mb_per_busy_core_second);
        throughput.entry(&point.configuration).or_default().extend(measured);
    }
    let mut label = format!("{} keys", thousands(keys));
    for (configuration, measured) in throughput.iter().filter(|(_, measured)| !measured.is_empty())
    {
        let median = report::median(measured.iter().copied());
        // Writing to a string does not fail.
        let _ = write!(label, "\n{configuration} {median:.0} MB/s");
    }
    label
}

impl Chart {
    fn of(points: &[Point]) -> Option<Self> {
        let measured: Vec<_> =
            points.iter().filter_map(|point| Some((point, point.sample(points)?))).collect();
        let mut benches: Vec<_> = measured.iter().map(|(point, _)| point.bench.clone()).collect();
        benches.dedup();
        let samples: Vec<_> = measured.into_iter().map(|(_, sample)| sample).collect();
        (!samples.is_empty()).then(|| Self::from_samples(benches.join(", "), &samples))
    }

    /// A chart of the medians over the rounds; `what` is the first half of its title.
    pub fn from_samples(what: String, samples: &[Sample]) -> Self {
        let mut configurations = Vec::new();
        for sample in samples {
            if !configurations.contains(&sample.configuration) {
                configurations.push(sample.configuration.clone());
            }
        }
        let mut groups = BTreeMap::new();
        for sample in samples {
            let group: &mut BTreeMap<usize, [Bar; 2]> =
                groups.entry(sample.group.clone()).or_default();
            for (index, configuration) in configurations.iter().enumerate() {
                let same = |other: &&Sample| {
                    other.group == sample.group && other.configuration == *configuration
                };
                let same: Vec<_> = samples.iter().filter(same).collect();
                if !same.is_empty() {
                    let p50 = Bar::of(same.iter().map(|sample| sample.p50_ms));
                    let p99 = Bar::of(same.iter().map(|sample| sample.p99_ms));
                    group.insert(index, [p50, p99]);
                }
            }
        }
        let title = format!("{what}: latency in ms, median of the rounds");
        Self { title, configurations, groups }
    }

    /// The chart as SVG.
    pub fn svg(&self) -> String {
        let bars: usize = self.groups.values().map(|group| group.len() * 2).sum();
        let width = LEFT + GAP + bars as f64 * BAR + self.groups.len() as f64 * GAP + LEGEND;
        let scale = Scale::over(self.groups.values().flat_map(|group| group.values().flatten()));
        let mut svg = String::new();
        let rows = self.groups.keys().map(|(_, label)| label.lines().count()).max().unwrap_or(1);
        let total = TOP + HEIGHT + 24.0 + LABEL * rows as f64;
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {total:.0}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut svg, LEFT, 22.0, "start", &self.title);
        scale.grid(&mut svg, width - LEGEND);
        let mut left = LEFT + GAP;
        for ((_, label), group) in &self.groups {
            let start = left;
            for (configuration, bars) in group {
                for (bar, colour) in bars.iter().zip(COLOURS[configuration % COLOURS.len()]) {
                    scale.bar(&mut svg, left, *bar, colour);
                    left += BAR;
                }
            }
            let mut below = TOP + HEIGHT + 4.0;
            for row in label.lines() {
                below += LABEL;
                text(&mut svg, (start + left) / 2.0, below, "middle", row);
            }
            left += GAP;
        }
        self.legend(&mut svg, width - LEGEND + 10.0);
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String, left: f64) {
        let mut top = TOP;
        for (index, configuration) in self.configurations.iter().enumerate() {
            for (quantile, colour) in ["p50", "p99"].iter().zip(COLOURS[index % COLOURS.len()]) {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"10\" height=\"10\" \
                     fill=\"{colour}\"/>"
                );
                let label = format!("{configuration} {quantile}");
                text(svg, left + 15.0, top + 9.0, "start", &label);
                top += 16.0;
            }
        }
    }
}

impl Bar {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        Self {
            median: report::median(values.clone()),
            least: values.clone().fold(f64::INFINITY, f64::min),
            most: values.fold(0.0, f64::max),
        }
    }
}

/// Milliseconds to heights: whole powers of ten at both ends.
struct Scale {
    lowest: i32,
    highest: i32,
}

impl Scale {
    fn over<'a>(bars: impl Iterator<Item = &'a Bar> + Clone) -> Self {
        let least = bars.clone().map(|bar| bar.least).fold(f64::INFINITY, f64::min).max(1e-3);
        let most = bars.map(|bar| bar.most).fold(1e-3, f64::max);
        let lowest = least.log10().floor() as i32;
        Self { lowest, highest: (most.log10().ceil() as i32).max(lowest + 1) }
    }

    fn y(&self, ms: f64) -> f64 {
        let part =
            (ms.max(1e-3).log10() - f64::from(self.lowest)) / f64::from(self.highest - self.lowest);
        TOP + HEIGHT * (1.0 - part.clamp(0.0, 1.0))
    }

    fn grid(&self, svg: &mut String, right: f64) {
        for power in self.lowest..=self.highest {
            let (ms, y) = (10_f64.powi(power), self.y(10_f64.powi(power)));
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" \
                 stroke=\"#ddd\"/>"
            );
            text(svg, LEFT - 8.0, y + 4.0, "end", &ms.to_string());
        }
    }

    fn bar(&self, svg: &mut String, left: f64, bar: Bar, colour: &str) {
        let (y, bottom, width) = (self.y(bar.median), TOP + HEIGHT, BAR - 4.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" \
             fill=\"{colour}\"/>",
            bottom - y
        );
        let middle = left + width / 2.0;
        let (least, most) = (self.y(bar.least), self.y(bar.most));
        let _ = writeln!(
            svg,
            "<line x1=\"{middle:.1}\" x2=\"{middle:.1}\" y1=\"{least:.1}\" y2=\"{most:.1}\" \
             stroke=\"#333\"/>"
        );
        text(svg, middle, most.min(y) - 4.0, "middle", &three_digits(bar.median));
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

fn three_digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

fn thousands(rate: u64) -> String {
    match rate {
        rate if rate >= 1_000_000 && rate % 100_000 == 0 => format!("{}M", rate as f64 / 1e6),
        rate if rate >= 1_000 && rate % 100 == 0 => format!("{}k", rate as f64 / 1e3),
        rate => rate.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(configuration: &str, rate: u64, p50_ms: f64, p99_ms: f64) -> Point {
        Point {
            bench: "b".into(),
            line: "round".into(),
            configuration: configuration.to_owned(),
            rate: Some(rate),
            keys: None,
            p50_ms: Some(p50_ms),
            p99_ms: Some(p99_ms),
            throughput: None,
        }
    }

    #[test]
    fn bars_stand_by_rate_and_configuration_with_their_medians() {
        let points = vec![
            point("relay", 50_000, 2.0, 20.0),
            point("relay", 1_000, 1.0, 10.0),
            point("relay", 1_000, 3.0, 30.0),
            point("engine", 1_000, 5.0, 50.0),
        ];
        let chart = Chart::of(&points).expect("there are rounds");
        assert_eq!(chart.configurations, ["relay", "engine"]);
        let groups: Vec<_> = chart.groups.iter().collect();
        assert_eq!((groups[0].0.1.as_str(), groups[1].0.1.as_str()), ("1k/s", "50k/s"));
        assert_eq!(groups[0].1[&0][1], Bar { median: 20.0, least: 10.0, most: 30.0 });
        assert_eq!((groups.len(), groups[1].1.len()), (2, 1));
        let svg = chart.svg();
        for text in [">1k/s<", ">50k/s<", ">relay p50<", ">engine p99<", ">20.0<"] {
            assert!(svg.contains(text), "{text} is missing in:\n{svg}");
        }
        // One for the background, one a bar, one a legend entry.
        assert_eq!(svg.matches("<rect").count(), 1 + 6 + 4);
    }

    #[test]
    fn a_higher_latency_is_a_higher_bar() {
        let bars = [Bar { median: 2.0, least: 0.5, most: 700.0 }];
        let scale = Scale::over(bars.iter());
        assert_eq!((scale.lowest, scale.highest), (-1, 3));
        assert!(scale.y(700.0) < scale.y(2.0) && scale.y(2.0) < scale.y(0.5));
        assert_eq!((scale.y(1_000.0), scale.y(0.1)), (TOP, TOP + HEIGHT));
    }

    #[test]
    fn lines_without_latency_are_passed_over() {
        let highest = r#"{"bench":"b","line":"highest","route":"r","highest_rate":5}"#;
        assert!(parse(highest).expect("a line").is_none());
        let throughput = r#"{"bench":"b","line":"round","configuration":"c","mb_per_s":1.0}"#;
        let throughput = parse(throughput).expect("a line").expect("a round");
        assert!(Chart::of(&[throughput]).is_none());
        assert!(parse("{}").is_err());
    }

    #[test]
    fn a_curve_stands_by_keys_with_its_throughput() {
        let line = r#"{
            "bench":"b","line":"point","configuration":"count","rate":9,"keys":1000,
            "p50_ms":1.0,"p99_ms":2.0,"throughput":{"mb_per_busy_core_second":150.4}
        }"#;
        let point = parse(line).expect("a line").expect("a point");
        let other = Point { keys: Some(100_000), ..point.clone() };
        let svg = Chart::of(&[other, point]).expect("there are points").svg();
        for text in [">1k keys<", ">100k keys<", ">count 150 MB/s<"] {
            assert!(svg.contains(text), "{text} is missing in:\n{svg}");
        }
        assert!(svg.find(">1k keys<") < svg.find(">100k keys<"));
    }

    #[test]
    fn nothing_to_draw() {
        assert!(Chart::of(&[]).is_none());
        assert_eq!([thousands(1_000_000), thousands(1_500), thousands(999)], ["1M", "1.5k", "999"]);
    }
}
