//! Commit time over commit number as a line chart: what waits for a checkpoint stands out at every
//! tenth commit.
//!
//! A panel for each number of actions and each latency of the store, a line for each configuration;
//! the first round only. The scale is logarithmic: a commit beside a checkpoint and one that waits
//! for it are orders apart. Plain SVG, made by hand.

use std::fmt::Write;

use super::line::DeltaLine;

const LEFT: f64 = 64.0;
const TOP: f64 = 48.0;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 300.0;
/// Between panels: the numbers of commits, and the next title.
const BELOW: f64 = 48.0;
const LEGEND: f64 = 150.0;
/// Commits from one number below the panel to the next, at least.
const TICKS: [usize; 7] = [1, 5, 10, 20, 50, 100, 1_000];
const TICKS_MAX: usize = 12;
/// Of configurations in the order in which they are first met; for the colour-blind, too.
const COLOURS: [&str; 9] = [
    "#627d98", "#d9611e", "#2f8f6b", "#7a4fb0", "#a63d4f", "#8a7f1e", "#2a7f9e", "#000000",
    "#c39bd3",
];

/// The chart as SVG.
pub fn svg(lines: &[DeltaLine]) -> String {
    let lines: Vec<&DeltaLine> = lines.iter().filter(|line| line.round == 1).collect();
    let (mut names, mut panels): (Vec<&str>, Vec<(u64, u64)>) = (Vec::new(), Vec::new());
    for line in &lines {
        if !names.contains(&line.configuration.as_str()) {
            names.push(&line.configuration);
        }
        if !panels.contains(&(line.actions, line.put_latency_ms)) {
            panels.push((line.actions, line.put_latency_ms));
        }
    }
    let width = LEFT + WIDTH + LEGEND;
    let height = TOP + panels.len() as f64 * (HEIGHT + BELOW);
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, LEFT, 20.0, "start", "commit time in ms over the number of the commit");
    legend(&mut svg, &names);
    let mut top = TOP;
    for (actions, latency_ms) in panels {
        let own = |line: &&&DeltaLine| line.actions == actions && line.put_latency_ms == latency_ms;
        let own: Vec<&DeltaLine> = lines.iter().filter(own).copied().collect();
        let behind =
            if latency_ms > 0 { format!(", requests + {latency_ms} ms") } else { "".into() };
        text(&mut svg, LEFT, top - 8.0, "start", &format!("{actions} actions{behind}"));
        Panel::over(&own, top).draw(&mut svg, &own, &names);
        top += HEIGHT + BELOW;
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where commits and times stand.
struct Panel {
    top: f64,
    commits: usize,
    /// Powers of ten at both ends.
    lowest: i32,
    highest: i32,
}

impl Panel {
    fn over(lines: &[&DeltaLine], top: f64) -> Self {
        let times = || lines.iter().flat_map(|line| line.stream.commit_ms()).copied();
        let least = times().fold(f64::INFINITY, f64::min).clamp(1e-3, 1e6);
        let most = times().fold(1e-3, f64::max);
        let lowest = least.log10().floor() as i32;
        let commits = lines.iter().map(|line| line.stream.commit_ms().len()).max().unwrap_or(0);
        Self { top, commits, lowest, highest: (most.log10().ceil() as i32).max(lowest + 1) }
    }

    /// Of a commit, counted from zero.
    fn x(&self, number: usize) -> f64 {
        LEFT + WIDTH * number as f64 / self.commits.saturating_sub(1).max(1) as f64
    }

    fn y(&self, ms: f64) -> f64 {
        let span = f64::from(self.highest - self.lowest);
        let part = (ms.max(1e-3).log10() - f64::from(self.lowest)) / span;
        self.top + HEIGHT * (1.0 - part.clamp(0.0, 1.0))
    }

    fn draw(&self, svg: &mut String, lines: &[&DeltaLine], names: &[&str]) {
        self.grid(svg);
        for line in lines {
            let index = names.iter().position(|name| *name == line.configuration).unwrap_or(0);
            let times = line.stream.commit_ms().iter().enumerate();
            let points =
                times.map(|(number, ms)| format!("{:.1},{:.1}", self.x(number), self.y(*ms)));
            let points: Vec<String> = points.collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\"/>",
                points.join(" "),
                COLOURS[index % COLOURS.len()]
            );
        }
    }

    fn grid(&self, svg: &mut String) {
        for power in self.lowest..=self.highest {
            let (ms, y) = (10_f64.powi(power), self.y(10_f64.powi(power)));
            rule(svg, (LEFT, y), (LEFT + WIDTH, y));
            text(svg, LEFT - 8.0, y + 4.0, "end", &ms.to_string());
        }
        for number in (0..self.commits).step_by(self.tick()) {
            let (x, bottom) = (self.x(number), self.top + HEIGHT);
            rule(svg, (x, self.top), (x, bottom));
            text(svg, x, bottom + 16.0, "middle", &number.to_string());
        }
    }

    /// From one number of a commit that is written down to the next.
    fn tick(&self) -> usize {
        let fits = |tick: &usize| self.commits.div_ceil(*tick) <= TICKS_MAX;
        TICKS.into_iter().find(fits).unwrap_or_else(|| self.commits.div_ceil(TICKS_MAX))
    }
}

fn legend(svg: &mut String, names: &[&str]) {
    let left = LEFT + WIDTH + 14.0;
    for (index, name) in names.iter().enumerate() {
        let (top, colour) = (TOP + index as f64 * 16.0, COLOURS[index % COLOURS.len()]);
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
        );
        text(svg, left + 15.0, top + 9.0, "start", name);
    }
}

fn rule(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>"
    );
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

#[cfg(test)]
mod tests {
    use super::super::line::tests::line;
    use super::*;

    #[test]
    fn a_slower_commit_stands_higher_and_a_later_one_further_right() {
        let line = line("off", &[0.5, 700.0, 2.0]);
        let panel = Panel::over(&[&line], TOP);
        assert_eq!((panel.lowest, panel.highest, panel.commits), (-1, 3, 3));
        assert!(panel.y(700.0) < panel.y(2.0) && panel.y(2.0) < panel.y(0.5));
        assert_eq!((panel.y(1_000.0), panel.y(0.1)), (TOP, TOP + HEIGHT));
        assert_eq!((panel.x(0), panel.x(2)), (LEFT, LEFT + WIDTH));
    }

    #[test]
    fn a_panel_for_each_table_and_a_line_for_each_configuration() {
        let lines = [
            line("off", &[1.0, 2.0]),
            line("steered", &[1.0]),
            DeltaLine { round: 2, ..line("steered", &[9.0]) },
            DeltaLine { actions: 5, put_latency_ms: 30, ..line("off", &[1.0]) },
        ];
        let svg = svg(&lines);
        assert_eq!(svg.matches("<polyline").count(), 3);
        for text in [">1000 actions<", ">5 actions, requests + 30 ms<", ">steered<"] {
            assert!(svg.contains(text), "{text} is missing in:\n{svg}");
        }
        // One for the background, one a legend entry.
        assert_eq!(svg.matches("<rect").count(), 1 + 2);
    }

    #[test]
    fn few_commits_are_numbered() {
        let tick = |commits| Panel { top: 0.0, commits, lowest: 0, highest: 1 }.tick();
        assert_eq!([1, 12, 30, 60, 200, 5_000].map(tick), [1, 1, 5, 5, 20, 1_000]);
        assert!(30_000_usize.div_ceil(tick(30_000)) <= TICKS_MAX);
    }
}
